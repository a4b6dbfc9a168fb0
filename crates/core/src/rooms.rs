//! How a room's settings change: one operator's change in, the new room record and what viewers must know of it out.
//!
//! Every change is whole or refused, and raises the version by one. A room goes `scheduled → live → settling → closed`; a
//! closed room may be opened again, but a room that has been live is never merely scheduled again without being closed. The last
//! step it takes by itself: while it settles, results are corrected and the talk runs out, and somebody who forgets to close it
//! must not leave it open for ever.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use crate::ids::EventId;
use crate::likes;
use crate::names::Key;
use crate::planted::planted;
use crate::record::{Config, Policy, Room, RoomState};
use crate::regions::{REGIONS_MAX, Region};
use crate::sampler::pick::PICKS_MAX;
use crate::sampler::switch::Sampling;
use crate::sampler::{Preset, WEIGHT_MAX, Weights};
use crate::time::Wall;
use crate::{banners, combos, moderation, slow_mode};

pub const TITLE_BYTES_MAX: usize = 200;
pub const MATCHES_MAX: usize = 16;
pub const PINNED_MAX: usize = 10;
/// Below, an ordinary stall of a phone passes comments over; above, they come later than a priority event may.
pub const COMMENT_AGE_MS_MIN: u32 = 500;
pub const COMMENT_AGE_MS_MAX: u32 = 10_000;
/// A window is a fifth of a second, and picks of one window are bounded.
pub const CAP_MAX: u32 = 100;
const _: () = assert!(CAP_MAX as usize <= PICKS_MAX * 5);
/// Badges with a weight of their own.
pub const BADGE_WEIGHTS_MAX: usize = 16;
pub const BADGE_BYTES_MAX: usize = 32;

/// How long a room settles of which nothing is said: an hour for late corrections; and the longest it may be told to.
pub const SETTLE_SECONDS: u32 = 3_600;
pub const SETTLE_SECONDS_MAX: u32 = 604_800;

/// What an operator wants changed; `None` leaves a setting as it is.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct RoomChange {
    pub title: Option<Arc<str>>,
    pub state: Option<RoomState>,
    pub matches: Option<Vec<Key>>,
    pub anonymous_view: Option<bool>,
    pub anonymous_publish: Option<bool>,
    pub listed: Option<bool>,
    pub rate: Option<u32>,
    pub user_rate: Option<u32>,
    pub user_burst: Option<u32>,
    pub like_rate: Option<u32>,
    /// `Some(None)` follows the room's size again.
    pub merge_ms: Option<Option<u32>>,
    /// `Some(None)` is the age of any room again.
    pub comment_age_ms: Option<Option<u32>>,
    pub resume_window_seconds: Option<u32>,
    pub retention_days: Option<u32>,
    pub slow_mode_seconds: Option<u32>,
    /// With `slow_mode_seconds`: how long it lasts in log time; `None` = until changed.
    pub slow_mode_for: Option<Duration>,
    pub moderation_policy: Option<Policy>,
    pub pinned: Option<Vec<EventId>>,
    pub sampling: Option<Sampling>,
    pub sampling_rate: Option<u32>,
    pub sampling_viewers: Option<u32>,
    /// `Some(None)` is the preset's again.
    pub cap: Option<Option<u32>>,
    /// A preset's own cap holds unless the same change gives one.
    pub preset: Option<Preset>,
    pub weights: Option<Box<Weights>>,
    pub banner_items: Option<Vec<Arc<str>>>,
    pub banner_amounts: Option<BTreeMap<Arc<str>, u64>>,
    pub banner_rate: Option<u32>,
    pub banner_seconds: Option<u32>,
    pub combo_seconds: Option<u32>,
    pub hold_flagged: Option<bool>,
    pub hold_seconds: Option<u32>,
    pub blackout_regions: Option<Vec<Region>>,
    pub settle_seconds: Option<u32>,
    pub asks: Option<Box<Asks>>,
}

/// What is changed of what a room asks of a comment, and of its pins one by one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asks {
    pub unique_comment: Option<bool>,
    pub emote_only: Option<bool>,
    /// `Some(None)`: anybody may comment again.
    pub members_only: Option<Option<Arc<str>>>,
    /// One more pin, and when it ends by itself. One that is there is given this end.
    pub pin: Option<(EventId, Option<Wall>)>,
    pub unpin: Option<EventId>,
    /// Pins whose end has come go.
    pub end_pins: bool,
}

impl From<Asks> for RoomChange {
    fn from(asks: Asks) -> RoomChange {
        RoomChange { asks: Some(Box::new(asks)), ..RoomChange::default() }
    }
}

/// A room that was changed, with what viewers are told of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Changed {
    pub room: Room,
    pub config: Config,
}

/// Applies `change` at log time `now`. The result equals `room` but for the version when nothing would change.
///
/// Errors: every field that breaks its rule, with the rule.
pub fn change(room: &Room, change: &RoomChange, now: Wall) -> Result<Changed, Vec<(String, String)>> {
    let mut faults = Vec::new();
    let mut check = |field: &str, ok: bool, rule: &str| {
        if !ok {
            faults.push((field.to_owned(), rule.to_owned()));
        }
    };
    let within = |value: Option<u32>, from: u32, to: u32| value.is_none_or(|v| (from..=to).contains(&v));

    let title_ok = change.title.as_ref().is_none_or(|t| t.len() <= TITLE_BYTES_MAX && !t.chars().any(char::is_control));
    check("title", title_ok, "at most 200 bytes on one line");
    // A room that is not there yet (version 0) has not been live, whatever a fresh one's state is.
    let state_ok = room.version == 0 || change.state.is_none_or(|to| may_follow(room.state, to));
    check("state", state_ok, "a room that has been live is not scheduled again before it is closed");
    let distinct = |keys: &Vec<Key>| keys.iter().enumerate().all(|(i, key)| !keys[..i].contains(key));
    let matches_ok = change.matches.as_ref().is_none_or(|m| m.len() <= MATCHES_MAX && distinct(m));
    check("matches", matches_ok, "at most 16 different matches");
    check("rate", within(change.rate, 1, 100_000), "1 to 100000 comments a second");
    check("user_rate", within(change.user_rate, 1, 1_000), "1 to 1000 comments a second");
    check("user_burst", within(change.user_burst, 1, 10_000), "1 to 10000 comments");
    check("like_rate", within(change.like_rate, 0, likes::RATE_MAX), "0 to 1000 likes a second");
    check("merge_ms", within(change.merge_ms.flatten(), 0, 1_000), "0 to 1000 milliseconds");
    let age = change.comment_age_ms.flatten();
    check("comment_age_ms", within(age, COMMENT_AGE_MS_MIN, COMMENT_AGE_MS_MAX), "500 to 10000 milliseconds");
    check("resume_window", within(change.resume_window_seconds, 1, 86_400), "1 to 86400 seconds");
    check("retention", within(change.retention_days, 1, 3_650), "1 to 3650 days");
    check("slow_mode_seconds", within(change.slow_mode_seconds, 0, slow_mode::SECONDS_MAX), "0 to 600 seconds");
    check(
        "duration_ms",
        change.slow_mode_for.is_none() || change.slow_mode_seconds.is_some(),
        "goes with slow_mode_seconds",
    );
    check("pinned", change.pinned.as_ref().is_none_or(|p| p.len() <= PINNED_MAX), "at most 10 events");
    check("sampling_rate", within(change.sampling_rate, 1, 100_000), "1 to 100000 comments a second");
    check("sampling_viewers", within(change.sampling_viewers, 1, u32::MAX), "1 to 4294967295 viewers");
    check("cap", within(change.cap.flatten(), 1, CAP_MAX), "1 to 100 comments a second");
    let weights_ok = change.weights.as_deref().is_none_or(are_weights);
    check("weights", weights_ok, "base 1 to 1000, the others 0 to 1000, at most 16 different badges of 1 to 32 bytes");
    let items_ok = change.banner_items.as_ref().is_none_or(|items| items.len() <= banners::ITEMS_MAX);
    check("banner_items", items_ok, "at most 16 items");
    let amounts_ok = change.banner_amounts.as_ref().is_none_or(|amounts| amounts.len() <= banners::AMOUNTS_MAX);
    check("banner_amounts", amounts_ok, "at most 16 currencies");
    check("banner_rate", within(change.banner_rate, 0, banners::ROOM_RATE_MAX), "0 to 30 banners a minute");
    check("banner_seconds", within(change.banner_seconds, 1, banners::GIFT_SECONDS_MAX), "1 to 600 seconds");
    check("hold_seconds", within(change.hold_seconds, 60, moderation::HOLD_SECONDS_MAX), "60 to 604800 seconds");
    check("combo_seconds", within(change.combo_seconds, 0, combos::SECONDS_MAX), "0 to 60 seconds");
    let asks = change.asks.as_deref().cloned().unwrap_or_default();
    let badge_ok =
        |badge: &Arc<str>| (1..=BADGE_BYTES_MAX).contains(&badge.len()) && !badge.chars().any(char::is_control);
    let members_ok = asks.members_only.iter().flatten().all(badge_ok);
    check("members_only", members_ok, "a badge of 1 to 32 bytes, or null");
    let is_new = |id: &EventId| !room.pinned.contains(id);
    let pin_fits = asks.pin.as_ref().is_none_or(|(id, _)| !is_new(id) || room.pinned.len() < PINNED_MAX);
    check("event_id", pin_fits, "10 events are pinned, as many as may be: unpin one first");
    let pin_lasts = asks.pin.as_ref().is_none_or(|(_, until)| until.is_none_or(|until| now < until));
    check("until", pin_lasts, "a time to come");
    let regions_ok = change.blackout_regions.as_ref().is_none_or(|regions| regions.len() <= REGIONS_MAX);
    check("blackout_regions", regions_ok, "at most 64 regions");
    check("settle_seconds", within(change.settle_seconds, 0, SETTLE_SECONDS_MAX), "0 to 604800 seconds");
    if !faults.is_empty() {
        return Err(faults);
    }

    let mut new = room.clone();
    set(&mut new.title, &change.title);
    set(&mut new.state, &change.state);
    set(&mut new.matches, &change.matches);
    set(&mut new.anonymous_view, &change.anonymous_view);
    set(&mut new.anonymous_publish, &change.anonymous_publish);
    set(&mut new.listed, &change.listed);
    set(&mut new.rate, &change.rate);
    set(&mut new.user_rate, &change.user_rate);
    set(&mut new.user_burst, &change.user_burst);
    set(&mut new.like_rate, &change.like_rate);
    set(&mut new.merge_ms, &change.merge_ms);
    set(&mut new.comment_age_ms, &change.comment_age_ms);
    set(&mut new.resume_window_seconds, &change.resume_window_seconds);
    set(&mut new.retention_days, &change.retention_days);
    set(&mut new.moderation_policy, &change.moderation_policy);
    set(&mut new.pinned, &change.pinned);
    set(&mut new.sampling.when, &change.sampling);
    set(&mut new.sampling.rate, &change.sampling_rate);
    set(&mut new.sampling.viewers, &change.sampling_viewers);
    set(&mut new.sampling.preset, &change.preset);
    set(&mut new.sampling.cap, &change.cap.or(change.preset.map(|_| None)));
    set(&mut new.sampling.weights, &change.weights.as_deref().cloned());
    set(&mut new.banner_items, &change.banner_items);
    set(&mut new.banner_amounts, &change.banner_amounts);
    set(&mut new.banner_rate, &change.banner_rate);
    set(&mut new.banner_seconds, &change.banner_seconds);
    set(&mut new.combo_seconds, &change.combo_seconds);
    set(&mut new.hold_flagged, &change.hold_flagged);
    set(&mut new.hold_seconds, &change.hold_seconds);
    set(&mut new.settle_seconds, &change.settle_seconds);
    settle(room, &mut new, now);
    set(&mut new.unique_comment, &asks.unique_comment);
    set(&mut new.emote_only, &asks.emote_only);
    set(&mut new.members_only, &asks.members_only);
    change_pins(&mut new, &asks, now);
    if let Some(regions) = &change.blackout_regions {
        new.blackout_regions = regions.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
    }
    if let Some(seconds) = change.slow_mode_seconds {
        new.slow_mode_seconds = seconds;
        new.slow_mode_until = change.slow_mode_for.filter(|_| seconds > 0).map(|lasts| now + lasts);
    }
    let config = told(room, &new);
    if new != *room {
        new.version += 1;
    }
    Ok(Changed { room: new, config })
}

/// When a room that settles closes: so long after it began to, or after it was told another time.
fn settle(old: &Room, new: &mut Room, now: Wall) {
    let before = (old.state, old.settle_seconds);
    new.settles_until = match (new.state, new.settle_seconds) {
        (RoomState::Settling, seconds) if before == (new.state, seconds) => old.settles_until,
        (RoomState::Settling, seconds) => (seconds > 0).then(|| now + Duration::from_secs(seconds.into())),
        _ => None,
    };
}

fn change_pins(new: &mut Room, change: &Asks, now: Wall) {
    if let Some((id, until)) = change.pin {
        if !new.pinned.contains(&id) {
            new.pinned.push(id);
        }
        match until {
            Some(until) => drop(new.pin_ends.insert(id, until)),
            None => drop(new.pin_ends.remove(&id)),
        }
    }
    if let Some(id) = change.unpin {
        new.pinned.retain(|pinned| *pinned != id);
    }
    if change.end_pins {
        let ends = &new.pin_ends;
        new.pinned.retain(|id| ends.get(id).is_none_or(|until| now < *until));
    }
    let pinned = &new.pinned;
    new.pin_ends.retain(|id, _| pinned.contains(id));
}

fn may_follow(from: RoomState, to: RoomState) -> bool {
    to != RoomState::Scheduled || matches!(from, RoomState::Scheduled | RoomState::Closed)
}

fn are_weights(weights: &Weights) -> bool {
    let Weights { base, per_reply, per_reaction, badges } = weights;
    let names_ok = badges.iter().enumerate().all(|(i, (name, _))| {
        (1..=BADGE_BYTES_MAX).contains(&name.len()) && !badges[..i].iter().any(|(earlier, _)| earlier == name)
    });
    *base >= 1
        && [*base, *per_reply, *per_reaction].iter().chain(badges.iter().map(|(_, w)| w)).all(|w| *w <= WEIGHT_MAX)
        && badges.len() <= BADGE_WEIGHTS_MAX
        && names_ok
}

fn set<T: Clone>(field: &mut T, wanted: &Option<T>) {
    if let Some(value) = wanted {
        *field = value.clone();
    }
}

/// The changed keys that viewers are told.
fn told(old: &Room, new: &Room) -> Config {
    fn changed<T: PartialEq + Clone>(old: &T, new: &T) -> Option<T> {
        (old != new).then(|| new.clone())
    }
    let slow_mode = (old.slow_mode_seconds, old.slow_mode_until) != (new.slow_mode_seconds, new.slow_mode_until);
    Config {
        title: changed(&old.title, &new.title),
        state: changed(&old.state, &new.state),
        slow_mode_seconds: slow_mode.then_some(new.slow_mode_seconds),
        until_ts: slow_mode.then_some(new.slow_mode_until),
        moderation_policy: changed(&old.moderation_policy, &new.moderation_policy),
        pinned: changed(&old.pinned, &new.pinned).map(Arc::from),
        // Said by the switch's own event.
        sampled: None,
        cap: changed(&old.sampling.cap(), &new.sampling.cap()),
        emote_only: changed(&old.emote_only, &new.emote_only).filter(|_| !planted(138)),
        unique_comment: changed(&old.unique_comment, &new.unique_comment),
        members_only: changed(&old.members_only, &new.members_only),
    }
}

#[cfg(test)]
mod tests {
    use super::{Asks, RoomChange, change};
    use crate::record::{Config, Room, RoomState};
    use crate::sampler::{Preset, Weights};
    use crate::time::Wall;
    use std::time::Duration;

    fn room() -> Room {
        Room { version: 1, ..Room::fresh("r") }
    }

    #[test]
    fn a_change_raises_the_version_and_tells_only_what_changed() {
        let wanted = RoomChange {
            slow_mode_seconds: Some(30),
            slow_mode_for: Some(Duration::from_secs(60)),
            rate: Some(5),
            ..RoomChange::default()
        };
        let got = change(&room(), &wanted, Wall(1_000)).unwrap();
        assert_eq!((got.room.version, got.room.rate), (2, 5));
        let told = Config { slow_mode_seconds: Some(30), until_ts: Some(Some(Wall(61_000))), ..Config::default() };
        assert_eq!(got.config, told);
    }

    #[test]
    fn a_change_to_the_same_values_changes_nothing() {
        let wanted = RoomChange { state: Some(RoomState::Live), ..RoomChange::default() };
        let got = change(&room(), &wanted, Wall(0)).unwrap();
        assert_eq!((got.room, got.config), (room(), Config::default()));
    }

    #[test]
    fn every_broken_field_is_named_and_nothing_is_changed() {
        let wanted = RoomChange {
            rate: Some(0),
            slow_mode_seconds: Some(601),
            state: Some(RoomState::Scheduled),
            ..RoomChange::default()
        };
        let fields: Vec<String> = change(&room(), &wanted, Wall(0)).unwrap_err().into_iter().map(|(f, _)| f).collect();
        assert_eq!(fields, ["state", "rate", "slow_mode_seconds"]);
    }

    #[test]
    fn pins_are_several_end_by_themselves_and_are_bounded() {
        let id = |n| crate::ids::EventId::new(1 << 33 | n).unwrap();
        let pin = |n, until| RoomChange::from(Asks { pin: Some((id(n), until)), ..Asks::default() });
        let mut room = room();
        for n in 1..=super::PINNED_MAX as u64 {
            room = change(&room, &pin(n, (n == 2).then_some(Wall(5_000))), Wall(1_000)).unwrap().room;
        }
        let full = change(&room, &pin(99, None), Wall(1_000)).unwrap_err();
        assert_eq!(full[0].0, "event_id");
        assert_eq!(change(&room, &pin(3, Some(Wall(1_000))), Wall(1_000)).unwrap_err()[0].0, "until");
        let end = RoomChange::from(Asks { end_pins: true, ..Asks::default() });
        assert_eq!(change(&room, &end, Wall(4_999)).unwrap().config, Config::default(), "not yet");
        let ended = change(&room, &end, Wall(5_000)).unwrap();
        assert!(ended.config.pinned.is_some_and(|left| left.len() == 9 && !left.contains(&id(2))));
        assert!(ended.room.pin_ends.is_empty());
        let later = change(&room, &pin(2, None), Wall(1_000)).unwrap().room;
        assert!(later.pin_ends.is_empty() && later.pinned == room.pinned, "a pin may be given another end");
        let unpin = RoomChange::from(Asks { unpin: Some(id(7)), ..Asks::default() });
        assert!(!change(&room, &unpin, Wall(0)).unwrap().room.pinned.contains(&id(7)));
    }

    #[test]
    fn a_preset_brings_its_cap_and_viewers_are_told_the_cap() {
        let to = |change: RoomChange| super::change(&room(), &change, Wall(0)).unwrap();
        let danmaku = to(RoomChange { preset: Some(Preset::Danmaku), ..RoomChange::default() });
        assert_eq!((danmaku.room.sampling.cap(), danmaku.config.cap), (50, Some(50)));
        let own = to(RoomChange { preset: Some(Preset::Danmaku), cap: Some(Some(5)), ..RoomChange::default() });
        assert_eq!((own.room.sampling.cap(), own.config.cap), (5, None));
    }

    #[test]
    fn sampling_settings_out_of_their_limits_are_named() {
        let weights = Weights { base: 0, ..Weights::default() };
        let twice = Weights { badges: vec![("mod".into(), 1), ("mod".into(), 2)], ..Weights::default() };
        for (change, field) in [
            (RoomChange { sampling_rate: Some(0), ..RoomChange::default() }, "sampling_rate"),
            (RoomChange { sampling_viewers: Some(0), ..RoomChange::default() }, "sampling_viewers"),
            (RoomChange { cap: Some(Some(101)), ..RoomChange::default() }, "cap"),
            (RoomChange { weights: Some(weights.into()), ..RoomChange::default() }, "weights"),
            (RoomChange { weights: Some(twice.into()), ..RoomChange::default() }, "weights"),
        ] {
            assert_eq!(super::change(&room(), &change, Wall(0)).unwrap_err()[0].0, field);
        }
    }

    #[test]
    fn a_settling_room_has_an_end_that_moves_when_it_is_told_another_and_goes_with_the_state() {
        let to = |state| RoomChange { state: Some(state), ..RoomChange::default() };
        let lasts = |seconds| RoomChange { settle_seconds: Some(seconds), ..RoomChange::default() };
        let at = |room: &Room, wanted: &RoomChange, now| change(room, wanted, Wall(now)).unwrap().room;
        let settling = at(&room(), &to(RoomState::Settling), 1_000);
        assert_eq!(settling.settles_until, Some(Wall(3_601_000)));
        for same in [to(RoomState::Settling), lasts(3_600), RoomChange { rate: Some(9), ..RoomChange::default() }] {
            assert_eq!(at(&settling, &same, 9_000).settles_until, settling.settles_until, "{same:?}");
        }
        assert_eq!(at(&settling, &lasts(60), 9_000).settles_until, Some(Wall(69_000)));
        assert_eq!(at(&settling, &lasts(0), 9_000).settles_until, None, "until somebody closes it");
        for next in [RoomState::Live, RoomState::Closed] {
            assert_eq!(at(&settling, &to(next), 9_000).settles_until, None);
        }
        assert_eq!(change(&room(), &lasts(604_801), Wall(0)).unwrap_err()[0].0, "settle_seconds");
    }

    #[test]
    fn a_closed_room_can_be_scheduled_again_and_a_live_one_cannot() {
        let to = |state| RoomChange { state: Some(state), ..RoomChange::default() };
        let closed = change(&room(), &to(RoomState::Closed), Wall(0)).unwrap().room;
        assert!(change(&room(), &to(RoomState::Scheduled), Wall(0)).is_err());
        assert!(change(&closed, &to(RoomState::Scheduled), Wall(0)).is_ok());
        assert!(change(&Room::fresh("new"), &to(RoomState::Scheduled), Wall(0)).is_ok());
    }
}
