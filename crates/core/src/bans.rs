//! Who may not speak: in one room, or in any; for a time or until lifted; silenced, or heard by itself alone.
//!
//! A ban is a record, and which bans are in force is read from them alone, held against log time. A shadow ban is one that its
//! user is not told of: it speaks and is answered as ever, and nobody but itself and the moderators is shown what it says.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::names::UserId;
use crate::record::Ban;
use crate::time::Wall;

/// Bans of the whole site in force at one time: every gateway holds them. One more is refused.
pub const SITE_MAX: usize = 4_096;
/// A purge that goes with a ban reaches back so far at most.
pub const PURGE_MAX: Duration = Duration::from_secs(24 * 3_600);
/// One of the whole site: where a user has spoken is known for as long as its keys are.
pub const SITE_PURGE_MAX: Duration = crate::dedupe::WINDOW;

/// The ban of `user` that is in force at log time `ts`.
pub fn holds<'b>(bans: &'b BTreeMap<UserId, Ban>, user: &UserId, ts: Wall) -> Option<&'b Ban> {
    bans.get(user).filter(|ban| ban.until.is_none_or(|until| ts < until))
}

/// Whether one more would be too many at `ts`.
pub fn is_full(bans: &BTreeMap<UserId, Ban>, user: &UserId, max: usize, ts: Wall) -> bool {
    bans.len() >= max
        && !bans.contains_key(user)
        && bans.values().filter(|ban| ban.until.is_none_or(|until| ts < until)).count() >= max
}

/// Takes in a ban that was logged at `ts`. Those that are over go when there are many.
pub fn insert(bans: &mut BTreeMap<UserId, Ban>, ban: &Ban, ts: Wall) {
    // Looked through no oftener than they double.
    if bans.len() >= 64 && bans.len().is_power_of_two() {
        bans.retain(|_, old| old.until.is_none_or(|until| ts < until));
    }
    bans.insert(ban.user.clone(), ban.clone());
}

#[cfg(test)]
mod tests {
    use super::{holds, insert, is_full};
    use crate::names::UserId;
    use crate::record::Ban;
    use crate::time::Wall;
    use std::collections::BTreeMap;

    fn ban(n: u64, until: Option<u64>) -> Ban {
        let user = UserId::parse(&format!("u{n}")).unwrap();
        Ban { user, until: until.map(Wall), reason: "".into(), shadow: false }
    }

    #[test]
    fn a_timed_ban_holds_until_its_end_and_an_open_one_for_ever() {
        let mut bans = BTreeMap::new();
        insert(&mut bans, &ban(1, Some(1_000)), Wall(0));
        insert(&mut bans, &ban(2, None), Wall(0));
        let is_held = |n, at| holds(&bans, &ban(n, None).user, Wall(at)).is_some();
        assert!(is_held(1, 999) && !is_held(1, 1_000) && is_held(2, u64::MAX) && !is_held(3, 0));
    }

    #[test]
    fn bans_that_are_over_neither_fill_the_list_nor_stay_in_it_for_ever() {
        let mut bans = BTreeMap::new();
        for n in 0..1_000 {
            insert(&mut bans, &ban(n, Some(n + 10)), Wall(n));
        }
        assert!(bans.len() <= 128, "{}", bans.len());
        assert!(!is_full(&bans, &ban(7_777, None).user, 64, Wall(1_000)));
        for n in 0..64 {
            insert(&mut bans, &ban(n, None), Wall(1_000));
        }
        assert!(is_full(&bans, &ban(7_777, None).user, 64, Wall(2_000)));
        assert!(!is_full(&bans, &ban(3, None).user, 64, Wall(2_000)), "one that is there may be renewed");
    }
}
