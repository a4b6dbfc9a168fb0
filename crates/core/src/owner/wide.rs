//! The wide road: windows of rooms that say more than anyone reads, and the switch between the two roads.
//!
//! A comment of a wide room is appended raw and answered like any other. Once it is durable it is offered to the room's window;
//! five times a second the window closes, its winners are moderated where the room's policy asks for it, and then given their
//! ids in the order they won. What becomes of a comment is told by [`Output::Fate`], once: the event it was shown as, or none.
//!
//! It must never let two comments of one user change places, on one road or across the switch: winners stand in one line a room,
//! the first of it is sequenced first, and a room is narrow only when nobody stands in the line any more and the window is empty.
//!
//! The awkward case is a crash: windows are not in the log. What was said in the last five seconds is offered again, but for what
//! a later comment of the same user has overtaken.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use crate::dedupe;
use crate::hash::Seeded;
use crate::ids::EventId;
use crate::moderation::{NO_VERDICT, Ruling};
use crate::names::{RoomId, UserId};
use crate::owner::admit::{banned, may_comment};
use crate::owner::answer::{Answer, Fate, Known, Output};
use crate::owner::bans::policy_version_of;
use crate::owner::command::{React, Tag};
use crate::owner::draft::Draft;
use crate::owner::shadow::Apart;
use crate::owner::{Owner, Slot, verdicts};
use crate::planted::planted;
use crate::record::{Body, Comment, Config, Crowd, Policy, RAW, Record, RetractTarget, Source, Verdict, Won};
use crate::sampler::Candidate;
use crate::sampler::known;
use crate::sampler::pick::{self, WindowNumber};
use crate::sampler::switch::{Change, Pace, Sampling};
use crate::sampler::window::{self, Offered, Window, Winner};
use crate::time::{Mono, Wall};
use crate::viewer::merge;

/// How long a window is. Source: docs/decisions/0005-numbers.md.
pub const WINDOW: Duration = Duration::from_millis(pick::WINDOW_MS);
/// How often a room's crowd is looked at.
pub const TICK: Duration = Duration::from_secs(1);
/// What a crash may give back to a window: the carry of a room at its fullest.
const RECOVERED_MAX: usize = 8_192;
/// Runs of raw ids that are known, 4 MiB. What a room says in one batch is one run, so a room alone in its log has some ten a second at
/// any rate and ten minutes are 6 000; where every other comment of the log is another room's each is a run of its own. A retract of an
/// older one that did not win is told to viewers, who know of no such event.
const RAW_RUNS_MAX: usize = 262_144;
/// Winners known by what they were said under: ten minutes of 96 a window, five a second; 8 MiB.
const WON_MAX: usize = 288_000;
/// So long after a room turned narrow what was said in it while it was wide is known: as long as at its fullest.
const KEPT: Duration = dedupe::WINDOW;
/// Reactions that count, to what waits in one room's window.
const REACTIONS_MAX: usize = 65_536;
/// A window that closed this much late does not number the ones that nobody saw.
const NUMBERS_BEHIND: u64 = 5;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Lift {
    Reply,
    Reaction,
}

/// A room that is wide, or was since the owner began.
pub(super) struct Wide {
    pub(super) window: Window,
    /// What shadow-banned users said, beside the window.
    pub(super) apart: Apart,
    known: known::Known,
    /// Who won and has no id yet, in order.
    line: VecDeque<Standing>,
    /// When the window closes, while there is somebody in it.
    pub(super) closes: Option<Mono>,
    raw: RawIds,
    /// What won, by what it was said under.
    won: BTreeMap<EventId, EventId>,
    /// What may still win: its fate is told once.
    pub(super) undecided: BTreeSet<EventId>,
    /// Who has lifted what may still win, by a reply or by a reaction, and how many that are.
    lifted: BTreeMap<EventId, BTreeSet<(Lift, UserId)>>,
    n_lifted: usize,
    /// Log time at which it is let go, while its room is narrow.
    kept_until: Option<Wall>,
}

/// A winner in the line.
#[derive(Clone)]
pub(super) struct Standing {
    winner: Winner,
    window: WindowNumber,
    judged: Judged,
}

#[derive(Clone, PartialEq)]
enum Judged {
    Waits {
        tag: Tag,
        /// It is asked about under this one.
        policy_version: u32,
    },
    Ready {
        ruling: Ruling,
        policy_version: u32,
        /// The question that it did not wait for any longer.
        question: Option<Tag>,
    },
    /// It goes when its turn comes: by this ruling, or because none came.
    Blocked(Option<Ruling>),
}

/// Which ids were said, as runs of ids that follow one another: rising.
#[derive(Default)]
struct RawIds(VecDeque<(EventId, EventId)>);

impl RawIds {
    /// The newest.
    fn push(&mut self, id: EventId) {
        match self.0.back_mut() {
            Some((_, last)) if last.value() + 1 == id.value() => *last = id,
            Some((_, last)) if *last >= id => {}
            _ => self.0.push_back((id, id)),
        }
        if self.0.len() > RAW_RUNS_MAX {
            self.0.pop_front();
        }
    }

    fn has(&self, id: EventId) -> bool {
        let after = self.0.partition_point(|(first, _)| *first <= id);
        after.checked_sub(1).is_some_and(|at| id <= self.0[at].1)
    }

    /// Nothing up to this one is known any more.
    fn forget(&mut self, upto: EventId) {
        while self.0.pop_front_if(|(_, last)| *last <= upto).is_some() {}
        if let Some((first, _)) = self.0.front_mut()
            && *first <= upto
        {
            *first = EventId::new(upto.value() + 1).expect("a later one is in the run");
        }
    }
}

impl Wide {
    /// Its window is made when it opens.
    fn new(hasher: Seeded, now: Mono) -> Wide {
        Wide {
            window: Window::new(window::Settings::default(), 0),
            apart: Apart::default(),
            known: known::Known::new(hasher, now),
            line: VecDeque::new(),
            closes: None,
            raw: RawIds::default(),
            won: BTreeMap::new(),
            undecided: BTreeSet::new(),
            lifted: BTreeMap::new(),
            n_lifted: 0,
            kept_until: None,
        }
    }

    /// Something was said in the room while it was wide.
    fn said(&mut self, raw_id: EventId) {
        self.raw.push(raw_id);
    }

    /// It was shown. Of nothing that is known to have been said it is forgotten that it won.
    fn shown(&mut self, raw_id: EventId, event_id: EventId) {
        self.won.insert(raw_id, event_id);
        if self.won.len() > WON_MAX
            && let Some((forgotten, _)) = self.won.pop_first()
        {
            self.raw.forget(forgotten);
        }
    }

    /// The event it was shown as, and whether it is known to have been said.
    fn of_raw(&self, id: EventId) -> (Option<EventId>, bool) {
        (self.won.get(&id).copied(), self.raw.has(id))
    }

    /// Somebody else's reply or reaction lifts what waits, each once.
    fn lift(&mut self, target: EventId, by: &UserId, lift: Lift) {
        let others = self.window.author_of(target).is_some_and(|author| author != by);
        if others && self.n_lifted < REACTIONS_MAX && self.lifted.entry(target).or_default().insert((lift, by.clone()))
        {
            self.n_lifted += 1;
            let (replies, reactions) = match lift {
                Lift::Reply => (1, 0),
                Lift::Reaction => (0, 1),
            };
            self.window.raise(target, replies, reactions);
        }
    }

    /// Its fate is known.
    fn decided(&mut self, raw_id: EventId) {
        self.undecided.remove(&raw_id);
        self.n_lifted -= self.lifted.remove(&raw_id).map_or(0, |users| users.len());
    }
}

impl Slot {
    pub(super) fn is_wide(&self) -> bool {
        self.view.as_ref().is_some_and(|view| view.wide)
    }

    /// What won of what was said under this id, and whether it is known to be a raw comment's.
    pub(super) fn of_raw(&self, id: EventId) -> (Option<EventId>, bool) {
        self.wide.as_ref().map_or((None, false), |wide| wide.of_raw(id))
    }

    /// What became of a raw comment, `None` while it may still win.
    pub(super) fn fate_of(&self, raw_id: EventId, won: Option<EventId>) -> Option<Fate> {
        match won {
            Some(event_id) => Some(Fate::Shown(event_id)),
            None if self.wide.as_ref().is_some_and(|wide| wide.undecided.contains(&raw_id)) => None,
            None => Some(Fate::NotShown),
        }
    }
}

impl Owner {
    /// Connections that watch a room now, as far as its caller knows: what the switch counts.
    pub fn set_viewers(&mut self, room: &RoomId, viewers: u64) {
        if let Some(&at) = self.index.get(room) {
            self.slots[at].viewers = viewers;
        }
    }

    /// Rooms whose crowd decides whether they are wide, and whose viewers the owner wants to be told.
    pub fn watched_rooms(&self) -> impl Iterator<Item = &RoomId> {
        self.active.iter().map(|at| &self.slots[*at].room)
    }

    /// What became of a raw comment, for who was told that it is in the log by an owner before this one.
    pub fn fate(&self, room: &RoomId, raw_id: EventId) -> Known {
        let Some(&at) = self.index.get(room) else { return Known::Forgotten };
        let slot = &self.slots[at];
        match slot.of_raw(raw_id) {
            (None, false) => Known::Forgotten,
            (won, _) => slot.fate_of(raw_id, won).map_or(Known::Waits, Known::Decided),
        }
    }

    /// Rooms that are wide now.
    pub fn n_wide(&self) -> u64 {
        self.active.iter().filter(|at| self.slots[**at].is_wide()).count() as u64
    }

    /// When a window closes, a winner's verdict is late or a crowd is looked at.
    pub(super) fn next_wide(&self) -> Option<Mono> {
        let closes = self.closing.first().map(|(at, _)| *at);
        let verdict = self.judged_winners.values().map(|(_, deadline)| *deadline).min();
        let (now, log_now) = (self.clock.0, self.log_now());
        let kept = self.kept.first().map(|(until, _)| now + until.since(log_now));
        [closes, verdict, self.tick_at, kept].into_iter().flatten().min()
    }

    pub(super) fn on_wide_deadline(&mut self, now: Mono) {
        let late: Vec<Tag> =
            self.judged_winners.iter().filter(|(_, (_, at))| *at <= now).map(|(tag, _)| *tag).collect();
        for tag in late {
            self.judge_winner(tag, None);
        }
        while let Some(&(at, slot)) = self.closing.first().filter(|(at, _)| *at <= now) {
            self.closing.remove(&(at, slot));
            self.close_window(slot, now);
        }
        if self.tick_at.is_some_and(|at| at <= now) {
            self.look_at_crowds(now);
        }
        self.let_go_of_narrow();
    }

    /// Of a room that has long been narrow nothing of its windows is asked any more.
    fn let_go_of_narrow(&mut self) {
        let log_now = self.log_now();
        while let Some(&(until, at)) = self.kept.first().filter(|(until, _)| *until <= log_now) {
            self.kept.remove(&(until, at));
            let slot = &mut self.slots[at];
            // It may have been wide again meanwhile.
            if slot.wide.as_ref().is_some_and(|wide| wide.kept_until == Some(until)) {
                slot.wide = None;
            }
        }
    }

    /// The room is narrow from here on.
    fn keep_for_a_while(&mut self, at: usize, ts: Wall) {
        if let Some(wide) = &mut self.slots[at].wide {
            wide.kept_until = Some(ts + KEPT);
            self.kept.insert((ts + KEPT, at));
        }
    }

    /// Rooms of which something is held that they were wide for.
    pub fn n_kept_wide(&self) -> usize {
        self.slots.iter().filter(|slot| slot.wide.is_some()).count()
    }

    /// Whether something of wide rooms is to be given an id.
    pub(super) fn has_wide_work(&self) -> bool {
        !self.turning.is_empty() || !self.lines.is_empty() || !self.apart_drawn.is_empty()
    }

    // ---- the switch ----

    fn look_at_crowds(&mut self, now: Mono) {
        let since = self.ticked.map_or(TICK, |before| now.since(before)).max(Duration::from_millis(1));
        self.ticked = Some(now);
        for at in self.active.clone() {
            let slot = &mut self.slots[at];
            let (said, frames) = (std::mem::take(&mut slot.said), slot.merged.take());
            let per_second = |n: u32| (u128::from(n) * 1_000 / since.as_millis()).min(u128::from(u32::MAX)) as u32;
            let pace = Pace { comments: per_second(said), frames: per_second(frames) };
            let Some(rules) = slot.view.as_ref().map(|view| &view.settings.sampling) else { continue };
            let crowd = Crowd { rate: pace.comments, viewers: slot.viewers };
            let limits = rules.limits();
            let change = slot.switch.on_tick(rules.when, &limits, pace, crowd.viewers, now);
            match change {
                Some(change) => drop(self.turning.insert(at, (change, crowd))),
                // The crowd thought better of it before it came to a record.
                None => drop(self.turning.remove(&at)),
            }
            if said == 0 && change.is_none() && !slot.switch.is_wide() {
                self.active.remove(&at);
            }
        }
        self.tick_at = (!self.active.is_empty()).then(|| now + TICK);
    }

    /// Something was said in the room, or its settings ask for a look.
    pub(super) fn watch_crowd(&mut self, at: usize, now: Mono) {
        if self.active.insert(at) && self.tick_at.is_none() {
            // Nobody was looked at for a while: what was said since then is of this second.
            self.ticked = Some(now);
            self.tick_at = Some(now + TICK);
        }
    }

    /// An operator's word holds at once.
    pub(super) fn obey_sampling(&mut self, at: usize, now: Mono) {
        let slot = &mut self.slots[at];
        let Some(view) = &slot.view else { return };
        let rules = &view.settings.sampling;
        if let Some(wide) = &mut slot.wide {
            wide.window.set_weights(&rules.weights);
        }
        match rules.when {
            Sampling::Auto if !view.wide => drop(self.turning.remove(&at)),
            Sampling::Auto => {}
            when => match slot.switch.on_tick(when, &rules.limits(), Pace::default(), 0, now) {
                Some(change) => {
                    let crowd = Crowd { rate: 0, viewers: slot.viewers };
                    self.turning.insert(at, (change, crowd));
                }
                None => drop(self.turning.remove(&at)),
            },
        }
        if slot.switch.is_wide() || when_is_set(rules.when) {
            self.watch_crowd(at, now);
        }
    }

    /// Rooms that turn, and winners whose turn has come, before anything else of the batch.
    pub(super) fn seal_wide(&mut self, draft: &mut Draft) {
        self.seal_drawn(draft);
        for (at, (change, crowd)) in std::mem::take(&mut self.turning) {
            match change {
                Change::Widen => self.seal_switch(draft, at, Body::Wide(crowd)),
                Change::Narrow if planted(61) || self.end_window(at) => {
                    self.seal_line(draft, at);
                    self.seal_switch(draft, at, Body::Narrow(crowd));
                }
                // Somebody in the line is still being judged.
                Change::Narrow => drop(self.turning.insert(at, (change, crowd))),
            }
        }
        for at in std::mem::take(&mut self.lines) {
            self.seal_line(draft, at);
        }
    }

    fn seal_switch(&mut self, draft: &mut Draft, at: usize, body: Body) {
        let Some(view) = self.drafted(draft, at) else { return };
        let sampled = matches!(body, Body::Wide(_));
        if view.wide == sampled {
            return;
        }
        let cap = view.settings.sampling.cap();
        self.push_private(draft, at, |r| r.body = body);
        let config = Config { sampled: Some(sampled), cap: Some(cap), ..Config::default() };
        self.log_priority(draft, at, |r| r.body = Body::Config(config));
    }

    /// The last window before the room is narrow: everyone in it wins or goes. False: somebody in the line is being judged.
    fn end_window(&mut self, at: usize) -> bool {
        let now = self.clock.0;
        let slot = &mut self.slots[at];
        let policy = slot.view.as_ref().map_or(Policy::Off, |view| view.settings.moderation_policy);
        let Some(wide) = &mut slot.wide else { return true };
        if wide.line.iter().any(|s| matches!(s.judged, Judged::Waits { .. })) {
            return false;
        }
        if let Some(closes) = wide.closes.take() {
            self.closing.remove(&(closes, at));
        }
        let winners = wide.window.finish(now);
        let mut gone = wide.window.take_gone();
        gone.extend(wide.apart.take());
        for winner in winners {
            if policy.judges_first() {
                // Nobody may wait behind the switch, and nothing unjudged may pass it.
                let raw = winner.candidate.record().clone();
                self.tell_fate(at, raw);
            } else {
                self.stand_in_line(at, winner);
            }
        }
        for raw in gone {
            self.tell_fate(at, raw);
        }
        true
    }

    // ---- the window ----

    /// A raw comment is durable.
    pub(super) fn offer(&mut self, record: &Arc<Record>) {
        let now = self.clock.0;
        let Some(&at) = record.room.as_ref().and_then(|room| self.index.get(room)) else { return };
        if !self.slots[at].is_wide() {
            // Its room turned narrow in the batch it came with, which is sealed before it: it cannot be raw then.
            return self.tell_fate(at, record.clone());
        }
        let (Body::Comment(comment), Some(user)) = (&record.body, &record.user) else { return };
        if comment.shadowed {
            return self.stand_apart(at, record);
        }
        let Some(wide) = &mut self.slots[at].wide else { return };
        if let Some(answered) = comment.reply_to {
            wide.lift(answered, user, Lift::Reply);
        }
        let addressee = wide.known.addressee(comment);
        wide.known.said(user, &comment.display, now);
        let Some(candidate) = Candidate::new(record.clone(), addressee, now) else { return };
        // What its author said under a shadow ban before it is overtaken.
        let overtaken = match wide.apart.is_empty() {
            true => Vec::new(),
            false => wide.apart.retract(&RetractTarget::User(user.clone())),
        };
        let offered = wide.window.offer(candidate, now);
        if matches!(offered, Offered::Held | Offered::ByRight) {
            wide.undecided.insert(record.event_id());
        }
        let mut gone = wide.window.take_gone();
        gone.extend(overtaken);
        if wide.closes.is_none() && !wide.window.is_empty() {
            wide.closes = Some(now + WINDOW);
            self.closing.insert((now + WINDOW, at));
        }
        for raw in gone {
            self.tell_fate(at, raw);
        }
        if matches!(offered, Offered::Folded | Offered::Lost) {
            self.tell_fate(at, record.clone());
        }
    }

    /// The room is to be narrow as soon as nobody in its line is being judged: nobody joins the line meanwhile.
    fn is_narrowing(&self, at: usize) -> bool {
        matches!(self.turning.get(&at), Some((Change::Narrow, _)))
    }

    fn close_window(&mut self, at: usize, now: Mono) {
        let narrowing = self.is_narrowing(at);
        let number = self.log_now().0 / WINDOW.as_millis() as u64;
        let slot = &mut self.slots[at];
        let Some(wide) = &mut slot.wide else { return };
        if narrowing {
            wide.closes = Some(now + WINDOW);
            self.closing.insert((now + WINDOW, at));
            return;
        }
        if wide.window.number() + NUMBERS_BEHIND < number {
            wide.window.skip_to(number);
        }
        let winners = wide.window.close(now);
        let gone = wide.window.take_gone();
        let (n_won, n_left) = (winners.len(), wide.window.len());
        for winner in winners {
            self.stand_in_line(at, winner);
        }
        for raw in gone {
            self.tell_fate(at, raw);
        }
        self.draw_apart(at, n_won, n_left, now);
        let Some(wide) = &mut self.slots[at].wide else { return };
        wide.closes = (!wide.window.is_empty() || !wide.apart.is_empty()).then(|| now + WINDOW);
        if let Some(closes) = wide.closes {
            self.closing.insert((closes, at));
        }
    }

    /// Puts a winner at the end of its room's line, asking for its verdict where the policy wants one.
    fn stand_in_line(&mut self, at: usize, winner: Winner) {
        let slot = &mut self.slots[at];
        let (Some(view), Some(wide)) = (&slot.view, &mut slot.wide) else { return };
        let window = WindowNumber(wide.window.number());
        let policy_version = policy_version_of(Some(view), &self.site);
        let ruling = Ruling::plain(Verdict::Unjudged);
        let mut judged = Judged::Ready { ruling, policy_version, question: None };
        let policy = view.settings.moderation_policy;
        if policy.judges_first() {
            let deadline = self.clock.0 + self.settings.verdict_within;
            self.questions += 1;
            let tag = verdicts::QUESTION | self.questions;
            judged = Judged::Waits { tag, policy_version };
            self.judged_winners.insert(tag, (at, deadline));
            let Body::Comment(comment) = &winner.candidate.record().body else { return };
            let (room, text) = (slot.room.clone(), comment.text.clone());
            let strict = policy == Policy::PreModerateStrict;
            self.out.push_back(Output::NeedVerdict { tag, room, text, deadline, strict });
        }
        wide.line.push_back(Standing { winner, window, judged });
        self.lines.insert(at);
    }

    /// The classifier's word on a winner. True when it was one of ours.
    pub(super) fn judge_winner(&mut self, tag: Tag, ruling: Option<Ruling>) -> bool {
        let Some((at, _)) = self.judged_winners.remove(&tag) else { return false };
        let narrowing = self.is_narrowing(at);
        let slot = &mut self.slots[at];
        let (Some(view), Some(wide)) = (&slot.view, &mut slot.wide) else { return true };
        let is_it = |s: &&mut Standing| matches!(s.judged, Judged::Waits { tag: its, .. } if its == tag);
        let Some(standing) = wide.line.iter_mut().find(is_it) else { return true };
        let strict = view.settings.moderation_policy == Policy::PreModerateStrict;
        // Nobody can wait in a wide room: what would be held elsewhere makes room for the next.
        let sternly = strict || view.settings.hold_flagged;
        let by_lot = !standing.winner.by_right;
        let Judged::Waits { policy_version, .. } = standing.judged else { return true };
        let mut is_late = false;
        standing.judged = match ruling {
            Some(ruling) if ruling.verdict == Verdict::Block => Judged::Blocked(Some(ruling)),
            Some(ruling) if ruling.verdict == Verdict::Flag && sternly => Judged::Blocked(Some(ruling)),
            Some(ruling) => Judged::Ready { ruling, policy_version, question: None },
            None if strict && !planted(71) => Judged::Blocked(None),
            None => {
                is_late = true;
                let ruling = Ruling::of(Verdict::Flag, NO_VERDICT);
                Judged::Ready { ruling, policy_version, question: Some(tag) }
            }
        };
        let blocked = matches!(standing.judged, Judged::Blocked(_));
        let mut next = Vec::new();
        if blocked && by_lot && !narrowing {
            // The next stands in the window that closed last, where an author has one winner.
            let last = WindowNumber(wide.window.number());
            let has_won =
                |author: &UserId| wide.line.iter().any(|s| s.window == last && s.winner.candidate.author() == author);
            next = wide.window.draw(1, self.clock.0, |author| !has_won(author));
        }
        if is_late {
            self.watch_shown(tag, at, None);
        }
        self.lines.insert(at);
        for winner in next {
            self.stand_in_line(at, winner);
        }
        true
    }

    /// Gives ids to the head of a room's line, a whole window at a time: nothing is picked of one that is not.
    fn seal_line(&mut self, draft: &mut Draft, at: usize) {
        loop {
            let Some(wide) = &mut self.slots[at].wide else { return };
            let Some(window) = wide.line.front().map(|head| head.window) else { return };
            let n = wide.line.iter().take_while(|standing| standing.window == window).count();
            if wide.line.iter().take(n).any(|standing| matches!(standing.judged, Judged::Waits { .. })) {
                return;
            }
            let mates: Vec<Standing> = wide.line.drain(..n).collect();
            let is_blocked = |standing: &Standing| matches!(standing.judged, Judged::Blocked(Some(_)));
            let stays: Vec<bool> =
                mates.iter().map(|mate| is_blocked(mate) || self.seal_winner(draft, at, mate)).collect();
            // Behind its winners: those of one window follow one another, and are picked from as one.
            for mate in &mates {
                let Judged::Blocked(Some(ruling)) = &mate.judged else { continue };
                let raw = mate.winner.candidate.record().clone();
                if let (Body::Comment(said), Some(user)) = (&raw.body, &raw.user) {
                    let said = Comment { rule: ruling.rule.clone(), ..said.clone() };
                    self.log_blocked(draft, at, user.clone(), (said, None), ruling.verdict, Some(raw.event_id()));
                }
            }
            for (mate, stays) in mates.into_iter().zip(stays) {
                if stays {
                    // The fate of those that were blocked is told when that is durable.
                    draft.winners.push((at, mate));
                } else {
                    self.forget_question(&mate);
                    self.tell_fate(at, mate.winner.candidate.record().clone());
                }
            }
        }
    }

    /// Whether the winner was given an id: it was not when its author was banned, or it was taken back, since it was said.
    fn seal_winner(&self, draft: &mut Draft, at: usize, standing: &Standing) -> bool {
        let raw = standing.winner.candidate.record();
        let Some(view) = self.view_in(draft, at) else { return false };
        let author = standing.winner.candidate.author();
        if ((self.is_banned_in(draft, at, author) || self.is_shadowed_in(draft, at, author)) && !planted(62))
            // A purge reaches by the time at which viewers are shown it.
            || (view.retracted.holds(raw.event_id(), draft.ts, Some(author)) && !planted(63))
            || may_comment(&view.settings).is_err()
        {
            return false;
        }
        let Judged::Ready { ruling, policy_version, .. } = &standing.judged else { return false };
        let version = self.policy_version_in(draft, at);
        let policy = view.settings.moderation_policy;
        let strict = policy == Policy::PreModerateStrict;
        // It stood in line when nobody was to be judged first.
        if policy.judges_first() && ruling.verdict == Verdict::Unjudged {
            return false;
        }
        if strict && (ruling.verdict != Verdict::Allow && !planted(71) || *policy_version != version && !planted(72)) {
            return false;
        }
        let Body::Comment(comment) = &raw.body else { return false };
        let room = self.slots[at].room.clone();
        let won = Won {
            window: standing.window,
            of: 0,
            weight: standing.winner.weight,
            repeats: standing.winner.repeats,
            by_right: standing.winner.by_right,
            addressee: standing.winner.candidate.addressee().cloned(),
        };
        let record = draft.push(Some(&room), |r| {
            r.user = raw.user.clone();
            r.client_msg_id = raw.client_msg_id.clone();
            r.verdict = ruling.verdict;
            r.policy_version = version;
            r.source = Some(Source { log: RAW.into(), id: raw.event_id() });
            r.body = Body::Comment(Comment { won: Some(Box::new(won)), rule: ruling.rule.clone(), ..comment.clone() });
        });
        draft.won.insert((at, raw.event_id()), record.event_id());
        true
    }

    /// A batch with winners is durable: those without a verdict are watched, those that were refused are told.
    pub(super) fn winners_committed(&mut self, winners: Vec<(usize, Standing)>) {
        for (at, standing) in winners {
            let raw = standing.winner.candidate.record();
            match &standing.judged {
                Judged::Blocked(_) => self.tell_fate(at, raw.clone()),
                Judged::Ready { question: Some(question), .. } => {
                    if let (Some(event_id), _) = self.slots[at].of_raw(raw.event_id()) {
                        self.was_shown(*question, event_id);
                    }
                }
                _ => {}
            }
        }
    }

    /// What is not shown needs no verdict.
    fn forget_question(&mut self, standing: &Standing) {
        if let Judged::Ready { question: Some(question), .. } = &standing.judged {
            self.shown.remove(question);
        }
    }

    /// Recovery: the raw comment was refused, and is not offered again.
    pub(super) fn recover_blocked(&mut self, at: usize, raw_id: EventId) {
        if let Some(said) = self.recovered.get_mut(&at) {
            said.retain(|raw| raw.event_id() != raw_id);
        }
    }

    /// A batch failed: its winners stand at the head of their lines again, in order.
    pub(super) fn stand_again(&mut self, winners: Vec<(usize, Standing)>) {
        for (at, standing) in winners.into_iter().rev().filter(|_| !planted(64)) {
            if let Some(wide) = &mut self.slots[at].wide {
                wide.line.push_front(standing);
                self.lines.insert(at);
            }
        }
    }

    /// `record`: what was said, or what it was shown as.
    pub(super) fn tell_fate(&mut self, at: usize, record: Arc<Record>) {
        let shown = record.raw_id();
        let raw_id = shown.unwrap_or(record.event_id());
        if let Some(wide) = &mut self.slots[at].wide {
            wide.decided(raw_id);
        }
        let fate = if shown.is_some() { Fate::Shown(record.event_id()) } else { Fate::NotShown };
        self.out.push_back(Output::Fate { raw_id, record, fate });
    }

    // ---- what the log says ----

    /// The effect on wide rooms of one valid record, live and in recovery, after the room's view took it in.
    pub(super) fn take_in_wide(&mut self, at: usize, record: &Arc<Record>) {
        let live = self.epoch.is_some();
        let now = self.clock.0;
        match &record.body {
            Body::Wide(_) => {
                self.slots[at].switch.set(true);
                if live {
                    self.open_window(at);
                }
            }
            Body::Narrow(_) => {
                self.slots[at].switch.set(false);
                self.recovered.remove(&at);
                if live {
                    self.keep_for_a_while(at, record.ts);
                }
            }
            Body::Retract(retract) => self.take_from_window(at, &retract.target),
            // What waits of a banned user would take the places of others, and their texts with it.
            Body::Ban(ban) if !ban.shadow => self.take_from_window(at, &RetractTarget::User(ban.user.clone())),
            Body::Room(_) if live => self.obey_sampling(at, now),
            Body::Comment(_) => {
                if record.raw_id().is_none() && live {
                    let slot = &mut self.slots[at];
                    slot.said += 1;
                    let fixed = slot.view.as_ref().and_then(|view| view.settings.merge_ms);
                    let window =
                        fixed.map_or_else(|| merge::window_at(slot.viewers), |ms| Duration::from_millis(ms.into()));
                    slot.merged.on_comments(1, window, now);
                    self.watch_crowd(at, now);
                }
                if live && record.raw_id().is_some() {
                    self.tell_fate(at, record.clone());
                }
            }
            _ => {}
        }
    }

    /// What waits and may not be shown goes, and its authors are told.
    pub(super) fn take_from_window(&mut self, at: usize, target: &RetractTarget) {
        let Some(wide) = &mut self.slots[at].wide else { return };
        wide.window.retract(target);
        let mut gone = wide.window.take_gone();
        gone.extend(wide.apart.retract(target));
        for raw in gone {
            self.tell_fate(at, raw);
        }
    }

    /// Winners of an erased user leave the line, and nobody in it or in the window speaks to that user any more.
    pub(super) fn forget_in_line(&mut self, at: usize, user: &UserId) {
        let Some(wide) = &mut self.slots[at].wide else { return };
        wide.known.forget(user);
        wide.window.forget(user);
        let (gone, mut left): (VecDeque<Standing>, VecDeque<Standing>) =
            std::mem::take(&mut wide.line).into_iter().partition(|s| s.winner.candidate.author() == user);
        left.iter_mut().for_each(|standing| standing.winner.candidate.forget(user));
        wide.line = left;
        if !gone.is_empty() {
            // Those of its window may have waited for it alone.
            self.lines.insert(at);
        }
        for standing in gone {
            self.forget_question(&standing);
            self.tell_fate(at, standing.winner.candidate.record().clone());
        }
    }

    /// The room is wide from here on, or again after a crash.
    fn open_window(&mut self, at: usize) {
        let now = self.clock.0;
        let (seed, hasher) = (self.lottery_seed(), self.hasher);
        let slot = &mut self.slots[at];
        slot.switch.set(true);
        let wide = slot.wide.get_or_insert_with(|| Box::new(Wide::new(hasher, now)));
        wide.kept_until = None;
        let Some(view) = &slot.view else { return };
        assert!(wide.window.is_empty() || planted(61), "a window is empty when its room is narrow");
        let seed = seed ^ crate::routing::stable_hash(slot.room.as_str().as_bytes());
        let weights = view.settings.sampling.weights.clone();
        let number = wide.window.number();
        wide.window = Window::new(window::Settings { weights, ..self.settings.window.clone() }, seed);
        wide.window.skip_to(number.max(view.window.0) + 1);
        for record in view.recent.iter() {
            if let (Body::Comment(comment), Some(user)) = (&record.body, &record.user) {
                wide.known.shown(record.event_id(), user);
                wide.known.said(user, &comment.display, now);
            }
        }
        self.watch_crowd(at, now);
    }

    /// A comment of either road, whose text may be erased.
    pub(super) fn take_in_said(&mut self, at: usize, record: &Record) {
        let (now, hasher) = (self.clock.0, self.hasher);
        let slot = &mut self.slots[at];
        if record.is_raw() || record.raw_id().is_some() {
            slot.wide.get_or_insert_with(|| Box::new(Wide::new(hasher, now)));
        }
        let Some(wide) = &mut slot.wide else { return };
        let id = record.event_id();
        if record.is_raw() {
            return wide.said(id);
        }
        if let Some(user) = &record.user {
            wide.known.shown(id, user);
        }
        if let Some(raw_id) = record.raw_id() {
            if !(planted(147) && self.epoch.is_none()) {
                wide.shown(raw_id, id);
            }
            if let Body::Comment(Comment { won: Some(won), .. }) = &record.body {
                // No later window has the number of one that was shown.
                wide.window.skip_to(won.window.0 + 1);
            }
        }
    }

    /// Recovery: what was said lately may still win, but for what its author has followed by something shown.
    pub(super) fn recover_said(&mut self, at: usize, record: &Record) {
        if record.is_raw() {
            if !matches!(record.body, Body::Comment(_)) {
                return;
            }
            let carry = self.settings.window.carry;
            let said = self.recovered.entry(at).or_default();
            said.push_back(Arc::new(record.clone()));
            while said.len() > RECOVERED_MAX || said.front().is_some_and(|old| record.ts.since(old.ts) >= carry) {
                said.pop_front();
            }
        } else if let Some(said) = self.recovered.get_mut(&at)
            && !planted(65)
        {
            let shown = record.raw_id().unwrap_or(record.event_id());
            said.retain(|raw| raw.user != record.user || raw.event_id() > shown);
        }
    }

    /// Recovery: the room turned narrow, and whoever waited won or went.
    pub(super) fn recover_narrow(&mut self, record: &Record) {
        if let (Body::Narrow(_), Some(at)) = (&record.body, record.room.as_ref().and_then(|room| self.index.get(room)))
        {
            self.recovered.remove(at);
        }
    }

    /// The owner begins: rooms that are wide go on, and what was said last is offered again.
    pub(super) fn start_wide(&mut self) {
        let now = self.clock.0;
        for at in 0..self.slots.len() {
            let Some(view) = &self.slots[at].view else { continue };
            let (wide, when) = (view.wide, view.settings.sampling.when);
            if wide {
                self.open_window(at);
            } else {
                self.keep_for_a_while(at, self.ts);
            }
            if wide || when_is_set(when) {
                self.obey_sampling(at, now);
            }
        }
        let carry = self.settings.window.carry;
        for (_, said) in std::mem::take(&mut self.recovered) {
            for raw in said {
                if self.ts.since(raw.ts) < carry {
                    self.offer(&raw);
                }
            }
        }
    }

    /// The owner's own, so that nobody outside can foresee a lot.
    pub(super) fn lottery_seed(&self) -> u64 {
        let epoch = self.epoch.map_or(0, |epoch| u64::from(epoch.value()));
        self.settings.seed ^ epoch.rotate_left(40)
    }

    // ---- reactions ----

    /// A reaction lifts what waits in a window; elsewhere it changes nothing.
    pub(super) fn react(&mut self, react: &React) -> Answer {
        let log_now = self.log_now();
        let done = Answer::Done { event_id: None };
        let Some(&at) = self.index.get(&react.room) else { return done };
        if self.is_silenced(at, &react.user, log_now) {
            return banned();
        }
        if self.is_shadowed(at, &react.user, log_now) {
            return done;
        }
        let Some(wide) = &mut self.slots[at].wide else { return done };
        wide.lift(react.target, &react.user, Lift::Reaction);
        done
    }

    /// A retract of what was said in a wide room or held, told in the way of what became of it.
    pub(super) fn retract_of(&self, draft: &Draft, at: usize, target: RetractTarget) -> (RetractTarget, bool) {
        let RetractTarget::Event(id) = target else { return (target, false) };
        let approved = self.view_in(draft, at).and_then(|view| view.approved.get(&id));
        if let Some(event_id) = approved.filter(|_| !planted(135)) {
            return (RetractTarget::Event(*event_id), false);
        }
        let (won, is_raw) = self.slots[at].of_raw(id);
        match won.or(draft.won.get(&(at, id)).copied()).filter(|_| !planted(146)) {
            Some(event_id) => (RetractTarget::Event(event_id), false),
            None => (target, is_raw && !planted(150)),
        }
    }
}

fn when_is_set(when: Sampling) -> bool {
    when != Sampling::Auto
}

#[cfg(test)]
mod tests {
    use super::{RAW_RUNS_MAX, RawIds, WON_MAX, Wide};
    use crate::hash::Seeded;
    use crate::ids::EventId;
    use crate::time::Mono;

    #[test]
    fn of_nothing_that_is_known_to_have_been_said_is_it_forgotten_that_it_won() {
        let id = |n: usize| EventId::new(1 << 33 | n as u64).expect("a valid id");
        let mut wide = Wide::new(Seeded(1), Mono(0));
        // A comment that loses, one that wins, and then so many others that the table is full.
        (0..2).for_each(|n| wide.said(id(n)));
        wide.shown(id(1), id(2));
        assert_eq!([0, 1].map(|n| wide.of_raw(id(n))), [(None, true), (Some(id(2)), true)]);
        for n in 2..=WON_MAX {
            wide.shown(id(2 * n), id(2 * n + 1));
        }
        assert_eq!(wide.of_raw(id(1)), (Some(id(2)), true));
        wide.said(id(2 * WON_MAX + 2));
        wide.shown(id(2 * WON_MAX + 2), id(2 * WON_MAX + 3));
        assert_eq!([0, 1].map(|n| wide.of_raw(id(n))), [(None, false); 2], "and not that it lost");
        assert_eq!(wide.of_raw(id(4)), (Some(id(5)), false));
    }

    #[test]
    fn what_was_said_in_a_row_is_known_however_much_it_was() {
        let id = |n: u64| EventId::new(1 << 33 | n).expect("a valid id");
        let mut raw = RawIds::default();
        // Five windows a second for a minute, each after a flood of 50 000 and with winners behind it.
        for window in 0..300 {
            (0..50_000).for_each(|n| raw.push(id(window * 50_064 + n)));
        }
        assert_eq!(raw.0.len(), 300);
        assert!([0, 49_999, 299 * 50_064].iter().all(|n| raw.has(id(*n))), "14 million later");
        assert!(![50_000, 50_063, 300 * 50_064].iter().any(|n| raw.has(id(*n))), "winners are none");
        // The same again, in a recovery.
        raw.push(id(7));
        assert_eq!((raw.0.len(), raw.has(id(7))), (300, true));
        raw.forget(id(10));
        assert!(!raw.has(id(10)) && raw.has(id(11)) && raw.has(id(49_999)));
    }

    #[test]
    fn of_rooms_that_take_turns_comment_by_comment_the_newest_are_known() {
        let id = |n: usize| EventId::new(1 << 33 | n as u64).expect("a valid id");
        let mut raw = RawIds::default();
        (0..=RAW_RUNS_MAX).for_each(|n| raw.push(id(2 * n)));
        assert_eq!((raw.0.len(), raw.has(id(0)), raw.has(id(2))), (RAW_RUNS_MAX, false, true));
        assert!(!raw.has(id(3)), "another room's");
    }

    #[test]
    fn a_run_ends_with_its_epoch() {
        let mut raw = RawIds::default();
        let [last, first] = [1 << 33 | 1 << 32, 2 << 33].map(|n| EventId::new(n).expect("a valid id"));
        raw.push(last);
        raw.push(first);
        assert!(raw.has(last) && raw.has(first));
    }
}
