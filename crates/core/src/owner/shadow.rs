//! What a shadow-banned user says in a wide room: it stands beside the window, as if it were in it.
//!
//! It takes nobody's place and folds into nothing, and yet what becomes of it looks like anybody's lot: it is drawn as often as
//! the room's candidates are: once among those of its window, then only where a place is free; and it is given up after as long
//! a wait. What is drawn is sequenced for its author and the moderators alone.
//!
//! The awkward case is a room that judges before it shows: a comment that nobody judged is shown to no one there, and its author
//! is told that it was not.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use crate::names::UserId;
use crate::owner::Owner;
use crate::owner::admit::may_comment;
use crate::owner::draft::Draft;
use crate::owner::wide::WINDOW;
use crate::planted::planted;
use crate::record::{Audience, Body, RAW, Record, RetractTarget, Source};
use crate::routing::stable_hash;
use crate::time::Mono;

/// Of one room; the next is not shown at once.
const APART_MAX: usize = 1_024;

/// What stands beside a room's window, oldest first.
#[derive(Default)]
pub(super) struct Apart(VecDeque<Stands>);

struct Stands {
    raw: Arc<Record>,
    since: Mono,
    /// The window that was closed last when it came.
    after: u64,
}

impl Apart {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes out what a retract means.
    pub fn retract(&mut self, target: &RetractTarget) -> Vec<Arc<Record>> {
        let is_meant = |raw: &Record| target.means(raw.event_id(), raw.user.as_ref(), raw.ts);
        let (gone, kept) = std::mem::take(&mut self.0).into_iter().partition(|it| is_meant(&it.raw));
        self.0 = kept;
        let gone: VecDeque<Stands> = gone;
        gone.into_iter().map(|it| it.raw).collect()
    }

    pub fn take(&mut self) -> Vec<Arc<Record>> {
        self.0.drain(..).map(|it| it.raw).collect()
    }
}

impl Owner {
    /// A raw comment of a shadow-banned user is durable.
    pub(super) fn stand_apart(&mut self, at: usize, raw: &Arc<Record>) {
        let now = self.clock.0;
        let Some(wide) = &mut self.slots[at].wide else { return };
        if wide.apart.0.len() >= APART_MAX {
            return self.tell_fate(at, raw.clone());
        }
        // What it said before and waits is overtaken by this.
        if let Some(user) = &raw.user {
            wide.window.retract(&RetractTarget::User(user.clone()));
        }
        let gone = wide.window.take_gone();
        let after = wide.window.number();
        wide.apart.0.push_back(Stands { raw: raw.clone(), since: now, after });
        wide.undecided.insert(raw.event_id());
        if wide.closes.is_none() {
            wide.closes = Some(now + WINDOW);
            self.closing.insert((now + WINDOW, at));
        }
        for raw in gone {
            self.tell_fate(at, raw);
        }
    }

    /// The room's window was closed with so many winners, and holds so many that had no luck.
    pub(super) fn draw_apart(&mut self, at: usize, n_won: usize, n_left: usize, now: Mono) {
        let carry = self.settings.window.carry;
        let seed = self.lottery_seed() ^ now.0;
        let slot = &mut self.slots[at];
        let judges = slot.view.as_ref().is_some_and(|view| view.settings.moderation_policy.judges_first());
        let Some(wide) = &mut slot.wide else { return };
        let (mut drawn, mut gone, mut kept) = (VecDeque::new(), VecDeque::new(), VecDeque::new());
        let mut luckier: BTreeSet<UserId> = BTreeSet::new();
        // The newest first: what its author has overtaken goes, so that one user's comments never change places.
        let (number, n_of) = (wide.window.number(), wide.window.drawn_of().max(n_won));
        for Stands { raw, since, after } in std::mem::take(&mut wide.apart.0).into_iter().rev() {
            let Some(user) = &raw.user else { continue };
            let lot = stable_hash(&(seed ^ raw.event_id().value()).to_le_bytes()) % n_of.max(1) as u64;
            let is_new = after + 1 >= number;
            if luckier.contains(user) {
                gone.push_front(raw);
            } else if !judges && (n_left == 0 || is_new && lot < n_won as u64) {
                luckier.insert(user.clone());
                drawn.push_front((at, raw));
            } else if judges || now.since(since) >= carry {
                gone.push_front(raw);
            } else {
                kept.push_front(Stands { raw, since, after });
            }
        }
        wide.apart.0 = kept;
        for raw in gone {
            self.tell_fate(at, raw);
        }
        self.apart_drawn.extend(drawn);
    }

    /// What was drawn is given its ids before any winner: a later comment of its author may be among those.
    pub(super) fn seal_drawn(&mut self, draft: &mut Draft) {
        for (at, raw) in std::mem::take(&mut self.apart_drawn) {
            self.seal_apart(draft, at, raw);
        }
    }

    /// Gives it an id that its author and the moderators are shown it under.
    fn seal_apart(&mut self, draft: &mut Draft, at: usize, raw: Arc<Record>) {
        let view = self.view_in(draft, at);
        let (Some(view), Some(user), Body::Comment(comment)) = (view, &raw.user, &raw.body) else { return };
        let retracted = view.retracted.holds(raw.event_id(), draft.ts, Some(user));
        let policy = view.settings.moderation_policy;
        if retracted
            || policy.judges_first()
            || may_comment(&view.settings).is_err()
            || self.is_banned_in(draft, at, user)
        {
            return self.tell_fate(at, raw);
        }
        let (room, version) = (self.slots[at].room.clone(), self.policy_version_in(draft, at));
        let record = draft.push(Some(&room), |r| {
            r.user = raw.user.clone();
            r.client_msg_id = raw.client_msg_id.clone();
            r.audience = if planted(92) { Audience::Everyone } else { Audience::Author };
            r.policy_version = version;
            r.source = Some(Source { log: RAW.into(), id: raw.event_id() });
            r.body = Body::Comment(comment.clone());
        });
        draft.won.insert((at, raw.event_id()), record.event_id());
        draft.apart.push((at, raw));
    }

    /// A batch failed: what was drawn waits again, first.
    pub(super) fn wait_apart(&mut self, apart: Vec<(usize, Arc<Record>)>) {
        for (at, raw) in apart.into_iter().rev() {
            self.apart_drawn.push_front((at, raw));
        }
    }
}
