//! A connection of the loop whose other end is a task of this process and no socket: one HTTP/2 stream, speaking HTTP/1.0.
//!
//! The loop's end is one more kind of `Socket` (`socket.rs`): reads give the request, writes take what has room, and a pipe that is
//! full is a socket that is full, so a stream that does not move is a slow viewer by the same rules. The picture is a hatch
//! between two rooms with a bell on each side: who changed what the other waits for rings.
//!
//! A bell rings once however often it is pulled: a pipe is in the other side's box at most once, so boxes are bounded by pipes,
//! and one wake serves all viewers of a walk.

use std::io::{self, ErrorKind};
use std::mem;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

use bytes::{Bytes, BytesMut};
use tokio::sync::Notify;

use super::conn::Caller;
use crate::link::Mailbox;

/// What the loop may be ahead of the stream: as much as it may be ahead of a socket (TCP_NOTSENT_LOWAT in `gateway.rs`).
const AHEAD_BYTES_MAX: usize = 16 * 1024;

/// Pipes whose other side has done something.
pub type Bell = Mailbox<Arc<Pipe>>;

/// A bell for a thread's tasks, and what wakes those that were rung: to be spawned on the thread's runtime, with which it ends.
pub fn task_bell() -> (Arc<Bell>, impl Future<Output = ()> + Send + 'static) {
    let rung = Arc::new(Notify::new());
    let notify = rung.clone();
    let bell = Arc::new(Bell::new(usize::MAX, move || notify.notify_one()));
    let pipes = bell.clone();
    let wakes = async move {
        loop {
            rung.notified().await;
            for pipe in pipes.take() {
                pipe.wake_task();
            }
        }
    };
    (bell, wakes)
}

/// A place of the loop: its slot and which connection of the slot.
pub type Place = (usize, u32);

pub struct Pipe {
    /// Whose request it carries.
    pub caller: Caller,
    loop_bell: Arc<Bell>,
    task_bell: Arc<Bell>,
    state: Mutex<State>,
}

struct State {
    request: Vec<u8>,
    /// How much of it was read.
    read: usize,
    response: BytesMut,
    /// The loop found no room and waits for some.
    wants_room: bool,
    end: Option<End>,
    /// Nobody listens any more.
    gone: bool,
    place: Option<Place>,
    loop_rung: bool,
    task_rung: bool,
    task: Option<Waker>,
}

/// How the loop ended a response.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All was said.
    Said,
    /// The connection was dropped.
    Cut,
}

/// What the loop finds when it was rung.
pub struct Rung {
    /// `None`: the pipe is new.
    pub place: Option<Place>,
    pub has_room: bool,
    pub ended: bool,
}

/// The loop's end. Dropping it without a shutdown cuts the response.
pub struct Near(Arc<Pipe>);

/// The task's end. Dropping it ends the loop's connection.
pub struct Far(Arc<Pipe>);

/// A pipe that carries `request`; the loop is rung and finds it new.
pub fn open(caller: Caller, request: Vec<u8>, loop_bell: Arc<Bell>, task_bell: Arc<Bell>) -> Far {
    let state = State {
        request,
        read: 0,
        response: BytesMut::new(),
        wants_room: false,
        end: None,
        gone: false,
        place: None,
        loop_rung: false,
        task_rung: false,
        task: None,
    };
    let pipe = Arc::new(Pipe { caller, loop_bell, task_bell, state: Mutex::new(state) });
    let state = pipe.state();
    pipe.ring_loop(state);
    Far(pipe)
}

impl Pipe {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of a pipe's lock can panic")
    }

    fn ring_loop(self: &Arc<Pipe>, mut state: MutexGuard<'_, State>) {
        if !mem::replace(&mut state.loop_rung, true) {
            drop(state);
            let sent = self.loop_bell.send(self.clone());
            assert!(sent.is_ok(), "a bell's box has no limit but the pipes");
        }
    }

    fn ring_task(self: &Arc<Pipe>, mut state: MutexGuard<'_, State>) {
        // Without a waker the task is on its way to look.
        if state.task.is_some() && !mem::replace(&mut state.task_rung, true) {
            drop(state);
            let sent = self.task_bell.send(self.clone());
            assert!(sent.is_ok(), "a bell's box has no limit but the pipes");
        }
    }

    /// The loop was rung: what for.
    pub fn answer(&self) -> Rung {
        let mut state = self.state();
        state.loop_rung = false;
        let has_room = state.wants_room && state.response.len() < AHEAD_BYTES_MAX;
        Rung { place: state.place, has_room, ended: state.gone }
    }

    /// The loop takes a new pipe in. `None` when its task has gone already.
    pub fn take_in(self: &Arc<Pipe>, place: Place) -> Option<Near> {
        let mut state = self.state();
        state.place = Some(place);
        (!state.gone).then(|| Near(self.clone()))
    }

    /// The task's thread was rung.
    fn wake_task(&self) {
        let mut state = self.state();
        state.task_rung = false;
        let task = state.task.take();
        drop(state);
        if let Some(task) = task {
            task.wake();
        }
    }
}

impl Near {
    /// As of a socket: 0 is the other side's end. Errors: `WouldBlock` while the task only listens.
    pub fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        let rest = &state.request[state.read..];
        if rest.is_empty() {
            return if state.gone { Ok(0) } else { Err(ErrorKind::WouldBlock.into()) };
        }
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        state.read += n;
        if state.read == state.request.len() {
            (state.request, state.read) = (Vec::new(), 0);
        }
        Ok(n)
    }

    /// As of a socket. Errors: `WouldBlock` when there is no room, `BrokenPipe` when nobody listens.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut state = self.0.state();
        if state.gone || state.end.is_some() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        let n = bytes.len().min(AHEAD_BYTES_MAX - state.response.len());
        state.wants_room = n < bytes.len();
        if n == 0 && !bytes.is_empty() {
            return Err(ErrorKind::WouldBlock.into());
        }
        state.response.extend_from_slice(&bytes[..n]);
        self.0.ring_task(state);
        Ok(n)
    }

    /// All is said.
    pub fn shutdown(&mut self) {
        self.end(End::Said);
    }

    fn end(&mut self, end: End) {
        let mut state = self.0.state();
        if state.end.is_none() {
            state.end = Some(end);
            self.0.ring_task(state);
        }
    }
}

impl Drop for Near {
    fn drop(&mut self) {
        self.end(End::Cut);
    }
}

impl Far {
    /// How many bytes of the response wait, once it is more than `seen`, or how it ended when no more will come than that.
    pub fn poll_ready(&mut self, cx: &Context<'_>, seen: usize) -> Poll<Result<usize, End>> {
        let mut state = self.0.state();
        match (state.response.len(), state.end) {
            (n, _) if n > seen => Poll::Ready(Ok(n)),
            (_, Some(end)) => Poll::Ready(Err(end)),
            (n, None) if n == AHEAD_BYTES_MAX => Poll::Ready(Err(End::Cut)),
            (_, None) => {
                match &mut state.task {
                    Some(task) => task.clone_from(cx.waker()),
                    task => *task = Some(cx.waker().clone()),
                }
                Poll::Pending
            }
        }
    }

    /// Shows what waits.
    pub fn look<T>(&self, at: impl FnOnce(&[u8]) -> T) -> T {
        at(&self.0.state().response)
    }

    /// At most `most` bytes of what waits, and whether nothing follows them.
    pub fn take(&mut self, most: usize) -> (Bytes, bool) {
        let mut state = self.0.state();
        let bytes = match state.response.len() {
            // A stream that waits owns no buffer.
            n if n <= most => mem::take(&mut state.response),
            _ => state.response.split_to(most),
        };
        let last = state.response.is_empty() && state.end == Some(End::Said);
        if state.wants_room && !bytes.is_empty() {
            self.0.ring_loop(state);
        }
        (bytes.freeze(), last)
    }
}

impl Drop for Far {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.gone = true;
        (state.request, state.response, state.task) = (Vec::new(), BytesMut::new(), None);
        self.0.ring_loop(state);
    }
}

#[cfg(test)]
mod tests {
    use std::io::ErrorKind;
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use crate::edge::Serves;
    use crate::gateway::conn::Caller;

    use super::{AHEAD_BYTES_MAX, Bell, End, Far, Near, open};

    struct Both {
        loop_bell: Arc<Bell>,
        task_bell: Arc<Bell>,
        near: Near,
        far: Far,
    }

    fn both(request: &[u8]) -> Both {
        let bell = || Arc::new(Bell::new(usize::MAX, || {}));
        let (loop_bell, task_bell) = (bell(), bell());
        let far = open(
            Caller { peer: ([192, 0, 2, 1], 7).into(), serves: Serves::All },
            request.to_vec(),
            loop_bell.clone(),
            task_bell.clone(),
        );
        let pipe = loop_bell.take().pop_front().expect("the loop is rung for a new pipe");
        assert!(pipe.answer().place.is_none());
        let near = pipe.take_in((3, 9)).expect("its task is here");
        Both { loop_bell, task_bell, near, far }
    }

    fn ready(far: &mut Far) -> Poll<Result<usize, End>> {
        far.poll_ready(&Context::from_waker(Waker::noop()), 0)
    }

    #[test]
    fn a_full_pipe_is_a_full_socket_until_the_task_takes_some() {
        let mut b = both(b"");
        assert_eq!(b.near.write(&vec![7; AHEAD_BYTES_MAX + 5]).unwrap(), AHEAD_BYTES_MAX);
        assert_eq!(b.near.write(b"x").unwrap_err().kind(), ErrorKind::WouldBlock);
        assert_eq!(b.far.take(100).0.len(), 100);
        let rung = b.loop_bell.take().pop_front().expect("there is room again").answer();
        assert!(rung.has_room && !rung.ended && rung.place == Some((3, 9)));
        assert_eq!(b.near.write(&[7; 200]).unwrap(), 100);
    }

    #[test]
    fn the_task_is_rung_once_for_many_writes_and_only_when_it_waits() {
        let mut b = both(b"");
        b.near.write(b"before it waits").unwrap();
        assert!(b.task_bell.is_empty() && ready(&mut b.far) == Poll::Ready(Ok(15)));
        assert_eq!(b.far.take(99).0, "before it waits");
        assert!(ready(&mut b.far).is_pending());
        for _ in 0..9 {
            b.near.write(b"x").unwrap();
        }
        assert_eq!(b.task_bell.take().len(), 1);
    }

    #[test]
    fn an_end_is_heard_after_the_last_byte_and_a_cut_is_no_end() {
        let mut b = both(b"");
        b.near.write(b"bye").unwrap();
        b.near.shutdown();
        assert!(ready(&mut b.far) == Poll::Ready(Ok(3)));
        assert_eq!(b.far.take(2), ("by".into(), false));
        assert_eq!(b.far.take(2), ("e".into(), true));
        assert!(ready(&mut b.far) == Poll::Ready(Err(End::Said)));

        let mut cut = both(b"");
        drop(cut.near);
        assert!(ready(&mut cut.far) == Poll::Ready(Err(End::Cut)));
    }

    #[test]
    fn a_task_that_went_away_is_the_end_of_the_connection() {
        let mut b = both(b"GET");
        let mut buf = [0; 2];
        assert_eq!((b.near.read(&mut buf).unwrap(), &buf), (2, b"GE"));
        assert_eq!((b.near.read(&mut buf).unwrap(), buf[0]), (1, b'T'));
        assert_eq!(b.near.read(&mut buf).unwrap_err().kind(), ErrorKind::WouldBlock);
        drop(b.far);
        assert!(b.loop_bell.take().pop_front().unwrap().answer().ended);
        assert_eq!(b.near.read(&mut buf).unwrap(), 0);
        assert_eq!(b.near.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
    }
}
