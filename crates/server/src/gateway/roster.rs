//! One room on one worker: who watches it, what it last said, and the walks that bring the ones to the other.
//!
//! A walk is a tour along the roster. Viewers at the common place share one frame, encoded once for each transport; who is
//! somewhere else gets what they lack. It is cut into slices of 2 ms, and a room with a waiting score goes before others.
//! A viewer whose socket is full is passed by: when it takes bytes again it is brought to the head by the same rule.
//!
//! The awkward case is a seat that moves: leaving swaps the last seat into the gap, and if that carries an unvisited viewer
//! into the visited part, the tour is made once more.
//!
//! Numbers: docs/decisions/0005-numbers.md (2 ms; ring 30 s), 30 s of linger so that quick reconnects are served from the ring.

use crate::auth::permit::Permit;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use grandstand_core::ids::{EventId, Position, Pseq};
use grandstand_core::likes::Totals;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Audience, Lane};
use grandstand_core::sampler::keep::{self, Keep};
use grandstand_core::sampler::silence::GivenAt;
use grandstand_core::sampler::{pick, switch};
use grandstand_core::time::Mono;
use grandstand_core::viewer::merge::{Leave, MergeWindow};
use grandstand_core::viewer::pace::Pace;
use grandstand_core::viewer::retracts::Retracts;
use grandstand_core::viewer::ring::{self, CrowdedOut, Pushed, Ring};
use grandstand_core::viewer::walk::{self, Place, Plan, Skipped, Step, Walk};
use grandstand_core::watch::Silence;
use grandstand_wire::codes::CloseCode;
use grandstand_wire::deflate::{Deflater, Reach};
use grandstand_wire::ws;

use super::bans;
use super::conn::{Conn, Kind, Sent};
use super::frames::{self, Marks, Out, Rides, UserMark};
use super::parts::{self, Cap, Part, Parts, Who};
use super::refill::{self, Below, Refill};
use super::said;
use super::site::Site;
use super::viewer::{Member, NOWHERE, Viewer};
use super::worker::Worker;
use crate::auth::Identity;
use crate::clock;
use crate::failpoint;
use crate::link::{Batch, NoRoom, Piece, RoomInfo, RoomTally, Seen, Served};
use crate::metrics::{ByLane, Hop, RoomSize, Transport, add};

const SLICE: Duration = Duration::from_millis(2);
/// How often a walk looks at the clock: 16 sends are about 0.1 ms.
const CLOCK_EVERY: usize = 16;
/// Long-polls of a slice: each is answered by itself, in some ten microseconds.
const POLLS_A_SLICE: usize = 64;
const LINGER: Duration = Duration::from_secs(30);
/// All rings of the process: 64 rooms at their own limit. Source: docs/decisions/0005-numbers.md.
const RINGS_BYTES_MAX: u64 = 256 << 20;
/// Where memory is short they keep so much less: who needs more of a room's past reads the log.
const RINGS_SHORT: u64 = 8;
/// Frames of a wide room are packed when so many viewers share each of its parts, of which there are about as many as winners.
const SHARED_LEAST: usize = 64 * 8;
/// Different plans of one walk whose frames are kept: the common place, the few before it, and the resuming ones.
const FRAMES_KEPT: usize = 8;
/// Whoever was not given a retract in ten seconds was closed with 4200.
const FORGET_AFTER: Duration = Duration::from_secs(11);
/// Erases of which a room's ring waits to let go: more than an operator asks for in [`FORGET_AFTER`] by hand. Of more, the newest
/// goes with the one before it.
const FORGETS_MAX: usize = 16;

pub(super) struct Room {
    pub id: RoomId,
    /// `None` until the shard has told.
    pub info: Option<Arc<RoomInfo>>,
    pub ring: Ring<Arc<Piece>>,
    pub merge: MergeWindow,
    pub seats: Vec<Seat>,
    /// Connections that wait for the room's facts.
    pub waiting: Vec<(u32, u32)>,
    /// Members of connections, seated or not.
    pub n_members: u32,
    empty_since: Option<Mono>,
    pub tally: Arc<RoomTally>,
    /// When the merge window ends; the same as in `Worker::windows`.
    pub deadline: Option<Mono>,
    /// The seat at which the walk goes on.
    next_seat: Option<usize>,
    again: bool,
    queued: bool,
    /// Since when it waits to be walked to its last seat.
    queued_at: Mono,
    /// What of its comments a viewer is given.
    keep: Keep,
    /// Of what is measured in `keep`.
    frames: switch::Merged,
    /// What the ring's comments must be held against.
    pub retracts: Retracts,
    pub latest: Latest,
    /// How often they are told.
    pub pace: Pace,
    /// Likes by kind, as they are in the log.
    pub likes: Totals,
    /// Share of the room's comments that each viewer is shown, in millionths.
    pub keep_millionths: u32,
    /// What its viewers are told of providers.
    pub silent: Vec<Silence>,
    /// What tells the three from what they were.
    pub numbers: u64,
    /// Somebody came or went since who watches was counted, and when that was.
    pub moved: bool,
    pub counted_at: Mono,
    walked: Walked,
    /// The newest event of the room that this worker was given or told of.
    pub last_event: Position,
    /// The frames of a walk that goes on in the next slice.
    kept: Option<Box<Kept>>,
    /// What the ring lacks is being read.
    pub refill: Option<Refill>,
    /// Cursors that wait for it.
    pub below: Vec<Below>,
    /// When the ring lets go of everything up to where: somebody was erased.
    forgets: Vec<(Mono, Position)>,
}

/// What the walks of a room have come to, for its figures.
#[derive(Default)]
struct Walked {
    /// Events up to here were given by a whole walk.
    upto: Position,
    /// The head when the walk that goes on began, and when that was.
    head: Position,
    began: Mono,
    /// What it is about: comments that were said.
    said: u64,
    /// Those it has met where the last one left them, and the comments they were given.
    viewers: u64,
    given: u64,
}

/// The newest value of what only its last value matters of; told to each seat once, overwritten by the next.
#[derive(Default)]
pub(super) struct Latest {
    version: u16,
    /// What was told last, and when its number of viewers was made.
    pub told: Told,
    pub viewers_at: Mono,
    pub told_at: Mono,
    /// Something else than viewers differs from what was told, since then: the next frame takes it along.
    pub stale: Option<Mono>,
    /// The same of what the walk that goes on tells.
    telling: Option<Mono>,
    web_socket: Bytes,
    sse: Bytes,
    /// The same as events of a frame: kind and JSON.
    values: Vec<(&'static str, Vec<u8>)>,
}

/// The values of one telling. Nothing was told at first.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Told {
    pub viewers: Option<u64>,
    pub likes: Totals,
    pub keep_millionths: u32,
}

/// The frames of one slice, for the next.
struct Kept {
    stamp: Stamp,
    frames: Vec<Frame>,
    parts: Parts<Frame>,
}

/// All that frames depend on beside their plan; while it is the same they may be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Stamp {
    head: Position,
    floor: Position,
    n_retracts: usize,
    latest: u16,
    site: u16,
    cap: Cap,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Seat {
    pub slot: u32,
    pub who: Who,
    pub transport: Transport,
    /// What it takes packed.
    reach: Reach,
    pub place: Place,
    /// Nobody sits here who may not be shown the room.
    _permit: Permit,
    /// Version of the room's latest values it was told.
    latest: u16,
}

/// What is to be done with viewers once the ring is no longer borrowed.
#[derive(Default)]
struct After {
    close: Vec<(u32, CloseCode)>,
    broken: Vec<u32>,
    polls: Vec<u32>,
    /// Took nothing or not all: watched for lateness.
    held_up: Vec<u32>,
    /// Fell out of the ring while catching up: back to the log.
    below: Vec<u32>,
    delivered: ByLane,
    /// Viewers met where the last walk left them, and the comments given to them.
    viewers: u64,
    given: u64,
    skipped: u64,
    /// Winners of a wide room that were not picked.
    sampled: u64,
    banners: u64,
    /// By transport.
    frames: [u64; 3],
    bytes: [u64; 3],
    /// Frames that went packed, and the bytes that made them shorter.
    packed: u64,
    saved: u64,
    assertions_failed: u64,
}

pub(super) struct Frame {
    plan: Plan,
    rides: Rides,
    /// Places of the winners that are in it, ascending.
    given: Box<[u64]>,
    skipped: Option<Skipped>,
    n_events: ByLane,
    /// Users whose copy may differ.
    marks: Marks,
    web_socket: Option<Bytes>,
    /// The same packed; not there although it was tried: it would not be shorter.
    packed: Option<Option<Bytes>>,
    sse: Option<Bytes>,
}

impl After {
    fn served(&self) -> Served {
        Served { delivered: self.delivered.total(), skipped: self.skipped, sampled: self.sampled }
    }
}

impl Latest {
    /// Every seat is told this instead of what it was not told yet.
    pub fn replace(&mut self, values: &[Out<'_>]) {
        self.version = self.version.wrapping_add(1);
        self.web_socket = frames::encode(Transport::WebSocket, values);
        self.sse = frames::encode(Transport::Sse, values);
        self.values = values.iter().map(|value| (value.kind, value.json.to_vec())).collect();
        // Whatever the numbers were told as, they are told anew after this.
        self.told = Told::default();
        self.telling = self.stale.take().or(self.telling);
        self.viewers_at = Mono(0);
        self.told_at = Mono(0);
    }
}

impl Room {
    fn new(id: RoomId, tally: Arc<RoomTally>) -> Room {
        Room {
            id,
            info: None,
            ring: Ring::new(Position::START, Pseq(0), ring::Limits::default()),
            merge: MergeWindow::new(None),
            seats: Vec::new(),
            waiting: Vec::new(),
            n_members: 0,
            empty_since: None,
            tally,
            deadline: None,
            next_seat: None,
            again: false,
            queued: false,
            queued_at: Mono(0),
            keep: Keep::default(),
            frames: switch::Merged::default(),
            retracts: Retracts::default(),
            latest: Latest::default(),
            pace: Pace::default(),
            likes: Totals::default(),
            keep_millionths: 1_000_000,
            silent: Vec::new(),
            numbers: 0,
            moved: false,
            counted_at: Mono(0),
            walked: Walked::default(),
            last_event: Position::START,
            kept: None,
            refill: None,
            below: Vec::new(),
            forgets: Vec::new(),
        }
    }

    /// Whether a comment must not be shown any more.
    pub fn is_retracted(&self, piece: &Piece) -> bool {
        is_retracted(&self.retracts, piece)
    }

    /// Whether one more viewer may come, for what it costs to send it everything.
    pub fn takes_viewer(&mut self, now: Mono) -> bool {
        let pace = switch::Pace {
            comments: self.keep.said_a_second(now) as u32,
            frames: self.keep.frames_a_second(now) as u32,
        };
        let viewers = self.tally.viewers();
        self.info.as_ref().is_none_or(|info| {
            let rules = &info.settings.sampling;
            switch::takes_viewer(rules.when, &rules.limits(), pace, viewers)
        })
    }

    /// Measures anew what part of what is said one viewer is given. Whether it is another than was known.
    pub fn measure_keep(&mut self, now: Mono) -> bool {
        let measured = self.keep.millionths(now);
        let is_news = keep::is_news(self.keep_millionths, measured);
        if is_news {
            self.keep_millionths = measured;
            self.note_numbers();
        }
        is_news
    }

    /// Adds what a batch came from and what a viewer is given of it.
    fn note_said(&mut self, batch: &Batch, cap: Cap, now: Mono) {
        const WHOLE: u64 = keep::WHOLE_MILLIONTHS as u64;
        let public = batch.pieces.iter().filter(|p| p.lane == Lane::Comment && p.audience == Audience::Everyone);
        let (mut said, mut given, mut window) = (u64::from(batch.said), 0, None);
        for piece in public {
            match &piece.won {
                None => (said, given) = (said + 1, given + WHOLE),
                Some(won) if window == Some(won.window) => {}
                Some(won) => {
                    window = Some(won.window);
                    // A cap is of a thousand seconds, and a window of thousandths of one.
                    given += (cap.milli * pick::WINDOW_MS).min(u64::from(won.of) * WHOLE);
                }
            }
        }
        if said > 0 || given > 0 {
            self.frames.on_comments((given / WHOLE).max(1) as u32, self.merge.window(), now);
            self.keep.said(said, given, self.frames.take(), now);
        }
    }

    fn note_retract(&mut self, piece: &Piece) {
        if let Some(target) = &piece.retracts {
            self.retracts.note(piece.id, target);
        }
    }
}

fn is_retracted(retracts: &Retracts, piece: &Piece) -> bool {
    let author = piece.author.as_ref().map(|(author, _)| author);
    // An empty one was retracted before it was read from the log.
    piece.lane == Lane::Comment && (piece.json.is_empty() || retracts.hide(piece.id, author, piece.ts))
}

fn walk_limits(info: Option<&RoomInfo>) -> walk::Limits {
    info.map_or_else(walk::Limits::default, |info| walk::Limits::of(&info.settings))
}

fn fixed_window(info: &RoomInfo) -> Option<Duration> {
    info.settings.merge_ms.map(|ms| Duration::from_millis(u64::from(ms)))
}

impl Worker {
    /// A room's name, shared with the worker's place for it where there is one.
    /// Errors: `None` when it is no room id.
    pub(super) fn room_named(&self, id: &str) -> Option<RoomId> {
        self.room_ids.get_key_value(id).map(|(id, _)| id.clone()).or_else(|| RoomId::parse(id))
    }

    /// The worker's place for a room, made and subscribed when it is the first one's.
    pub(super) fn room_place(&mut self, id: &RoomId) -> usize {
        if let Some(&idx) = self.room_ids.get(id) {
            return idx;
        }
        let idx = self.rooms.insert(Room::new(id.clone(), self.shared.tallies.of(id)));
        self.room_ids.insert(id.clone(), idx);
        add(&self.shared.metrics.rooms_asked, 1);
        self.shared.shard.subscribe(self.id, id.clone());
        idx
    }

    pub(super) fn on_room(&mut self, id: &RoomId, found: Result<Arc<RoomInfo>, NoRoom>) {
        let Some(&idx) = self.room_ids.get(id) else { return };
        let silent = self.silent_of(id);
        let room = &mut self.rooms[idx];
        if room.info.is_some() {
            return match found {
                Ok(info) => self.on_room_again(idx, info),
                // Its viewers ask for themselves and are told.
                Err(NoRoom) => self.close_room(idx, CloseCode::Resync),
            };
        }
        let waiting = std::mem::take(&mut room.waiting);
        match found {
            Ok(info) => {
                room.last_event = info.last_event;
                room.likes = info.likes.clone();
                room.silent = silent;
                room.note_numbers();
                room.ring = Ring::new(info.head, info.pseq, ring::Limits::default());
                room.walked = Walked { upto: info.head, ..Walked::default() };
                room.merge = MergeWindow::new(fixed_window(&info));
                room.info = Some(info);
                for (slot, generation) in waiting {
                    let slot = slot as usize;
                    if self.conns.get(slot).is_some_and(|c| c.generation == generation) {
                        self.guarded(slot, |w| w.admit(slot, idx));
                    }
                }
            }
            Err(NoRoom) => {
                for (slot, generation) in waiting {
                    let slot = slot as usize;
                    if self.conns.get(slot).is_some_and(|c| c.generation == generation) {
                        self.guarded(slot, |w| w.refuse_room(slot, idx));
                    }
                }
                // Nobody can have been seated in a room without facts.
                if let Some(&idx) = self.room_ids.get(id)
                    && self.rooms[idx].info.is_none()
                {
                    self.room_ids.remove(id);
                    let room = self.rooms.remove(idx);
                    self.shared.tallies.leave(id, room.tally);
                }
            }
        }
    }

    pub(super) fn on_batch(&mut self, batch: &Batch) {
        let Some(&idx) = self.room_ids.get(&batch.room) else { return };
        let now = self.now;
        let room = &mut self.rooms[idx];
        if room.info.is_none() {
            // Sent to an earlier subscription; the facts that are on their way include it.
            return;
        }
        let (mut closes, mut new) = (false, false);
        let cap = self.shared.cap(room.info.as_deref(), now);
        for piece in &batch.pieces {
            let pushed = room.ring.push(refill::entry(piece, now, cap));
            room.last_event = room.last_event.max(piece.id.position());
            if pushed == Pushed::Hole {
                add(&self.shared.metrics.priority_lost, 1);
                tracing::error!(room = %room.id, id = %piece.id, "a priority event is missing from the link");
            }
            new |= pushed != Pushed::Repeat;
            closes |= piece.closes_window;
            room.note_retract(piece);
        }
        if !new {
            return;
        }
        room.note_said(batch, cap, now);
        room.ring.trim(now);
        if room.seats.is_empty() {
            // Given to nobody: who comes later reads it as the past.
            room.walked.upto = room.ring.head();
            room.keep.take_unwalked();
        } else {
            self.leave_window(idx, closes);
        }
    }

    fn leave_window(&mut self, idx: usize, closes: bool) {
        let now = self.now;
        let room = &mut self.rooms[idx];
        room.merge.set_viewers(room.tally.viewers());
        match room.merge.on_events(closes, now) {
            Leave::Now => {
                if let Some(at) = room.deadline.take() {
                    self.windows.remove(&(at, idx));
                }
                self.queue_walk_as(idx, closes);
            }
            Leave::At(at) if room.deadline != Some(at) => {
                if let Some(old) = room.deadline.replace(at) {
                    self.windows.remove(&(old, idx));
                }
                self.windows.insert((at, idx));
            }
            Leave::At(_) => {}
        }
    }

    pub(super) fn on_settings(&mut self, info: Arc<RoomInfo>) {
        let Some(&idx) = self.room_ids.get(&info.room) else { return };
        let room = &mut self.rooms[idx];
        if room.info.is_none() {
            return;
        }
        room.ring.advance(info.head);
        self.take_settings(idx, info);
    }

    pub(super) fn take_settings(&mut self, idx: usize, info: Arc<RoomInfo>) {
        let room = &mut self.rooms[idx];
        let viewers = room.tally.viewers();
        room.merge.set_fixed(fixed_window(&info), viewers);
        let open = info.settings.anonymous_view;
        let likes = info.likes.clone();
        let old = room.info.replace(info);
        let was_open = old.as_ref().is_some_and(|i| i.settings.anonymous_view);
        let blackouts = |info: &Option<Arc<RoomInfo>>| info.as_ref().map(|i| i.settings.blackout_regions.clone());
        if blackouts(&old) != blackouts(&room.info) {
            self.sweep.begin();
        }
        let room = &mut self.rooms[idx];
        if was_open && !open {
            let nobody = room.seats.iter().filter(|s| !s.who.is_user());
            for slot in nobody.map(|s| s.slot as usize).collect::<Vec<_>>() {
                self.guarded(slot, |w| w.close(slot, CloseCode::NotAllowed));
            }
        }
        self.take_totals(idx, &likes);
    }

    /// The link lost batches: the ring is joined to what follows by the log.
    pub(super) fn on_resync(&mut self, info: Arc<RoomInfo>) {
        let Some(&idx) = self.room_ids.get(&info.room) else { return };
        if self.rooms[idx].info.is_some() {
            self.rejoin(idx, info);
        }
    }

    /// The shard is back, or was asked twice: the feed goes on from these facts.
    fn on_room_again(&mut self, idx: usize, info: Arc<RoomInfo>) {
        self.rejoin(idx, info);
        // The first counters after a pause say that it is over.
        let (now, wall) = (self.now, self.wall);
        if self.rooms[idx].renew_viewers(now, wall) {
            self.tell_soon(idx);
        }
    }

    fn close_room(&mut self, idx: usize, code: CloseCode) {
        for slot in self.rooms[idx].seats.iter().map(|s| s.slot as usize).collect::<Vec<_>>() {
            self.guarded(slot, |w| w.close(slot, code));
        }
    }

    // ---- seats -----------------------------------------------------------------------------------------------

    /// Puts a viewer that was greeted into the roster. The walk that is due brings it to the head.
    pub(super) fn seat(&mut self, slot: usize, member: usize, place: Place, permit: Permit) {
        let now = self.now;
        let Some(viewer) = self.viewer(slot) else { return };
        let (transport, reach) = (viewer.transport, viewer.reach);
        let place_in = viewer.member_mut(member);
        assert!(place_in.seat == NOWHERE, "a viewer sits once in a room");
        let mut who = place_in.joining.take().expect("a viewer is joining until it sits").who;
        who.set_given_at(GivenAt::new(now));
        let idx = place_in.room as usize;
        let room = &mut self.rooms[idx];
        let seat = room.seats.len();
        // hello has said the newest values.
        let latest = if self.away { room.latest.version.wrapping_sub(1) } else { room.latest.version };
        room.seats.push(Seat { slot: slot as u32, who, transport, reach, place, _permit: permit, latest });
        room.empty_since = None;
        room.moved = true;
        room.tally.viewers.fetch_add(1, Ordering::Relaxed);
        if let Some(viewer) = self.viewer(slot) {
            viewer.member_mut(member).seat = seat as u32;
            if viewer.identity.as_ref().is_some_and(|who| who.more.is_some()) || viewer.rare.is_some() {
                self.renew_taste(slot, None);
            }
        }
    }

    /// Takes a member out of its room, wherever on its way it was.
    pub(super) fn unseat(&mut self, member: &Member) {
        if member.room == NOWHERE {
            return;
        }
        let idx = member.room as usize;
        let now = self.now;
        let room = &mut self.rooms[idx];
        room.n_members -= 1;
        if room.n_members == 0 {
            room.empty_since = Some(now);
        }
        if member.seat == NOWHERE {
            return;
        }
        let seat = member.seat as usize;
        room.moved = true;
        room.tally.viewers.fetch_sub(1, Ordering::Relaxed);
        let last = room.seats.len() - 1;
        room.seats.swap_remove(seat);
        if seat < last {
            let moved = room.seats[seat].slot as usize;
            if room.next_seat.is_some_and(|next| seat < next && last >= next) {
                room.again = true;
            }
            if let Some(viewer) = self.viewer(moved)
                && let Some(at) = viewer.member_of(idx)
            {
                viewer.member_mut(at).seat = seat as u32;
            }
        }
    }

    pub(super) fn set_place(&mut self, room: usize, seat: usize, place: Place) {
        self.rooms[room].seats[seat].place = place;
    }

    // ---- walks -----------------------------------------------------------------------------------------------

    pub(super) fn queue_walk(&mut self, idx: usize) {
        self.queue_walk_as(idx, false);
    }

    pub(super) fn queue_walk_as(&mut self, idx: usize, urgent: bool) {
        let room = &mut self.rooms[idx];
        if room.next_seat.is_some() {
            room.again = true;
        }
        if !room.queued {
            room.queued_at = self.now;
        }
        if urgent {
            // Its place among the others may stay: a room that was walked has nothing left to do there.
            room.queued = true;
            // Once: a room that is given scores faster than it is walked would fill the queue with itself.
            if !self.urgent.contains(&idx) {
                self.urgent.push_back(idx);
            }
        } else if !room.queued {
            self.due.push_back(idx);
            room.queued = true;
        }
    }

    /// One slice's worth of walking, urgent rooms first.
    pub(super) fn walk_rooms(&mut self) {
        if self.urgent.is_empty() && self.due.is_empty() {
            return;
        }
        self.tick();
        if self.walk_at.take_if(|at| *at <= self.now).is_none() && self.walk_at.is_some() {
            return;
        }
        let until = self.now + SLICE;
        loop {
            let (idx, urgent) = match self.urgent.pop_front() {
                Some(idx) => (idx, true),
                None => match self.due.pop_front() {
                    Some(idx) => (idx, false),
                    None => return,
                },
            };
            let gone = self.rooms.get(idx).is_none_or(|room| !room.queued);
            if gone {
                continue;
            }
            let done = self.walk_slice(idx, until);
            if let Some(room) = self.rooms.get_mut(idx) {
                room.queued = !done;
                if !done {
                    // Urgent rooms go before others and take turns: the score of a small one waits for a slice of a large one,
                    // not for its whole walk.
                    if urgent { self.urgent.push_back(idx) } else { self.due.push_back(idx) }
                }
            }
            if clock::mono() >= until || self.walk_at.is_some() {
                return;
            }
        }
    }

    /// Walks on until `until`; true when every seat was visited.
    fn walk_slice(&mut self, idx: usize, until: Mono) -> bool {
        let now = self.now;
        let mut after = After::default();
        let room = &mut self.rooms[idx];
        if failpoint::is_active() && !room.seats.is_empty() && failpoint::holds("walk.slice") {
            self.walk_at = Some(now + failpoint::POLL);
            return false;
        }
        let mut next = room.next_seat.take().unwrap_or(0);
        if next == 0 {
            if room.latest.stale.is_some() && !self.away {
                room.renew_latest(now, self.wall);
            }
            room.merge.on_walk(now);
            room.again = false;
            room.walked.head = room.ring.head();
            room.walked.began = now;
            (room.walked.said, room.walked.viewers, room.walked.given) = (room.keep.take_unwalked(), 0, 0);
        }
        let Room { id, ring, seats, retracts, tally, latest, refill, info, kept, walked, .. } = room;
        let (limits, cap) = (walk_limits(info.as_deref()), self.shared.cap(info.as_deref(), now));
        let stamp = Stamp {
            head: ring.head(),
            floor: ring.floor(),
            n_retracts: retracts.len(),
            latest: latest.version,
            site: self.site.version(),
            cap,
        };
        let mut tour = Tour::new(id, latest, ring, retracts, limits, cap, now);
        tour.left_at = walked.upto;
        tour.site = Some(&self.site);
        if let Some(kept) = kept.take().filter(|kept| kept.stamp == stamp) {
            tour.frames = kept.frames;
            tour.parts = kept.parts;
            tour.parts.set_now(now);
        }
        tour.refilling = refill.is_some();
        tour.n_seats = seats.len();
        tour.deflater = Some(&mut self.deflater);
        let mut visited = 0;
        while next < seats.len() {
            if visited % CLOCK_EVERY == 0 && visited > 0 && clock::mono() >= until {
                break;
            }
            // Each of them is answered by itself when the slice is over.
            if after.polls.len() >= POLLS_A_SLICE {
                break;
            }
            // With failpoints a slice is one seat, so that a test can stop between two.
            if visited == 1 && failpoint::is_active() {
                break;
            }
            let seat = &mut seats[next];
            next += 1;
            visited += 1;
            if let Some(conn) = self.conns.get_mut(seat.slot as usize) {
                tour.serve_guarded(seat, conn, &mut after);
            }
        }
        let (encoded, packing) = (tour.n_encoded, tour.packing);
        let done = next >= seats.len();
        let Tour { frames, parts, .. } = tour;
        if !done {
            *kept = Some(Box::new(Kept { stamp, frames, parts }));
        }
        tally.add_served(after.served());
        let room = &mut self.rooms[idx];
        room.walked.viewers += after.viewers;
        room.walked.given += after.given;
        room.next_seat = (!done).then_some(next);
        add(&self.shared.metrics.encoded, encoded);
        if packing > Duration::ZERO {
            add(&self.shared.metrics.packing_ns, packing.as_nanos() as u64);
        }
        self.finish(idx, after);
        if done {
            self.note_walk(idx);
        }
        let Some(room) = self.rooms.get_mut(idx) else { return true };
        if done {
            let end = clock::mono();
            self.late = self.late.max(end.since(std::mem::replace(&mut room.queued_at, end)));
        }
        if done && std::mem::take(&mut room.again) {
            return false;
        }
        done
    }

    /// The age of the oldest walk that is not finished, or was not within the last second.
    pub(super) fn take_late(&mut self) -> Duration {
        let waiting = self.urgent.iter().chain(&self.due).filter_map(|idx| self.rooms.get(*idx));
        let waiting = waiting.filter(|room| room.queued).map(|room| self.now.since(room.queued_at));
        waiting.fold(std::mem::take(&mut self.late), Duration::max)
    }

    /// A walk has come to its last seat: how long it took, and how old each new event was by then. Viewers whose sockets are
    /// full are not waited for; they show as skipped comments and closes.
    fn note_walk(&mut self, idx: usize) {
        let Some(room) = self.rooms.get_mut(idx) else { return };
        let (metrics, wall) = (&self.shared.metrics, clock::wall());
        let size = RoomSize::of(room.tally.viewers());
        metrics.walks[size as usize].observe(clock::mono().since(room.walked.began));
        let Walked { said, viewers, given, .. } = room.walked;
        room.keep.walked(said, given, viewers, self.now);
        let head = room.walked.head;
        let from = room.walked.upto.max(room.ring.floor());
        let new = room.ring.after(from).into_iter().flatten();
        for entry in new.take_while(|e| e.id.position() <= head).filter(|e| !e.private) {
            metrics.add_delivery(entry.lane, size, wall.since(entry.payload.ts));
            if entry.payload.unallowed && !is_retracted(&room.retracts, &entry.payload) {
                add(&metrics.unallowed, 1);
                tracing::error!(room = %room.id, id = %entry.id, "viewers of a strict room were given a comment without an allow");
            }
        }
        room.walked.upto = room.walked.upto.max(head);
        if let Some(since) = room.latest.telling.take() {
            metrics.add_delivery(Lane::Latest, size, clock::mono().since(since));
        }
    }

    /// Brings one viewer to the head of one of its rooms: it was just seated, or its socket takes bytes again.
    pub(super) fn bring(&mut self, idx: usize, seat: usize) {
        let mut after = After::default();
        let room = &mut self.rooms[idx];
        let Room { id, ring, seats, retracts, tally, latest, refill, info, .. } = room;
        let (limits, cap) = (walk_limits(info.as_deref()), self.shared.cap(info.as_deref(), self.now));
        let mut tour = Tour::new(id, latest, ring, retracts, limits, cap, self.now);
        tour.site = Some(&self.site);
        tour.refilling = refill.is_some();
        let Some(seat) = seats.get_mut(seat) else { return };
        if let Some(conn) = self.conns.get_mut(seat.slot as usize) {
            tour.serve(seat, conn, &mut after);
        }
        tally.add_served(after.served());
        add(&self.shared.metrics.encoded, tour.n_encoded);
        self.finish(idx, after);
    }

    fn finish(&mut self, idx: usize, after: After) {
        let metrics = &self.shared.metrics;
        for (idx, frames) in after.frames.into_iter().enumerate().filter(|(_, n)| *n > 0) {
            add(&metrics.frames[idx], frames);
            add(&metrics.bytes[idx], after.bytes[idx]);
        }
        if after.packed > 0 {
            add(&metrics.packed, after.packed);
            add(&metrics.saved, after.saved);
        }
        metrics.add_delivered(Hop::Walk, after.delivered);
        metrics.add_banners(after.banners);
        if after.skipped > 0 {
            add(&metrics.skipped[Hop::Walk as usize], after.skipped);
        }
        if after.sampled > 0 {
            add(&metrics.sampled[Hop::Walk as usize], after.sampled);
        }
        if after.assertions_failed > 0 {
            add(&metrics.assertions_failed, after.assertions_failed);
        }
        for slot in after.broken {
            self.guarded(slot as usize, |w| w.drop_conn(slot as usize));
        }
        for (slot, code) in after.close {
            self.guarded(slot as usize, |w| w.close(slot as usize, code));
        }
        for slot in after.held_up {
            self.schedule_live(slot as usize);
        }
        for slot in after.polls {
            self.guarded(slot as usize, |w| w.answer_poll_if_due(slot as usize));
        }
        for slot in after.below {
            self.guarded(slot as usize, |w| w.back_to_the_log(slot as usize, idx));
        }
    }

    /// What a viewer at its seat would be sent now, as the events of one answer; for polls.
    pub(super) fn look(&self, idx: usize, seat: usize, who: Option<&Identity>) -> Look<'_> {
        let room = &self.rooms[idx];
        let (reader, moderates) = (who.map(|who| &who.user), bans::moderates(who, &room.id));
        let Seat { place, who, slot, .. } = room.seats[seat];
        let tour_walk = &mut Walk::new(&room.ring, walk_limits(room.info.as_deref()), self.now);
        match tour_walk.step(&place) {
            Step::AtHead => Look::Nothing(room.ring.head()),
            Step::BelowFloor | Step::Late => Look::Below,
            Step::Send(plan) => {
                let (mut events, mut n_events) = (Vec::new(), ByLane::default());
                let mut given = Vec::new();
                if plan.holds_won {
                    let cap = self.shared.cap(room.info.as_deref(), self.now);
                    let viewer = match self.conns.get(slot as usize).map(|c| &c.kind) {
                        Some(Kind::Viewer(viewer)) => viewer.rare.as_ref(),
                        _ => None,
                    };
                    let taste = viewer.and_then(|rare| rare.taste.as_deref());
                    tour_walk.winners(&plan).pick(&parts::reader(who, taste, cap), &mut given);
                }
                let skipped = tour_walk.passed_over(&plan, &given);
                let (n_won, n_given) = (tour_walk.n_won(&plan), plan.n_sent(&given));
                if let Some(skipped) = &skipped {
                    events.push(said::skipped_event(&room.id, skipped));
                }
                for entry in tour_walk.entries_given(&plan, &given) {
                    let hidden = entry.private && !moderates && !is_own(&entry.payload, reader);
                    if !hidden && !room.is_retracted(&entry.payload) {
                        events.push(Out::of(&entry.payload, reader));
                        n_events.add(entry.lane, 1);
                    }
                }
                let skipped = skipped.map_or(0, |s| s.count);
                Look::Events { events, n_events, upto: plan.upto, skipped, sampled: n_won - n_given }
            }
        }
    }

    // ---- upkeep ----------------------------------------------------------------------------------------------

    /// A user was erased: who watches is told by the events themselves, and once the slowest have been, the ring keeps none of them.
    pub(super) fn on_forget(&mut self, room: &RoomId, upto: EventId) {
        let Some(&idx) = self.room_ids.get(room) else { return };
        let forgets = &mut self.rooms[idx].forgets;
        if forgets.len() < FORGETS_MAX {
            forgets.push((self.now + FORGET_AFTER, upto.position()));
        } else if let Some((_, last)) = forgets.last_mut() {
            *last = upto.position();
        }
    }

    /// Once a second: old events leave the rings, rooms nobody came back to are given up.
    pub(super) fn keep_rooms(&mut self) {
        let now = self.now;
        let wall = self.wall;
        let (mut over, mut news, mut measured) = (Vec::new(), Vec::new(), Vec::new());
        let share = RINGS_BYTES_MAX / (self.shared.workers.ids().count().max(1) as u64);
        let share = if self.shared.admission.memory.sheds() { share / RINGS_SHORT } else { share };
        ring::keep_within(self.rooms.iter_mut().map(|(_, room)| &mut room.ring), share);
        for (idx, room) in &mut self.rooms {
            while let Some((_, upto)) = room.forgets.first().copied().filter(|(due, _)| *due <= now) {
                room.forgets.remove(0);
                room.ring.forget(upto);
            }
            room.ring.trim(now);
            let CrowdedOut { comments, priority } = room.ring.take_crowded_out();
            for (lane, n) in [(Lane::Comment, comments), (Lane::Priority, priority)].into_iter().filter(|(_, n)| *n > 0)
            {
                self.shared.metrics.add_crowded_out(lane, n);
            }
            let floor = room.ring.floor();
            // What an old ring holds will be held against them again.
            if room.refill.is_none() {
                room.retracts.forget(floor);
            }
            room.look_around(now, self.id, self.shared.shard.is_here());
            if room.measure_keep(now) {
                measured.push(idx);
            }
            if !self.away && room.renew_viewers(now, wall) {
                news.push(idx);
            }
            let left = room.n_members == 0 && room.info.is_some() && !room.queued;
            if left && room.empty_since.is_some_and(|since| now.since(since) >= LINGER) {
                over.push(idx);
            }
        }
        for idx in news {
            self.tell_soon(idx);
        }
        if !self.away {
            measured.into_iter().for_each(|idx| self.numbers_changed(idx));
        }
        for idx in over {
            let room = self.rooms.remove(idx);
            if let Some(at) = room.deadline {
                self.windows.remove(&(at, idx));
            }
            self.room_ids.remove(&room.id);
            room.tally.look(self.id, Seen::default());
            self.shared.tallies.leave(&room.id, room.tally);
            self.shared.shard.unsubscribe(self.id, room.id);
        }
    }
}

/// What a poll would be answered.
pub(super) enum Look<'a> {
    Nothing(Position),
    /// The ring does not hold what follows.
    Below,
    Events {
        events: Vec<Out<'a>>,
        n_events: ByLane,
        upto: Position,
        skipped: u64,
        /// Winners of a wide room that were not picked.
        sampled: u64,
    },
}

fn is_own(piece: &Piece, reader: Option<&UserId>) -> bool {
    matches!((&piece.author, reader), (Some((author, _)), Some(reader)) if author == reader)
}

/// What one viewer is written.
struct Framed {
    bytes: Bytes,
    n_events: ByLane,
    /// By how much packing made it shorter.
    saved: usize,
    skipped: u64,
    sampled: u64,
    /// Some of a wide room's winners are in it.
    given_at: Option<GivenAt>,
}

impl Framed {
    fn of(frame: &Frame, bytes: Bytes) -> Framed {
        let skipped = frame.skipped.map_or(0, |s| s.count);
        Framed { bytes, n_events: frame.n_events, saved: 0, skipped, sampled: 0, given_at: None }
    }
}

/// Where a frame is kept.
#[derive(Clone, Copy)]
enum At {
    /// Everyone at the place is sent it.
    Whole(usize),
    /// Those with the same part of a wide room are.
    Part(usize),
}

/// One walk with the frames it shares.
struct Tour<'r> {
    walk: Walk<'r, Arc<Piece>>,
    /// The site's banners.
    site: Option<&'r Site>,
    retracts: &'r Retracts,
    room: &'r RoomId,
    latest: &'r Latest,
    frames: Vec<Frame>,
    parts: Parts<Frame>,
    /// Seats of the whole walk.
    n_seats: usize,
    n_encoded: u64,
    /// Nothing is packed for a viewer that is brought to the head alone.
    deflater: Option<&'r mut Deflater>,
    packing: Duration,
    now: Mono,
    /// What lies before the floor is on its way: who stands there waits.
    refilling: bool,
    /// Where the last walk left those who keep up.
    left_at: Position,
}

impl<'r> Tour<'r> {
    fn new(
        room: &'r RoomId,
        latest: &'r Latest,
        ring: &'r Ring<Arc<Piece>>,
        retracts: &'r Retracts,
        limits: walk::Limits,
        cap: Cap,
        now: Mono,
    ) -> Tour<'r> {
        let walk = Walk::new(ring, limits, now);
        Tour {
            walk,
            site: None,
            retracts,
            room,
            latest,
            frames: Vec::new(),
            parts: Parts::new(cap, now),
            n_seats: 1,
            n_encoded: 0,
            deflater: None,
            packing: Duration::ZERO,
            now,
            refilling: false,
            left_at: Position::START,
        }
    }

    /// [`Tour::serve`]; a failed assertion ends that viewer's connection alone.
    fn serve_guarded(&mut self, seat: &mut Seat, conn: &mut Conn, after: &mut After) {
        let slot = seat.slot;
        if catch_unwind(AssertUnwindSafe(|| self.serve(seat, conn, after))).is_err() {
            tracing::error!(slot, "an assertion failed in a walk; its connection is closed");
            after.assertions_failed += 1;
            after.broken.push(slot);
        }
    }

    /// Brings one seat to the head, or as far as its socket takes.
    fn serve(&mut self, seat: &mut Seat, conn: &mut Conn, after: &mut After) {
        if seat.transport == Transport::Poll {
            after.polls.push(seat.slot);
            return;
        }
        if conn.blocked || !conn.out.is_empty() {
            let rest_late =
                conn.out.priority_since().is_some_and(|at| walk::is_late(at, self.now, &walk::Limits::default()));
            if rest_late || self.walk.step(&seat.place) == Step::Late {
                after.close.push((seat.slot, CloseCode::SlowConsumer));
            }
            return;
        }
        // Who was behind is given what others were given before.
        let keeps_up = seat.place.catch_up.is_none() && seat.place.position >= self.left_at;
        after.viewers += u64::from(keeps_up);
        loop {
            let plan = match self.walk.step(&seat.place) {
                Step::AtHead => {
                    seat.place.rest(self.walk.head());
                    self.tell_latest(seat, conn, after);
                    return self.tell_banners(seat, conn, after);
                }
                // Winners that came too late are still to be told.
                Step::Send(plan) if plan.empty && !plan.holds_won => {
                    seat.place.advance(&plan);
                    continue;
                }
                Step::Send(plan) => plan,
                Step::BelowFloor if self.refilling => return,
                Step::BelowFloor if seat.place.catch_up.is_some() => {
                    after.below.push(seat.slot);
                    return;
                }
                Step::BelowFloor | Step::Late => {
                    after.close.push((seat.slot, CloseCode::SlowConsumer));
                    return;
                }
            };
            let rides = self.rides(seat, conn);
            let Framed { bytes, n_events, saved, skipped, sampled, given_at } = self.frame(&plan, seat, conn, rides);
            let latest = self.latest.version;
            if bytes.is_empty() {
                // Only what others wrote for themselves, or what it is not given of a wide room.
                seat.place.advance(&plan);
                after.sampled += sampled;
                continue;
            }
            let sent = conn.try_send(&bytes, plan.priority_since);
            match sent {
                Sent::All | Sent::Some => {
                    seat.place.advance(&plan);
                    seat.latest = latest;
                    if rides.banner
                        && let (Kind::Viewer(viewer), Some(site)) = (&mut conn.kind, self.site)
                    {
                        viewer.site = site.version();
                        after.banners += 1;
                    }
                    after.frames[seat.transport as usize] += 1;
                    after.bytes[seat.transport as usize] += bytes.len() as u64;
                    after.packed += u64::from(saved > 0);
                    after.saved += saved as u64;
                    after.delivered.add_all(n_events);
                    after.given += if keeps_up { n_events.of(Lane::Comment) } else { 0 };
                    after.skipped += skipped;
                    after.sampled += sampled;
                    if let Some(at) = given_at {
                        seat.who.set_given_at(at);
                    }
                }
                Sent::Nothing => {}
                Sent::Broken => {
                    after.broken.push(seat.slot);
                    return;
                }
            }
            if sent != Sent::All {
                after.held_up.push(seat.slot);
                return;
            }
        }
    }

    /// The room's latest values, to a viewer that is at the head and was not told them. Lost to nobody when the socket is
    /// full: the viewer is told the newest when it comes by again.
    fn tell_latest(&self, seat: &mut Seat, conn: &mut Conn, after: &mut After) {
        if seat.latest == self.latest.version {
            return;
        }
        let bytes = match seat.transport {
            Transport::WebSocket => &self.latest.web_socket,
            _ => &self.latest.sse,
        };
        match conn.try_send(bytes, None) {
            Sent::All => seat.latest = self.latest.version,
            Sent::Some => {
                seat.latest = self.latest.version;
                after.held_up.push(seat.slot);
            }
            Sent::Nothing => after.held_up.push(seat.slot),
            Sent::Broken => after.broken.push(seat.slot),
        }
    }

    /// Banners that did not ride, to a viewer that is at the head.
    fn tell_banners(&self, seat: &Seat, conn: &mut Conn, after: &mut After) {
        let Some(site) = self.site.filter(|site| site.is_alone(self.now)) else { return };
        match site.tell(conn, self.now) {
            Some((Sent::All, n)) => after.banners += n,
            Some((Sent::Some, n)) => {
                after.banners += n;
                after.held_up.push(seat.slot);
            }
            Some((Sent::Nothing, _)) => after.held_up.push(seat.slot),
            Some((Sent::Broken, _)) => after.broken.push(seat.slot),
            None => {}
        }
    }

    fn rides(&self, seat: &Seat, conn: &Conn) -> Rides {
        let banner = match (&conn.kind, self.site) {
            (Kind::Viewer(viewer), Some(site)) => site.rides(viewer.site, self.now).is_some(),
            _ => false,
        };
        Rides { latest: seat.latest != self.latest.version, banner }
    }

    fn frame(&mut self, plan: &Plan, seat: &Seat, conn: &mut Conn, rides: Rides) -> Framed {
        let Kind::Viewer(viewer) = &mut conn.kind else { unreachable!("only viewers have seats") };
        let (at, part) = match plan.holds_won {
            false => (At::Whole(self.whole(plan, rides)), None),
            true => {
                let part = self.part(plan, rides, seat, viewer);
                (At::Part(part.frame), Some(part))
            }
        };
        let mut framed = self.framed(at, seat, viewer);
        if let Some(part) = part {
            (framed.sampled, framed.given_at) = (part.sampled, part.given_at);
        }
        framed
    }

    fn whole(&mut self, plan: &Plan, rides: Rides) -> usize {
        if let Some(at) = self.frames.iter().position(|f| f.plan == *plan && f.rides == rides) {
            return at;
        }
        if self.frames.len() == FRAMES_KEPT {
            self.frames.remove(0);
        }
        self.frames.push(Frame::new(&self.walk, self.retracts, plan, rides, &[]));
        self.frames.len() - 1
    }

    fn part(&mut self, plan: &Plan, rides: Rides, seat: &Seat, viewer: &mut Viewer) -> Part {
        let taste = if seat.who.has_taste() { viewer.taste(self.now) } else { None };
        let reader = parts::reader(seat.who, taste, self.parts.cap());
        // What a resume promised is the same part again, whatever was given since.
        let waited = seat.place.catch_up.is_none().then_some(seat.who.given_at());
        let (walk, retracts) = (&self.walk, self.retracts);
        self.parts.find(walk, plan, rides, &reader, waited, |given| Frame::new(walk, retracts, plan, rides, given))
    }

    fn framed(&mut self, at: At, seat: &Seat, viewer: &Viewer) -> Framed {
        let frame = kept(&mut self.frames, &mut self.parts, at);
        // A moderator is written what is private too, and what is its own in it.
        let moderates = frame.plan.private && bans::moderates(viewer.identity.as_deref(), self.room);
        if (moderates || frame.marks.may_hold(seat.who.mark()))
            && let Some(who) = &viewer.identity
            && (moderates
                || self.walk.entries_given(&frame.plan, &frame.given).any(|e| is_own(&e.payload, Some(&who.user))))
        {
            let (bytes, n_events) = self.encode(at, seat.transport, Some(&who.user), moderates);
            return Framed { n_events, ..Framed::of(kept(&mut self.frames, &mut self.parts, at), bytes) };
        }
        let known = match seat.transport {
            Transport::WebSocket => frame.web_socket.clone(),
            _ => frame.sse.clone(),
        };
        let bytes = known.unwrap_or_else(|| self.encode(at, seat.transport, None, false).0);
        let frame = kept(&mut self.frames, &mut self.parts, at);
        match seat.transport {
            Transport::WebSocket => frame.web_socket = Some(bytes.clone()),
            _ => frame.sse = Some(bytes.clone()),
        }
        let mut framed = Framed::of(frame, bytes);
        let len = ws::body_of(&framed.bytes).len();
        let shared = matches!(at, At::Whole(_)) || self.n_seats >= SHARED_LEAST;
        let worth = seat.reach.is_agreed() && shared && frames::is_worth_packing(len, seat.reach);
        if worth && let Some(deflater) = self.deflater.as_deref_mut() {
            let packing = &mut self.packing;
            let packed = frame.packed.get_or_insert_with(|| {
                let start = Instant::now();
                let packed = frames::pack(&framed.bytes, deflater);
                *packing += start.elapsed();
                packed
            });
            if let Some(packed) = packed {
                framed.saved = framed.bytes.len() - packed.len();
                framed.bytes = packed.clone();
            }
        }
        framed
    }

    fn encode(&mut self, at: At, transport: Transport, reader: Option<&UserId>, moderates: bool) -> (Bytes, ByLane) {
        let frame = kept(&mut self.frames, &mut self.parts, at);
        let (mut events, mut n_events) = (Vec::new(), ByLane::default());
        for entry in self.walk.entries_given(&frame.plan, &frame.given) {
            let hidden = entry.private && !moderates && !is_own(&entry.payload, reader);
            if !hidden && !is_retracted(self.retracts, &entry.payload) {
                events.push(Out::of(&entry.payload, reader));
                n_events.add(entry.lane, 1);
            }
        }
        if let Some(skipped) = &frame.skipped {
            events.insert(0, said::skipped_event(self.room, skipped));
        }
        if frame.rides.latest && !events.is_empty() {
            events.extend(self.latest.values.iter().map(|(kind, json)| Out { kind, id: None, json: json.into() }));
        }
        if let (true, false, Some(site)) = (frame.rides.banner, events.is_empty(), self.site) {
            // A whole frame of the one before it, whoever it is.
            events.extend(site.rides(site.version().wrapping_sub(1), self.now));
        }
        self.n_encoded += 1;
        (frames::encode(transport, &events), n_events)
    }
}

/// The frame of a walk that is kept there.
fn kept<'f>(frames: &'f mut [Frame], parts: &'f mut Parts<Frame>, at: At) -> &'f mut Frame {
    match at {
        At::Whole(at) => &mut frames[at],
        At::Part(at) => parts.frame(at),
    }
}

impl Frame {
    fn new(walk: &Walk<'_, Arc<Piece>>, retracts: &Retracts, plan: &Plan, rides: Rides, given: &[u64]) -> Frame {
        let (mut n_events, mut marks) = (ByLane::default(), Marks::default());
        for entry in walk.entries_given(plan, given) {
            n_events.add(entry.lane, u64::from(!entry.private && !is_retracted(retracts, &entry.payload)));
            if let Some((author, _)) = &entry.payload.author {
                marks.insert(UserMark::of(author));
            }
        }
        let skipped = walk.passed_over(plan, given);
        let given = given.into();
        Frame { plan: *plan, rides, given, skipped, n_events, marks, web_socket: None, packed: None, sse: None }
    }
}
