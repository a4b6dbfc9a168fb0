//! One viewer as its worker knows it: who it is, which rooms it is in, and what it waits for.
//!
//! Shape: a box that an idle viewer needs whole; all that only a busy one needs hangs off it and is let go.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{ClientMsgId, RoomId};
use grandstand_core::sampler::pick::ViewerKey;
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::session::Session;
use grandstand_core::viewer::walk::{Place, Skipped};
use grandstand_wire::deflate::{Agreed, Reach};
use grandstand_wire::op;
use grandstand_wire::ws::{FrameReader, Limits};

use super::parts::{Taste, Who};
use super::polls::{Heard, Known, Line};
use super::streams::Held;
use crate::auth::Identity;
use crate::auth::ticket::StubId;
use crate::failpoint;
use crate::link::Page;
use crate::metrics::Transport;

/// Publishes that the owner has not answered yet: at most so many a viewer, and for a backend what the owner's queue holds.
pub const ASKED_MAX: usize = 256;
pub const ASKED_BY_BACKEND_MAX: usize = 8_192;
/// From a ping to any sign of life. Source: docs/protocol.md.
pub const PONG_WAIT: Duration = Duration::from_secs(10);
/// How often a viewer that does not take what it is sent is looked at.
const LATE_CHECK: Duration = Duration::from_secs(1);

/// Pings and pongs a client may send: twenty a second, a hundred at once. Four times what threats 4.1 gives, for clients
/// that measure; past it they are a flood.
const CONTROL_COST: Duration = Duration::from_millis(50);
const CONTROL_BURST: Duration = Duration::from_secs(5);

pub struct Viewer {
    pub transport: Transport,
    pub session: Session,
    pub identity: Option<Arc<Identity>>,
    /// The half of the session's name that no other connection ever had.
    pub nonce: u64,
    pub reader: FrameReader,
    /// What it takes packed, where that was agreed on.
    pub reach: Reach,
    /// Counted against its limits, and what it holds of them.
    pub counted: bool,
    pub held: Held,
    pub rare: Option<Box<Rare>>,
    /// The URL's room; with joins, the others too.
    pub first: Member,
    /// Until the stream's first bytes are out.
    pub opening: Option<Box<Opening>>,
    /// Next ping or keepalive, or the end of the wait for a pong.
    pub alive_at: Mono,
    pub pinged: bool,
    /// The newest notice of the site it was given.
    pub site: u16,
    /// A leaky bucket of the control frames it sends: ahead of now by what they cost.
    pub control: Mono,
}

/// What only few viewers have.
#[derive(Default)]
pub struct Rare {
    pub others: Vec<Member>,
    /// Oldest first.
    pub asked: VecDeque<Asked>,
    /// In the log as it was said in a wide room: what became of it is to be told.
    pub awaited: BTreeMap<(RoomId, ClientMsgId), EventId>,
    /// Said before the room's facts were here; asked when they are.
    pub early: Vec<(RoomId, op::Publish)>,
    pub stub: Option<StubId>,
    /// Of a long-poll: the line that counts against its user's and its address's polls.
    pub held_line: Option<Line>,
    /// Of an anonymous viewer that resumes, until it has a place.
    pub first_session: Option<ViewerKey>,
    pub taste: Option<Box<Taste>>,
}

/// A viewer's place in one room.
pub struct Member {
    /// Index into the worker's rooms; `NOWHERE` while it has none.
    pub room: u32,
    /// Index into the room's roster; `NOWHERE` while it is not in it.
    pub seat: u32,
    pub joining: Option<Box<Joining>>,
}

pub const NOWHERE: u32 = u32::MAX;

impl Member {
    pub fn nowhere() -> Member {
        Member { room: NOWHERE, seat: NOWHERE, joining: None }
    }
}

/// Between being let in and sitting in the roster.
pub struct Joining {
    pub room: RoomId,
    pub cursor: Position,
    pub stage: Stage,
    /// Who it is to the pick of a wide room.
    pub who: Who,
    /// A poll's answer of the log, on its way to be given.
    pub page: Option<Box<Page>>,
    pub skipped: Option<Skipped>,
}

#[derive(Clone, Copy, Debug)]
pub enum Stage {
    /// Held by a failpoint; what comes after it.
    Held(Hold),
    /// For the room's facts.
    Room,
    /// For the ring to reach back to the cursor.
    Past,
    /// For the log's answer to the cursor.
    Resume { request: u64 },
    /// Reading the log: the last page is written or on its way out, the next is asked for when it left.
    Pages { place: Place, comments_from: Position, request: Option<u64> },
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Hold {
    BeforeSubscribe,
    BeforeRead,
    BetweenPages { place: Place, comments_from: Position },
    BeforeLive { place: Place },
}

impl Hold {
    pub fn name(self) -> &'static str {
        match self {
            Hold::BeforeSubscribe => "resume.before_subscribe",
            Hold::BeforeRead => "resume.before_read",
            Hold::BetweenPages { .. } => "resume.between_pages",
            Hold::BeforeLive { .. } => "resume.between_last_page_and_live",
        }
    }
}

/// What of the request is needed until its answer begins.
pub struct Opening {
    /// `Sec-WebSocket-Accept`, and whether `grandstand.v1` was offered.
    pub accept: Option<String>,
    pub offered: bool,
    pub deflate: Option<Agreed>,
    /// A listed foreign origin, to be named in the answer.
    pub origin: Option<String>,
    pub keep_alive: bool,
    pub poll: Option<PollCall>,
}

pub struct PollCall {
    pub since: Option<Position>,
    pub line: Line,
    /// Whether another call may be on the same line.
    pub is_shared: bool,
    /// What its cursor's answer left out, to be told with the first events.
    pub skipped: Option<Skipped>,
    /// Of the comments after its cursor it is given a part.
    pub sampled: bool,
    /// The room's numbers as the caller knows them, where that is remembered, and as they were when it sat down: a change
    /// ends the wait.
    pub heard: Option<Heard>,
    pub found: Heard,
    /// The site's other banners are told with its answer.
    pub banners: Known,
    /// Not before this, and at the latest then.
    pub not_before: Mono,
    pub until: Mono,
}

/// A publish on its way through the owner.
pub struct Asked {
    pub request: u64,
    pub room: RoomId,
    pub client_msg_id: ClientMsgId,
}

impl Rare {
    /// What is in the log as it was said is not decided. Of more than `max` the newest are not asked about again when the shard
    /// goes away.
    pub fn wait_for(&mut self, room: RoomId, key: ClientMsgId, raw_id: EventId, max: usize) {
        if self.awaited.len() < max {
            self.awaited.insert((room, key), raw_id);
        }
    }
}

impl Viewer {
    /// Publishes it may have unanswered.
    pub fn asked_max(&self) -> usize {
        let is_backend = self.identity.as_ref().is_some_and(|who| who.is_backend());
        if is_backend { ASKED_BY_BACKEND_MAX } else { ASKED_MAX }
    }

    /// Counts one control frame; whether they are too many.
    pub fn floods(&mut self, now: Mono) -> bool {
        self.control = self.control.max(now) + CONTROL_COST;
        self.control.since(now) > CONTROL_BURST
    }

    /// Whether bytes of the client are read now: a poll's next request waits for its answer.
    pub fn reads(&self) -> bool {
        self.transport != Transport::Poll && self.opening.as_ref().is_none_or(|o| o.accept.is_none())
    }

    pub fn rare(&mut self) -> &mut Rare {
        self.rare.get_or_insert_default()
    }

    pub fn awaits_answers(&self) -> bool {
        self.rare.as_ref().is_some_and(|rare| !rare.asked.is_empty())
    }

    pub fn members(&self) -> impl Iterator<Item = &Member> {
        std::iter::once(&self.first).chain(self.rare.iter().flat_map(|rare| &rare.others))
    }

    pub fn member_mut(&mut self, idx: usize) -> &mut Member {
        if idx == 0 { &mut self.first } else { &mut self.rare().others[idx - 1] }
    }

    pub fn n_members(&self) -> usize {
        1 + self.rare.as_ref().map_or(0, |rare| rare.others.len())
    }

    /// The index of the member that is in, or on its way into, a room.
    pub fn member_of(&self, room: usize) -> Option<usize> {
        self.members().position(|m| m.room as usize == room)
    }

    /// When to look at it again. `held_up`: its socket does not take what it is sent.
    pub fn deadline(&self, held_up: bool, now: Mono, wall: Wall) -> Option<Mono> {
        let poll = self
            .opening
            .as_ref()
            .and_then(|o| o.poll.as_ref())
            .map(|p| if p.not_before > now { p.not_before.min(p.until) } else { p.until });
        let half_read = self.reader.half_read_since().map(|since| since + Limits::FROM_CLIENT.assembly);
        let held = self.members().any(|m| m.joining.as_ref().is_some_and(|j| matches!(j.stage, Stage::Held(_))));
        let held = held.then(|| now + failpoint::POLL);
        let late = held_up.then(|| now + LATE_CHECK);
        // A poll is answered within 30 s and told nothing before; the next brings a token of its own.
        let session = if self.transport == Transport::Poll { None } else { self.session.next_deadline(now, wall) };
        [Some(self.alive_at), poll, half_read, held, late, session].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::Viewer;
    use crate::auth::Identity;
    use crate::gateway::conn::Conn;
    use crate::gateway::roster::Seat;

    /// What docs/benchmarks.md adds up. An allocation of 24 + 16 n bytes wastes nothing of its block.
    #[test]
    fn a_viewer_is_small() {
        // A socket of mio remembers its poll where assertions are on.
        let of_mio = if cfg!(debug_assertions) { 8 } else { 0 };
        assert!(size_of::<Conn>() <= 88 + of_mio, "{}", size_of::<Conn>());
        assert!(size_of::<Viewer>() <= 184, "{}", size_of::<Viewer>());
        assert!(size_of::<Seat>() <= 48, "{}", size_of::<Seat>());
        // With the two counters of an Arc.
        assert!(size_of::<Identity>() + 16 <= 88, "{}", size_of::<Identity>());
    }
}
