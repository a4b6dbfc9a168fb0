//! A wide room's walk: each viewer is given a part of the winners, and viewers with the same part share one frame.
//!
//! The rule is the core's (`viewer::part`); here are who a seat is to it, what a viewer likes, and the frames of one plan by what is
//! in them. A window of 64 winners has at most 64 different parts however many viewers there are, so a viewer more costs a
//! hash, a look-up and its socket's write.

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::hash::Seeded;
use grandstand_core::ids::EventId;
use grandstand_core::names::UserId;
use grandstand_core::record::Lane;
use grandstand_core::sampler::pick::ViewerKey;
use grandstand_core::sampler::silence::{self, GivenAt};
use grandstand_core::time::Mono;
use grandstand_core::viewer::part::{self, Follows, Lot, NOBODY, Reader, Windows};
use grandstand_core::viewer::walk::{Plan, Walk};

use super::frames::{Rides, UserMark};
use super::viewer::{NOWHERE, Viewer};
use super::worker::Worker;
use crate::link::Piece;

/// For so long an answered comment's other answers are likelier.
const THREAD_WAIT: Duration = Duration::from_secs(5 * 60);
/// Answered comments of one viewer that are remembered; the newest.
const THREADS_MAX: usize = 16;
/// Different parts of one walk whose frames are kept: eight windows of 64. Past it they are encoded anew.
const PARTS_KEPT: usize = 512;

/// What the pick must know of a piece; `None` when everyone is sent it.
pub fn lot(piece: &Piece, cap_milli: u64) -> Option<Lot> {
    let won = piece.won.as_ref()?;
    Some(Lot {
        window: won.window,
        of: won.of,
        weight: won.weight,
        author: piece.author.as_ref().map_or(ViewerKey(u64::MAX), |(author, _)| ViewerKey::of_user(author)),
        thread: won.reply_to,
        addressee: won.addressee.as_ref().filter(|_| won.by_right).map(ViewerKey::of_user),
        share_milli: part::share_milli(won.of, cap_milli),
    })
}

/// Who sits in a seat, in eight bytes: the pick's key, when it was given a part last, whether it is a user, and whether there is
/// anything it likes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Who(u64);

impl Who {
    const IS_USER: u64 = 1 << 63;
    const HAS_TASTE: u64 = 1 << 62;
    const GIVEN_AT: u64 = 0xff << ViewerKey::BITS;
    const KEY: u64 = (1 << ViewerKey::BITS) - 1;

    pub fn new(key: ViewerKey, is_user: bool) -> Who {
        Who(key.0 & Who::KEY | if is_user { Who::IS_USER } else { 0 })
    }
    pub fn key(self) -> ViewerKey {
        ViewerKey(self.0 & Who::KEY)
    }
    pub fn given_at(self) -> GivenAt {
        GivenAt((self.0 >> ViewerKey::BITS) as u8)
    }
    pub fn set_given_at(&mut self, at: GivenAt) {
        self.0 = self.0 & !Who::GIVEN_AT | u64::from(at.0) << ViewerKey::BITS;
    }
    pub fn is_user(self) -> bool {
        self.0 & Who::IS_USER != 0
    }
    pub fn has_taste(self) -> bool {
        self.0 & Who::HAS_TASTE != 0
    }
    pub fn set_taste(&mut self, has_taste: bool) {
        self.0 = self.0 & !Who::HAS_TASTE | if has_taste { Who::HAS_TASTE } else { 0 };
    }
    pub fn mark(self) -> UserMark {
        if self.is_user() { UserMark::of_key(self.key()) } else { UserMark::default() }
    }
}

/// What one viewer is likelier to be given.
#[derive(Debug, Default)]
pub struct Taste {
    follows: Follows,
    /// Oldest first, with the times of the answers.
    threads: Vec<EventId>,
    answered: Vec<Mono>,
}

impl Taste {
    /// Of a viewer that follows these users.
    pub fn of(follows: impl IntoIterator<Item = ViewerKey>) -> Taste {
        Taste { follows: Follows::new(follows), ..Taste::default() }
    }

    fn forget(&mut self, now: Mono) {
        let old = self.answered.partition_point(|at| now.since(*at) >= THREAD_WAIT);
        let old = old.max(self.answered.len().saturating_sub(THREADS_MAX));
        self.answered.drain(..old);
        self.threads.drain(..old);
    }

    fn is_empty(&self) -> bool {
        self.follows.is_empty() && self.threads.is_empty()
    }
}

/// How much a room's viewers are given now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cap {
    /// Comments a thousand seconds.
    pub milli: u64,
}

/// The parts of the plans of one walk, each with what is kept of it.
pub struct Parts<F> {
    cap: Cap,
    now: Mono,
    /// With the winners of each that could be sent.
    plans: Vec<(Plan, Windows, u64)>,
    /// By plan, what rides along, and what is given.
    known: HashMap<Vec<u64>, usize, Seeded>,
    frames: Vec<F>,
    /// The key of the part that is looked for; what is given begins at its third word.
    key: Vec<u64>,
}

/// One viewer's part of a plan.
pub struct Part {
    /// Its frame, in [`Parts::frame`].
    pub frame: usize,
    /// Winners that were there and not given.
    pub sampled: u64,
    /// It was given some: for its seat to remember.
    pub given_at: Option<GivenAt>,
}

impl<F> Parts<F> {
    pub fn new(cap: Cap, now: Mono) -> Parts<F> {
        Parts {
            cap,
            now,
            plans: Vec::new(),
            known: HashMap::with_hasher(Seeded(0)),
            frames: Vec::new(),
            key: Vec::new(),
        }
    }

    pub fn frame(&mut self, at: usize) -> &mut F {
        &mut self.frames[at]
    }

    /// Finds, or has made, the frame for one viewer. `waited`: it is live, and was given its last comment then.
    pub fn find(
        &mut self,
        walk: &Walk<'_, Arc<Piece>>,
        plan: &Plan,
        rides: Rides,
        reader: &Reader<'_>,
        waited: Option<GivenAt>,
        make: impl FnOnce(&[u64]) -> F,
    ) -> Part {
        let at = match self.plans.iter().position(|(known, ..)| known == plan) {
            Some(at) => at,
            None => {
                self.plans.push((*plan, walk.winners(plan), walk.n_won(plan)));
                self.plans.len() - 1
            }
        };
        let mut key = std::mem::take(&mut self.key);
        key.clear();
        key.extend([at as u64, rides.bits()]);
        let windows = &mut self.plans[at].1;
        let due = silence::due(reader.cap_milli, waited, self.now);
        let due = windows.pick_due(due, reader, &mut key);
        let given = &key[2..];
        let (won, n_given) = (self.plans[at].2, plan.n_sent(given));
        let frame = match self.known.get(&key[..]) {
            Some(frame) => *frame,
            None => {
                if self.frames.len() == PARTS_KEPT {
                    self.frames.clear();
                    self.known.clear();
                }
                self.frames.push(make(given));
                let MapEntry::Vacant(free) = self.known.entry(key.clone()) else { unreachable!("it was not found") };
                *free.insert(self.frames.len() - 1)
            }
        };
        self.key = key;
        let given_at = (n_given > 0).then(|| due.given_at(waited, self.now));
        Part { frame, sampled: won - n_given, given_at }
    }

    /// A slice later.
    pub fn set_now(&mut self, now: Mono) {
        self.now = now;
    }

    pub fn cap(&self) -> Cap {
        self.cap
    }
}

/// A viewer as the pick sees it.
pub fn reader<'v>(who: Who, taste: Option<&'v Taste>, cap: Cap) -> Reader<'v> {
    let (follows, threads) = taste.map_or((&NOBODY, &[][..]), |taste| (&taste.follows, &taste.threads));
    Reader { key: who.key(), cap_milli: cap.milli, follows, threads }
}

/// The pieces of a page of the log that one viewer is given, and how many it is not. The wanted ones are asked of `wants`.
pub fn of_page<'p>(
    pieces: &'p [Arc<Piece>],
    reader: &Reader<'_>,
    wants: impl Fn(&Piece) -> bool,
) -> (Vec<&'p Arc<Piece>>, u64) {
    let mut windows = Windows::gather(pieces.iter().zip(0..).map(|(piece, at)| (at, lot(piece, reader.cap_milli))));
    let mut given = Vec::new();
    if windows.n_won() > 0 {
        windows.pick(reader, &mut given);
    }
    let mut sampled = 0;
    let is_given = |(piece, at): &(&'p Arc<Piece>, u64)| {
        let wanted = wants(piece);
        let given = piece.won.is_none() || given.binary_search(at).is_ok();
        sampled += u64::from(wanted && !given && piece.lane == Lane::Comment);
        wanted && given
    };
    let given = pieces.iter().zip(0_u64..).filter(is_given).map(|(piece, _)| piece).collect();
    (given, sampled)
}

impl Viewer {
    /// What it likes, up to date; `None` when that is nothing.
    pub fn taste(&mut self, now: Mono) -> Option<&Taste> {
        let taste = self.rare.as_mut()?.taste.as_mut()?;
        taste.forget(now);
        Some(taste)
    }

    /// Its follows changed, or it answered a comment.
    fn renew_taste(&mut self, answered: Option<EventId>, now: Mono) -> bool {
        let of_token = self.identity.as_ref().and_then(|who| who.more.as_ref()).map_or(&[][..], |more| &more.follows);
        let follows = of_token.iter().chain(self.session.follows()).map(ViewerKey::of_user);
        let follows = Follows::new(follows);
        let kept = self.rare.as_mut().and_then(|rare| rare.taste.take());
        if follows.is_empty() && answered.is_none() && kept.is_none() {
            return false;
        }
        let mut taste = kept.map_or_else(Taste::default, |taste| *taste);
        taste.follows = follows;
        if let Some(id) = answered {
            taste.threads.push(id);
            taste.answered.push(now);
        }
        taste.forget(now);
        let has_taste = !taste.is_empty();
        if has_taste {
            self.rare().taste = Some(Box::new(taste));
        }
        has_taste
    }
}

impl Worker {
    /// A viewer follows others from now on, or has answered a comment.
    pub(super) fn renew_taste(&mut self, slot: usize, answered: Option<EventId>) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let has_taste = viewer.renew_taste(answered, now);
        let seats: Vec<(usize, usize)> =
            viewer.members().filter(|m| m.seat != NOWHERE).map(|m| (m.room as usize, m.seat as usize)).collect();
        for (room, seat) in seats {
            self.rooms[room].seats[seat].who.set_taste(has_taste);
        }
    }
}

/// The key of a viewer's picks.
pub fn key_of(user: Option<&UserId>, first_session: impl FnOnce() -> ViewerKey) -> Who {
    match user {
        Some(user) => Who::new(ViewerKey::of_user(user), true),
        None => Who::new(first_session(), false),
    }
}
