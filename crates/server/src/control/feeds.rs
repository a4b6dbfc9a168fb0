//! Watching the providers of matches: who was heard, and which two disagree.
//!
//! The rules are [`grandstand_core::watch`]; here is the clock that asks them once a second, the shard they are asked about, and
//! the way to viewers: the shard's list for the whole site. What was heard is kept in memory, because after a restart every
//! provider speaks again.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use grandstand_core::names::Key;
use grandstand_core::record::RoomState;
use grandstand_core::watch::{Fed, Settings, Silence, Watch};
use tokio::time::MissedTickBehavior;

use super::Control;
use crate::clock;
use crate::link::{MatchDetail, Which};

/// A provider is called silent, and back, this much late at most.
const LOOK_EVERY: Duration = Duration::from_secs(1);

pub struct Feeds(Mutex<Watch>);

impl Feeds {
    pub fn new(settings: Settings) -> Feeds {
        Feeds(Mutex::new(Watch::new(settings, clock::mono(), clock::wall())))
    }

    /// A provider has signed something.
    pub fn hear(&self, provider: &Key) {
        self.watch().hear(provider, clock::mono(), clock::wall());
    }

    pub fn watch(&self) -> MutexGuard<'_, Watch> {
        self.0.lock().expect("no holder of this lock can panic")
    }

    /// Holds the matches against what was heard: what rooms are to be told now.
    fn look(&self, matches: &[Fed]) -> Vec<Silence> {
        let mut watch = self.watch();
        watch.look(matches, clock::mono(), clock::wall());
        watch.told()
    }
}

/// Looks once a second, for as long as the role is there.
pub async fn watch(control: Weak<Control>) {
    // What the shard was told last.
    let mut told: Arc<[Silence]> = Arc::default();
    let mut ticks = tokio::time::interval(LOOK_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(control) = control.upgrade() else { return };
        let Ok(matches) = control.deps.shard.matches(Which::Fed).await else { continue };
        let fed: Vec<Fed> = matches.iter().filter_map(fed).collect();
        let now = control.feeds.look(&fed);
        if *told != *now {
            log_news(&told, &now);
            told = now.into();
            control.deps.shard.tell_silent(told.clone());
        }
    }
}

/// Both are in order.
fn log_news(before: &[Silence], now: &[Silence]) {
    for silence in now.iter().filter(|silence| before.binary_search(silence).is_err()) {
        let (match_id, provider, room) = (&silence.match_id, &silence.provider, &silence.room);
        match silence.ended {
            false => tracing::warn!(%match_id, %provider, %room, "nothing comes from a match's primary provider"),
            true => tracing::info!(%match_id, %provider, %room, "a match's primary provider is back"),
        }
    }
}

fn fed(detail: &MatchDetail) -> Option<Fed> {
    let ledger = &detail.ledger;
    let feed = ledger.feed.as_ref()?;
    let live = detail.rooms.iter().filter(|(_, state)| *state == RoomState::Live);
    Some(Fed {
        match_id: detail.match_id.clone(),
        rooms: live.map(|(room, _)| room.clone()).collect(),
        primary: feed.primary.clone(),
        stand_by: feed.stand_by.clone(),
        score: ledger.score_of(&feed.primary),
        other: feed.stand_by.as_ref().and_then(|other| ledger.score_of(other)),
    })
}
