//! What rooms ask of a comment, how long their pins stand, when they close, and whose reports count, by the log alone.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body, Comment, Config, Record, RetractTarget, Room, RoomState};
use grandstand_core::time::Wall;

use super::{SLOW_MODE_SLACK, Violations};

/// From an end to the record that says so: a failed write or two, a take-over; more where clocks jump past an end.
const SLACK: Duration = Duration::from_secs(8);
const JUMPS: Duration = Duration::from_secs(12);

/// A room's newest settings, and since when it asks what it asks.
struct Told {
    settings: Arc<Room>,
    unique: Option<Wall>,
    emotes: Option<Wall>,
    members: Option<Wall>,
    /// An end that was missed is told once.
    overdue: bool,
    /// What viewers are to be told next, by the same epoch: what is asked from now on, as far as it changed.
    owed: Option<(Epoch, Config)>,
}

/// What changed of what a room asks, as the event that tells it. What it says beside that is not looked at.
fn asked(before: Option<&Room>, after: &Room) -> Config {
    let fresh = Room::fresh("");
    let before = before.unwrap_or(&fresh);
    Config {
        emote_only: (before.emote_only != after.emote_only).then_some(after.emote_only),
        unique_comment: (before.unique_comment != after.unique_comment).then_some(after.unique_comment),
        members_only: (before.members_only != after.members_only).then(|| after.members_only.clone()),
        ..Config::default()
    }
}

pub struct Asks {
    clocks_jump: bool,
    rooms: BTreeMap<RoomId, Told>,
    said: BTreeSet<(RoomId, UserId, Arc<str>, Option<EventId>)>,
    reports: BTreeSet<(RoomId, EventId, UserId)>,
}

impl Asks {
    pub fn new(clocks_jump: bool) -> Asks {
        Asks { clocks_jump, rooms: BTreeMap::new(), said: BTreeSet::new(), reports: BTreeSet::new() }
    }

    /// The next record, held against what was before it.
    pub fn take(&mut self, record: &Record, found: &mut Violations) {
        self.ends(record.ts, found);
        if let Some(user) = record.erases() {
            // What the user says and reports from here on is another's.
            self.said.retain(|(_, whose, ..)| whose != user);
            self.reports.retain(|(.., whose)| whose != user);
        }
        let Some(room) = &record.room else { return };
        let owed = self.rooms.get_mut(room).and_then(|told| told.owed.take());
        // A batch that was cut after the settings tells nobody; whoever comes reads them in the snapshot.
        if let Some((_, owed)) = owed.filter(|(epoch, _)| *epoch == record.epoch) {
            let told = match &record.body {
                Body::Config(told) => (told.emote_only, told.unique_comment, told.members_only.clone()),
                _ => (None, None, None),
            };
            if told != (owed.emote_only, owed.unique_comment, owed.members_only) {
                found
                    .push(format!("asks: viewers of {room} are not told what it asks from {:?} on", record.event_id()));
            }
        }
        match &record.body {
            Body::Room(settings) => self.set(room, settings, record.epoch, record.ts),
            Body::Comment(comment) => {
                let state = self.rooms.get(room).map(|told| told.settings.state);
                if state == Some(RoomState::Closed) {
                    found.push(format!("{:?} is said in {room}, which is closed", record.event_id()));
                }
                // What is shown of a raw or held comment was asked when it was said.
                if record.source.is_none() {
                    self.ask(record, room, comment, found);
                }
            }
            Body::Report(report) => {
                let Some(user) = &record.user else { return };
                if !self.reports.insert((room.clone(), report.event, user.clone())) {
                    found.push(format!("reports: {user} reports {:?} of {room} twice", report.event));
                }
            }
            // What was taken back may be reported again.
            Body::Retract(retract) => match &retract.target {
                RetractTarget::Event(id) => self.reports.retain(|(of, event, _)| of != room || event != id),
                RetractTarget::All => self.reports.retain(|(of, ..)| of != room),
                RetractTarget::User(_) | RetractTarget::Since(..) => {}
            },
            _ => {}
        }
    }

    fn set(&mut self, room: &RoomId, settings: &Arc<Room>, epoch: Epoch, ts: Wall) {
        let before = self.rooms.remove(room);
        let since = |on: bool, known: Option<Wall>| if on { known.or(Some(ts)) } else { None };
        let known = |of: fn(&Told) -> Option<Wall>| before.as_ref().and_then(of);
        // Another badge is another question.
        let same = before.as_ref().is_some_and(|told| told.settings.members_only == settings.members_only);
        let owed = asked(before.as_ref().map(|told| &*told.settings), settings);
        let told = Told {
            owed: (owed != Config::default()).then_some((epoch, owed)),
            settings: settings.clone(),
            unique: since(settings.unique_comment, known(|told| told.unique)),
            emotes: since(settings.emote_only, known(|told| told.emotes)),
            members: since(settings.members_only.is_some(), known(|told| told.members).filter(|_| same)),
            overdue: false,
        };
        self.rooms.insert(room.clone(), told);
    }

    /// A comment that was let in, against what its room asked when it came.
    fn ask(&mut self, record: &Record, room: &RoomId, comment: &Comment, found: &mut Violations) {
        let Some(user) = &record.user else { return };
        let id = record.event_id();
        let fresh = self.said.insert((room.clone(), user.clone(), comment.text.clone(), comment.reply_to));
        let Some(told) = self.rooms.get(room) else { return };
        // Log time tells nothing of a distance across a jump of its clock.
        let asked = |since: Option<Wall>| since.is_some_and(|at| at + SLOW_MODE_SLACK < record.ts && !self.clocks_jump);
        if !fresh && asked(told.unique) {
            found.push(format!("asks: {user} says the same twice in {room}, again at {id:?}"));
        }
        if asked(told.emotes) && !comment.text.starts_with(':') {
            found.push(format!("asks: {id:?} is no emote, and {room} takes nothing else"));
        }
        let is_member = told.settings.members_only.as_ref().is_none_or(|badge| comment.badges.contains(badge));
        if asked(told.members) && !is_member {
            found.push(format!("asks: {id:?} is of no member of {room}"));
        }
    }

    /// What should have ended by `ts`.
    fn ends(&mut self, ts: Wall, found: &mut Violations) {
        let slack = if self.clocks_jump { SLACK + JUMPS } else { SLACK };
        for (room, told) in self.rooms.iter_mut().filter(|(_, told)| !told.overdue) {
            let settings = &told.settings;
            let is_over = |end: &Wall| *end + slack < ts;
            let pin = settings.pin_ends.iter().find(|(id, end)| is_over(end) && settings.pinned.contains(id));
            if let Some((id, _)) = pin {
                found.push(format!("pins: {id:?} is pinned in {room} long past its end"));
                told.overdue = true;
            }
            if settings.state == RoomState::Settling && settings.settles_until.as_ref().is_some_and(is_over) {
                found.push(format!("settling: {room} has settled and is open"));
                told.overdue = true;
            }
        }
    }
}
