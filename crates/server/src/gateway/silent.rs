//! Providers of which nothing comes, on one worker: told to the rooms that show their matches, and told again when they are back.
//!
//! Like a card on the scoreboard that says "no word from the ground": it is one of the room's latest values, so it reaches each
//! viewer by the same walk as any number does and goes with the numbers as long as it hangs there. Who enters finds it beside
//! hello. A waiting poll is answered when it is put up or taken down.
//!
//! The shard's list is absolute, as the banners' is: what it does not name is over and was told.

use std::sync::Arc;

use grandstand_core::names::RoomId;
use grandstand_core::time::Wall;
use grandstand_core::watch::Silence;
use grandstand_wire::event;

use super::frames::Out;
use super::roster::Room;
use super::worker::Worker;

impl Room {
    /// The room's latest values as events of their own.
    pub fn latest_events(&self, as_of: Wall) -> Vec<Out<'static>> {
        let mut events = vec![self.counters_event(as_of)];
        events.extend(self.silent.iter().map(told_event));
        events
    }

    /// What a newcomer is told beside hello.
    pub fn silent_events(&self) -> impl Iterator<Item = Out<'static>> + '_ {
        self.silent.iter().filter(|told| !told.ended).map(told_event)
    }

    /// Appends what tells one state of it from another. What ended is no part of it: it is told once more and goes.
    pub fn note_silent(&self, text: &mut Vec<u8>) {
        for told in self.silent.iter().filter(|told| !told.ended) {
            text.extend_from_slice(told.match_id.as_str().as_bytes());
            text.push(0);
            text.extend_from_slice(&told.since.0.to_le_bytes());
        }
    }
}

fn told_event(told: &Silence) -> Out<'static> {
    let Silence { room, match_id, provider, since, ended } = told;
    let mut json = Vec::with_capacity(192);
    event::FeedStale { room, match_id, provider, since: *since, ended: *ended }.write(&mut json);
    Out::loose("feed_stale", json)
}

impl Worker {
    pub(super) fn on_silent(&mut self, told: &Arc<[Silence]>) {
        if self.silent == *told {
            return;
        }
        self.silent = told.clone();
        let now = self.now;
        for idx in self.rooms.iter().map(|(idx, _)| idx).collect::<Vec<_>>() {
            let mine = self.silent_of(&self.rooms[idx].id);
            let room = &mut self.rooms[idx];
            if room.silent == mine {
                continue;
            }
            // That the last word was said is no news.
            let is_news = !mine.is_empty();
            room.silent = mine;
            room.note_numbers();
            room.latest.stale.get_or_insert(now);
            if is_news && !room.seats.is_empty() {
                self.tell_soon(idx);
            }
        }
    }

    /// The list is in order of rooms.
    pub(super) fn silent_of(&self, room: &RoomId) -> Vec<Silence> {
        let from = self.silent.partition_point(|told| told.room < *room);
        self.silent[from..].iter().take_while(|told| told.room == *room).cloned().collect()
    }
}
