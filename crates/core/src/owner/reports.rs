//! Reports of viewers on their way into the log.
//!
//! Nobody learns from an answer whether an event is there, or whether somebody else reported it: what does not count is answered
//! as what does.

use crate::ids::EventId;
use crate::names::UserId;
use crate::owner::Owner;
use crate::owner::admit::{banned, overloaded};
use crate::owner::answer::Answer;
use crate::owner::command::ReportIn;
use crate::owner::draft::Draft;
use crate::planted::planted;
use crate::record::Body;
use crate::reject::{Code, Reject};
use crate::reports::{RATE, Report};

impl Owner {
    /// What may be refused at the door. Reports take half of the place for what is not a comment, so that operators have theirs.
    pub(super) fn check_report(&mut self, report: &ReportIn) -> Result<(), Answer> {
        if self.n_priority >= self.settings.pending_priority_max / 2 {
            return Err(overloaded(self.settings.retry_after));
        }
        let (now, log_now) = (self.clock.0, self.log_now());
        let at = self.room_for_use(&report.room)?;
        if self.is_silenced(at, &report.user, log_now) {
            return Err(banned());
        }
        let user = self.user_of(at, &report.user, log_now);
        user.reports
            .take(RATE, now)
            .map_err(|wait| Answer::Reject(Reject::after(Code::UserRate, "too many reports", wait)))
    }

    pub(super) fn seal_report(&self, draft: &mut Draft, report: ReportIn) -> Result<Answer, Answer> {
        let ReportIn { room, user, report } = report;
        let head = self.head();
        let (at, view) = self.drafted_for_use(draft, &room)?;
        let counts = report.event.position() <= head && view.reports.counts(report.event, &user);
        if self.is_banned_in(draft, at, &user) {
            return Err(banned());
        }
        let done = Answer::Done { event_id: None };
        let fresh = counts && draft.reports.insert((at, report.event, user.clone())) || planted(132);
        if !fresh || self.is_shadowed_in(draft, at, &user) {
            return Ok(done);
        }
        self.log_report(draft, at, user, report);
        Ok(done)
    }

    fn log_report(&self, draft: &mut Draft, at: usize, user: UserId, report: Report) {
        self.push_private(draft, at, |r| {
            r.user = Some(user);
            r.body = Body::Report(report);
        });
    }
}

/// Reports of the batch: in the log once each, whoever asks twice.
pub(super) type Drafted = std::collections::BTreeSet<(usize, EventId, UserId)>;
