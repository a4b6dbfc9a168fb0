//! Combos: gifts of one user, item and currency that follow each other closely, told as one.
//!
//! Like a cashier with a drum: the first coin is announced at once; while more fall he calls the sum once a second, and the
//! last sum when nobody throws any more. Every coin is in the book. What is announced is always the whole sum, so whoever
//! heard the last call knows all.
//!
//! A pure function of the room's log: a gift that everyone is sent opens a combo, one that nobody is sent is part of the open
//! one, and an update says what was told. A room read again from its log has the combos it had.
//!
//! Numbers: an update a second (the gift's own rule); 3 s of patience is two throws of a hand and a slow network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::EventId;
use crate::names::UserId;
use crate::planted::planted;
use crate::record::{ComboUpdate, Gift};
use crate::time::Wall;

/// Patience of a room that sets none, and the most.
pub const SECONDS: u32 = 3;
pub const SECONDS_MAX: u32 = 60;
/// Between two things told of one combo.
pub const EVERY: Duration = Duration::from_secs(1);
/// Open combos of a room; what comes beyond them stands alone.
pub const OPEN_MAX: usize = 1_024;
/// A sum stays below this, so that it is exact as a JSON number.
const MICROS_MAX: u64 = (1 << 53) - 1;

/// What the gifts of one combo have in common: user, item, currency.
pub type Key = (UserId, Arc<str>, Arc<str>);

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Combo {
    pub first: EventId,
    pub display: Arc<str>,
    /// Log time of the newest gift, and of what was told last.
    pub last: Wall,
    pub told: Wall,
    pub gifts: u32,
    pub count: u64,
    pub amount_micros: u64,
    /// Gifts that were told of.
    pub told_gifts: u32,
}

/// A room's open combos, and by when something becomes of them: 1 024 are not looked through for each gift.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Combos {
    open: BTreeMap<Key, Combo>,
    /// Those with gifts that were not told of, by when something was told last.
    news: BTreeSet<(Wall, Key)>,
    /// Those of more than one gift, by the newest: a last word is due. And those of one, which need none.
    ends: BTreeSet<(Wall, Key)>,
    lone: BTreeSet<(Wall, Key)>,
}

/// What a gift is to the combos of its room.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fit {
    /// It is told at once.
    First,
    /// It is told at once, after the last word on the combo before it.
    After,
    /// It is part of the open combo.
    Part,
}

pub fn key_of(user: &UserId, gift: &Gift) -> Key {
    (user.clone(), gift.item.clone(), gift.currency.clone())
}

impl Combos {
    pub fn of(open: BTreeMap<Key, Combo>) -> Combos {
        let mut combos = Combos::default();
        open.into_iter().for_each(|(key, combo)| combos.put(key, combo));
        combos
    }

    pub fn open(&self) -> &BTreeMap<Key, Combo> {
        &self.open
    }

    fn put(&mut self, key: Key, combo: Combo) {
        self.remove(&key);
        if combo.told_gifts < combo.gifts {
            self.news.insert((combo.told, key.clone()));
        }
        let line = if combo.gifts > 1 { &mut self.ends } else { &mut self.lone };
        line.insert((combo.last, key.clone()));
        self.open.insert(key, combo);
    }

    fn remove(&mut self, key: &Key) -> Option<Combo> {
        let combo = self.open.remove(key)?;
        self.news.remove(&(combo.told, key.clone()));
        self.ends.remove(&(combo.last, key.clone()));
        self.lone.remove(&(combo.last, key.clone()));
        Some(combo)
    }

    /// Lets go of a user's, without a last word.
    pub fn forget(&mut self, user: &UserId) {
        let of_user: Vec<Key> = self.open.keys().filter(|key| key.0 == *user).cloned().collect();
        of_user.iter().for_each(|key| drop(self.remove(key)));
    }

    /// What a gift at log time `ts` is, where gifts no further apart than `patience` are one combo.
    pub fn fit(&self, key: &Key, gift: &Gift, ts: Wall, patience: Duration) -> Fit {
        let Some(combo) = self.open.get(key) else { return Fit::First };
        let fits = combo.amount_micros.checked_add(gift.amount_micros).is_some_and(|sum| sum <= MICROS_MAX);
        if ts < combo.last + patience && fits && combo.gifts < u32::MAX {
            return Fit::Part;
        }
        if combo.gifts > 1 { Fit::After } else { Fit::First }
    }

    /// Whether something of the combo may be told now.
    pub fn may_tell(&self, key: &Key, ts: Wall) -> bool {
        self.open.get(key).is_some_and(|combo| combo.told_gifts < combo.gifts && combo.told + EVERY <= ts)
    }

    /// The totals as they are told; `None` when there is no such combo.
    pub fn update(&self, key: &Key, ended: bool) -> Option<ComboUpdate> {
        let combo = self.open.get(key)?;
        Some(ComboUpdate {
            first: combo.first,
            display: combo.display.clone(),
            item: key.1.clone(),
            currency: key.2.clone(),
            gifts: if planted(54) { combo.gifts - combo.told_gifts } else { combo.gifts },
            count: combo.count,
            amount_micros: combo.amount_micros,
            ended,
        })
    }

    /// Combos of which something is due at `ts`, each with whether it is the last.
    pub fn due(&self, ts: Wall, patience: Duration) -> Vec<(Key, bool)> {
        let news = self.news.iter().take_while(|(told, _)| *told + EVERY <= ts).map(|(_, key)| key);
        let ends = self.ends.iter().take_while(|(last, _)| *last + patience <= ts).map(|(_, key)| key);
        let due: BTreeSet<&Key> = news.chain(ends).collect();
        due.into_iter().map(|key| (key.clone(), self.open[key].last + patience <= ts)).collect()
    }

    /// When something is due next.
    pub fn next_due(&self, patience: Duration) -> Option<Wall> {
        let news = self.news.first().map(|(told, _)| *told + EVERY);
        let end = self.ends.first().map(|(last, _)| *last + patience);
        [news, end].into_iter().flatten().min()
    }

    /// A gift that everyone is sent is in the log.
    pub fn take_first(&mut self, key: Key, first: EventId, gift: &Gift, ts: Wall, patience: Duration) {
        // One gift alone needs no last word: it is forgotten when its patience is over.
        while let Some((_, over)) = self.lone.first().filter(|(last, _)| *last + patience <= ts).cloned() {
            self.remove(&over);
        }
        self.remove(&key);
        if patience.is_zero() || self.open.len() >= OPEN_MAX {
            return;
        }
        let combo = Combo {
            first,
            display: gift.display.clone(),
            last: ts,
            told: ts,
            gifts: 1,
            count: u64::from(gift.count),
            amount_micros: gift.amount_micros,
            told_gifts: 1,
        };
        self.put(key, combo);
    }

    /// A gift that is part of an open combo is in the log.
    pub fn take_part(&mut self, key: &Key, gift: &Gift, ts: Wall) {
        let Some(mut combo) = self.remove(key) else { return };
        combo.last = ts;
        combo.gifts = combo.gifts.saturating_add(1);
        combo.count = combo.count.saturating_add(u64::from(gift.count));
        combo.amount_micros = combo.amount_micros.saturating_add(gift.amount_micros);
        combo.display = gift.display.clone();
        self.put(key.clone(), combo);
    }

    /// An update is in the log.
    pub fn take_update(&mut self, key: &Key, ended: bool, ts: Wall) {
        let Some(mut combo) = self.remove(key) else { return };
        if !ended {
            combo.told = ts;
            combo.told_gifts = combo.gifts;
            self.put(key.clone(), combo);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::{Combos, Fit, Key, OPEN_MAX, key_of};
    use crate::ids::{Epoch, EventId, Seq};
    use crate::names::{self, UserId};
    use crate::record::Gift;
    use crate::time::Wall;

    const PATIENCE: Duration = Duration::from_secs(3);

    fn gift(micros: u64) -> Gift {
        let gift_id = names::Key::parse("g").unwrap();
        Gift {
            gift_id,
            display: "Ada".into(),
            item: "rose".into(),
            count: 2,
            amount_micros: micros,
            currency: "EUR".into(),
            banner_until: None,
        }
    }
    fn key(user: &str) -> Key {
        key_of(&UserId::parse(user).unwrap(), &gift(0))
    }
    fn id(seq: u64) -> EventId {
        EventId::at(Epoch::new(1).unwrap(), Seq::new(seq).unwrap())
    }

    #[test]
    fn the_first_is_told_at_once_then_one_sum_a_second_and_a_last_one() {
        let (mut combos, ann) = (Combos::default(), key("ann"));
        assert_eq!(combos.fit(&ann, &gift(5), Wall(0), PATIENCE), Fit::First);
        combos.take_first(ann.clone(), id(1), &gift(5), Wall(0), PATIENCE);
        assert_eq!(combos.next_due(PATIENCE), None, "one gift alone has no last word");
        for ms in [200, 400] {
            assert_eq!(combos.fit(&ann, &gift(5), Wall(ms), PATIENCE), Fit::Part);
            combos.take_part(&ann, &gift(5), Wall(ms));
            assert!(!combos.may_tell(&ann, Wall(ms)));
        }
        assert_eq!(combos.next_due(PATIENCE), Some(Wall(1_000)));
        assert_eq!(combos.due(Wall(1_000), PATIENCE), [(ann.clone(), false)]);
        let update = combos.update(&ann, false).unwrap();
        assert_eq!((update.first, update.gifts, update.count, update.amount_micros), (id(1), 3, 6, 15));
        combos.take_update(&ann, false, Wall(1_000));
        assert_eq!(
            combos.next_due(PATIENCE),
            Some(Wall(3_400)),
            "nothing new: the last word, three seconds after the last"
        );
        assert_eq!(combos.due(Wall(3_400), PATIENCE), [(ann.clone(), true)]);
        assert_eq!(combos.fit(&ann, &gift(5), Wall(3_400), PATIENCE), Fit::After);
        combos.take_update(&ann, true, Wall(3_400));
        assert!(combos.open().is_empty());
    }

    #[test]
    fn a_gift_after_a_quiet_second_is_told_with_its_own_batch() {
        let (mut combos, ann) = (Combos::default(), key("ann"));
        combos.take_first(ann.clone(), id(1), &gift(5), Wall(0), PATIENCE);
        combos.take_part(&ann, &gift(5), Wall(1_500));
        assert!(combos.may_tell(&ann, Wall(1_500)));
    }

    #[test]
    fn another_item_or_user_and_a_sum_too_large_to_be_exact_are_other_combos() {
        let (mut combos, ann) = (Combos::default(), key("ann"));
        combos.take_first(ann.clone(), id(1), &gift(5), Wall(0), PATIENCE);
        let other: Arc<str> = "rocket".into();
        assert_eq!(combos.fit(&(ann.0.clone(), other, ann.2.clone()), &gift(5), Wall(1), PATIENCE), Fit::First);
        assert_eq!(combos.fit(&key("bob"), &gift(5), Wall(1), PATIENCE), Fit::First);
        assert_eq!(combos.fit(&ann, &gift(1 << 53), Wall(1), PATIENCE), Fit::First);
        combos.take_part(&ann, &gift(5), Wall(1));
        assert_eq!(combos.fit(&ann, &gift(1 << 53), Wall(1), PATIENCE), Fit::After);
    }

    #[test]
    fn what_is_due_is_found_in_order_and_as_by_looking_through_all() {
        let mut combos = Combos::default();
        let mut rng = crate::rng::Rng::new(7);
        for n in 0..3_000_u64 {
            let (ts, who) = (Wall(n * 7), key(&format!("u{}", rng.below(60))));
            match combos.fit(&who, &gift(1), ts, PATIENCE) {
                Fit::Part => combos.take_part(&who, &gift(1), ts),
                fit => {
                    if fit == Fit::After {
                        combos.take_update(&who, true, ts);
                    }
                    combos.take_first(who.clone(), id(n + 1), &gift(1), ts, PATIENCE);
                }
            }
            let due_at = |combo: &super::Combo| {
                let end = (combo.gifts > 1).then_some(combo.last + PATIENCE);
                let news = (combo.told_gifts < combo.gifts).then_some(combo.told + super::EVERY);
                [end, news].into_iter().flatten().min()
            };
            assert_eq!(combos.next_due(PATIENCE), combos.open().values().filter_map(due_at).min());
            let all = combos.open().iter().filter(|(_, combo)| due_at(combo).is_some_and(|at| at <= ts));
            let all: Vec<(Key, bool)> = all.map(|(key, combo)| (key.clone(), combo.last + PATIENCE <= ts)).collect();
            assert_eq!(combos.due(ts, PATIENCE), all);
            // As the owner does now and then.
            for (key, ended) in all.into_iter().filter(|_| rng.below(3) == 0) {
                combos.take_update(&key, ended, ts);
            }
            assert_eq!(combos, Combos::of(combos.open().clone()), "and is made again from what is open");
        }
    }

    #[test]
    fn open_combos_are_bounded_and_lone_gifts_leave_by_themselves() {
        let mut combos = Combos::default();
        for n in 0..OPEN_MAX as u64 + 5 {
            combos.take_first(key(&format!("u{n}")), id(n + 1), &gift(1), Wall(0), PATIENCE);
        }
        assert_eq!(combos.open().len(), OPEN_MAX);
        combos.take_first(key("late"), id(9_999), &gift(1), Wall(3_000), PATIENCE);
        assert_eq!(combos.open().len(), 1);
        combos.take_first(key("alone"), id(10_000), &gift(1), Wall(3_000), Duration::ZERO);
        assert!(combos.open().is_empty(), "without patience nothing is a combo");
    }
}
