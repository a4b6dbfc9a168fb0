//! One record as one line of JSON: the room's log as `GET /admin/rooms/{room}/export` gives it, for checkers and archives.
//!
//! A line is the viewers' event with what only the log knows added: `ts`, `epoch`, `seq`, the author's key, the provider,
//! who may see it. Records that no viewer is sent (`epoch_start`, `room`, `ban`, `unban`, `audit`, `tally`, `feed`) are control lines.

use grandstand_core::ids::EventId;
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::record::{Audience, Body, Comment, End, Record, Room, Verdict};
use grandstand_core::sampler::{Rules, Weights};

use crate::event;
use crate::json::{self, Writer, write_str, write_u64};

/// The `type` of a record's line, and whether it is a control line: no viewer is sent such an event.
pub fn kind(record: &Record) -> (&'static str, bool) {
    match record.body {
        Body::Comment(_) => ("comment", false),
        Body::Score(_) => ("score_event", false),
        Body::Gift(_) => ("gift", false),
        Body::Combo(_) => ("gift_combo", false),
        Body::Retract(_) => ("retract", false),
        Body::Config(_) => ("config", false),
        // What it was is gone; that it was is part of the order.
        Body::Erased => ("erased", false),
        Body::EpochStart => ("epoch_start", true),
        Body::Room(_) => ("room", true),
        Body::Ban(_) => ("ban", true),
        Body::Unban(_) => ("unban", true),
        Body::SiteBan(_) => ("site_ban", true),
        Body::SiteUnban(_) => ("site_unban", true),
        Body::Report(_) => ("report", true),
        Body::Audit(_) => ("audit", true),
        Body::Wide(_) => ("wide", true),
        Body::Narrow(_) => ("narrow", true),
        Body::Tally(_) => ("tally", true),
        Body::Blocked(_) => ("blocked", true),
        Body::Held(_) => ("held", true),
        Body::HeldEnd(_) => ("held_end", true),
        Body::Banner(_) => ("banner", true),
        Body::BannerEnd(_) => ("banner_end", true),
        Body::Revoke(..) => ("revoke", true),
        Body::RevokeEnd(_) => ("revoke_end", true),
        Body::Outage(_) => ("outage", true),
        Body::Feed(_) => ("feed", true),
        Body::EraseUser(_) => ("erase_user", true),
    }
}

/// Appends the record's line, line end included.
pub fn write_line(record: &Record, out: &mut Vec<u8>) {
    let (kind, _) = kind(record);
    let mut line = Writer::event(out, kind, record.room.as_ref());
    line.number("event_id", record.event_id().value()).number_if("pseq", record.pseq.map(|p| p.0));
    event::members(record, &mut line);
    match &record.body {
        Body::Comment(_) => {}
        body => {
            control_members(body, &mut line);
            line.time("ts", record.ts);
        }
    }
    line.number("epoch", u64::from(record.epoch.value())).number("seq", record.seq.value());
    line.text_if("client_msg_id", record.client_msg_id.as_ref().map(ClientMsgId::as_str));
    if !matches!(record.body, Body::Comment(_) | Body::Gift(_) | Body::Combo(_)) {
        line.text_if("by", record.user.as_ref().map(UserId::as_str));
    }
    match record.audience {
        Audience::Everyone => {}
        Audience::Author => {
            line.text("audience", "author");
        }
        Audience::Nobody => {
            line.text("audience", "nobody");
        }
    }
    match record.verdict {
        Verdict::Unjudged => {}
        Verdict::Allow => {
            line.text("verdict", "allow");
        }
        Verdict::Flag => {
            line.text("verdict", "flag");
        }
        Verdict::Block => {
            line.text("verdict", "block");
        }
    }
    if let Body::Comment(comment) = &record.body {
        line.text_if("rule", comment.rule.as_deref());
    }
    if let Body::Comment(Comment { won: Some(won), .. }) = &record.body {
        line.number("window", won.window.0).number("weight", u64::from(won.weight)).flag("by_right", won.by_right);
        line.text_if("addressee", won.addressee.as_ref().map(UserId::as_str));
    }
    if let Body::Comment(comment) = &record.body {
        line.flag("shadowed", comment.shadowed);
    }
    if let Some(source) = &record.source {
        line.text("source_log", &source.log).number("source_id", source.id.value());
    }
    line.end();
    out.push(b'\n');
}

/// Appends what a receiver of outgoing webhooks is told of a record: `{type, timestamp, data}`, `data` being its line. Source: Standard Webhooks,
/// payload structure.
pub fn write_webhook(record: &Record, out: &mut Vec<u8>) {
    let mut line = Vec::with_capacity(512);
    write_line(record, &mut line);
    let line = std::str::from_utf8(&line).expect("a line is text").trim_end();
    let mut body = Writer::object(out);
    body.text("type", kind(record).0).time("timestamp", record.ts).raw("data", line).end();
}

fn control_members(body: &Body, line: &mut Writer<'_>) {
    match body {
        Body::Score(score) => {
            line.text("provider", score.provider.as_str());
            if let Some(shown) = &score.shown {
                line.text("provider_event", score.event.as_str());
                line.number("provider_revision", u64::from(score.revision.0)).flag("again", shown.again);
            }
            if let Some(data) = &score.data {
                line.with("data", |out| write_data(data, out));
            }
        }
        Body::Room(room) => {
            line.with("settings", |out| write_settings(None, room, out));
        }
        Body::Ban(ban) | Body::SiteBan(ban) => {
            line.text("user_id", ban.user.as_str());
            match ban.until {
                Some(at) => line.time("until_ts", at),
                None => line.raw("until_ts", "null"),
            };
            line.text("reason", &ban.reason);
            line.flag("shadow", ban.shadow);
        }
        Body::Unban(user) | Body::SiteUnban(user) | Body::EraseUser(user) => {
            line.text("user_id", user.as_str());
        }
        Body::Report(report) => {
            line.number("target_event_id", report.event.value()).text("reason", &report.reason);
        }
        Body::Audit(audit) => {
            line.text("what", &audit.what).text("justification", &audit.justification);
        }
        Body::Wide(crowd) | Body::Narrow(crowd) => {
            line.number("rate", u64::from(crowd.rate)).number("viewers", crowd.viewers);
        }
        Body::Tally(tally) => {
            line.with("rooms", |out| {
                let mut rooms = Writer::object(out);
                for (room, totals) in &tally.rooms {
                    rooms.with(room.as_str(), |out| event::write_likes(totals, out));
                }
                rooms.end();
            });
        }
        Body::EpochStart | Body::Comment(_) | Body::Retract(_) | Body::Config(_) | Body::Erased => {}
        Body::Combo(_) | Body::Banner(_) | Body::BannerEnd(_) => {}
        Body::Blocked(blocked) => {
            said(&blocked.comment, line);
            line.text_if("client_msg_id", blocked.client_msg_id.as_ref().map(ClientMsgId::as_str));
        }
        Body::Held(held) => {
            said(&held.comment, line);
            line.text("client_msg_id", held.client_msg_id.as_str()).time("until_ts", held.until);
        }
        Body::HeldEnd(end) => {
            line.number("held_id", end.held.value()).text("client_msg_id", end.client_msg_id.as_str());
            line.text("end", end.end.name());
            if let End::Approved(id) = end.end {
                line.number("shown_as", id.value());
            }
        }
        Body::Revoke(what, until) => {
            let (of, name) = what.said();
            line.text(of, name).time("until_ts", *until);
        }
        Body::RevokeEnd(what) => {
            let (of, name) = what.said();
            line.text(of, name);
        }
        Body::Outage(until) => {
            match until {
                Some(at) => line.time("until_ts", *at),
                None => line.raw("until_ts", "null"),
            };
        }
        Body::Feed(feed) => {
            line.text("match_id", feed.match_id.as_str()).text("primary", feed.primary.as_str());
            line.text_if("stand_by", feed.stand_by.as_ref().map(Key::as_str));
            line.with("goes_on_as", |out| {
                let mut twins = Writer::object(out);
                for (event, key) in &feed.twins {
                    twins.text(event.as_str(), key.as_str());
                }
                twins.end();
            });
        }
        Body::Gift(gift) => {
            if let Some(until) = gift.banner_until {
                line.time("banner_until_ts", until);
            }
        }
    }
}

/// A comment that is no event.
fn said(comment: &Comment, line: &mut Writer<'_>) {
    line.text("display", &comment.display);
    line.list("badges", comment.badges.iter(), |badge, out| write_str(badge, out));
    line.text("body", &comment.text).number_if("reply_to", comment.reply_to.map(EventId::value));
    line.text_if("rule", comment.rule.as_deref());
}

fn rules(rules: &Rules, settings: &mut Writer<'_>) {
    settings.text("sampling", rules.when.name()).number("sampling_rate", u64::from(rules.rate));
    settings.number("sampling_viewers", u64::from(rules.viewers)).text("preset", rules.preset.name());
    match rules.cap {
        Some(cap) => settings.number("cap", u64::from(cap)),
        None => settings.raw("cap", "null"),
    };
    let Weights { base, per_reply, per_reaction, badges } = &rules.weights;
    settings.with("weights", |out| {
        let mut weights = Writer::object(out);
        weights.number("base", u64::from(*base)).number("per_reply", u64::from(*per_reply));
        weights.number("per_reaction", u64::from(*per_reaction));
        weights.with("badges", |out| {
            out.push(b'{');
            for (i, (badge, weight)) in badges.iter().enumerate() {
                if i > 0 {
                    out.push(b',');
                }
                write_str(badge, out);
                out.push(b':');
                write_u64(u64::from(*weight), out);
            }
            out.push(b'}');
        });
        weights.end();
    });
}

/// A provider's data on one line, whatever its spelling; what is not JSON is given as the text it is.
fn write_data(data: &str, out: &mut Vec<u8>) {
    match json::parse(data) {
        Ok(value) => value.write_canonical(out),
        Err(_) => write_str(data, out),
    }
}

/// Appends every setting of a room, with the names that `PUT /admin/rooms/{room}` takes.
pub fn write_settings(id: Option<&RoomId>, room: &Room, out: &mut Vec<u8>) {
    let mut settings = Writer::object(out);
    settings.text_if("room_id", id.map(RoomId::as_str));
    settings.text("title", &room.title).text("state", room.state.name());
    settings.list("matches", &room.matches, |key, out| write_str(key.as_str(), out));
    settings.bool("anonymous_view", room.anonymous_view).bool("anonymous_publish", room.anonymous_publish);
    settings.bool("listed", room.listed).number("rate", u64::from(room.rate));
    settings.number("user_rate", u64::from(room.user_rate)).number("user_burst", u64::from(room.user_burst));
    settings.number("like_rate", u64::from(room.like_rate));
    match room.merge_ms {
        Some(ms) => settings.number("merge_ms", u64::from(ms)),
        None => settings.raw("merge_ms", "null"),
    };
    match room.comment_age_ms {
        Some(ms) => settings.number("comment_age_ms", u64::from(ms)),
        None => settings.raw("comment_age_ms", "null"),
    };
    settings.number("resume_window", u64::from(room.resume_window_seconds));
    settings.number("retention", u64::from(room.retention_days));
    settings.number("slow_mode_seconds", u64::from(room.slow_mode_seconds));
    match room.slow_mode_until {
        Some(at) => settings.time("until_ts", at),
        None => settings.raw("until_ts", "null"),
    };
    settings.text("moderation_policy", room.moderation_policy.name());
    rules(&room.sampling, &mut settings);
    settings.numbers("pinned", room.pinned.iter().map(|id| id.value()));
    settings.list("banner_items", &room.banner_items, |item, out| write_str(item, out));
    settings.with("banner_amounts", |out| {
        let mut amounts = Writer::object(out);
        for (currency, from) in &room.banner_amounts {
            amounts.number(currency, *from);
        }
        amounts.end();
    });
    settings.number("banner_rate", u64::from(room.banner_rate));
    settings.number("banner_seconds", u64::from(room.banner_seconds));
    settings.number("combo_seconds", u64::from(room.combo_seconds));
    settings.bool("hold_flagged", room.hold_flagged).number("hold_seconds", u64::from(room.hold_seconds));
    settings.bool("unique_comment", room.unique_comment).bool("emote_only", room.emote_only);
    match &room.members_only {
        Some(badge) => settings.text("members_only", badge),
        None => settings.raw("members_only", "null"),
    };
    settings.with("pin_ends", |out| {
        let mut ends = Writer::object(out);
        for (id, until) in &room.pin_ends {
            ends.time(&id.value().to_string(), *until);
        }
        ends.end();
    });
    settings.list("blackout_regions", &room.blackout_regions, |region, out| write_str(&region.to_string(), out));
    settings.number("settle_seconds", u64::from(room.settle_seconds));
    match room.settles_until {
        Some(at) => settings.time("settles_until_ts", at),
        None => settings.raw("settles_until_ts", "null"),
    };
    settings.number("version", room.version).end();
}
