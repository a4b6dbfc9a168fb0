//! A storm as one process of viewers makes and sees it: nearly all connections are cut at one moment, and come back.
//!
//! A viewer is back when its stream has greeted it again *and* it has been given an event that was published after that
//! greeting: events come in order, so everything of the gap has been given before. That is later than the moment it had caught
//! up, by at most the time between two events; it is never earlier.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use super::{CONNECTING_MAX, Phase, Viewers};
use crate::clock::micros;
use crate::event::Kind;
use crate::report::{Buckets, new_histogram};
use crate::run::{Slow, say};

/// Who is not back by then is told as missing.
pub const PATIENCE: Duration = Duration::from_secs(180);

/// Where a viewer is on its way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Back {
    Here,
    Dropped,
    /// Greeted again, at this moment of the clock.
    Greeted(u64),
}

/// What one process saw of one storm.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Returned {
    pub stayed: u64,
    pub dropped: u64,
    /// Dropped to back, milliseconds, in the order they came.
    pub back_ms: Vec<u32>,
    /// When each stream was asked for that was then let in, and when its greeting was read; microseconds of the clock.
    pub admitted: Vec<(u64, u64)>,
    /// Closes and refusals told meanwhile, by code.
    pub closes: BTreeMap<u16, u64>,
    /// Connections that ended without a word.
    pub broke: u64,
    /// Of those who stayed, while the others were away.
    pub comments: Buckets,
    pub scores: Buckets,
}

pub struct Storm {
    cut_at: Instant,
    n_away: u64,
    returned: Returned,
    comments: Histogram<u64>,
    scores: Histogram<u64>,
}

impl Storm {
    pub fn stayer(&mut self, kind: Kind, took_us: u64) {
        match kind {
            Kind::Score => self.scores.saturating_record(took_us),
            _ => self.comments.saturating_record(took_us),
        }
    }

    pub fn refused(&mut self, code: u16) {
        *self.returned.closes.entry(code).or_default() += 1;
    }

    pub fn broke(&mut self) {
        self.returned.broke += 1;
    }
}

impl Viewers {
    /// Connections that may be in the making at one time: in a storm everybody comes at once.
    pub(super) fn connecting_most(&self) -> usize {
        if self.storm.is_some() { usize::MAX } else { CONNECTING_MAX }
    }

    /// Cuts all connections but those of the given share, spread evenly, without a word; they come back at once.
    pub(super) fn drop_all_but(&mut self, share: f64) {
        let stay = Slow { share, bytes_per_second: 0 };
        let cut_at = Instant::now();
        let mut storm = Storm {
            cut_at,
            n_away: 0,
            returned: Returned::default(),
            comments: new_histogram(),
            scores: new_histogram(),
        };
        for slot in 0..self.viewers.len() {
            let viewer = &mut self.viewers[slot];
            viewer.stays = stay.is(viewer.n);
            if viewer.stays || viewer.phase == Phase::Ended {
                storm.returned.stayed += u64::from(viewer.stays);
                continue;
            }
            viewer.back = Back::Dropped;
            storm.n_away += 1;
            if viewer.phase != Phase::Away {
                if let Some(link) = self.drop_socket(slot) {
                    link.cut();
                }
                self.viewers[slot].phase = Phase::Away;
                self.seen.reconnects += 1;
                self.due.push(Reverse((cut_at, slot as u32)));
            }
        }
        storm.returned.dropped = storm.n_away;
        self.storm = Some(storm);
    }

    /// A stream was let in.
    pub(super) fn greeted(&mut self, slot: usize) {
        let viewer = &mut self.viewers[slot];
        if viewer.back == Back::Dropped {
            let now = micros();
            viewer.back = Back::Greeted(now);
            if let Some(storm) = &mut self.storm {
                storm.returned.admitted.push((viewer.asked_us, now));
            }
        }
    }

    /// An event was given that had been published at `sent_us`.
    pub(super) fn caught_up(&mut self, slot: usize, sent_us: u64) {
        let viewer = &mut self.viewers[slot];
        if let Back::Greeted(at) = viewer.back
            && sent_us >= at
        {
            viewer.back = Back::Here;
            if let Some(storm) = &mut self.storm {
                storm.returned.back_ms.push(storm.cut_at.elapsed().as_millis() as u32);
                storm.n_away -= 1;
            }
        }
    }

    /// It will not come back: it stays among the missing, and is not waited for.
    pub(super) fn never_back(&mut self, slot: usize) {
        if self.viewers[slot].back != Back::Here {
            self.viewers[slot].back = Back::Here;
            if let Some(storm) = &mut self.storm {
                storm.n_away -= 1;
            }
        }
    }

    /// Tells the parent once everybody is back, or nobody waits any longer.
    pub(super) fn say_when_back(&mut self) {
        if let Some(mut storm) = self.storm.take_if(|s| s.n_away == 0 || s.cut_at.elapsed() > PATIENCE) {
            storm.returned.comments = Buckets::of(&storm.comments);
            storm.returned.scores = Buckets::of(&storm.scores);
            say(&storm.returned);
            // Who comes back later is no part of the next storm's count.
            self.viewers.iter_mut().for_each(|v| v.back = Back::Here);
        }
    }
}
