//! The shard is away: viewers keep their sockets, are told so once, and go on where they stood when it is back.
//!
//! Like a theatre whose curtain stuck: nobody is sent home. The pause is the room's newest latest value, so it reaches each
//! viewer by the same walk as any number does, and the first counters after it say that it is over. What was asked and not
//! answered may have happened: its author is told to ask again under the same key. What is asked meanwhile is refused at the
//! door, each refusal with its own draw of the room's spread, so that nobody comes back at the same moment.
//!
//! The awkward case is a viewer that was half way in: who was not greeted yet is told that the room is not ready, who is
//! reading the log asks for its page again.

use std::time::Duration;

use grandstand_core::names::RoomId;
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::event;
use grandstand_wire::problem::Wait;

use super::conn::Kind;
use super::frames::{self, Out};
use super::said::event_error_after;
use super::viewer::{Stage, Viewer};
use super::worker::Worker;
use crate::link::{AskFate, Delay};
use crate::metrics::{Transport, add};

/// `reason` of `feed_paused`.
const REASON: &str = "owner_away";
/// An owner is back within a few seconds or is looked for by people.
const RETRY: Duration = Duration::from_secs(1);

impl Worker {
    pub(super) fn on_away(&mut self) {
        if std::mem::replace(&mut self.away, true) {
            return;
        }
        tracing::warn!(worker = self.id.0, viewers = self.conns.len(), "the shard is away: feeds are paused");
        for idx in self.rooms.iter().map(|(idx, _)| idx).collect::<Vec<_>>() {
            if self.rooms[idx].refill.is_some() {
                self.give_up_refill(idx);
            }
            if self.rooms[idx].info.is_some() {
                self.tell_pause(idx);
            }
        }
        for slot in self.conns.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.guarded(slot, |w| w.leave_hanging(slot));
        }
    }

    /// Every viewer of the room is told, by the walk; a waiting call is answered with it.
    fn tell_pause(&mut self, idx: usize) {
        let Wait { retry_after_ms, spread_ms } = self.pause(idx).wait();
        let room = &mut self.rooms[idx];
        let mut json = Vec::with_capacity(192);
        event::FeedPaused { room: &room.id, reason: REASON, retry_after_ms, spread_ms }.write(&mut json);
        let paused = Out::loose("feed_paused", json);
        room.latest.replace(std::slice::from_ref(&paused));
        let polls = room.seats.iter().filter(|s| s.transport == Transport::Poll);
        let polls: Vec<_> = polls.map(|s| (s.slot as usize, s.place.position)).collect();
        for (slot, position) in polls {
            self.guarded(slot, |w| w.answer_call(slot, vec![paused.clone()], position));
        }
        self.queue_walk(idx);
    }

    /// What one connection waited for of the shard will not come.
    fn leave_hanging(&mut self, slot: usize) {
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return };
        let asked = viewer.rare.as_mut().map_or_else(Default::default, |rare| std::mem::take(&mut rare.asked));
        let unknown = "the shard went away before it answered; it may have happened";
        let answers: Vec<Out<'static>> = asked
            .iter()
            .map(|a| event_error_after(Some(&a.room), ErrorCode::Unknown, unknown, Some(&a.client_msg_id), Some(RETRY)))
            .collect();
        if !answers.is_empty() {
            let mut bytes = Vec::new();
            for answer in answers {
                bytes.extend_from_slice(&frames::encode(Transport::WebSocket, &[answer]));
            }
            self.send(slot, bytes.into());
        }
        let Some(viewer) = self.viewer(slot) else { return };
        let ungreeted = |stage: Stage| matches!(stage, Stage::Room | Stage::Past | Stage::Resume { .. });
        let waiting = viewer.first.joining.as_ref().filter(|joining| ungreeted(joining.stage));
        if let Some(room) = waiting.map(|joining| joining.room.clone()) {
            self.refuse_unready(slot, &room);
        }
    }

    pub(super) fn on_back(&mut self) {
        if !std::mem::replace(&mut self.away, false) {
            return;
        }
        tracing::info!(worker = self.id.0, rooms = self.rooms.len(), "the shard is back");
        for room in self.rooms.iter().map(|(_, room)| room.id.clone()).collect::<Vec<_>>() {
            self.shared.shard.subscribe(self.id, room);
        }
        for slot in self.conns.iter().map(|(slot, _)| slot).collect::<Vec<_>>() {
            self.guarded(slot, |w| w.ask_again(slot));
        }
    }

    /// Asks once more what the shard that went away was asked.
    fn ask_again(&mut self, slot: usize) {
        let conn = self.key(slot);
        if let Some(rare) = self.viewer(slot).and_then(|viewer| viewer.rare.as_ref()) {
            let asked = rare.awaited.iter().map(|((room, key), raw_id)| AskFate {
                conn,
                room: room.clone(),
                client_msg_id: key.clone(),
                raw_id: *raw_id,
            });
            asked.collect::<Vec<_>>().into_iter().for_each(|asked| self.shared.shard.ask_fate(asked));
        }
        let stage = |viewer: &Viewer, member: usize| {
            viewer.members().nth(member).and_then(|m| m.joining.as_ref()).map(|joining| joining.stage)
        };
        let mut member = 0;
        while let Some(viewer) = self.viewer(slot)
            && member < viewer.n_members()
        {
            match stage(viewer, member) {
                Some(Stage::Resume { .. }) => self.ask_resume(slot, member),
                Some(Stage::Pages { place, comments_from, request: Some(_) }) => {
                    self.ask_page(slot, member, place, comments_from);
                }
                _ => {}
            }
            member += 1;
        }
    }

    /// How long clients of a room wait while its feed is paused.
    pub(super) fn pause(&self, idx: usize) -> Delay {
        let tally = &self.rooms[idx].tally;
        Delay { retry_after: RETRY, spread: self.shared.admission.spread(&tally.demand, tally.here(), self.now) }
    }

    /// How long clients wait that find no place in a room, or none in the gateway: as the code says, and the longer the more
    /// of the room may be coming.
    pub(super) fn full_delay(&self, idx: usize) -> Delay {
        let (retry_after, least) = CloseCode::TooMany.retry().expect("a client that was one too many comes back");
        let least = Duration::from_millis(least.into());
        Delay { retry_after: Duration::from_millis(retry_after.into()), spread: self.pause(idx).spread.max(least) }
    }

    /// Refuses a stream while the shard is away or not ready yet.
    pub(super) fn refuse_unready(&mut self, slot: usize, room: &RoomId) {
        let delay = self.room_ids.get(room).map(|&idx| self.pause(idx));
        self.close_with(slot, CloseCode::NotReady, delay);
    }

    /// Refuses a publish while the shard is away, with a wait of its own.
    pub(super) fn refuse_publish(&mut self, slot: usize, room: &RoomId, key: &grandstand_core::names::ClientMsgId) {
        let delay = self.room_ids.get(room).map(|&idx| self.pause(idx));
        let Delay { retry_after, spread } = delay.unwrap_or(Delay { retry_after: RETRY, spread: RETRY });
        let drawn = Duration::from_millis(self.rng.below(spread.as_millis() as u64 + 1));
        add(&self.shared.metrics.ops_refused, 1);
        let why = "the room's feed is paused";
        let error = event_error_after(Some(room), ErrorCode::NotReady, why, Some(key), Some(retry_after + drawn));
        self.say(slot, error);
    }
}
