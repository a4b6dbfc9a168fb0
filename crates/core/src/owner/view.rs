//! One room as the log has made it: what a snapshot, a greeting and the checks of the owner read.
//!
//! The only way a view changes is [`RoomView::apply`], with a record of the log. Live and in recovery it is the same call,
//! so a room read again from its log is the room that was.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use crate::bans;
use crate::combos::{self, Combos};
use crate::dedupe;
use crate::ids::{EventId, Position, Pseq};
use crate::likes::{self, Totals};
use crate::names::{Key, RoomId, UserId};
use crate::planted::planted;
use crate::record::{Audience, Ban, Body, End, Lane, Record, RetractTarget, Room};
use crate::reports::Reports;
use crate::revision::{CurrentScore, Ledger};
use crate::sampler::pick::WindowNumber;
use crate::slow_mode::SlowMode;
use crate::time::Wall;

/// Comments a snapshot shows.
pub const RECENT_MAX: usize = 50;
/// Retracted events remembered one by one; older ones are beyond what is served.
pub const RETRACTED_MAX: usize = 65_536;
/// Purges of one user remembered by themselves; of more, the two oldest are taken for one that reaches from one to the other.
pub const PURGES_MAX: usize = 8;
/// Bans of a room in force at one time. One more is refused.
pub const BANS_MAX: usize = 16_384;
/// Gift keys remembered however old they are, the oldest going first.
pub const GIFTS_KEPT: usize = 65_536;
/// Keys of the last ten minutes alone may be as many: 218 gifts a second. A room that had more is told to wait, so that no
/// key is forgotten before its time; a batch that was under way may go past it.
pub const GIFTS_MAX: usize = 131_072;
/// For so long a gift's key is never forgotten.
pub const GIFTS_WINDOW: Duration = dedupe::WINDOW;

/// Approved comments known by the id they were held under, the oldest going first: 100 KiB.
pub const APPROVED_MAX: usize = 4_096;

/// Big maps are shared, so that a copy of a view (checkpoint, draft of a batch) is cheap until it changes them.
#[derive(Clone, PartialEq, Debug)]
pub struct RoomView {
    pub room: RoomId,
    pub settings: Arc<Room>,
    /// The newest record taken in, sent to viewers or not.
    pub as_of: Position,
    /// The newest event that any viewer is sent, or START.
    pub last_event: Position,
    /// The newest priority number given.
    pub pseq: Pseq,
    /// Grows by one with each change of the moderation policy or of the blackouts, each retract and each ban: what was judged before is
    /// judged anew where a verdict counts, and no copy of the room from before it is taken for its newest. The bans of the site come
    /// on top: see [`crate::owner::Owner::policy_version`].
    pub policy_version: u32,
    /// Comments go through its window.
    pub wide: bool,
    /// The highest of the windows whose winners were shown; 0: none was. No later one has its number, though its winners are retracted.
    pub window: WindowNumber,
    /// Comments accepted since the room was made.
    pub accepted: u64,
    /// The newest comments that may be shown, oldest first.
    pub recent: VecDeque<Arc<Record>>,
    /// Pinned comments that may be shown, in the settings' order, as far as they were among the recent ones when pinned.
    pub pinned: Vec<Arc<Record>>,
    /// Each match the room shows, with the record that bound it: the lowest decides among rooms.
    pub bound: BTreeMap<Key, EventId>,
    /// What was said of each match, of those shown once too.
    pub scores: BTreeMap<Key, Arc<Ledger>>,
    pub bans: Arc<BTreeMap<UserId, Ban>>,
    pub gifts: Arc<Gifts>,
    pub combos: Arc<Combos>,
    pub retracted: Arc<Retracted>,
    pub reports: Arc<Reports>,
    /// Comments that wait for a human's word, at most [`crate::moderation::HELD_MAX`], by the id they were held under.
    pub held: Arc<BTreeMap<EventId, Arc<Record>>>,
    /// What was held and is shown, by the id it was held under.
    pub approved: Arc<BTreeMap<EventId, EventId>>,
    /// Likes ever given, by kind.
    pub likes: Totals,
}

/// Gift keys and where each was logged.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Gifts {
    pub by_key: BTreeMap<Key, (EventId, u64)>,
    /// With its log time.
    pub by_id: BTreeMap<EventId, (Key, Wall)>,
}

impl Gifts {
    /// Whether another key would push out one of the last ten minutes.
    pub fn is_full(&self, ts: Wall) -> bool {
        self.by_id.len() >= GIFTS_MAX
            && self.by_id.first_key_value().is_some_and(|(_, (_, oldest))| ts < *oldest + GIFTS_WINDOW)
    }

    fn insert(&mut self, id: EventId, key: &Key, digest: u64, ts: Wall) {
        self.by_key.insert(key.clone(), (id, digest));
        self.by_id.insert(id, (key.clone(), ts));
        while self.by_id.len() > GIFTS_KEPT
            && let Some(oldest) = self.by_id.first_entry().filter(|e| e.get().1 + GIFTS_WINDOW <= ts)
        {
            let (key, _) = oldest.remove();
            self.by_key.remove(&key);
        }
    }
}

/// What rooms have in which nothing of it happened: one for all of them, because most rooms are such.
struct Nothing {
    bans: Arc<BTreeMap<UserId, Ban>>,
    gifts: Arc<Gifts>,
    combos: Arc<Combos>,
    retracted: Arc<Retracted>,
    reports: Arc<Reports>,
    held: Arc<BTreeMap<EventId, Arc<Record>>>,
    approved: Arc<BTreeMap<EventId, EventId>>,
}

static NOTHING: LazyLock<Nothing> = LazyLock::new(|| Nothing {
    bans: Arc::default(),
    gifts: Arc::default(),
    combos: Arc::default(),
    retracted: Arc::default(),
    reports: Arc::default(),
    held: Arc::default(),
    approved: Arc::default(),
});

/// What may no longer be shown.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Retracted {
    /// Target and the retract that took it back.
    pub events: BTreeMap<EventId, EventId>,
    /// Every comment of the user up to this event.
    pub users: BTreeMap<UserId, EventId>,
    /// What the user said from this log time on up to this event: at most [`PURGES_MAX`], the later the times the later the
    /// events.
    pub since: BTreeMap<UserId, Vec<(Wall, EventId)>>,
    /// Every comment up to this event.
    pub all: Option<EventId>,
}

impl Retracted {
    /// Whether a comment was taken back: its body is not to be shown.
    pub fn hides(&self, record: &Record) -> bool {
        // A winner was said before it was shown: what was said is what is taken back.
        let said = record.raw_id().unwrap_or(record.event_id());
        let by_name = |id: EventId| self.events.contains_key(&id);
        matches!(record.body, Body::Comment(_))
            && !planted(14)
            && (by_name(record.event_id())
                || record.held_id().is_some_and(by_name)
                || self.holds(said, record.ts, record.user.as_ref()))
    }

    /// Whether what this user said under this id, or was shown of it at `ts`, was taken back.
    pub fn holds(&self, said: EventId, ts: Wall, user: Option<&UserId>) -> bool {
        let Retracted { events, users, since, all } = self;
        let of_user = |user: &UserId| {
            users.get(user).is_some_and(|upto| said <= *upto)
                || !planted(93)
                    && since
                        .get(user)
                        .is_some_and(|purges| purges.iter().any(|(from, upto)| *from <= ts && said <= *upto))
        };
        events.contains_key(&said) || all.is_some_and(|upto| said <= upto) || user.is_some_and(of_user)
    }
}

impl RoomView {
    pub fn new(room: RoomId, settings: Arc<Room>) -> RoomView {
        RoomView {
            room,
            settings,
            as_of: Position::START,
            last_event: Position::START,
            pseq: Pseq(0),
            policy_version: 1,
            wide: false,
            window: WindowNumber(0),
            accepted: 0,
            recent: VecDeque::new(),
            pinned: Vec::new(),
            bound: BTreeMap::new(),
            scores: BTreeMap::new(),
            bans: NOTHING.bans.clone(),
            gifts: NOTHING.gifts.clone(),
            combos: NOTHING.combos.clone(),
            retracted: NOTHING.retracted.clone(),
            reports: NOTHING.reports.clone(),
            held: NOTHING.held.clone(),
            approved: NOTHING.approved.clone(),
            likes: Totals::default(),
        }
    }

    /// Takes in what a tally says of the room. Totals only grow, so an older one, or the same again, changes nothing.
    pub fn take_totals(&mut self, totals: &Totals) {
        self.likes = likes::highest(&self.likes, totals);
    }

    /// Whether a ban of `user` is in force at log time `ts` that lets it say nothing.
    pub fn is_banned(&self, user: &UserId, ts: Wall) -> bool {
        bans::holds(&self.bans, user, ts).is_some_and(|ban| !ban.shadow)
    }

    /// Whether only `user` itself and moderators are shown what it says.
    pub fn is_shadowed(&self, user: &UserId, ts: Wall) -> bool {
        bans::holds(&self.bans, user, ts).is_some_and(|ban| ban.shadow)
    }

    pub fn slow_mode(&self) -> SlowMode {
        SlowMode { seconds: self.settings.slow_mode_seconds, until: self.settings.slow_mode_until }
    }

    /// Whether a match is shown from a primary provider here.
    pub fn is_fed(&self, match_id: &Key) -> bool {
        self.scores.get(match_id).is_some_and(|ledger| ledger.feed.is_some())
    }

    /// The current score of each match the room shows, in the settings' order.
    pub fn current_scores(&self) -> Vec<CurrentScore> {
        self.settings.matches.iter().filter_map(|m| self.scores.get(m)?.current(m)).collect()
    }

    /// The highest shown revision of every event of the matches the room shows, by match, then in order of first showing.
    pub fn top_scores(&self) -> Vec<Arc<Record>> {
        let mut tops = Vec::new();
        for ledger in self.settings.matches.iter().filter_map(|m| self.scores.get(m)) {
            tops.extend(ledger.tops().cloned());
        }
        tops
    }

    /// Takes in the next record of the room, in log order; one taken in before changes nothing.
    pub fn apply(&mut self, record: &Arc<Record>) {
        let id = record.event_id();
        if id.position() <= self.as_of {
            return;
        }
        self.as_of = id.position();
        if record.lane().is_some() {
            self.last_event = id.position();
        }
        if let Some(pseq) = record.pseq {
            self.pseq = self.pseq.max(pseq);
        }
        match &record.body {
            Body::Comment(comment) => {
                if let Some(won) = &comment.won {
                    self.window = self.window.max(won.window);
                }
                // A winner was counted when it was said.
                self.accepted += u64::from(record.raw_id().is_none());
                if record.lane() == Some(Lane::Comment) && record.audience == Audience::Everyone {
                    self.recent.push_back(record.clone());
                    if self.recent.len() > RECENT_MAX {
                        self.recent.pop_front();
                    }
                }
                // The end of its wait stands behind it and may be missing.
                if let Some(held) = record.held_id() {
                    self.approve(held, id);
                }
            }
            Body::Score(score) => Arc::make_mut(self.scores.entry(score.match_id.clone()).or_default()).apply(record),
            Body::Feed(feed) => {
                Arc::make_mut(self.scores.entry(feed.match_id.clone()).or_default()).take_feed(feed, id)
            }
            Body::Gift(gift) => {
                let digest = gift_digest(record.user.as_ref(), gift);
                Arc::make_mut(&mut self.gifts).insert(id, &gift.gift_id, digest, record.ts);
                self.take_combo(record);
            }
            Body::Combo(_) => self.take_combo(record),
            Body::Retract(retract) => {
                self.retract(&retract.target, id);
                self.policy_version += 1;
            }
            Body::Room(settings) => self.set(settings, id),
            Body::Ban(ban) => {
                bans::insert(Arc::make_mut(&mut self.bans), ban, record.ts);
                self.policy_version += 1;
            }
            Body::Report(report) => {
                if let Some(user) = &record.user {
                    Arc::make_mut(&mut self.reports).take(report, user, record.ts);
                }
            }
            Body::Unban(user) => {
                Arc::make_mut(&mut self.bans).remove(user);
            }
            Body::Wide(_) => self.wide = true,
            Body::Narrow(_) => self.wide = false,
            Body::EpochStart | Body::Config(_) | Body::Audit(_) | Body::Tally(_) | Body::Erased => {}
            Body::Banner(_) | Body::BannerEnd(_) | Body::SiteBan(_) | Body::SiteUnban(_) | Body::Blocked(_) => {}
            Body::Held(_) => drop(Arc::make_mut(&mut self.held).insert(id, record.clone())),
            Body::HeldEnd(end) => {
                Arc::make_mut(&mut self.held).remove(&end.held);
                if let End::Approved(event_id) = end.end {
                    self.approve(end.held, event_id);
                }
            }
            Body::Revoke(..) | Body::RevokeEnd(_) | Body::Outage(_) | Body::EraseUser(_) => {}
        }
    }

    fn approve(&mut self, held: EventId, shown: EventId) {
        let approved = Arc::make_mut(&mut self.approved);
        approved.insert(held, shown);
        if approved.len() > APPROVED_MAX {
            approved.pop_first();
        }
    }

    /// Lets go of all that names a user. Whether there was anything, and what was held of it.
    pub fn forget(&mut self, user: &UserId) -> (bool, Vec<Arc<Record>>) {
        let mut found = false;
        if self.recent.iter().chain(&self.pinned).any(|r| r.names(user)) {
            self.recent.retain(|r| !r.names(user));
            self.pinned.retain(|r| !r.names(user));
            found = true;
        }
        if self.bans.contains_key(user) {
            Arc::make_mut(&mut self.bans).remove(user);
            found = true;
        }
        if self.combos.open().keys().any(|key| key.0 == *user) {
            Arc::make_mut(&mut self.combos).forget(user);
            found = true;
        }
        if self.retracted.users.contains_key(user) || self.retracted.since.contains_key(user) {
            let retracted = Arc::make_mut(&mut self.retracted);
            retracted.users.remove(user);
            retracted.since.remove(user);
            found = true;
        }
        if self.reports.name(user) {
            Arc::make_mut(&mut self.reports).forget(user);
            found = true;
        }
        let held: Vec<Arc<Record>> = self.held.values().filter(|r| r.names(user)).cloned().collect();
        if !held.is_empty() && !planted(112) {
            let left = Arc::make_mut(&mut self.held);
            held.iter().for_each(|record| drop(left.remove(&record.event_id())));
            found = true;
        }
        (found, held)
    }

    /// How far apart gifts of one combo may be.
    pub fn patience(&self) -> Duration {
        Duration::from_secs(u64::from(self.settings.combo_seconds))
    }

    /// What a gift or an update does to the room's combos.
    pub(super) fn take_combo(&mut self, record: &Record) {
        let Some(user) = &record.user else { return };
        match &record.body {
            Body::Gift(gift) => {
                let (key, patience) = (combos::key_of(user, gift), self.patience());
                let combos = Arc::make_mut(&mut self.combos);
                match record.audience {
                    Audience::Nobody => combos.take_part(&key, gift, record.ts),
                    _ => combos.take_first(key, record.event_id(), gift, record.ts, patience),
                }
            }
            Body::Combo(update) => {
                let key = (user.clone(), update.item.clone(), update.currency.clone());
                Arc::make_mut(&mut self.combos).take_update(&key, update.ended, record.ts);
            }
            _ => {}
        }
    }

    fn set(&mut self, settings: &Arc<Room>, id: EventId) {
        let old = &self.settings;
        if (settings.moderation_policy, &settings.blackout_regions) != (old.moderation_policy, &old.blackout_regions) {
            self.policy_version += 1;
        }
        self.bound.retain(|m, _| settings.matches.contains(m));
        for m in &settings.matches {
            self.bound.entry(m.clone()).or_insert(id);
        }
        let known: Vec<Arc<Record>> = self.pinned.iter().chain(&self.recent).cloned().collect();
        let find = |id: &EventId| known.iter().find(|r| r.event_id() == *id).cloned();
        self.pinned = settings.pinned.iter().filter_map(find).collect();
        self.settings = settings.clone();
    }

    fn retract(&mut self, target: &RetractTarget, id: EventId) {
        if self.reports.is_told(target) {
            Arc::make_mut(&mut self.reports).retract(target);
        }
        let retracted = Arc::make_mut(&mut self.retracted);
        match target {
            RetractTarget::Event(target) => {
                retracted.events.entry(*target).or_insert(id);
                if retracted.events.len() > RETRACTED_MAX {
                    retracted.events.pop_first();
                }
            }
            RetractTarget::User(user) => {
                retracted.users.insert(user.clone(), id);
                retracted.since.remove(user);
            }
            RetractTarget::Since(user, from) => {
                let purges = retracted.since.entry(user.clone()).or_default();
                // One that reaches further back holds all that a later begun one held.
                purges.retain(|(earlier, _)| earlier < from);
                purges.push((*from, id));
                if purges.len() > PURGES_MAX {
                    let (from, _) = purges.remove(0);
                    purges[0].0 = from;
                }
            }
            RetractTarget::All => {
                retracted.all = Some(id);
                retracted.users.clear();
                retracted.since.clear();
                retracted.events = retracted.events.split_off(&id);
            }
        }
        self.recent.retain(|r| !self.retracted.hides(r));
        self.pinned.retain(|r| !self.retracted.hides(r));
    }
}

/// Tells two gifts under one key apart. Fixed: recovered from the log.
pub(crate) fn gift_digest(user: Option<&UserId>, gift: &crate::record::Gift) -> u64 {
    let user = user.map_or("", UserId::as_str);
    let text = format!("{user}\n{}\n{}\n{}\n{}", gift.item, gift.count, gift.amount_micros, gift.currency);
    crate::routing::stable_hash(text.as_bytes())
}
