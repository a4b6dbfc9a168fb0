//! A process that can hold no more sockets: who comes then is told so, and sent where there is room.
//!
//! Descriptors are what a gateway runs out of. A few are kept free: with them, one who comes over the limit is still accepted,
//! read, and refused in words that its client can read, a handful at a time; the rest queue for that. Other requests are
//! served, so that an operator can look. Where other processes accept on the same port, the queue is emptied so and the
//! listener then closes: the kernel deals new connections to the others, instead of one in so many to a process that takes
//! nobody. It opens again below 95 %. A gateway that an operator empties closes its listener as well, as long as others take
//! streams.
//!
//! The last resort is one spare descriptor, for when even those kept free are gone: it is given up, takes one who queues,
//! answers without reading much, and is had back. One worker at a time may use it. The awkward case is another worker that
//! accepts a viewer with the descriptor just given up: then there is none to be had back, and the queue waits until there is.

use std::fs::File;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Mutex;
use std::sync::atomic::Ordering;

use bytes::Bytes;
use grandstand_core::names::RoomId;
use grandstand_wire::codes::CloseCode;
use grandstand_wire::{event, http};
use mio::{Interest, Token};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit};

use super::conn::Kind;
use super::worker::{FIRST_LISTENER, Worker};
use super::{Settings, web};
use crate::kernel;
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

/// Whether a closed listener opens again: below 95 %.
pub(super) fn reopens(n: u64, max: u64) -> bool {
    n * 100 < max * 95
}

impl Worker {
    pub(super) fn n_sockets(&self) -> u64 {
        self.shared.metrics.connections.load(Ordering::Relaxed).max(0) as u64
    }

    /// The queue is empty and the process full: where others listen on the port, it is theirs.
    pub(super) fn close_listeners_if_full(&mut self) {
        let settings = &self.shared.settings;
        let full = room(self.n_sockets(), settings) != Room::Free;
        if !full || !settings.shares_address || self.listeners.is_empty() {
            return;
        }
        tracing::warn!(worker = self.id.0, sockets = self.n_sockets(), "full: the listener is closed");
        self.close_listeners();
    }

    /// This gateway is being emptied: where others take streams on the port, who comes back meets one of them. Whoever queues
    /// here is taken first, and answered.
    pub(super) fn close_listeners_if_leaving(&mut self) {
        if !self.is_leaving() || self.listeners.is_empty() {
            return;
        }
        for idx in 0..self.listeners.len() {
            self.accept(idx);
        }
        // More than a turn's share queues: they are taken in the next turns, and this is tried again in a second.
        if self.accept_at.is_none() {
            tracing::info!(worker = self.id.0, "drained: the listener is closed");
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
    }

    /// Once a second, and when sockets were given up.
    pub(super) fn reopen_listeners(&mut self) {
        if self.shut.is_empty()
            || self.draining
            || self.is_leaving()
            || !reopens(self.n_sockets(), self.shared.settings.sockets_max)
        {
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
        self.close_with(slot, CloseCode::TooMany, delay);
        // Its whole request was read: nothing unread can turn the end into a reset, and its descriptor is wanted.
        if self.conns.get(slot).is_some_and(|c| c.out.is_empty() && matches!(c.kind, Kind::Lingering { .. })) {
            self.drop_conn(slot);
        }
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
    use super::{beside, reopens};

    #[test]
    fn a_listener_opens_again_below_ninety_five_percent() {
        assert!(!reopens(100, 100) && !reopens(95, 100) && reopens(94, 100) && reopens(0, 1));
    }

    #[test]
    fn a_small_limit_keeps_a_quarter_beside() {
        assert_eq!((beside(100), beside(1_000_000)), (25, 512));
    }
}
