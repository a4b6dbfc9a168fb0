//! A process that can hold no more sockets: who comes then is told so, and sent where there is room.
//!
//! Descriptors are what a gateway runs out of. A few are kept free: with them, one who comes over the limit is still accepted,
//! read, and refused in words that its client can read, a handful at a time; the rest queue for that. Other requests are
//! served, so that an operator can look.
//!
//! Where other processes accept on the same port and have places, whatever this one is out of (descriptors, memory, or its part
//! of `connections_max`), the queue is emptied so and the listener then closes: the kernel deals new connections to the others,
//! instead of one in so many to a process that takes nobody. It opens again below 95 %, and when the others are full as well:
//! somebody must say no. The rule is `grandstand_core::places`. A gateway that an operator empties closes its listener as well,
//! as long as others take streams.
//!
//! The last resort is one spare descriptor, for when even those kept free are gone: it is given up, takes one who queues,
//! answers without reading much, and is had back. One worker at a time may use it. The awkward case is another worker that
//! accepts a viewer with the descriptor just given up: then there is none to be had back, and the queue waits until there is.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use grandstand_core::admission::RETRY_LEAST;
use grandstand_core::names::RoomId;
use grandstand_core::places::Taken;
use grandstand_wire::codes::CloseCode;
use grandstand_wire::{event, http};
use mio::{Interest, Token};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::conn::Kind;
use super::worker::{FIRST_LISTENER, Worker};
use super::{Settings, web};
use crate::kernel;
use crate::link::Delay;
use crate::metrics::{Refused, add};

/// Accepted and not yet refused at one time.
const REFUSED_AT_ONCE: u64 = 16;

/// How many sockets this process may hold, by the descriptors it has: what is open now and what the log, its WAL and refusals
/// take is left out.
pub fn sockets_max() -> u64 {
    let limit = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    let open = std::fs::read_dir("/proc/self/fd").map_or(0, |entries| entries.count() as u64);
    limit.saturating_sub(open + beside(limit)).max(1)
}

fn beside(limit: u64) -> u64 {
    kernel::DESCRIPTORS_BESIDE.min(limit / 4)
}

/// A descriptor to give up; any will do.
pub(super) struct Spare(Mutex<Option<File>>);

impl Spare {
    pub fn new() -> Spare {
        Spare(Mutex::new(Spare::another()))
    }
    fn another() -> Option<File> {
        File::open("/dev/null").ok()
    }
}

pub(super) fn is_out_of_descriptors(fault: &std::io::Error) -> bool {
    // Of the process (EMFILE) or of the system (ENFILE).
    let is = |errno: Errno| fault.raw_os_error() == Some(errno.raw_os_error());
    is(Errno::MFILE) || is(Errno::NFILE)
}

/// What becomes of the next one who comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Room {
    Free,
    /// It is accepted to be refused.
    Full,
    /// Enough are being refused: it waits.
    Crowded,
}

/// `n` sockets are held.
pub(super) fn room(n: u64, settings: &Settings) -> Room {
    let max = settings.sockets_max;
    let extra = REFUSED_AT_ONCE.min(max.div_ceil(8));
    match n {
        n if n < max => Room::Free,
        n if n < max + extra => Room::Full,
        _ => Room::Crowded,
    }
}

/// So long a listener that is left answers who queues at it; who comes on and on is the others' then.
const LEAVING: Duration = Duration::from_millis(250);

/// Who is refused while others have places meets one of them next, and need not wait for anybody to leave.
pub(super) const PLACES_ELSEWHERE: Delay = Delay { retry_after: RETRY_LEAST, spread: Duration::from_secs(1) };

impl Worker {
    pub(super) fn n_sockets(&self) -> u64 {
        self.shared.metrics.connections.load(Ordering::Relaxed).max(0) as u64
    }

    /// A place was taken or given back: where others listen on the port, they hear when there are none left, and when there
    /// are some again.
    pub(super) fn look_at_places(&mut self) {
        let shared = &self.shared;
        if !shared.settings.shares_address {
            return;
        }
        let sockets = Taken { n: self.n_sockets(), most: shared.settings.sockets_max };
        let streams = shared.streams.taken().unwrap_or(Taken { n: 0, most: u64::MAX });
        let memory = Taken { n: shared.admission.memory.refuses().into(), most: 1 };
        if !shared.admission.look_at_places(&[sockets, streams, memory]) {
            return;
        }
        let full = shared.admission.places().full;
        tracing::info!(full, sockets = sockets.n, streams = streams.n, "the places of this process");
        shared.shard.say_places();
        if !full {
            shared.workers.look_at_port();
        }
    }

    /// Closes the listeners or opens them again, as it is now. Once a second, and when something of it changed.
    pub(super) fn keep_listeners(&mut self) {
        self.look_at_places();
        if self.draining {
            return;
        }
        match self.leaves_port() {
            true => self.leave_port(),
            false => {
                self.leave_by = None;
                self.reopen_listeners();
            }
        }
    }

    /// Whoever comes is for others to take.
    fn leaves_port(&self) -> bool {
        self.shared.admission.leaves_port() || self.is_leaving()
    }

    /// Whoever queues here is taken first, and answered.
    fn leave_port(&mut self) {
        if self.listeners.is_empty() {
            return;
        }
        for idx in 0..self.listeners.len() {
            self.accept(idx);
        }
        let leave_by = *self.leave_by.get_or_insert(self.now + LEAVING);
        // Where more than a turn's share queues, they are taken in the next turns, and this is done after them.
        if self.accept_at.is_none() || self.now >= leave_by {
            self.leave_by = None;
            tracing::info!(worker = self.id.0, "the listener is closed: others take whoever comes");
            self.close_listeners();
        }
    }

    fn is_leaving(&self) -> bool {
        let (settings, admission) = (&self.shared.settings, &self.shared.admission);
        settings.shares_address && admission.is_draining() && admission.has_others()
    }

    fn close_listeners(&mut self) {
        for (mut listener, serves) in std::mem::take(&mut self.listeners) {
            if let Ok(address) = listener.local_addr() {
                self.shut.push((address, serves));
            }
            // Closing takes it out of epoll as well.
            let _ = self.registry().deregister(&mut listener);
        }
        self.shared.metrics.ports_left.fetch_add(1, Ordering::Relaxed);
    }

    fn reopen_listeners(&mut self) {
        if self.shut.is_empty() {
            return;
        }
        for (address, serves) in std::mem::take(&mut self.shut) {
            let opened = super::listener(address, true).and_then(|listener| {
                let mut listener = mio::net::TcpListener::from_std(listener);
                let token = Token(FIRST_LISTENER + self.listeners.len());
                self.registry().register(&mut listener, token, Interest::READABLE)?;
                Ok(listener)
            });
            match opened {
                Ok(listener) => self.listeners.push((listener, serves)),
                Err(fault) => {
                    tracing::warn!(%fault, %address, "a listener cannot be opened again yet");
                    self.shut.push((address, serves));
                }
            }
        }
        if self.shut.is_empty() {
            self.shared.metrics.ports_left.fetch_sub(1, Ordering::Relaxed);
            tracing::info!(worker = self.id.0, "the listener is open again");
        }
    }

    /// Refuses the stream of one who came over the limit. `false`: it did not.
    pub(super) fn refuse_over(&mut self, slot: usize, room: &RoomId, over: bool) -> bool {
        if !over {
            return false;
        }
        self.shared.metrics.add_refused(Refused::Sockets);
        let delay = self.room_ids.get(room).map(|&idx| self.pause(idx));
        let delay = if self.shared.admission.leaves_port() { Some(PLACES_ELSEWHERE) } else { delay };
        self.close_with(slot, CloseCode::TooMany, delay);
        // Its whole request was read: nothing unread can turn the end into a reset, and its descriptor is wanted.
        if self.conns.get(slot).is_some_and(|c| c.out.is_empty() && matches!(c.kind, Kind::Lingering { .. })) {
            self.drop_conn(slot);
        }
        true
    }

    /// Refuses a new stream while there is hardly any memory. A poll that goes on is none. `false`: it may go on.
    pub(super) fn refuse_for_memory(&mut self, slot: usize, room: &RoomId) -> bool {
        let shared = self.shared.clone();
        if !shared.admission.memory.refuses() {
            return false;
        }
        let now = self.now;
        let line = self.viewer(slot).and_then(|viewer| viewer.opening.as_ref()?.poll.as_ref()).map(|call| call.line);
        if line.is_some_and(|line| shared.polls.goes_on(line, now)) {
            return false;
        }
        shared.metrics.add_refused(Refused::Memory);
        let delay = match shared.admission.leaves_port() {
            true => Some(PLACES_ELSEWHERE),
            false => self.room_ids.get(room).map(|&idx| self.full_delay(idx)),
        };
        self.close_with(slot, CloseCode::TooMany, delay);
        true
    }

    /// Sends away one who queues while there is no descriptor for it. `false`: there was no spare, or it was lost.
    pub(super) fn refuse_by_spare(&mut self, idx: usize) -> bool {
        let shared = self.shared.clone();
        let mut spare = shared.spare.0.lock().expect("no holder of this lock can panic");
        if spare.take().is_none() {
            // It was lost to an ordinary accept; there may be one again.
            *spare = Spare::another();
            return false;
        }
        let Some((listener, _)) = self.listeners.get(idx) else { return false };
        let accepted = listener.accept();
        let is_refused = accepted.is_ok();
        if let Ok((mut stream, _)) = accepted {
            self.shared.metrics.add_refused(Refused::Sockets);
            add(&self.shared.metrics.accepted, 1);
            // Bytes left unread would turn the end into a reset, which may overtake the answer; there is no time to wait.
            let mut scratch = [0; 8 * 1024];
            let _ = stream.read(&mut scratch);
            // A handshake takes longer than there is; who speaks TLS sees an end.
            if self.shared.settings.tls.is_none() {
                let _ = stream.write(&refusal());
            }
            let _ = stream.shutdown(Shutdown::Write);
        }
        *spare = Spare::another();
        is_refused
    }
}

/// What one is told who cannot even be read.
fn refusal() -> Bytes {
    let close = event::Close::of(CloseCode::TooMany, None);
    let seconds = close.retry.map_or(1, |(after, _)| http::retry_after(after)).to_string();
    let mut json = Vec::with_capacity(160);
    close.write(&mut json);
    web::whole(503, "application/json", &json, false, &[("cache-control", "no-store"), ("retry-after", &seconds)])
}

#[cfg(test)]
mod tests {
    use super::beside;

    #[test]
    fn a_small_limit_keeps_a_quarter_beside() {
        assert_eq!((beside(100), beside(1_000_000)), (25, 512));
    }
}
