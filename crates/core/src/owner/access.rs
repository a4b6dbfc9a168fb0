//! What is said of tokens, decided when the id is given. It is of no room.

use std::time::Duration;

use crate::access::{Access, Revoked};
use crate::names::UserId;
use crate::owner::Owner;
use crate::owner::answer::Answer;
use crate::owner::draft::Draft;
use crate::record::{Audience, Body};
use crate::reject::{Code, Reject};

impl Owner {
    pub(super) fn seal_revoke(
        &self,
        draft: &mut Draft,
        by: UserId,
        what: Revoked,
        lasts: Duration,
    ) -> Result<Answer, Answer> {
        let ts = draft.ts;
        let access = self.drafted_access(draft);
        // One that stands already is said anew.
        if access.is_full(ts) && !access.revoked.contains_key(&what) {
            let text = "as many revocations hold as may";
            return Err(Answer::Reject(Reject::after(Code::Overloaded, text, self.settings.retry_after)));
        }
        Ok(self.log_access(draft, by, Body::Revoke(what, ts + lasts)))
    }

    pub(super) fn seal_revoke_end(&self, draft: &mut Draft, by: UserId, what: Revoked) -> Answer {
        let ts = draft.ts;
        if !self.drafted_access(draft).at(ts).revoked.contains_key(&what) {
            return Answer::Done { event_id: None };
        }
        self.log_access(draft, by, Body::RevokeEnd(what))
    }

    pub(super) fn seal_outage(&self, draft: &mut Draft, by: UserId, lasts: Option<Duration>) -> Answer {
        let ts = draft.ts;
        if lasts.is_none() && !self.drafted_access(draft).is_out(ts) {
            return Answer::Done { event_id: None };
        }
        self.log_access(draft, by, Body::Outage(lasts.map(|lasts| ts + lasts)))
    }

    fn log_access(&self, draft: &mut Draft, by: UserId, body: Body) -> Answer {
        let record = draft.push(None, |r| {
            r.user = Some(by);
            r.audience = Audience::Nobody;
            r.body = body;
        });
        self.drafted_access(draft).take(&record);
        Answer::Done { event_id: Some(record.event_id()) }
    }

    /// What this batch leaves of it so far.
    fn drafted_access<'a>(&self, draft: &'a mut Draft) -> &'a mut Access {
        draft.access.get_or_insert_with(|| self.access.clone())
    }
}
