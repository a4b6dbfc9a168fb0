//! Banners: notices to the whole site, made by a gift worth it or by an operator.
//!
//! A gift's banner is part of the gift's own record, so that there is exactly one for it or none, whatever crashes. Which
//! gifts are worth one is the room's setting; how many there may be is capped for each room and for the site, both of a
//! minute and of those that stand, counted from the log in log time, so that a restart does not open the gates.
//!
//! Numbers: 6 a minute for a room and 30 for the site leave every banner two seconds of its own, where viewers are told one
//! a second; 15 s are long enough to be read. A room whose banners stand ten minutes would have the whole wall in two: it
//! has a quarter of it at most.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::bans;
use crate::ids::EventId;
use crate::names::{RoomId, UserId};
use crate::planted::planted;
use crate::record::{Ban, Banner, BannerGift, Body, Gift, Record, Room};
use crate::time::Wall;

/// Gifts' banners a minute: of a room that sets none, the most it may set, of the site.
pub const ROOM_RATE: u32 = 6;
pub const ROOM_RATE_MAX: u32 = 30;
pub const SITE_RATE: u32 = 30;
const MINUTE: Duration = Duration::from_secs(60);
/// Banners that stand at one time, of gifts and operators together: what a new viewer is told at once.
pub const ACTIVE_MAX: usize = 32;
/// Of them, those of one room's gifts. An operator's banner about a room is the operator's.
pub const ROOM_ACTIVE_MAX: usize = ACTIVE_MAX / 4;
/// How long a gift's banner stands.
pub const GIFT_SECONDS: u32 = 15;
pub const GIFT_SECONDS_MAX: u32 = 600;
/// How long an operator's may.
pub const SECONDS_MAX: u32 = 86_400;
pub const TEXT_BYTES_MAX: usize = 200;
/// Items and currencies a room may name.
pub const ITEMS_MAX: usize = 16;
pub const AMOUNTS_MAX: usize = 16;

/// Why a gift that is worth a banner gets none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Capped {
    /// The room has had its share of this minute, or has it of what stands.
    Room,
    /// The site has, or as many stand as may.
    Site,
}

impl Capped {
    pub const ALL: [(Capped, &'static str); 2] = [(Capped::Room, "room"), (Capped::Site, "site")];

    pub fn name(self) -> &'static str {
        Capped::ALL[self as usize].1
    }
}

/// Whether a gift of the room is worth a banner.
pub fn is_worth_one(room: &Room, gift: &Gift) -> bool {
    // It would be shown in other rooms, where nobody asks whether this one may be.
    if !room.blackout_regions.is_empty() {
        return false;
    }
    room.banner_items.contains(&gift.item)
        || room.banner_amounts.get(&gift.currency).is_some_and(|from| gift.amount_micros >= *from)
}

/// The banner of a gift that has one.
fn of_gift(record: &Record, gift: &Gift) -> Option<Banner> {
    let (user, until) = (record.user.clone()?, gift.banner_until?);
    let shown = BannerGift { user, display: gift.display.clone(), item: gift.item.clone(), count: gift.count };
    Some(Banner { text: "".into(), gift: Some(shown), room: record.room.clone(), until })
}

/// What is of no room, as the log has made it: the site's banners, and who may speak nowhere.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Site {
    /// Those that stand or did until a moment ago, by the id of their record.
    pub active: BTreeMap<EventId, Standing>,
    /// When the gifts' banners of the last minute came, and of which room.
    pub recent: VecDeque<(Wall, RoomId)>,
    /// At most [`bans::SITE_MAX`] in force.
    pub bans: Arc<BTreeMap<UserId, Ban>>,
    /// How often a ban of the site has raised the policy version of every room.
    pub raised: u32,
}

/// A banner, and since when it stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Standing {
    pub since: Wall,
    pub banner: Banner,
}

impl Site {
    /// Whether there may be another banner of a gift of this room, of which there may be `rate` a minute.
    pub fn admits(&self, room: &RoomId, rate: u32, ts: Wall) -> Result<(), Capped> {
        let fresh = self.recent.iter().filter(|(at, _)| ts < *at + MINUTE);
        let (of_room, of_site) = fresh.fold((0, 0), |(r, s), (_, of)| (r + u32::from(of == room), s + 1));
        let of_room_stand =
            self.standing(ts).filter(|banner| banner.gift.is_some() && banner.room.as_ref() == Some(room));
        if of_room >= rate || (of_room_stand.count() >= ROOM_ACTIVE_MAX && !planted(56)) {
            return Err(Capped::Room);
        }
        if of_site >= SITE_RATE || self.is_full(ts) {
            return Err(Capped::Site);
        }
        Ok(())
    }

    /// Whether a ban of `user` is in force that lets it say nothing.
    pub fn is_banned(&self, user: &UserId, ts: Wall) -> bool {
        bans::holds(&self.bans, user, ts).is_some_and(|ban| !ban.shadow)
    }

    /// Whether only `user` itself and moderators are shown what it says.
    pub fn is_shadowed(&self, user: &UserId, ts: Wall) -> bool {
        bans::holds(&self.bans, user, ts).is_some_and(|ban| ban.shadow)
    }

    pub fn is_full(&self, ts: Wall) -> bool {
        self.standing(ts).count() >= ACTIVE_MAX
    }

    fn standing(&self, ts: Wall) -> impl Iterator<Item = &Banner> {
        self.active.values().map(|standing| &standing.banner).filter(move |banner| ts < banner.until)
    }

    /// Lets go of all that names a user. Whether there was anything.
    fn forget(&mut self, user: &UserId) -> bool {
        let n = self.active.len();
        self.active.retain(|_, standing| standing.banner.gift.as_ref().is_none_or(|gift| gift.user != *user));
        let banned = self.bans.contains_key(user) && Arc::make_mut(&mut self.bans).remove(user).is_some();
        banned || self.active.len() < n
    }

    /// The effect of one record of the log. Whether it had one.
    pub fn take(&mut self, record: &Record) -> bool {
        let banner = match &record.body {
            Body::Banner(banner) => banner.clone(),
            Body::Gift(gift) => match of_gift(record, gift) {
                Some(banner) => banner,
                None => return false,
            },
            Body::BannerEnd(id) => return self.active.remove(id).is_some(),
            Body::SiteBan(ban) => {
                bans::insert(Arc::make_mut(&mut self.bans), ban, record.ts);
                self.raised += 1;
                return true;
            }
            Body::SiteUnban(user) => return Arc::make_mut(&mut self.bans).remove(user).is_some(),
            // Everyone is told a banner, wherever they are: a room that may not be shown somewhere is named by none.
            Body::Room(settings) => {
                let before = self.active.len();
                if !settings.blackout_regions.is_empty() && !planted(130) {
                    self.active.retain(|_, old| old.banner.room.is_none() || old.banner.room != record.room);
                }
                return self.active.len() < before;
            }
            Body::EraseUser(user) => return self.forget(user),
            _ => return false,
        };
        self.recent.retain(|(at, _)| record.ts < *at + MINUTE);
        if let (Some(_), Some(room)) = (&banner.gift, &banner.room)
            && !planted(52)
        {
            self.recent.push_back((record.ts, room.clone()));
        }
        self.active.retain(|_, old| record.ts < old.banner.until);
        self.active.insert(record.event_id(), Standing { since: record.ts, banner });
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{ACTIVE_MAX, Capped, ROOM_ACTIVE_MAX, SITE_RATE, Site, is_worth_one};
    use crate::ids::{Epoch, Seq};
    use crate::names::{Key, RoomId, UserId};
    use crate::record::{Audience, Banner, Body, Gift, Record, Room, Verdict};
    use crate::time::Wall;

    fn room(name: &str) -> RoomId {
        RoomId::parse(name).unwrap()
    }

    fn record(seq: u64, ts: Wall, body: Body) -> Record {
        Record {
            epoch: Epoch::new(1).unwrap(),
            seq: Seq::new(seq).unwrap(),
            room: None,
            ts,
            region: "local".into(),
            user: None,
            client_msg_id: None,
            pseq: None,
            verdict: Verdict::Unjudged,
            policy_version: 0,
            audience: Audience::Nobody,
            source: None,
            body,
        }
    }

    fn gift(item: &str, amount_micros: u64, currency: &str) -> Gift {
        Gift {
            gift_id: Key::parse("g").unwrap(),
            display: "u".into(),
            item: item.into(),
            count: 1,
            amount_micros,
            currency: currency.into(),
            banner_until: None,
        }
    }

    fn of_gift(seq: u64, of: &str, ts: Wall) -> Record {
        let gift = Gift { banner_until: Some(ts + Duration::from_secs(15)), ..gift("rocket", 0, "EUR") };
        let mut record = record(seq, ts, Body::Gift(gift));
        (record.room, record.user) = (Some(room(of)), UserId::parse("u"));
        record
    }

    #[test]
    fn an_item_or_an_amount_is_worth_a_banner() {
        let plain = Room::fresh("r");
        assert!(!is_worth_one(&plain, &gift("rocket", u64::MAX, "EUR")), "a room that names nothing has none");
        let mut named = plain.clone();
        named.banner_items = vec!["rocket".into()];
        named.banner_amounts.insert("EUR".into(), 50_000_000);
        assert!(is_worth_one(&named, &gift("rocket", 0, "JPY")));
        assert!(is_worth_one(&named, &gift("rose", 50_000_000, "EUR")));
        assert!(!is_worth_one(&named, &gift("rose", 49_999_999, "EUR")));
        assert!(!is_worth_one(&named, &gift("rose", 50_000_000, "JPY")), "another currency's millions are no measure");
    }

    #[test]
    fn a_room_and_the_site_have_their_share_of_a_minute() {
        let mut site = Site::default();
        for n in 0..2 {
            assert_eq!(site.admits(&room("a"), 2, Wall(n)), Ok(()));
            assert!(site.take(&of_gift(n + 1, "a", Wall(n))));
        }
        assert_eq!(site.admits(&room("a"), 2, Wall(59_999)), Err(Capped::Room));
        assert_eq!(site.admits(&room("a"), 2, Wall(60_000)), Ok(()), "the first is a minute old");
        for n in 2..u64::from(SITE_RATE) {
            site.take(&of_gift(n + 1, &format!("r{n}"), Wall(10)));
        }
        assert_eq!(site.admits(&room("z"), 2, Wall(11)), Err(Capped::Site));
        assert_eq!(site.admits(&room("z"), 2, Wall(60_011)), Ok(()));
    }

    #[test]
    fn one_room_has_a_quarter_of_what_stands_however_slowly_it_comes() {
        let mut site = Site::default();
        let long = |seq: u64, of: &str| {
            let mut record = of_gift(seq, of, Wall(seq * 60_000));
            if let Body::Gift(gift) = &mut record.body {
                gift.banner_until = Some(Wall(1_000_000_000));
            }
            record
        };
        for seq in 1..=ROOM_ACTIVE_MAX as u64 {
            assert_eq!(site.admits(&room("a"), 30, Wall(seq * 60_000)), Ok(()));
            site.take(&long(seq, "a"));
        }
        let later = Wall(100 * 60_000);
        assert_eq!(site.admits(&room("a"), 30, later), Err(Capped::Room));
        assert_eq!(site.admits(&room("b"), 30, later), Ok(()), "the rest is for the others");
        assert_eq!(site.admits(&room("a"), 30, Wall(1_000_000_000)), Ok(()), "until they are over");
    }

    #[test]
    fn a_room_that_may_not_be_shown_somewhere_is_named_by_no_banner() {
        let mut site = Site::default();
        let settings = |of: &str, regions: &[&str]| {
            let blackout_regions = regions.iter().filter_map(|region| crate::regions::Region::parse(region)).collect();
            let mut record = record(9, Wall(1), Body::Room(Room { blackout_regions, ..Room::fresh(of) }.into()));
            record.room = Some(room(of));
            record
        };
        let own = |seq, of| {
            let banner = Banner { text: "x".into(), gift: None, room: of, until: Wall(1_000_000) };
            record(seq, Wall(0), Body::Banner(banner))
        };
        for banner in [of_gift(1, "a", Wall(0)), of_gift(2, "b", Wall(0)), own(3, Some(room("a"))), own(4, None)] {
            assert!(site.take(&banner));
        }
        assert!(!site.take(&settings("a", &[])), "its settings change otherwise");
        assert!(site.take(&settings("a", &["GB"])));
        let left: Vec<u64> = site.active.keys().map(|id| id.seq().value()).collect();
        assert_eq!(left, [2, 4]);
        assert!(!site.take(&settings("a", &["GB", "DE"])), "they ended once");
    }

    #[test]
    fn what_stands_is_bounded_ends_by_itself_and_by_an_operator() {
        let mut site = Site::default();
        let until = Wall(1_000_000);
        let own = |seq| record(seq, Wall(0), Body::Banner(Banner { text: "x".into(), gift: None, room: None, until }));
        for seq in 1..=ACTIVE_MAX as u64 {
            assert!(!site.is_full(Wall(0)));
            site.take(&own(seq));
        }
        assert!(site.is_full(Wall(0)) && !site.is_full(until));
        assert_eq!(site.admits(&room("a"), 6, Wall(0)), Err(Capped::Site));
        let first = *site.active.keys().next().unwrap();
        assert!(site.take(&record(99, Wall(1), Body::BannerEnd(first))));
        assert!(!site.take(&record(100, Wall(1), Body::BannerEnd(first))), "ended once");
        assert!(!site.is_full(Wall(1)));
    }
}
