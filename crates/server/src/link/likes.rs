//! Where a process gathers likes until the next tick, for all its workers.
//!
//! One box by the door: whoever has something puts it in, and the first to do so rings. The owner empties the box of its own
//! process when its tick has come; in a gateway process the hub does, and carries what was in it to the owner's as one
//! numbered frame. While the shard is away the box stays where it is and fills up to its bound.
//!
//! Reactions are not gathered; what a user may give of them is kept here, because every road into the process meets here.

use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use grandstand_core::hash::Seeded;
use grandstand_core::likes::{self, Gatherer, Meter, NotTaken, Round, Totals};
use grandstand_core::names::{LikeKind, RoomId, UserId};
use grandstand_core::record::{Room, RoomState};
use grandstand_core::time::Mono;
use grandstand_wire::codes::ErrorCode;

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

/// Why a like or a reaction is refused: said in the same words on every road.
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

impl Refused {
    pub fn code(self) -> ErrorCode {
        match self {
            Refused::Room(_) => ErrorCode::RoomState,
            Refused::Kind => ErrorCode::BadField,
            Refused::Rate(_) => ErrorCode::RateLimited,
            Refused::Full(_) => ErrorCode::Overloaded,
        }
    }

    pub fn why(self) -> &'static str {
        match self {
            Refused::Room(why) => why,
            Refused::Kind => "the room counts as many kinds of likes as it may",
            Refused::Rate(_) => "more than a user may give in this room",
            Refused::Full(_) => "too much of it waits",
        }
    }

    fn of(refused: NotTaken) -> Refused {
        match refused {
            NotTaken::Rate(wait) => Refused::Rate(wait),
            NotTaken::Full => Refused::Full(OVERLOADED),
        }
    }
}

pub struct LikeBox {
    gathered: Mutex<Gatherer>,
    reactions: Mutex<Meter>,
    /// Called when the box stops being empty.
    ring: Box<dyn Fn() + Send + Sync>,
}

impl LikeBox {
    pub fn new(seed: u64, ring: impl Fn() + Send + Sync + 'static) -> LikeBox {
        let gathered = Mutex::new(Gatherer::new(Seeded(seed)));
        LikeBox { gathered, reactions: Mutex::new(Meter::new(Seeded(seed))), ring: Box::new(ring) }
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
            gathered.like(like.room, like.kind, like.user, like.n, limit, now).map_err(Refused::of)?;
            first
        };
        if first {
            (self.ring)();
        }
        Ok(())
    }

    /// Pays for one reaction of a user who may speak in the room.
    pub fn react(&self, room: &RoomId, user: &UserId, now: Mono) -> Result<(), Refused> {
        let mut reactions = self.reactions.lock().expect("no holder of this lock can panic");
        reactions.take(room, user, 1, likes::REACTIONS, now).map_err(Refused::of)
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

    use grandstand_core::likes::{REACTIONS, Totals};
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

    #[test]
    fn reactions_of_a_user_are_bounded_in_each_room_and_nobody_else_pays() {
        let likes = LikeBox::new(1, || {});
        let (room, user) = (RoomId::parse("a").unwrap(), UserId::parse("u").unwrap());
        let burst = REACTIONS.burst as usize;
        assert_eq!((0..30).filter(|_| likes.react(&room, &user, Mono(0)).is_ok()).count(), burst);
        assert_eq!(likes.react(&room, &user, Mono(0)), Err(Refused::Rate(Duration::from_millis(100))));
        assert_eq!(likes.react(&room, &user, Mono(100_000)), Ok(()));
        assert_eq!(likes.react(&RoomId::parse("b").unwrap(), &user, Mono(0)), Ok(()));
        assert_eq!(likes.react(&room, &UserId::parse("v").unwrap(), Mono(0)), Ok(()));
        assert!(likes.is_empty(), "nothing of it is kept");
    }
}
