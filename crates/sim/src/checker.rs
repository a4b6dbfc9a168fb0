//! Judges a run from its history and the raw storage. Shares nothing with the server but the record itself: the reader rule
//! is written here again, the short way.

mod access;
mod asks;
mod bans;
mod blackouts;
mod erase;
pub mod feeds;
mod gifts;
pub mod ledger;
mod retracts;
mod sampling;
mod site;
mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::access::Access;
use grandstand_core::banners::Site;
use grandstand_core::ids::{EventId, Position, Pseq, Revision};
use grandstand_core::names::{ClientMsgId, Key, LikeKind, RoomId, UserId};
use grandstand_core::owner::answer::Fate;
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Audience, Body, Lane, Record, RetractTarget};
use grandstand_core::sampler::pick::ViewerKey;
use grandstand_core::time::Wall;
use grandstand_core::viewer::walk::Skipped;

use crate::history::{Begun, ClientIdx, Line, Seen, Snapshot, Wish};
use crate::process::{self, CAP_MILLI};
use crate::world::Survived;

/// What may lie between the check of a comment and its id: a slow write before its own batch, and a verdict.
const SLOW_MODE_SLACK: Duration = Duration::from_millis(1_900);

/// A cap below which a viewer is given one comment of some windows and none of others.
const ONE_A_WINDOW: u64 = 5_000;

/// What was found, in words that begin with the invariant's number in ARCHITECTURE.md.
pub type Violations = Vec<String>;

/// How much a run proves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Weight {
    pub acks: u64,
    pub resumes: u64,
    pub snapshots: u64,
    pub skipped: u64,
    pub delivered: u64,
    pub epochs: u64,
    /// Viewers closed as slow.
    pub slow: u64,
    /// Told that their owner is away.
    pub paused: u64,
    pub survived: Survived,
    /// Tellings of a room's likes.
    pub totals: u64,
    /// Times a room turned wide.
    pub wide: u64,
    /// Comments said in wide rooms, and those that were shown.
    pub said: u64,
    pub won: u64,
    /// Comments that nobody but their authors and the moderators are shown.
    pub apart: u64,
    /// Times a match was shown from another provider.
    pub switches: u64,
    /// Picks under a cap that a shedder had lowered.
    pub shed: u64,
}

impl Log<'_> {
    fn winners_in(&self, room: &RoomId, from: EventId, to: EventId) -> bool {
        self.by_id
            .range(from..=to)
            .any(|(_, record)| record.room.as_ref() == Some(room) && process::lot(record).is_some())
    }
}

struct Log<'a> {
    valid: Vec<&'a Arc<Record>>,
    by_id: BTreeMap<EventId, &'a Arc<Record>>,
}

pub fn check(
    storage: &[Arc<Record>],
    history: &[Line],
    finals: &BTreeMap<RoomId, Arc<Snapshot>>,
    of_no_room: Option<&(Position, Access, Site)>,
    clocks_jump: bool,
    cut_off: bool,
) -> (Violations, Weight) {
    let log = read(storage);
    let mut found = Violations::new();
    let mut weight =
        Weight { epochs: log.valid.iter().filter(|r| r.body == Body::EpochStart).count() as u64, ..Weight::default() };
    check_log(&log, clocks_jump, &mut found);
    check_wide(&log, &mut found, &mut weight);
    feeds::check(&log.valid, &mut found, &mut weight);
    verdicts::check(&log, history, &mut found);
    ledger::check(&log, history, &mut found);
    blackouts::check(&log, history, cut_off, &mut found);
    erase::check(&log.valid, &mut found);
    check_answers(&log, history, &mut found, &mut weight);
    check_viewers(&log, history, &mut found, &mut weight);
    if let Some((head, access, site)) = of_no_room {
        access::check(&log.valid, (*head, access), &mut found);
        site::check(&log.valid, *head, site, &mut found);
    }
    check_likes(&log, history, finals, &mut found, &mut weight);
    check_last_words(&log, history, finals, &mut found);
    let tops = tops_at(&log, Position::new((1 << 53) - 1).expect("below the limit"));
    for (room, shot) in finals {
        check_snapshot(&log, shot, &mut found);
        let expect = tops.get(room).map_or(0, BTreeMap::len);
        if shot.tops.len() != expect {
            found.push(format!("I-13: {room} ends with {} score events, the log has {expect}", shot.tops.len()));
        }
    }
    (found, weight)
}

/// What the newest process knows of each room at the end, up to `head`.
pub fn check_rooms(storage: &[Arc<Record>], head: Position, rooms: &[RoomView], found: &mut Violations) {
    let log = read(storage);
    let known: Vec<&Arc<Record>> = log.valid.into_iter().filter(|r| r.event_id().position() <= head).collect();
    verdicts::check_held(&known, rooms, found);
    erase::check_rooms(&known, rooms, found);
}

/// The reader rule: higher EpochStarts move on, lower epochs are void, repeats are ignored, a hole voids the rest.
fn read(storage: &[Arc<Record>]) -> Log<'_> {
    let (mut epoch, mut next, mut holed) = (0, 0, false);
    let mut valid = Vec::new();
    for record in storage {
        let (e, seq) = (record.epoch.value(), record.seq.value());
        if e > epoch && seq == 0 && record.body == Body::EpochStart {
            (epoch, next, holed) = (e, 1, false);
            valid.push(record);
        } else if e == epoch && seq >= next && !holed {
            holed = seq > next;
            if !holed {
                next += 1;
                valid.push(record);
            }
        }
    }
    let by_id = valid.iter().map(|r| (r.event_id(), *r)).collect();
    Log { valid, by_id }
}

fn check_log(log: &Log<'_>, clocks_jump: bool, found: &mut Violations) {
    let mut ts = Wall(0);
    let mut pseq: BTreeMap<&RoomId, Pseq> = BTreeMap::new();
    let mut keys: BTreeSet<(&RoomId, &UserId, &ClientMsgId)> = BTreeSet::new();
    let mut scores: BTreeSet<(&RoomId, &Key, &Key, &Key, Revision)> = BTreeSet::new();
    let mut gifts: BTreeSet<(&RoomId, &Key)> = BTreeSet::new();
    let mut told = gifts::Told::default();
    let mut bans = bans::Bans::default();
    let mut asks = asks::Asks::new(clocks_jump);
    let mut slow: BTreeMap<&RoomId, (u32, Wall)> = BTreeMap::new();
    let mut spoke: BTreeMap<(&RoomId, &UserId), Wall> = BTreeMap::new();
    for record in &log.valid {
        let id = record.event_id();
        // A take-over that was overtaken itself may have known less of the log than lies before its EpochStart.
        if record.ts < ts && record.body != Body::EpochStart {
            found.push(format!("log time falls at {id:?}"));
        }
        ts = ts.max(record.ts);
        told.take(record, found);
        bans.judge(record, found);
        bans.take(record);
        asks.take(record, found);
        if let Some(user) = record.erases() {
            // What the user says from here on is another's.
            keys.retain(|(_, of, _)| *of != user);
            spoke.retain(|(_, of), _| *of != user);
        }
        let Some(room) = &record.room else { continue };
        if let Some(n) = record.pseq {
            let last = pseq.insert(room, n).unwrap_or_default();
            if n != last.next() {
                found.push(format!("I-04: pseq {} follows {} in {room} at {id:?}", n.0, last.0));
            }
        }
        match &record.body {
            // A winner was held against these rules when it was said.
            Body::Comment(_) if record.source.is_some() => {}
            Body::Comment(_) => {
                let (Some(user), Some(key)) = (&record.user, &record.client_msg_id) else {
                    found.push(format!("a comment without an author at {id:?}"));
                    continue;
                };
                if !keys.insert((room, user, key)) {
                    found.push(format!("I-10: {user} {key} is in {room} twice, again at {id:?}"));
                }
                let last = spoke.insert((room, user), record.ts);
                let (seconds, since) = slow.get(room).copied().unwrap_or_default();
                let seconds = Duration::from_secs(seconds.into());
                // Log time tells nothing of a distance across a jump of its clock.
                let ruled = last.filter(|last| *last >= since + SLOW_MODE_SLACK && !clocks_jump);
                if let Some(last) = ruled.filter(|last| record.ts.since(*last) + SLOW_MODE_SLACK < seconds) {
                    found.push(format!("slow mode: {user} speaks {:?} apart at {id:?}", record.ts.since(last)));
                }
            }
            Body::Score(s) => {
                // What a switch-over shows was written down before.
                let again = s.shown.as_ref().is_some_and(|shown| shown.again);
                let fresh = again || scores.insert((room, &s.match_id, &s.provider, &s.event, s.revision));
                if !fresh {
                    found
                        .push(format!("I-10: {} {} revision {} is in {room} twice", s.match_id, s.event, s.revision.0));
                }
            }
            Body::Gift(gift) => {
                let fresh = gifts.insert((room, &gift.gift_id));
                if !fresh {
                    found.push(format!("I-10: {} is in {room} twice", gift.gift_id));
                }
            }
            Body::Room(settings) => {
                let seconds = settings.slow_mode_seconds;
                if slow.get(room).is_none_or(|(known, _)| *known != seconds) {
                    slow.insert(room, (seconds, record.ts));
                }
            }
            _ => {}
        }
    }
    told.end(ts, found);
}

/// The two roads of a room's comments: what was said in a wide room is shown once or not at all, as it was said, in the order of
/// its author's, and never after it was taken back or its author was banned.
fn check_wide(log: &Log<'_>, found: &mut Violations, weight: &mut Weight) {
    let mut wide: BTreeSet<&RoomId> = BTreeSet::new();
    let mut shown: BTreeSet<EventId> = BTreeSet::new();
    // Of each user, what was said last of what was shown.
    let mut latest: BTreeMap<(&RoomId, &UserId), EventId> = BTreeMap::new();
    let mut taken: BTreeMap<&RoomId, TakenBack> = BTreeMap::new();
    for record in &log.valid {
        let id = record.event_id();
        let Some(room) = &record.room else { continue };
        match &record.body {
            Body::Wide(_) => {
                weight.wide += 1;
                if !wide.insert(room) {
                    found.push(format!("{room} turns wide twice, again at {id:?}"));
                }
            }
            Body::Narrow(_) if wide.remove(room) => {}
            Body::Narrow(_) => found.push(format!("{room} turns narrow twice, again at {id:?}")),
            Body::Retract(retract) => taken.entry(room).or_default().add(&retract.target, id),
            Body::Comment(comment) => {
                let Some(user) = &record.user else { continue };
                if record.audience == Audience::Nobody {
                    weight.said += 1;
                    if !wide.contains(room) {
                        found.push(format!("{id:?} is raw in {room}, which is narrow"));
                    }
                    continue;
                }
                // What was held goes its own road, past the windows.
                if let Some(held_id) = record.held_id() {
                    let held = log.by_id.get(&held_id);
                    let taken = taken.get(room);
                    if held.is_some_and(|held| taken.is_some_and(|taken| taken.holds(held, held_id, user))) {
                        found.push(format!("I-11: {id:?} shows {held_id:?}, which was taken back"));
                    }
                    continue;
                }
                let said = match &record.source {
                    None => {
                        if wide.contains(room) {
                            found.push(format!("{id:?} has its place at once in {room}, which is wide"));
                        }
                        id
                    }
                    Some(source) => {
                        weight.won += 1;
                        check_winner(log, record, source.id, found);
                        if !shown.insert(source.id) {
                            found.push(format!("I-10: {:?} is shown twice, again as {id:?}", source.id));
                        }
                        if taken.get(room).is_some_and(|taken| taken.holds(record, source.id, user)) {
                            found.push(format!("I-11: {id:?} shows {:?}, which was taken back", source.id));
                        }
                        source.id
                    }
                };
                weight.apart += u64::from(record.audience == Audience::Author);
                let before = latest.insert((room, user), said);
                if before.is_some_and(|before| before >= said) {
                    found.push(format!(
                        "order: {user} said {said:?} before {before:?} and is shown after it, as {id:?}"
                    ));
                }
                let lot = record.source.is_some() && record.audience == Audience::Everyone;
                if comment.won.is_some() != lot {
                    found.push(format!("{id:?} won nothing, or nobody knows what"));
                }
            }
            _ => {}
        }
    }
}

fn check_winner(log: &Log<'_>, winner: &Record, raw_id: EventId, found: &mut Violations) {
    let same = |raw: &Record| {
        let (Body::Comment(said), Body::Comment(shown)) = (&raw.body, &winner.body) else { return false };
        raw.audience == Audience::Nobody
            && (&raw.room, &raw.user, &raw.client_msg_id) == (&winner.room, &winner.user, &winner.client_msg_id)
            && (&said.text, &said.display, said.reply_to) == (&shown.text, &shown.display, shown.reply_to)
            && raw_id < winner.event_id()
    };
    if !log.by_id.get(&raw_id).is_some_and(|raw| same(raw)) {
        found.push(format!("I-02: {:?} is not what was said as {raw_id:?}", winner.event_id()));
    }
}

/// What of a room's comments may not be shown.
#[derive(Default)]
struct TakenBack {
    events: BTreeSet<EventId>,
    users: BTreeMap<UserId, EventId>,
    since: Vec<(UserId, Wall, EventId)>,
    all: Option<EventId>,
}

impl TakenBack {
    fn add(&mut self, target: &RetractTarget, by: EventId) {
        match target {
            RetractTarget::Event(id) => drop(self.events.insert(*id)),
            RetractTarget::User(user) => drop(self.users.insert(user.clone(), by)),
            RetractTarget::Since(user, from) => self.since.push((user.clone(), *from, by)),
            RetractTarget::All => self.all = Some(by),
        }
    }

    /// `said`: what is shown as it was said, which is the same in a narrow room.
    fn holds(&self, shown: &Record, said: EventId, user: &UserId) -> bool {
        let purged = |(whose, from, by): &(UserId, Wall, EventId)| whose == user && *from <= shown.ts && said < *by;
        self.since.iter().any(purged)
            || self.events.contains(&shown.event_id())
            || self.events.contains(&said)
            || self.users.get(user).is_some_and(|by| said < *by)
            || self.all.is_some_and(|by| said < by)
    }
}

fn check_answers(log: &Log<'_>, history: &[Line], found: &mut Violations, weight: &mut Weight) {
    let mut first: BTreeMap<&Wish, EventId> = BTreeMap::new();
    // Of each room, the highest id acknowledged so far; and what it was when a wish was first asked.
    let mut acked: BTreeMap<&RoomId, EventId> = BTreeMap::new();
    let mut before: BTreeMap<&Wish, Option<EventId>> = BTreeMap::new();
    let mut refused: BTreeSet<&Wish> = BTreeSet::new();
    let erased = erase::Erased::of(&log.valid);
    for line in history {
        match &line.seen {
            Seen::Asked(wish) => {
                before.entry(wish).or_insert_with(|| acked.get(wish.room()).copied());
            }
            Seen::Refused(wish) => {
                refused.insert(wish);
            }
            Seen::Decided { client, raw_id, fate } if !is_true(log, *raw_id, Some(*fate)) => {
                found.push(format!("client {client} was told that {raw_id:?} is {fate:?}, which it is not"));
            }
            Seen::Said { wish, raw_id, fate } => {
                let raw = log.by_id.get(raw_id);
                if raw.is_none_or(|record| record.audience != Audience::Nobody) {
                    found.push(format!("I-01: {wish:?} was said as {raw_id:?}, the log has something else there"));
                }
                if !is_true(log, *raw_id, *fate) {
                    found.push(format!("{wish:?} was told that it is {fate:?}, which it is not"));
                }
                acknowledged(log, &erased, (wish, *raw_id), &mut first, &mut acked, &before, found);
                weight.acks += 1;
            }
            Seen::Acked { wish, id, .. } => {
                weight.acks += 1;
                // Who is shown of a match is judged by itself.
                if !matches!(wish, Wish::Gift { .. } | Wish::Score { .. })
                    && log.by_id.get(id).is_some_and(|record| record.audience == Audience::Nobody)
                {
                    found.push(format!("{wish:?} was acknowledged as {id:?}, which no viewer is sent"));
                }
                acknowledged(log, &erased, (wish, *id), &mut first, &mut acked, &before, found);
            }
            _ => {}
        }
    }
    // Of one that was erased the first asking and the refused one are two.
    let is_one = |wish: &&Wish| !matches!(wish, Wish::Comment { user, .. } if erased.holds(user));
    for wish in refused.into_iter().filter(|wish| !first.contains_key(*wish)).filter(is_one) {
        if log.valid.iter().any(|record| wish.is(record)) {
            found.push(format!("I-17: {wish:?} was refused and is in the log"));
        }
    }
}

/// Whether the log shows under that id what was said. What was not shown may be, after a crash.
fn is_true(log: &Log<'_>, raw_id: EventId, fate: Option<Fate>) -> bool {
    let Some(Fate::Shown(id)) = fate else { return true };
    log.by_id.get(&id).and_then(|record| record.source.as_ref()).is_some_and(|source| source.id == raw_id)
}

/// A wish has one id for ever, its own content lies there, and it is above what was acknowledged before it was asked.
fn acknowledged<'a>(
    log: &Log<'_>,
    erased: &erase::Erased<'_>,
    (wish, id): (&'a Wish, EventId),
    first: &mut BTreeMap<&'a Wish, EventId>,
    acked: &mut BTreeMap<&'a RoomId, EventId>,
    before: &BTreeMap<&Wish, Option<EventId>>,
    found: &mut Violations,
) {
    let known = *first.entry(wish).or_insert(id);
    let (earlier, later) = (known.min(id), known.max(id));
    // The answer to the earlier one may come last.
    if matches!(wish, Wish::Comment { user, .. } if erased.parts(user, earlier, later)) {
        first.insert(wish, later);
    } else if known != id {
        found.push(format!("I-10: {wish:?} was acknowledged as {known:?} and as {id:?}"));
    }
    if !log.by_id.get(&id).is_some_and(|record| wish.is(record)) {
        found.push(format!("I-01: {wish:?} was acknowledged as {id:?}, the log has something else there"));
    }
    // A score's repeats may be of an earlier asking by anyone; a comment's key is its asker's alone.
    let earlier = before.get(wish).copied().flatten();
    if matches!(wish, Wish::Comment { .. }) && earlier.is_some_and(|earlier| id <= earlier) {
        found.push(format!("order: {wish:?} was asked after {earlier:?} was acknowledged and is {id:?}"));
    }
    let newest = acked.entry(wish.room()).or_insert(id);
    *newest = (*newest).max(id);
}

impl Wish {
    fn room(&self) -> &RoomId {
        match self {
            Wish::Comment { room, .. } | Wish::Score { room, .. } | Wish::Gift { room, .. } => room,
        }
    }

    fn is(&self, record: &Record) -> bool {
        record.room.as_ref() == Some(self.room())
            && match (self, &record.body) {
                (Wish::Comment { user, key, text, .. }, Body::Comment(c)) => {
                    record.user.as_ref() == Some(user) && record.client_msg_id.as_ref() == Some(key) && c.text == *text
                }
                (Wish::Score { match_id, event, revision, home, .. }, Body::Score(s)) => {
                    s.match_id == *match_id && s.event == *event && s.revision == *revision && s.home == *home
                }
                (Wish::Gift { gift_id, .. }, Body::Gift(g)) => g.gift_id == *gift_id,
                _ => false,
            }
    }
}

/// One viewer's whole session: every connection joined by its cursors.
#[derive(Default)]
struct Session {
    room: Option<RoomId>,
    begun: Option<Position>,
    last: Position,
    pseq: Pseq,
    given: BTreeSet<EventId>,
    /// Each skip told, and whether its count is exact: what it tells beyond a later resume's cursor no longer holds.
    told: Vec<(Skipped, bool)>,
    /// (from, to]: a snapshot stands for it.
    jumped: Vec<(Position, Position)>,
    /// (from, to]: of its comments only hello's `some` was told.
    cut: Vec<(Position, Position)>,
    /// The snapshot that is owed since.
    owed: Option<(Position, Pseq)>,
    /// Winners of wide rooms that are its part, and that it may be given instead under a lower cap.
    part: Option<[BTreeSet<EventId>; 2]>,
    given_part: sampling::Given,
    page: retracts::Page,
    /// Highest revision of each score event, as a page would show it.
    board: BTreeMap<(Key, Key), Revision>,
}

fn check_viewers(log: &Log<'_>, history: &[Line], found: &mut Violations, weight: &mut Weight) {
    let told = retracts::Told::of(log, found);
    let taken = taken_back(log);
    let mut sessions: BTreeMap<ClientIdx, Session> = BTreeMap::new();
    for line in history {
        match &line.seen {
            Seen::Hello { client, user, room, asked, cursor, pseq, kind, skipped, .. } => {
                let session = sessions.entry(*client).or_default();
                session.room = Some(room.clone());
                if session.part.is_none() {
                    session.part = Some([CAP_MILLI, ONE_A_WINDOW].map(|cap| part_of(log, room, user, cap)));
                }
                session.given_part.begin(ViewerKey::of_user(user));
                if *kind == Begun::Snapshot && !has_priority(log, room, *asked, *cursor) {
                    found.push(format!("client {client} was sent to a snapshot from {asked:?} with nothing to lose"));
                }
                hello(session, *client, *asked, *cursor, *pseq, *kind, *skipped, found, weight);
            }
            Seen::Events { client, room, skipped, events, head } => {
                let session = sessions.entry(*client).or_default();
                session.room = Some(room.clone());
                session.told.extend(skipped.map(|skip| (skip, true)));
                weight.skipped += skipped.map_or(0, |s| s.count);
                weight.delivered += events.len() as u64;
                for event in events {
                    deliver(log, session, *client, room, event, found);
                    session.page.take(log, &told, *client, event, *head, found);
                }
            }
            Seen::Paused { .. } => weight.paused += 1,
            Seen::Snapshot { client, shot } => {
                let session = sessions.entry(*client).or_default();
                session.room = Some(shot.room.clone());
                check_snapshot(log, shot, found);
                if let Some((min, pseq)) = session.owed.take()
                    && (shot.as_of < min || shot.pseq < pseq)
                {
                    found.push(format!("I-04: client {client} was given a snapshot older than its stream"));
                }
                shot.tops.iter().for_each(|top| show(&mut session.board, top));
                session.page.begin(log, shot);
            }
            Seen::Picked(picked) => {
                weight.shed += u64::from(picked.cap_milli < CAP_MILLI);
                sessions.entry(picked.client).or_default().given_part.picked(picked.client, line.at, picked, found);
            }
            Seen::Final { client, connected, undecided } => {
                if !connected {
                    found.push(format!("I-16: client {client} is not connected at the end"));
                }
                if let Some(wish) = undecided {
                    found.push(format!("I-16: undecided at the end: {wish:?}"));
                }
                if let Some(session) = sessions.get(client) {
                    account(log, &taken, *client, session, found);
                }
            }
            Seen::Asked(_) | Seen::Acked { .. } | Seen::Said { .. } | Seen::Decided { .. } | Seen::Refused(_) => {}
            Seen::Judged { .. } | Seen::MustGo(_) => {}
            Seen::Ordered(_) | Seen::Done(_) | Seen::Erased(..) | Seen::Dark { .. } => {}
            Seen::Looked { shot } => check_snapshot(log, shot, found),
            Seen::Liked { .. } | Seen::LikesAtRisk { .. } | Seen::Totals { .. } => {}
        }
    }
}

/// The highest revision that anybody was told is taken is what stands of its event, in the log and where nobody chooses between
/// providers in what the room shows.
fn check_last_words(log: &Log<'_>, history: &[Line], finals: &BTreeMap<RoomId, Arc<Snapshot>>, found: &mut Violations) {
    type Event<'a> = (&'a RoomId, &'a Key, &'a Key);
    let mut last: BTreeMap<Event<'_>, (Revision, u32)> = BTreeMap::new();
    for line in history {
        if let Seen::Acked { wish: Wish::Score { room, match_id, event, revision, home }, .. } = &line.seen {
            let word = last.entry((room, match_id, event)).or_insert((*revision, *home));
            *word = (*word).max((*revision, *home));
        }
    }
    let mut logged: BTreeMap<Event<'_>, (Revision, u32)> = BTreeMap::new();
    let mut chosen: BTreeSet<&RoomId> = BTreeSet::new();
    for record in &log.valid {
        let Some(room) = &record.room else { continue };
        match &record.body {
            Body::Score(score) if score.shown.as_ref().is_none_or(|shown| !shown.again) => {
                let word = logged.entry((room, &score.match_id, &score.event)).or_insert((score.revision, score.home));
                *word = (*word).max((score.revision, score.home));
            }
            Body::Feed(_) => drop(chosen.insert(room)),
            _ => {}
        }
    }
    for ((room, match_id, event), word) in &last {
        // What was written and never answered may be above it.
        if logged.get(&(*room, *match_id, *event)).is_none_or(|known| known < word) {
            found.push(format!("I-01: {event} of {match_id} was taken as {word:?}, and {room} knows less of it"));
        }
        if chosen.contains(room) || !finals.contains_key(*room) {
            continue;
        }
        let mut tops = finals[*room].tops.iter().filter_map(|top| match &top.body {
            Body::Score(score) if score.match_id == **match_id && score.event == **event => Some(score),
            _ => None,
        });
        if tops.next().is_none_or(|top| (top.revision, top.home) < *word) {
            found.push(format!("I-13: {room} does not end with {event} of {match_id} as {word:?}, which was taken"));
        }
    }
}

/// Totals never fall, are never more than was taken at the doors, and in the end are all of it but what died with a gateway.
fn check_likes(
    log: &Log<'_>,
    history: &[Line],
    finals: &BTreeMap<RoomId, Arc<Snapshot>>,
    found: &mut Violations,
    weight: &mut Weight,
) {
    type Counts = BTreeMap<LikeKind, u64>;
    fn rise(known: &mut Counts, totals: &[(LikeKind, u64)], who: &dyn std::fmt::Display, found: &mut Violations) {
        let now: Counts = totals.iter().cloned().collect();
        for (kind, n) in known.iter() {
            if now.get(kind).is_none_or(|now| now < n) {
                found.push(format!("likes: {who} had {n} of {kind} and then {:?}", now.get(kind)));
            }
        }
        *known = now;
    }
    let mut logged: BTreeMap<&RoomId, Counts> = BTreeMap::new();
    for record in &log.valid {
        if let Body::Tally(tally) = &record.body {
            for (room, totals) in &tally.rooms {
                rise(logged.entry(room).or_default(), totals, &format!("the log of {room}"), found);
            }
        }
    }
    let mut taken: BTreeMap<(&RoomId, &LikeKind), u64> = BTreeMap::new();
    let mut at_risk: BTreeMap<(&RoomId, &LikeKind), u64> = BTreeMap::new();
    let mut told: BTreeMap<ClientIdx, (&RoomId, Counts)> = BTreeMap::new();
    for line in history {
        match &line.seen {
            Seen::Liked { room, kind, n } => *taken.entry((room, kind)).or_default() += u64::from(*n),
            Seen::LikesAtRisk { room, kind, n } => *at_risk.entry((room, kind)).or_default() += u64::from(*n),
            Seen::Totals { client, room, totals, first } => {
                weight.totals += 1;
                let (_, known) = told.entry(*client).or_insert((room, Counts::new()));
                // Another gateway may be a tick behind the one before.
                if *first {
                    known.clear();
                }
                rise(known, totals, &format!("client {client}"), found);
                for (kind, n) in totals.iter() {
                    if *n > taken.get(&(room, kind)).copied().unwrap_or(0) {
                        found.push(format!("likes: client {client} was told {n} of {kind}, more than were given"));
                    }
                }
            }
            _ => {}
        }
    }
    for ((room, kind), given) in &taken {
        let counted = logged.get(room).and_then(|counts| counts.get(*kind)).copied().unwrap_or(0);
        let risk = at_risk.get(&(*room, *kind)).copied().unwrap_or(0);
        if counted > *given || counted + risk < *given {
            found.push(format!("likes: {room} counts {counted} of {kind}, {given} were given and {risk} may be lost"));
        }
    }
    for (client, (room, known)) in &told {
        let last = finals.get(*room).map(|shot| shot.likes.iter().cloned().collect::<Counts>()).unwrap_or_default();
        if *known != last {
            found.push(format!("likes: client {client} ends with {known:?}, {room} with {last:?}"));
        }
    }
    for (room, shot) in finals {
        let last: Counts = shot.likes.iter().cloned().collect();
        if logged.get(room).cloned().unwrap_or_default() != last {
            found.push(format!("likes: {room} ends with {last:?}, the log with {:?}", logged.get(room)));
        }
    }
}

/// Whether a priority event lies after `from` and up to `to`: nobody is sent to a snapshot for less.
fn has_priority(log: &Log<'_>, room: &RoomId, from: Position, to: Position) -> bool {
    let mut mine = log.valid.iter().filter(|r| r.room.as_ref() == Some(room) && r.lane() == Some(Lane::Priority));
    mine.any(|r| r.event_id().position() > from && r.event_id().position() <= to)
}

fn hello(
    session: &mut Session,
    client: ClientIdx,
    asked: Position,
    cursor: Position,
    pseq: Pseq,
    kind: Begun,
    skipped: Option<Skipped>,
    found: &mut Violations,
    weight: &mut Weight,
) {
    // What was told after the last event that arrived is told again, or given after all.
    session.told.retain(|(skip, _)| skip.from.position() <= asked);
    for (skip, exact) in session.told.iter_mut().filter(|(skip, _)| skip.to.position() > asked) {
        (skip.to, *exact) = (asked.event_id().expect("a cursor behind an event"), false);
    }
    match kind {
        Begun::Live => {
            if asked != Position::START || session.begun.is_some() {
                found.push(format!("client {client} asked for {asked:?} and was given the live end"));
            }
            session.begun = Some(cursor);
        }
        Begun::Resumed { cut } => {
            session.cut.extend(cut.map(|to| (asked, to)));
            weight.resumes += 1;
            if cursor != asked {
                found.push(format!("I-03: client {client} resumed {asked:?} and was given {cursor:?}"));
            }
            if pseq != session.pseq {
                found.push(format!("I-04: client {client} has pseq {} and was resumed at {}", session.pseq.0, pseq.0));
            }
            session.told.extend(skipped.map(|skip| (skip, true)));
            weight.skipped += skipped.map_or(0, |s| s.count);
        }
        Begun::Snapshot => {
            weight.snapshots += 1;
            session.jumped.push((asked, cursor));
        }
    }
    if !matches!(kind, Begun::Resumed { .. }) {
        session.owed = Some((cursor, pseq));
    }
    session.pseq = pseq;
    session.last = session.last.max(cursor);
}

fn deliver(
    log: &Log<'_>,
    session: &mut Session,
    client: ClientIdx,
    room: &RoomId,
    event: &Arc<Record>,
    found: &mut Violations,
) {
    let id = event.event_id();
    match log.by_id.get(&id) {
        Some(record) if Arc::ptr_eq(record, event) || ***record == **event => {}
        Some(_) => found.push(format!("I-02: client {client} was given other content as {id:?}")),
        None => found.push(format!("I-05: client {client} was given {id:?}, which is not in the log")),
    }
    if event.room.as_ref() != Some(room) || event.audience != Audience::Everyone {
        found.push(format!("I-06: client {client} was given {id:?}, which is not for it"));
    }
    if id.position() <= session.last {
        found.push(format!("I-03: client {client} was given {id:?} after {:?}", session.last));
    }
    session.given_part.take(event);
    let may = |[part, instead]: &[BTreeSet<EventId>; 2]| {
        part.contains(&id) || (instead.contains(&id) && !session.given_part.shed.is_empty())
    };
    if process::lot(event).is_some() && !session.part.as_ref().is_some_and(may) {
        found.push(format!("I-04: client {client} was given {id:?}, a winner that is not its part"));
    }
    session.last = session.last.max(id.position());
    session.given.insert(id);
    if let Some(n) = event.pseq {
        if n != session.pseq.next() {
            found.push(format!("I-04: client {client} was given pseq {} after {}", n.0, session.pseq.0));
        }
        session.pseq = n;
    }
    show(&mut session.board, event);
}

fn show(board: &mut BTreeMap<(Key, Key), Revision>, event: &Record) {
    if let Body::Score(score) = &event.body {
        let (key, revision) = score.shown_as();
        let shown = board.entry((score.match_id.clone(), key.clone())).or_insert(revision);
        *shown = (*shown).max(revision);
    }
}

/// What a viewer is given of every window of a room, wherever it reads it.
fn part_of(log: &Log<'_>, room: &RoomId, user: &UserId, cap_milli: u64) -> BTreeSet<EventId> {
    let mine = log.valid.iter().filter(|r| r.room.as_ref() == Some(room) && r.lane().is_some());
    let mine: Vec<Arc<Record>> = mine.map(|record| Arc::clone(record)).collect();
    let winners =
        process::picked(&mine, &process::reader(user, cap_milli)).filter(|record| process::lot(record).is_some());
    winners.map(|record| record.event_id()).collect()
}

/// At the end everything since the session began was given, told, or is covered by a snapshot.
fn account(log: &Log<'_>, taken: &Taken, client: ClientIdx, session: &Session, found: &mut Violations) {
    let (Some(begun), Some(room)) = (session.begun, &session.room) else { return };
    let none = TakenBack::default();
    let taken = taken.get(room).unwrap_or(&none);
    session.page.judge(log, taken, client, found);
    let mut left_out = BTreeSet::new();
    let mut untold: BTreeMap<usize, u64> = BTreeMap::new();
    for record in log.valid.iter().filter(|r| r.room.as_ref() == Some(room) && r.lane().is_some()) {
        let (id, at) = (record.event_id(), record.event_id().position());
        let within = |stretches: &[(Position, Position)]| stretches.iter().any(|(from, to)| at > *from && at <= *to);
        let jumped = within(&session.jumped);
        let cut = record.lane() == Some(Lane::Comment) && within(&session.cut);
        let is_taken = is_taken(taken, record);
        let told = session.told.iter().position(|(skip, _)| skip.from <= id && id <= skip.to);
        if let Some(lot) = process::lot(record).filter(|_| jumped || cut || is_taken || told.is_some()) {
            left_out.insert(lot.window);
        }
        if at <= begun || jumped || cut || session.given.contains(&id) || record.audience != Audience::Everyone {
            continue;
        }
        if process::lot(record).is_some() {
            let owed = session.part.as_ref().is_some_and(|[part, _]| part.contains(&id));
            let shed = session.given_part.shed.iter().any(|picked| at > picked.from && at <= picked.to);
            if !owed || shed {
                continue;
            }
        }
        match told.filter(|_| record.lane() == Some(Lane::Comment)) {
            Some(skip) => *untold.entry(skip).or_default() += 1,
            None if is_taken => {}
            None => found.push(format!("I-04, I-16: client {client} was never given nor told {id:?}")),
        }
    }
    session.given_part.judge(client, &left_out, found);
    for (idx, (skip, exact)) in session.told.iter().enumerate() {
        let missing = untold.get(&idx).copied().unwrap_or(0);
        // The log counts winners among what is too old to be picked from.
        let exact = *exact && !log.winners_in(room, skip.from, skip.to);
        if missing > skip.count || (exact && missing < skip.count) {
            found.push(format!("client {client} was told of {} passed over in {skip:?}, it was {missing}", skip.count));
        }
    }
    let expect: BTreeMap<(Key, Key), Revision> =
        tops_at(log, Position::new((1 << 53) - 1).expect("below the limit")).remove(room).unwrap_or_default();
    if session.board != expect {
        found.push(format!("I-13: client {client} ends with {:?}, the log says {expect:?}", session.board));
    }
}

/// Whether a shown comment was taken back.
fn is_taken(taken: &TakenBack, comment: &Record) -> bool {
    let id = comment.event_id();
    // What was held is taken back by what comes after its approval, and by the time it is shown at: what came between was held
    // against it then.
    let said = comment.raw_id().unwrap_or(id);
    let is_held_id = comment.held_id().is_some_and(|held| taken.events.contains(&held));
    let is_taken = |user: &UserId| is_held_id || taken.holds(comment, said, user);
    matches!(comment.body, Body::Comment(_)) && comment.user.as_ref().is_some_and(is_taken)
}

/// What was taken back by the end, by room; of every room of the log.
type Taken<'a> = BTreeMap<&'a RoomId, TakenBack>;

fn taken_back<'a>(log: &Log<'a>) -> Taken<'a> {
    let mut taken = Taken::new();
    for record in &log.valid {
        let Some(room) = &record.room else { continue };
        let of_room = taken.entry(room).or_default();
        if let Body::Retract(retract) = &record.body {
            of_room.add(&retract.target, record.event_id());
        }
    }
    taken
}

/// Of each room, the highest revision of each score event up to a place.
fn tops_at(log: &Log<'_>, upto: Position) -> BTreeMap<RoomId, BTreeMap<(Key, Key), Revision>> {
    let mut tops: BTreeMap<RoomId, BTreeMap<(Key, Key), Revision>> = BTreeMap::new();
    for record in log.valid.iter().take_while(|r| r.event_id().position() <= upto) {
        let is_shown = matches!(record.body, Body::Score(_)) && record.audience == Audience::Everyone;
        if let Some(room) = record.room.as_ref().filter(|_| is_shown) {
            show(tops.entry(room.clone()).or_default(), record);
        }
    }
    tops
}

fn check_snapshot(log: &Log<'_>, shot: &Snapshot, found: &mut Violations) {
    let upto = log.valid.iter().take_while(|r| r.event_id().position() <= shot.as_of);
    let mine = upto.filter(|r| r.room.as_ref() == Some(&shot.room));
    let mut taken = TakenBack::default();
    let mut pseq = Pseq(0);
    for record in mine {
        pseq = record.pseq.unwrap_or(pseq);
        if let Body::Retract(retract) = &record.body {
            taken.add(&retract.target, record.event_id());
        }
    }
    if pseq != shot.pseq {
        found.push(format!("I-04: a snapshot of {} has pseq {}, the log {}", shot.room, shot.pseq.0, pseq.0));
    }
    for comment in &shot.recent {
        let id = comment.event_id();
        if is_taken(&taken, comment) {
            found.push(format!("I-11: a snapshot shows {id:?}, which was retracted"));
        }
        if !log.by_id.get(&id).is_some_and(|record| ***record == **comment) {
            found.push(format!("I-02: a snapshot shows {id:?}, which is not in the log"));
        }
    }
    let expect = tops_at(log, shot.as_of).remove(&shot.room).unwrap_or_default();
    let mut board = BTreeMap::new();
    shot.tops.iter().for_each(|top| show(&mut board, top));
    if board != expect {
        found.push(format!("I-13: a snapshot of {} shows {board:?}, the log says {expect:?}", shot.room));
    }
}
