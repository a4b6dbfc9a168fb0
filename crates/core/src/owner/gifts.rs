//! Gifts, the combos they make and the banners they are worth, decided when the id is given; and operators' banners.

use std::sync::Arc;
use std::time::Duration;

use crate::banners::{self, Capped, Site};
use crate::combos::{self, Fit};
use crate::ids::EventId;
use crate::owner::Owner;
use crate::owner::admit::{banned, may_comment};
use crate::owner::answer::{Answer, BannerFate};
use crate::owner::command::{BannerIn, GiftIn};
use crate::owner::draft::Draft;
use crate::owner::view::gift_digest;
use crate::record::{Audience, Banner, Body, Gift, Record};
use crate::reject::{Code, Reject};
use crate::time::Wall;

impl Owner {
    pub(super) fn seal_gift(&self, draft: &mut Draft, gift: GiftIn) -> Result<Answer, Answer> {
        let ts = draft.ts;
        let (at, view) = self.drafted_for_use(draft, &gift.room)?;
        let digest = gift_digest(Some(&gift.user), &gift.gift);
        let closed = may_comment(&view.settings);
        let full = view.gifts.is_full(ts);
        let in_log = view.gifts.by_key.get(&gift.gift.gift_id).copied();
        let key = (at, gift.gift.gift_id.clone());
        if let Some((event_id, first)) = in_log.or(draft.gifts.get(&key).copied()) {
            if first != digest {
                let text = "another gift was sent with this gift_id";
                return Err(Answer::Reject(Reject::new(Code::IdempotencyConflict, text)));
            }
            return Ok(Answer::Gift { event_id, duplicate: true, banner: BannerFate::Unsaid });
        }
        if self.is_banned_in(draft, at, &gift.user) {
            return Err(banned());
        }
        closed?;
        if full {
            let text = "the room has had more gifts in ten minutes than are told apart";
            return Err(Answer::Reject(Reject::after(Code::Overloaded, text, self.settings.retry_after)));
        }
        let worth = self.banner_of(draft, at, &gift);
        let until = worth.and_then(Result::ok);
        let record = self.log_gift(draft, at, &gift, until);
        let event_id = record.event_id();
        draft.gifts.insert(key, (event_id, digest));
        if until.is_some() {
            self.drafted_site(draft).take(&record);
        }
        let banner = match worth {
            None => BannerFate::Unsaid,
            Some(Ok(_)) => BannerFate::Shown(event_id),
            Some(Err(capped)) => BannerFate::Capped(capped),
        };
        Ok(Answer::Gift { event_id, duplicate: false, banner })
    }

    /// Logs a gift as what it is to the room's combos, and what is due to be told of them.
    fn log_gift(&self, draft: &mut Draft, at: usize, gift: &GiftIn, banner_until: Option<Wall>) -> Arc<Record> {
        let ts = draft.ts;
        let view = self.drafted(draft, at).expect("a gift is of a room that is there");
        let patience = view.patience();
        let key = combos::key_of(&gift.user, &gift.gift);
        let fit = view.combos.fit(&key, &gift.gift, ts, patience);
        if fit == Fit::After {
            self.log_combo(draft, at, &key, true);
        }
        let body = Body::Gift(Gift { banner_until, ..gift.gift.clone() });
        if fit != Fit::Part {
            return self.log_priority(draft, at, |r| {
                r.user = Some(gift.user.clone());
                r.body = body;
            });
        }
        let record = self.push_private(draft, at, |r| {
            r.user = Some(gift.user.clone());
            r.body = body;
        });
        if draft.views[&at].combos.may_tell(&key, ts) {
            self.log_combo(draft, at, &key, false);
        }
        record
    }

    fn log_combo(&self, draft: &mut Draft, at: usize, key: &combos::Key, ended: bool) {
        let Some(update) = self.drafted(draft, at).and_then(|view| view.combos.update(key, ended)) else { return };
        self.log_priority(draft, at, |r| {
            r.user = Some(key.0.clone());
            r.body = Body::Combo(update);
        });
    }

    /// Until when the whole site is told of a gift, or whose cap it met; `None` when it is not worth a banner.
    fn banner_of(&self, draft: &mut Draft, at: usize, gift: &GiftIn) -> Option<Result<Wall, Capped>> {
        let (ts, settings) = (draft.ts, draft.views[&at].settings.clone());
        if !banners::is_worth_one(&settings, &gift.gift) {
            return None;
        }
        let admitted = self.drafted_site(draft).admits(&gift.room, settings.banner_rate, ts);
        Some(admitted.map(|()| ts + Duration::from_secs(u64::from(settings.banner_seconds))))
    }

    pub(super) fn seal_banner(&self, draft: &mut Draft, banner: BannerIn) -> Result<Answer, Answer> {
        let ts = draft.ts;
        if self.drafted_site(draft).is_full(ts) {
            let text = "as many banners stand as may";
            return Err(Answer::Reject(Reject::after(Code::Overloaded, text, self.settings.retry_after)));
        }
        let BannerIn { by, text, room, lasts } = banner;
        let named = room.as_ref().and_then(|room| self.view_in(draft, *self.index.get(room)?));
        if named.is_some_and(|view| !view.settings.blackout_regions.is_empty()) {
            let rule = "a room that may be shown everywhere: a banner is";
            let fields = vec![("source_room_id".into(), rule.into())];
            return Err(Answer::Reject(Reject::fields(Code::BadField, "the banner is not valid", fields)));
        }
        let until = ts + lasts;
        let record = draft.push(None, |r| {
            r.user = Some(by);
            r.audience = Audience::Nobody;
            r.body = Body::Banner(Banner { text, gift: None, room, until });
        });
        if let Some(site) = &mut draft.site {
            site.take(&record);
        }
        Ok(Answer::Banner { banner_id: record.event_id(), until })
    }

    pub(super) fn seal_banner_end(&self, draft: &mut Draft, by: crate::names::UserId, id: EventId) -> Answer {
        let ts = draft.ts;
        let stands = self.drafted_site(draft).active.get(&id).is_some_and(|standing| ts < standing.banner.until);
        if !stands {
            return Answer::Done { event_id: None };
        }
        let record = draft.push(None, |r| {
            r.user = Some(by);
            r.audience = Audience::Nobody;
            r.body = Body::BannerEnd(id);
        });
        if let Some(site) = &mut draft.site {
            site.take(&record);
        }
        Answer::Done { event_id: Some(record.event_id()) }
    }

    /// The site's banners as this batch leaves them so far.
    pub(super) fn drafted_site<'a>(&self, draft: &'a mut Draft) -> &'a mut Site {
        draft.site.get_or_insert_with(|| self.site.clone())
    }

    /// Tells what is due of a room's combos.
    pub(super) fn seal_combos(&self, draft: &mut Draft, at: usize) {
        let ts = draft.ts;
        let Some(view) = self.view_in(draft, at) else { return };
        for (key, ended) in view.combos.due(ts, view.patience()) {
            self.log_combo(draft, at, &key, ended);
        }
    }

    /// Brings the index of what is due of combos in line with a room's.
    pub(super) fn index_combos(&mut self, at: usize) {
        let due = self.slots[at].view.as_ref().and_then(|view| view.combos.next_due(view.patience()));
        self.combos_due.set(at, due);
    }

    /// Rooms whose combos have something due are put in line.
    pub(super) fn queue_combos(&mut self, log_now: Wall) {
        while let Some((_, at)) = self.combos_due.take(log_now) {
            self.combos_waiting.insert(at);
            self.waiting.push_back(super::seal::Waiting::Combos { at });
        }
    }

    /// What was put in line was sealed, or its batch came to nothing: what is due is looked for again.
    pub(super) fn index_waiting_combos(&mut self) {
        for at in std::mem::take(&mut self.combos_waiting) {
            self.index_combos(at);
        }
    }
}
