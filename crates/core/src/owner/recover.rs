//! Coming back: checkpoints, the keys of the last ten minutes before them, the tail, then a new epoch.
//!
//! The tail goes through the reader rule and the same `apply` as a live batch, so an owner that crashed at any point and
//! came back holds what it held, but for the commands that were never answered.

use std::sync::Arc;

use crate::dedupe::{KEYS_MAX_BACKEND, Road};
use crate::ids::{Epoch, Pseq};
use crate::names::Key;
use crate::owner::Owner;
use crate::owner::checkpoint::{LogCheckpoint, RoomCheckpoint};
use crate::owner::view::RoomView;
use crate::planted::planted;
use crate::reader::{Reader, Reading};
use crate::record::{Body, Record, RetractTarget};

impl Owner {
    /// Takes the log's place from a checkpoint. Before anything is replayed.
    pub fn restore_log(&mut self, checkpoint: LogCheckpoint) {
        assert!(self.head().value() == 0, "a log is restored before it is replayed");
        self.reader = Reader::after(checkpoint.epochs);
        assert_eq!(self.head(), checkpoint.position, "a checkpoint's position is its newest epoch's last record");
        self.ts = checkpoint.ts;
        self.counting.restore(checkpoint.senders);
        if !planted(51) {
            self.site = checkpoint.site;
        }
        if planted(94) {
            self.site.bans = Arc::default();
        }
        if !planted(81) {
            self.access = checkpoint.access;
        }
    }

    /// Takes one room from a checkpoint.
    pub fn restore_room(&mut self, checkpoint: RoomCheckpoint) {
        let mut view = checkpoint.view;
        if planted(16) {
            view.pseq = Pseq(view.pseq.0.saturating_sub(1));
        }
        if planted(53) {
            view.combos = Arc::default();
        }
        if planted(74) {
            view.held = Arc::default();
        }
        if planted(123) {
            view.scores.values_mut().for_each(|ledger| Arc::make_mut(ledger).feed = None);
        }
        let at = self.slot_of(&view.room);
        self.slots[at].switch.set(view.wide);
        self.slots[at].view = Some(view);
        self.index_room(at, &[]);
        self.index_combos(at);
        self.index_all_held(at);
    }

    /// Takes the key of a record at or before the checkpoint's position. In log order, from ten minutes before it.
    pub fn replay_keys(&mut self, record: &Record) {
        if self.reader.holds(record.event_id()) {
            self.take_keys(record);
            self.recover_narrow(record);
            if let Some(user) = record.erases() {
                self.forget_said(user);
            }
        }
    }

    /// Takes the next record of the tail, in log order, and says what the reader rule makes of it.
    pub fn replay(&mut self, record: &Record) -> Reading {
        let reading = self.reader.read(record);
        if reading == Reading::Valid {
            self.take_in(&Arc::new(record.clone()), true);
        }
        reading
    }

    /// Goes on in `epoch`, whose EpochStart opens the next batch.
    ///
    /// Panics: when the log holds this epoch or a higher one already.
    pub fn start(&mut self, epoch: Epoch) {
        let newest = self.epochs().last().map(|s| s.epoch);
        if let Some(newest) = newest.filter(|_| planted(4)) {
            self.epoch = Some(newest);
            return;
        }
        assert!(newest.is_none_or(|newest| newest < epoch), "a take-over raises the epoch");
        self.epoch = Some(epoch);
        self.start_wide();
        self.start_verdicts();
    }

    /// The effect of one valid record, live and in recovery.
    pub(super) fn take_in(&mut self, record: &Arc<Record>, keys: bool) {
        self.ts = self.ts.max(record.ts);
        if let Body::Tally(tally) = &record.body {
            return self.take_tally(tally, record.ts);
        }
        self.site.take(record);
        if let Body::SiteBan(ban) = &record.body
            && !ban.shadow
        {
            for at in 0..self.slots.len() {
                self.take_from_window(at, &RetractTarget::User(ban.user.clone()));
            }
        }
        self.access.take(record);
        if let Some(user) = record.erases() {
            self.forget_user(user);
        }
        let Some(room) = &record.room else { return };
        let at = self.slot_of(room);
        if keys {
            self.take_keys(record);
        }
        let slot = &mut self.slots[at];
        slot.changed = true;
        let view = slot.view.get_or_insert_with(|| RoomView::new(room.clone(), super::fresh_room(room)));
        if !matches!(record.body, Body::Room(_)) {
            let decided = match &record.body {
                Body::HeldEnd(end) => view.held.get(&end.held).cloned(),
                _ => None,
            };
            view.apply(record);
            self.take_in_verdicts(at, record, decided);
            if matches!(record.body, Body::Gift(_) | Body::Combo(_)) {
                self.index_combos(at);
            }
            self.take_in_wide(at, record);
            return;
        }
        let matches: Vec<Key> = view.bound.keys().cloned().collect();
        view.apply(record);
        self.index_room(at, &matches);
        self.index_combos(at);
        self.take_in_wide(at, record);
    }

    /// Brings the indexes over all rooms in line with one room's settings.
    pub(super) fn index_room(&mut self, at: usize, matches_before: &[Key]) {
        let slot = &self.slots[at];
        let Some(view) = &slot.view else { return };
        self.order.insert(slot.room.clone(), at);
        for old in matches_before {
            if let Some(rooms) = self.matches.get_mut(old) {
                rooms.remove(&at);
                if rooms.is_empty() {
                    self.matches.remove(old);
                }
            }
        }
        for new in view.bound.keys() {
            self.matches.entry(new.clone()).or_default().insert(at);
        }
        let settings = &view.settings;
        self.slow_ends.set(at, settings.slow_mode_until.filter(|_| settings.slow_mode_seconds > 0));
        self.pin_ends.set(at, settings.pin_ends.values().min().copied());
        self.settle_ends.set(at, settings.settles_until);
    }

    /// What a retry and slow mode must know of a comment.
    fn take_keys(&mut self, record: &Record) {
        self.take_moderated_keys(record);
        let (Some(room), Some(user), Some(key)) = (&record.room, &record.user, &record.client_msg_id) else { return };
        let digest = match &record.body {
            Body::Comment(comment) => Some(self.comment_digest(&comment.text, comment.reply_to)),
            _ => None,
        };
        let at = self.slot_of(room);
        self.take_in_said(at, record);
        if self.epoch.is_none() {
            self.recover_said(at, record);
        }
        if let Some(raw_id) = record.raw_id() {
            // It was counted when it was said, and its key is that one's.
            if let Some(user) = self.slots[at].users.get_mut(user) {
                user.keys.won(key, raw_id, record.event_id());
            }
            return;
        }
        if let Some(held_id) = record.held_id()
            && let Some(known) = self.slots[at].users.get_mut(user)
        {
            // It was counted when it was held.
            known.keys.decided(key, held_id, record.event_id(), Road::Direct);
            return;
        }
        let road = if record.is_raw() { Road::Raw(None) } else { Road::Direct };
        let user = self.user_of(at, user, record.ts);
        user.slow.accept(record.ts);
        if self.epoch.is_none() && planted(3) {
            return;
        }
        let user = self.slots[at].users.get_mut(record.user.as_ref().expect("checked above")).expect("kept above");
        user.keys.insert(key, digest, (record.event_id(), road), record.ts, KEYS_MAX_BACKEND);
    }
}
