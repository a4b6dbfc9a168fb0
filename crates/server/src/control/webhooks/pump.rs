//! The loop that reads the log for all receivers and posts what they are told.
//!
//! One page of the log serves every receiver that stands at its beginning or in it, so receivers that keep up cost one reading. A receiver that
//! fails costs the deliveries that it is tried with and nothing else: its tracks keep places, not events.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use grandstand_core::ids::Position;
use grandstand_core::record::Record;
use grandstand_core::rng::Rng;
use grandstand_core::webhooks::{Failed, QUEUE_MAX, Track, Work};
use grandstand_wire::export;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::files::{self, Disabled, Saved};
use super::post::Failure;
use super::{Book, Filter, Webhooks};
use crate::auth::permit::{self, Permit};
use crate::clock;
use crate::control::Control;
use crate::link::ShardHandle;

/// How long an event waits at most before it is looked for.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The places are written this often while they move.
const SAVE_EVERY: Duration = Duration::from_secs(1);
/// Pages of the log that are read before deliveries are looked after again.
const PAGES_AT_ONCE: usize = 4;
/// Pages of one room's log that are read for a track before another track has its turn.
const TRACK_PAGES: usize = 4;
/// A receiver that says this does not want to be told any more.
const GONE: u16 = 410;

/// Events of a track with their places, and up to where that is all of them.
type Found = (Vec<(Position, Arc<Record>)>, Position);

/// What came of one piece of work.
enum Done {
    Sent { id: String, track: Track, kind: &'static str, event: u64, outcome: Result<(), Failure> },
    Read { id: String, track: Track, found: Option<Found> },
}

/// Runs for as long as the role is there. Begun anew, it tells again what was under way.
pub async fn run(control: Weak<Control>) {
    let mut under_way: JoinSet<Done> = JoinSet::new();
    let mut rng = Rng::new(u64::from_le_bytes(crate::auth::files::random::<8>()));
    let mut saved = clock::mono();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let Some(changed) = control.upgrade().map(|control| {
        control.webhooks.begin_anew();
        control.webhooks.changed.clone()
    }) else {
        return;
    };
    let mut looks = true;
    loop {
        let first = tokio::select! {
            done = under_way.join_next(), if !under_way.is_empty() => done,
            _ = ticks.tick(), if looks => None,
            () = changed.notified() => None,
        };
        let Some(control) = control.upgrade() else { return };
        let webhooks = &control.webhooks;
        for done in first.into_iter().chain(std::iter::from_fn(|| under_way.try_join_next())) {
            match done {
                Ok(done) => webhooks.settle(done, &mut rng),
                // A delivery does not panic; one that was lost would stop its track for ever.
                Err(fault) => panic!("a delivery was lost: {fault}"),
            }
        }
        webhooks.scan(&control.deps.shard).await;
        webhooks.begin(&control.deps.shard, &mut under_way);
        if clock::mono().since(saved) >= SAVE_EVERY {
            webhooks.save().await;
            saved = clock::mono();
        }
        looks = webhooks.has_work();
    }
}

impl Webhooks {
    /// Whether anybody is told, or anything has to be written: almost every server has no receiver.
    fn has_work(&self) -> bool {
        let book = self.book();
        book.moved || book.live.values().any(|live| live.receiver.disabled.is_none())
    }

    /// Reads the log on, from the receiver that is furthest behind and may be told more.
    async fn scan(&self, shard: &ShardHandle) {
        for _ in 0..PAGES_AT_ONCE {
            let head = shard.status().head();
            let after = {
                let book = self.book();
                let told = book.live.values().filter(|live| live.receiver.disabled.is_none() && live.tracks.may_scan());
                told.map(|live| live.tracks.base()).filter(|base| *base < head).min()
            };
            let Some(after) = after else { return };
            // A reader that is busy is asked again with the next look.
            let Ok(page) = shard.scan(after).await else { return };
            let mut book = self.book();
            for live in book.live.values_mut().filter(|live| live.receiver.disabled.is_none() && live.tracks.may_scan())
            {
                if (after..page.upto).contains(&live.tracks.base()) {
                    let wanted = page.records.iter().filter(|record| live.filter.takes(record));
                    let found =
                        wanted.map(|record| (record.event_id().position(), record.room.clone(), record.clone()));
                    live.tracks.scanned(found, page.upto);
                }
            }
            book.moved = true;
        }
    }

    /// Starts what is due.
    fn begin(&self, shard: &ShardHandle, under_way: &mut JoinSet<Done>) {
        let (now, wall) = (clock::mono(), clock::wall());
        let mut book = self.book();
        let erased = shard.status().erasing().begun();
        if std::mem::replace(&mut book.erased, erased) != erased {
            // What waits may name somebody of whom the log says nothing any more.
            book.live.values_mut().for_each(|live| live.tracks.forget());
        }
        for (id, live) in book.live.iter_mut().filter(|(_, live)| live.receiver.disabled.is_none()) {
            while let Some(work) = live.tracks.next(now) {
                let id = id.clone();
                match work {
                    Work::Send { track, item, .. } => {
                        let (kind, event) = (export::kind(&item).0, item.event_id().value());
                        let letter =
                            live.letter(format!("evt_{event}"), body(&item, permit::of_operators_book()), wall);
                        let (post, url) = (self.post.clone(), live.url.clone());
                        // It ends with its answer, or in 15 s.
                        under_way.spawn(async move {
                            let outcome = post.post(&url, &letter).await;
                            Done::Sent { id, track, kind, event, outcome }
                        });
                    }
                    Work::Read { track, after } => {
                        let (shard, filter, upto) = (shard.clone(), live.filter.clone(), live.tracks.base());
                        under_way.spawn(async move {
                            let found = read_track(&shard, &track, after, upto, &filter).await;
                            Done::Read { id, track, found }
                        });
                    }
                }
            }
        }
    }

    fn settle(&self, done: Done, rng: &mut Rng) {
        let (now, wall) = (clock::mono(), clock::wall());
        let mut book = self.book();
        let Book { live, moved, .. } = &mut *book;
        let mut disabled = false;
        match done {
            Done::Read { id, track, found } => {
                if let Some(live) = live.get_mut(&id) {
                    live.tracks.refilled(&track, found, now);
                }
            }
            Done::Sent { id, track, kind, event, outcome } => {
                let Some(live) = live.get_mut(&id) else { return };
                *moved = true;
                let Err(failure) = outcome else {
                    live.delivered += 1;
                    live.last_success = Some(wall);
                    live.tracks.delivered(&track);
                    self.count(0);
                    return;
                };
                live.failed += 1;
                self.count(1);
                if live.tracks.failing_since().is_none() {
                    tracing::warn!(%id, kind, event, %failure, "a receiver does not take what it is told");
                }
                let is_gone = matches!(failure, Failure::Status(GONE));
                let asked = match failure {
                    Failure::Later { again_after, .. } => Some(again_after),
                    _ => None,
                };
                live.last_failure = Some((wall, failure.to_string()));
                // What was out when it was disabled comes back after that.
                let was_told = live.receiver.disabled.is_none();
                match live.tracks.failed(&track, now, wall, asked, rng) {
                    Failed::Dead if was_told => {
                        let why = format!("nothing was delivered for {} s", self.rules.give_up.as_secs());
                        live.receiver.disabled = Some(Disabled { at_ms: wall.0, why });
                    }
                    Failed::PassedOver => {
                        live.passed_over += 1;
                        self.count(2);
                        tracing::error!(%id, kind, event, "an event was never taken and is passed over");
                    }
                    Failed::Again if is_gone && was_told => {
                        let why = "the receiver says that it is gone (410)".to_owned();
                        live.receiver.disabled = Some(Disabled { at_ms: wall.0, why });
                    }
                    Failed::Dead | Failed::Again => {}
                }
                if let Some(Disabled { why, .. }) = live.receiver.disabled.as_ref().filter(|_| was_told) {
                    disabled = true;
                    self.count(3);
                    tracing::error!(%id, %why, "a receiver of webhooks is disabled");
                }
            }
        }
        if disabled && let Err(fault) = self.write_receivers(&book) {
            // It fails again after a restart and is disabled again.
            tracing::error!(%fault, "webhooks.json could not be written");
        }
    }

    pub(super) fn write_receivers(&self, book: &Book) -> std::io::Result<()> {
        if book.is_lost {
            return Err(std::io::Error::other("webhooks.json could not be read and is not written over"));
        }
        files::write_receivers(&self.data, book.live.values().map(|live| &live.receiver))
    }

    /// Writes the places, when they moved.
    async fn save(&self) {
        let state: BTreeMap<String, Saved> = {
            let mut book = self.book();
            if !std::mem::take(&mut book.moved) {
                return;
            }
            book.live.iter().map(|(id, live)| (id.clone(), live.saved())).collect()
        };
        let data = self.data.clone();
        let written = tokio::task::spawn_blocking(move || files::write_state(&data, &state)).await;
        if let Err(fault) = written.map_err(std::io::Error::other).and_then(|written| written) {
            tracing::error!(%fault, "webhooks-state.json could not be written: after a crash more is told twice");
            self.book().moved = true;
        }
    }

    fn count(&self, which: usize) {
        self.counts[which].fetch_add(1, Ordering::Relaxed);
    }
}

/// A track's events after a place: enough for its queue, and up to where that is all of them. `None`: a reader is busy, or the log cannot be read.
async fn read_track(
    shard: &ShardHandle,
    track: &Track,
    after: Position,
    upto: Position,
    filter: &Filter,
) -> Option<Found> {
    let (mut found, mut at) = (Vec::new(), after);
    for _ in 0..TRACK_PAGES {
        let page = match track {
            Some(room) => shard.export(room.clone(), at).await,
            None => shard.scan(at).await,
        }
        .ok()?;
        let of_track = page.records.iter().filter(|record| record.room == *track && filter.takes(record));
        found.extend(of_track.map(|record| (record.event_id().position(), record.clone())));
        at = page.upto;
        if found.len() >= QUEUE_MAX || at >= upto || page.upto >= page.head {
            break;
        }
    }
    Some((found, at))
}

fn body(record: &Record, _permit: Permit) -> Vec<u8> {
    let mut out = Vec::with_capacity(512);
    export::write_webhook(record, &mut out);
    out
}
