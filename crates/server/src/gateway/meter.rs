//! What an HTTP/2 peer may make us do for nothing: frames counted as they pass, by kind, against budgets.
//!
//! The library answers every frame as it must; it does not ask whether anybody needs so many. The picture is a turnstile in
//! front of it: it reads the nine bytes at the front of each frame and nothing else, in both directions, and stops the belt
//! when a budget is spent. What is spent comes back with time. The connection then says ENHANCE_YOUR_CALM and ends.
//!
//! Sources: threats A-29 (rapid reset, CVE-2023-44487), A-30 (resets that we are made to send, CVE-2025-8671), A-31, A-32;
//! RFC 9113, 4.1 and 10.5; the allowance for WINDOW_UPDATE by DATA frames sent is Envoy's
//! (`max_inbound_window_update_frames_per_data_frame_sent`).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What comes after our end is read away, so that our last word is not lost to a reset; not more than this.
const AWAY_BYTES_MAX: usize = 1024 * 1024;
/// What a client says before its first frame. Source: RFC 9113, 3.4.
const PREFACE_BYTES: u32 = 24;
const HEAD_BYTES: usize = 9;
/// Budgets are full again after this long.
const PERIOD: Duration = Duration::from_secs(10);
/// RST_STREAM, both ways together.
const RESETS: u32 = 100;
/// SETTINGS, PING, PRIORITY, PRIORITY_UPDATE, CONTINUATION, GOAWAY and kinds nobody knows: ten a second.
const CONTROLS: u32 = 100;
/// DATA without a byte that ends nothing.
const EMPTIES: u32 = 100;
/// WINDOW_UPDATE: these, and for each DATA frame we send a few more.
const WINDOWS: u32 = 200;
const WINDOWS_PER_DATA: u32 = 10;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const WINDOW_UPDATE: u8 = 8;
const END_STREAM: u8 = 1;

/// What a connection's task sees of its turnstile.
#[derive(Default)]
pub struct Gauge {
    over: AtomicBool,
    /// Bytes that came.
    heard: AtomicU64,
}

impl Gauge {
    /// A budget is spent: nothing more is read.
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    pub fn heard(&self) -> u64 {
        self.heard.load(Ordering::Relaxed)
    }
}

/// A byte stream of HTTP/2 whose frames are counted.
pub struct Metered<S> {
    inner: S,
    gauge: Arc<Gauge>,
    coming: Frames,
    going: Frames,
    spent: Spent,
    /// Read away after our end.
    away: usize,
}

struct Spent {
    since: Instant,
    resets: u32,
    controls: u32,
    empties: u32,
    windows: u32,
    data_sent: u32,
}

/// Where in the stream of frames a direction is.
struct Frames {
    /// Bytes until the next head.
    skip: u32,
    head: [u8; HEAD_BYTES],
    n: usize,
}

impl<S> Metered<S> {
    /// The server's side of `inner`, from its first byte on.
    pub fn new(inner: S, gauge: Arc<Gauge>) -> Metered<S> {
        let frames = |skip| Frames { skip, head: [0; HEAD_BYTES], n: 0 };
        let spent = Spent { since: Instant::now(), resets: 0, controls: 0, empties: 0, windows: 0, data_sent: 0 };
        Metered { inner, gauge, coming: frames(PREFACE_BYTES), going: frames(0), spent, away: 0 }
    }

    fn judge(&self) {
        if self.spent.is_over() {
            self.gauge.over.store(true, Ordering::Relaxed);
        }
    }
}

impl Spent {
    fn renew(&mut self, now: Instant) {
        if now.duration_since(self.since) >= PERIOD {
            *self = Spent { since: now, resets: 0, controls: 0, empties: 0, windows: 0, data_sent: 0 };
        }
    }

    fn came(&mut self, kind: u8, flags: u8, len: u32) {
        match kind {
            DATA if len == 0 && flags & END_STREAM == 0 => self.empties += 1,
            // Paid for by flow control, and by the limits of what they ask for.
            DATA | HEADERS => {}
            RST_STREAM => self.resets += 1,
            WINDOW_UPDATE => self.windows += 1,
            _ => self.controls += 1,
        }
    }

    fn went(&mut self, kind: u8) {
        match kind {
            DATA => self.data_sent += 1,
            RST_STREAM => self.resets += 1,
            _ => {}
        }
    }

    fn is_over(&self) -> bool {
        self.resets > RESETS
            || self.controls > CONTROLS
            || self.empties > EMPTIES
            || self.windows > WINDOWS.saturating_add(self.data_sent.saturating_mul(WINDOWS_PER_DATA))
    }
}

impl Frames {
    /// Goes over bytes that passed and says of each frame that began its kind, flags and length.
    fn pass(&mut self, mut bytes: &[u8], mut frame: impl FnMut(u8, u8, u32)) {
        while !bytes.is_empty() {
            if self.skip > 0 {
                let n = bytes.len().min(self.skip as usize);
                self.skip -= n as u32;
                bytes = &bytes[n..];
                continue;
            }
            let n = bytes.len().min(HEAD_BYTES - self.n);
            self.head[self.n..self.n + n].copy_from_slice(&bytes[..n]);
            self.n += n;
            bytes = &bytes[n..];
            if self.n == HEAD_BYTES {
                let [a, b, c, kind, flags, ..] = self.head;
                self.skip = u32::from_be_bytes([0, a, b, c]);
                self.n = 0;
                frame(kind, flags, self.skip);
            }
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Metered<S> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.gauge.is_over() {
            // The task that polls looks at the gauge next.
            return Poll::Pending;
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut this.inner).poll_read(cx, buf))?;
        let came = &buf.filled()[before..];
        this.gauge.heard.fetch_add(came.len() as u64, Ordering::Relaxed);
        this.spent.renew(Instant::now());
        this.coming.pass(came, |kind, flags, len| this.spent.came(kind, flags, len));
        this.judge();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Metered<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        let n = ready!(Pin::new(&mut this.inner).poll_write(cx, buf))?;
        this.going.pass(&buf[..n], |kind, _, _| this.spent.went(kind));
        this.judge();
        Poll::Ready(Ok(n))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self;
        ready!(Pin::new(&mut this.inner).poll_shutdown(cx))?;
        let mut scratch = [0; 4_096];
        while this.away < AWAY_BYTES_MAX {
            let mut buf = ReadBuf::new(&mut scratch);
            // Who broke the connection has heard what it could.
            let broken = ready!(Pin::new(&mut this.inner).poll_read(cx, &mut buf)).is_err();
            this.away += buf.filled().len();
            if broken || buf.filled().is_empty() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTROLS, Frames, HEAD_BYTES, RESETS, Spent, WINDOWS};
    use std::time::{Duration, Instant};

    fn spent() -> Spent {
        Spent { since: Instant::now(), resets: 0, controls: 0, empties: 0, windows: 0, data_sent: 0 }
    }

    #[test]
    fn frames_are_found_wherever_the_bytes_are_cut() {
        let mut bytes = vec![b'P'; 24];
        for (kind, flags, len) in [(4, 0, 6), (0, 1, 300), (3, 0, 4), (0, 0, 0)] {
            bytes.extend_from_slice(&[0, (len >> 8) as u8, len as u8, kind, flags, 0, 0, 0, 1]);
            bytes.extend(std::iter::repeat_n(3, len));
        }
        for cut in 1..=40 {
            let mut frames = Frames { skip: 24, head: [0; HEAD_BYTES], n: 0 };
            let mut seen = Vec::new();
            for part in bytes.chunks(cut) {
                frames.pass(part, |kind, flags, len| seen.push((kind, flags, len)));
            }
            assert_eq!(seen, [(4, 0, 6), (0, 1, 300), (3, 0, 4), (0, 0, 0)], "in parts of {cut}");
        }
    }

    #[test]
    fn a29_a30_resets_of_both_sides_are_one_budget() {
        let mut spent = spent();
        (0..RESETS / 2).for_each(|_| spent.came(3, 0, 4));
        (0..RESETS / 2).for_each(|_| spent.went(3));
        assert!(!spent.is_over());
        spent.went(3);
        assert!(spent.is_over());
    }

    #[test]
    fn a32_updates_of_windows_are_paid_for_by_what_was_sent() {
        let mut spent = spent();
        (0..WINDOWS).for_each(|_| spent.came(8, 0, 4));
        assert!(!spent.is_over());
        spent.came(8, 0, 4);
        assert!(spent.is_over());
        spent.went(0);
        assert!(!spent.is_over());
    }

    #[test]
    fn a_budget_is_full_again_after_its_time() {
        let mut spent = spent();
        (0..=CONTROLS).for_each(|_| spent.came(6, 0, 8));
        assert!(spent.is_over());
        spent.renew(spent.since + Duration::from_secs(9));
        assert!(spent.is_over());
        spent.renew(spent.since + Duration::from_secs(10));
        assert!(!spent.is_over());
    }
}
