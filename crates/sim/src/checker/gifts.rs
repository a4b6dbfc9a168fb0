//! What the log says of gifts, held against what it tells of them: every gift told or part of a sum that is, and a banner for
//! those that are worth one while their room and the site may have another.

use std::collections::BTreeMap;
use std::time::Duration;

use grandstand_core::ids::EventId;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Audience, Body, ComboUpdate, Record};
use grandstand_core::time::Wall;

use super::Violations;

/// Between two updates of one combo.
const EVERY: Duration = Duration::from_secs(1);
/// From a gift to an update that has it, beside that second: a failed write or two, a take-over.
const SLACK: Duration = Duration::from_secs(8);
const MINUTE: Duration = Duration::from_secs(60);
const SITE_A_MINUTE: usize = 30;
/// Of all and of one room that may stand at one time.
const STAND: usize = 32;
const STAND_OF_ROOM: usize = 8;

/// Room, giver, item, currency.
type Key = (RoomId, UserId, String, String);

/// A sum that is told little by little.
struct Sum {
    first: EventId,
    gifts: u32,
    count: u64,
    micros: u64,
    told: u32,
    told_at: Wall,
    /// The oldest gift that was not told of.
    untold_since: Option<Wall>,
}

#[derive(Default)]
pub struct Told {
    sums: BTreeMap<Key, Sum>,
    /// What is worth a banner in each room, and how many a minute it may have.
    worth: BTreeMap<RoomId, (Vec<String>, u32)>,
    /// When each came, of which room, and until when it stands.
    banners: Vec<(Wall, RoomId, Wall)>,
}

impl Told {
    pub fn take(&mut self, record: &Record, found: &mut Violations) {
        let id = record.event_id();
        match (&record.room, &record.user, &record.body) {
            (Some(room), _, Body::Room(settings)) => {
                // A room that may not be shown somewhere has no banners, and those that stand end.
                let shown = settings.blackout_regions.is_empty();
                let items = settings.banner_items.iter().filter(|_| shown).map(|item| item.to_string()).collect();
                self.worth.insert(room.clone(), (items, settings.banner_rate));
                for (_, _, until) in self.banners.iter_mut().filter(|(_, of, _)| !shown && of == room) {
                    *until = (*until).min(record.ts);
                }
            }
            (Some(room), Some(user), Body::Gift(gift)) => {
                let key = (room.clone(), user.clone(), gift.item.to_string(), gift.currency.to_string());
                let (count, micros) = (u64::from(gift.count), gift.amount_micros);
                match (record.audience, self.sums.get_mut(&key)) {
                    (Audience::Nobody, None) => found.push(format!("I-04: the gift {id:?} is told to nobody")),
                    (Audience::Nobody, Some(sum)) => {
                        sum.gifts += 1;
                        sum.count += count;
                        sum.micros += micros;
                        sum.untold_since.get_or_insert(record.ts);
                    }
                    (_, before) => {
                        if before.is_some_and(|sum| sum.told < sum.gifts) {
                            found.push(format!("I-04: gifts before {id:?} were never told of"));
                        }
                        let sum =
                            Sum { first: id, gifts: 1, count, micros, told: 1, told_at: record.ts, untold_since: None };
                        self.sums.insert(key, sum);
                    }
                }
                let owed = self.is_owed(room, &gift.item, record.ts);
                if owed != gift.banner_until.is_some() {
                    found.push(format!("banners: {id:?} should {} one", if owed { "have" } else { "not have" }));
                }
                if let Some(until) = gift.banner_until {
                    self.banners.push((record.ts, room.clone(), until));
                }
            }
            (Some(room), Some(user), Body::Combo(update)) => {
                let key = (room.clone(), user.clone(), update.item.to_string(), update.currency.to_string());
                self.update(&key, update, id, record.ts, found);
            }
            _ => {}
        }
    }

    fn update(&mut self, key: &Key, update: &ComboUpdate, id: EventId, ts: Wall, found: &mut Violations) {
        let Some(sum) = self.sums.get_mut(key) else {
            found.push(format!("I-04: {id:?} is a sum of nothing"));
            return;
        };
        let says = (update.first, update.gifts, update.count, update.amount_micros);
        if says != (sum.first, sum.gifts, sum.count, sum.micros) {
            found.push(format!("I-04: {id:?} says {says:?}, the gifts come to {} of {}", sum.gifts, sum.micros));
        }
        if ts < sum.told_at + EVERY && !update.ended {
            found.push(format!("combos: {id:?} comes less than a second after the last"));
        }
        (sum.told, sum.told_at, sum.untold_since) = (sum.gifts, ts, None);
        if update.ended {
            self.sums.remove(key);
        }
    }

    /// Whether a gift must have a banner, counted anew from all there were.
    fn is_owed(&self, room: &RoomId, item: &str, ts: Wall) -> bool {
        let Some((items, rate)) = self.worth.get(room) else { return false };
        let (mut lately, mut stand) = ((0, 0), (0, 0));
        for (at, of, until) in &self.banners {
            for (is_counted, (of_room, of_site)) in [(ts < *at + MINUTE, &mut lately), (ts < *until, &mut stand)] {
                *of_room += usize::from(is_counted && of == room);
                *of_site += usize::from(is_counted);
            }
        }
        let of_room = lately.0 < *rate as usize && stand.0 < STAND_OF_ROOM;
        let of_site = lately.1 < SITE_A_MINUTE && stand.1 < STAND;
        items.iter().any(|worth| worth == item) && of_room && of_site
    }

    pub fn end(&self, ts: Wall, found: &mut Violations) {
        for (key, sum) in &self.sums {
            if sum.untold_since.is_some_and(|since| since + EVERY + SLACK < ts) {
                found.push(format!("I-04: {} gifts of {key:?} were never told of", sum.gifts - sum.told));
            }
        }
    }
}
