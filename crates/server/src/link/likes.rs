//! Where a process gathers likes until the next tick, for all its workers.
//!
//! One box by the door: whoever has something puts it in, and the first to do so rings. The owner empties the box of its own
//! process when its tick has come; in a gateway process the hub does, and carries what was in it to the owner's as one
//! numbered frame. While the shard is away the box stays where it is and fills up to its bound.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use grandstand_core::hash::Seeded;
use grandstand_core::likes::{self, Gatherer, NotTaken, Round, Totals};
use grandstand_core::names::{LikeKind, RoomId, UserId};
use grandstand_core::record::{Room, RoomState};
use grandstand_core::time::Mono;

use super::{Delay, OVERLOADED};

/// A room with its likes, as they are in the log.
pub type RoomTotals = (RoomId, Totals);

/// One operation.
#[derive(Clone, Debug)]
pub struct Like<'a> {
    pub room: &'a RoomId,
    pub kind: &'a LikeKind,
    pub user: &'a UserId,
    pub n: u32,
}

/// Why a like is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// The room's settings take none, or the room is closed.
    Room(&'static str),
    /// The room counts as many kinds as it may, and this is none of them.
    Kind,
    /// The user's rate: wait so long.
    Rate(Duration),
    /// Too much waits.
    Full(Delay),
}

pub struct LikeBox {
    gathered: Mutex<Gatherer>,
    /// Called when the box stops being empty.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl LikeBox {
    pub fn new(seed: u64, ring: impl Fn() + Send + Sync + 'static) -> LikeBox {
        LikeBox { gathered: Mutex::new(Gatherer::new(Seeded(seed))), ring: Box::new(ring) }
    }

    /// Takes likes of a user who may speak in the room. `totals`: what is known of the room's likes.
    /// Errors: nothing was taken.
    pub fn like(&self, like: &Like<'_>, settings: &Room, totals: &Totals, now: Mono) -> Result<(), Refused> {
        if settings.like_rate == 0 {
            return Err(Refused::Room("the room takes no likes"));
        }
        if settings.state == RoomState::Closed {
            return Err(Refused::Room("the room is closed"));
        }
        if !likes::has_place(like.kind, totals.iter().map(|(kind, _)| kind)) {
            return Err(Refused::Kind);
        }
        let limit = likes::limit(settings.like_rate, Duration::ZERO);
        let first = {
            let mut gathered = self.gathered();
            let first = gathered.is_empty();
            gathered.like(like.room, like.kind, like.user, like.n, limit, now).map_err(|refused| match refused {
                NotTaken::Rate(wait) => Refused::Rate(wait),
                NotTaken::Full => Refused::Full(OVERLOADED),
            })?;
            first
        };
        if first {
            (self.ring)();
        }
        Ok(())
    }

    pub fn is_empty(&self) -> bool {
        self.gathered().is_empty()
    }

    pub fn take(&self, now: Mono) -> Round {
        self.gathered().take(now)
    }

    fn gathered(&self) -> MutexGuard<'_, Gatherer> {
        self.gathered.lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use grandstand_core::likes::Totals;
    use grandstand_core::names::{LikeKind, RoomId, UserId};
    use grandstand_core::record::{Room, RoomState};
    use grandstand_core::time::Mono;

    use super::{Like, LikeBox, Refused};

    #[test]
    fn the_first_like_of_a_round_rings_and_refused_ones_do_not() {
        let rings = Arc::new(AtomicU32::new(0));
        let counted = rings.clone();
        let likes = LikeBox::new(1, move || {
            counted.fetch_add(1, Ordering::Relaxed);
        });
        let (room, user, plain) = (RoomId::parse("a").unwrap(), UserId::parse("u").unwrap(), LikeKind::plain());
        let settings = Room::fresh("a");
        let like = |n: u32, kind: &LikeKind, settings: &Room, totals: &Totals| {
            likes.like(&Like { room: &room, kind, user: &user, n }, settings, totals, Mono(0))
        };
        let none = Totals::default();
        let off = Room { like_rate: 0, ..settings.clone() };
        assert_eq!(like(1, &plain, &off, &none), Err(Refused::Room("the room takes no likes")));
        let closed = Room { state: RoomState::Closed, ..settings.clone() };
        assert_eq!(like(1, &plain, &closed, &none), Err(Refused::Room("the room is closed")));
        let many: Totals = (0..8).map(|n| (LikeKind::parse(&format!("k{n}")).unwrap(), 1)).collect();
        assert_eq!(like(1, &LikeKind::parse("other").unwrap(), &settings, &many), Err(Refused::Kind));
        assert_eq!(rings.load(Ordering::Relaxed), 0);
        for n in [50, 50] {
            assert_eq!(like(n, &plain, &settings, &none), Ok(()));
        }
        assert_eq!(like(1, &plain, &settings, &none), Err(Refused::Rate(Duration::from_millis(50))));
        assert_eq!(rings.load(Ordering::Relaxed), 1);
        assert_eq!(likes.take(Mono(0)).rooms[0].kinds[0].1, [(user.clone(), 100)]);
        assert!(likes.is_empty());
    }
}
