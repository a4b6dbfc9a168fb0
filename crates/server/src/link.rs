//! Where the roles meet: what a gateway worker, the shard and the control plane say to each other.
//!
//! Embedded, the link is a set of in-process mailboxes. Every mailbox is bounded; a full one is answered by a refusal, never
//! by waiting, so that no role can stop another. Nothing here decides anything.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use grandstand_core::ids::{EventId, Position, Pseq};
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::record::{Audience, Lane, Room};

/// One gateway worker of this process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct WorkerId(pub u16);

/// One connection of one worker. `generation` tells a reused slot from the connection an answer was meant for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ConnKey {
    pub worker: WorkerId,
    pub slot: u32,
    pub generation: u32,
}

/// One event of a room, encoded once, shared by every ring, frame and resume that carries it.
#[derive(Debug)]
pub struct Piece {
    pub id: EventId,
    pub lane: Lane,
    /// Flushes what waits in the merge window before it.
    pub closes_window: bool,
    pub pseq: Option<Pseq>,
    /// The `type` on the wire and SSE's `event:`.
    pub kind: &'static str,
    /// The JSON object, `room_id` included, without `client_msg_id`.
    pub json: Box<[u8]>,
    /// Whose it is: the author's own connections get `client_msg_id` too.
    pub author: Option<(UserId, Option<ClientMsgId>)>,
    pub audience: Audience,
}

/// What one commit added to one room, in id order.
#[derive(Debug)]
pub struct Batch {
    pub room: RoomId,
    pub pieces: Vec<Arc<Piece>>,
}

/// A room as a gateway needs it to greet and admit viewers.
#[derive(Clone, Debug)]
pub struct RoomInfo {
    pub room: RoomId,
    pub settings: Arc<Room>,
    /// The log's head when this was made: every batch with a higher id follows on this link.
    pub head: Position,
    /// The room's newest event that any viewer is sent, or START.
    pub last_event: Position,
    pub pseq: Pseq,
    /// JSON of hello's config members (an object), counters, pinned and banners, ready to embed.
    pub config_json: Arc<str>,
    pub counters_json: Arc<str>,
    pub pinned_json: Arc<str>,
    pub banners_json: Arc<str>,
}

/// What a cursor that the ring does not cover is answered.
#[derive(Clone, Debug)]
pub enum Resume {
    /// Everything of priority after `from` follows; comments after `comments_from` do.
    From { from: Position, pseq: Pseq, comments_all: bool, comments_from: Position },
    /// The stream goes on live from `cursor`; the reason is `too_old` or `unknown_cursor`.
    SnapshotRequired { reason: &'static str, cursor: Position, pseq: Pseq },
}

/// One page of a room's log for one catching-up viewer.
#[derive(Clone, Debug)]
pub struct Page {
    pub pieces: Vec<Arc<Piece>>,
    /// The page holds every event of the room after the asked position up to here.
    pub upto: Position,
}

/// Bounded, many senders, one receiver that is woken when the box stops being empty.
pub struct Mailbox<T> {
    queue: Mutex<VecDeque<T>>,
    limit: usize,
    wake: Box<dyn Fn() + Send + Sync>,
}

/// The box is full: the receiver is that far behind.
#[derive(Debug, PartialEq, Eq)]
pub struct Full<T>(pub T);

impl<T> Mailbox<T> {
    pub fn new(limit: usize, wake: impl Fn() + Send + Sync + 'static) -> Mailbox<T> {
        Mailbox { queue: Mutex::new(VecDeque::new()), limit, wake: Box::new(wake) }
    }

    /// Errors: the item comes back when the box holds `limit` already.
    pub fn send(&self, item: T) -> Result<(), Full<T>> {
        let first = {
            let mut queue = self.queue.lock().expect("no holder of a mailbox lock can panic");
            if queue.len() >= self.limit {
                return Err(Full(item));
            }
            queue.push_back(item);
            queue.len() == 1
        };
        if first {
            (self.wake)();
        }
        Ok(())
    }

    /// Takes all that has come, in order of sending.
    pub fn take(&self) -> VecDeque<T> {
        std::mem::take(&mut *self.queue.lock().expect("no holder of a mailbox lock can panic"))
    }

    pub fn len(&self) -> usize {
        self.queue.lock().expect("no holder of a mailbox lock can panic").len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// How long a refused client should wait, and over how long clients are spread.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Delay {
    pub retry_after: Duration,
    pub spread: Duration,
}
