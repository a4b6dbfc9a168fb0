//! Bans and purges as they are given their ids.
//!
//! A ban and the purge that goes with it are one batch, the ban first: what the user said before it is taken back, and nothing
//! of it follows.

use std::sync::Arc;
use std::time::Duration;

use crate::banners::Site;
use crate::bans::{self, SITE_MAX};
use crate::names::{RoomId, UserId};
use crate::owner::Owner;
use crate::owner::answer::Answer;
use crate::owner::draft::Draft;
use crate::owner::view::{BANS_MAX, RoomView};
use crate::planted::planted;
use crate::record::{Audience, Ban, Body, Retract, RetractTarget};
use crate::reject::{Code, Reject};
use crate::time::Wall;

impl Owner {
    pub(super) fn seal_ban(
        &self,
        draft: &mut Draft,
        room: &RoomId,
        ban: Ban,
        purge: Option<Duration>,
    ) -> Result<Answer, Answer> {
        let ts = draft.ts;
        let (at, view) = self.drafted_for_use(draft, room)?;
        if bans::is_full(&view.bans, &ban.user, BANS_MAX, ts) {
            return Err(too_many(BANS_MAX));
        }
        let (user, reason) = (ban.user.clone(), ban.reason.clone());
        let record = self.push_private(draft, at, |r| r.body = Body::Ban(ban));
        self.purge(draft, at, &user, &reason, purge);
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }

    pub(super) fn seal_site_ban(
        &self,
        draft: &mut Draft,
        by: UserId,
        ban: Ban,
        purge: Option<Duration>,
    ) -> Result<Answer, Answer> {
        let ts = draft.ts;
        if bans::is_full(&self.drafted_site(draft).bans, &ban.user, SITE_MAX, ts) {
            return Err(too_many(SITE_MAX));
        }
        let (user, reason) = (ban.user.clone(), ban.reason.clone());
        let record = self.push_site(draft, by, Body::SiteBan(ban));
        if purge.is_some() {
            for at in (0..self.slots.len()).filter(|at| self.slots[*at].users.contains_key(&user)) {
                self.purge(draft, at, &user, &reason, purge);
            }
        }
        Ok(Answer::Done { event_id: Some(record.event_id()) })
    }

    pub(super) fn seal_site_unban(&self, draft: &mut Draft, by: UserId, user: UserId) -> Answer {
        if !self.drafted_site(draft).bans.contains_key(&user) {
            return Answer::Done { event_id: None };
        }
        let record = self.push_site(draft, by, Body::SiteUnban(user));
        Answer::Done { event_id: Some(record.event_id()) }
    }

    pub(super) fn push_site(&self, draft: &mut Draft, by: UserId, body: Body) -> Arc<crate::record::Record> {
        let record = draft.push(None, |r| {
            r.user = Some(by);
            r.audience = Audience::Nobody;
            r.body = body;
        });
        self.drafted_site(draft).take(&record);
        record
    }

    fn purge(&self, draft: &mut Draft, at: usize, user: &UserId, reason: &Arc<str>, purge: Option<Duration>) {
        let Some(last) = purge.filter(|_| self.drafted(draft, at).is_some()) else { return };
        let target = RetractTarget::Since(user.clone(), draft.ts - last);
        self.log_priority(draft, at, |r| r.body = Body::Retract(Retract { target, reason: reason.clone() }));
    }

    /// The version of a room's policy, as far as the log says.
    pub fn policy_version(&self, room: &RoomId) -> u32 {
        policy_version_of(self.room(room), &self.site)
    }

    /// As [`Owner::policy_version`], as this batch leaves the room and the site so far.
    pub(super) fn policy_version_in(&self, draft: &Draft, at: usize) -> u32 {
        policy_version_of(self.view_in(draft, at), self.site_in(draft))
    }

    /// The site as this batch leaves it so far.
    pub(super) fn site_in<'a>(&'a self, draft: &'a Draft) -> &'a Site {
        draft.site.as_ref().unwrap_or(&self.site)
    }

    /// Whether the user may not speak in the room, as this batch leaves both so far.
    pub(super) fn is_banned_in(&self, draft: &Draft, at: usize, user: &UserId) -> bool {
        let view = self.view_in(draft, at);
        view.is_some_and(|view| view.is_banned(user, draft.ts))
            || self.site_in(draft).is_banned(user, draft.ts) && !planted(95)
    }

    /// Whether what the user says in the room is shown to nobody else, as this batch leaves both so far.
    pub(super) fn is_shadowed_in(&self, draft: &Draft, at: usize, user: &UserId) -> bool {
        let view = self.view_in(draft, at);
        view.is_some_and(|view| view.is_shadowed(user, draft.ts)) || self.site_in(draft).is_shadowed(user, draft.ts)
    }

    /// Whether the user may not speak in the room now, as far as the log says.
    pub(super) fn is_silenced(&self, at: usize, user: &UserId, log_now: Wall) -> bool {
        self.slots[at].view.as_ref().is_some_and(|view| view.is_banned(user, log_now))
            || self.site.is_banned(user, log_now)
    }

    /// Whether what the user does moves nobody else now, as far as the log says.
    pub(super) fn is_shadowed(&self, at: usize, user: &UserId, log_now: Wall) -> bool {
        self.slots[at].view.as_ref().is_some_and(|view| view.is_shadowed(user, log_now))
            || self.site.is_shadowed(user, log_now)
    }
}

/// What the room has been through itself, and the bans of the site.
pub(super) fn policy_version_of(view: Option<&RoomView>, site: &Site) -> u32 {
    view.map_or(1, |view| view.policy_version) + site.raised
}

fn too_many(max: usize) -> Answer {
    Answer::Reject(Reject::new(Code::BadField, format!("{max} bans are in force, as many as may be: lift one first")))
}
