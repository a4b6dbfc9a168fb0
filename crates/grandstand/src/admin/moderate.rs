//! Commands of a room's moderators: bans, retracts, the queue for review, reports, pins, and what a room asks of comments.

use std::time::Duration;

use anyhow::Result;
use clap::{ArgGroup, Subcommand, ValueEnum};
use grandstand_client::admin::{Ban, Target};
use grandstand_wire::stamp;
use serde_json::{Map, Value, json};

use super::lists;
use super::terminal::Terminal;
use crate::{credentials, token};

#[derive(Subcommand)]
pub enum What {
    /// A user may watch and not speak.
    Ban {
        room: String,
        user: String,
        /// How long: 90s, 15m, 12h, 7d. Without it, until it is lifted.
        #[arg(long = "for", value_parser = token::ttl)]
        lasts: Option<Duration>,
        #[command(flatten)]
        how: How,
    },
    /// A ban with an end: 90s, 15m, 12h, 7d.
    Timeout {
        room: String,
        user: String,
        #[arg(value_parser = token::ttl)]
        lasts: Duration,
        #[command(flatten)]
        how: How,
    },
    /// Lifts a ban.
    Unban { room: String, user: String },
    /// The room's bans that hold now.
    Bans { room: String },
    /// Takes comments back, on every screen. It cannot be undone.
    #[command(group(ArgGroup::new("target").required(true).args(["event", "user", "all"])))]
    Retract {
        room: String,
        /// Event ids.
        event: Vec<u64>,
        /// Everything this user said in the room.
        #[arg(long)]
        user: Option<String>,
        /// Everything that was said in the room.
        #[arg(long)]
        all: bool,
        /// What viewers are told.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Comments that wait for a moderator's word.
    Held {
        #[command(subcommand)]
        what: HeldWhat,
    },
    /// What viewers reported, the most reported first. What is retracted by its id leaves the list.
    Reports { room: String },
    /// Pins comments, the last one first; with an end behind those that are pinned. With `--off` takes pins away.
    Pin {
        room: String,
        #[arg(required = true)]
        event: Vec<u64>,
        #[arg(long)]
        off: bool,
        /// The pin ends by itself after so long, by this machine's clock: 90s, 15m, 2h.
        #[arg(long = "for", conflicts_with = "off", value_parser = token::ttl)]
        lasts: Option<Duration>,
        /// The pin ends by itself at this time, such as 2026-05-17T20:14:33.122Z.
        #[arg(long, conflicts_with_all = ["off", "lasts"])]
        until: Option<String>,
    },
    /// Whether a user may say nothing twice within ten minutes.
    UniqueComment { room: String, set: Switch },
    /// Whether the room takes emoji and `:names:` alone.
    EmoteOnly { room: String, set: Switch },
    /// Only users with this badge may comment, or with `--off` everybody.
    MembersOnly {
        room: String,
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        badge: Option<String>,
        #[arg(long)]
        off: bool,
    },
    /// Where the room may not be shown: `GB`, `GB-SCT`; these and no others. With `--off` it is shown everywhere.
    Blackout {
        room: String,
        #[arg(required_unless_present = "off", conflicts_with = "off")]
        region: Vec<String>,
        #[arg(long)]
        off: bool,
    },
}

#[derive(Subcommand)]
pub enum HeldWhat {
    /// What waits, oldest first.
    List { room: String },
    /// Everyone in the room is shown it, as a new comment.
    Approve {
        room: String,
        #[arg(required = true)]
        held: Vec<u64>,
    },
    /// Nobody is shown it, and its author is told that moderation refused it.
    Deny {
        room: String,
        #[arg(required = true)]
        held: Vec<u64>,
    },
}

/// What goes with a ban.
#[derive(clap::Args)]
pub struct How {
    /// What the user said in the last minutes is taken back with it: 5m, 1h; at most 24h, with a ban of the site 10m.
    #[arg(long, value_name = "TIME", value_parser = minutes)]
    purge: Option<u64>,
    /// The user is not told: what it says is shown to itself and the moderators alone.
    #[arg(long, conflicts_with = "purge")]
    shadow: bool,
    /// Kept with the ban.
    #[arg(long)]
    reason: Option<String>,
}

impl How {
    pub fn ban<'a>(&'a self, user: &'a str, lasts: Option<Duration>) -> Ban<'a> {
        let seconds = lasts.map(|d| d.as_secs());
        Ban { user, seconds, shadow: self.shadow, purge_minutes: self.purge, reason: self.reason.as_deref() }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Switch {
    On,
    Off,
}

fn minutes(text: &str) -> Result<u64, String> {
    let seconds = token::ttl(text)?.as_secs();
    if seconds.is_multiple_of(60) { Ok(seconds / 60) } else { Err("whole minutes: 5m, 1h".to_owned()) }
}

/// A time as it is given: `7d`, `90s`.
pub fn lasting(seconds: u64) -> String {
    let units = [(86_400, "d"), (3_600, "h"), (60, "m")]
        .into_iter()
        .find(|(unit, _)| seconds > 0 && seconds.is_multiple_of(*unit));
    let (unit, name) = units.unwrap_or((1, "s"));
    format!("{}{name}", seconds / unit)
}

/// What a ban does, in words; `None`: in every room.
pub fn told(ban: &Ban<'_>, room: Option<&str>) -> String {
    let until = ban.seconds.map_or("until it is lifted".to_owned(), |seconds| format!("for {}", lasting(seconds)));
    match (ban.shadow, room) {
        (true, room) => {
            format!("{} is heard by itself and moderators alone in {}, {until}", ban.user, room.unwrap_or("every room"))
        }
        (false, Some(room)) => format!("{} may watch and not speak in {room}, {until}", ban.user),
        (false, None) => format!("{} may neither speak nor watch anywhere, {until}", ban.user),
    }
}

pub async fn perform(what: &What, terminal: &Terminal<'_>) -> Result<()> {
    let admin = terminal.admin;
    match what {
        What::Ban { room, user, lasts, how } => ban(terminal, room, &how.ban(user, *lasts)).await?,
        What::Timeout { room, user, lasts, how } => ban(terminal, room, &how.ban(user, Some(*lasts))).await?,
        What::Unban { room, user } => {
            let answer = admin.unban(room, user, terminal.why()?).await?;
            terminal.done(&format!("{user} may speak in {room}"), &answer);
        }
        What::Bans { room } => terminal.show(&admin.bans(room).await?, lists::bans),
        What::Retract { room, event, user, all, reason } => {
            let targets: Vec<Target> = match (user, all) {
                (Some(user), _) => vec![Target::User(user.clone())],
                (None, true) => vec![Target::All],
                (None, false) => event.iter().map(|id| Target::Event(*id)).collect(),
            };
            retract(terminal, room, &targets, reason.as_deref()).await?;
        }
        What::Held { what: HeldWhat::List { room } } => terminal.show(&admin.held(room).await?, lists::held),
        What::Held { what: HeldWhat::Approve { room, held } } => decide(terminal, room, held, true).await?,
        What::Held { what: HeldWhat::Deny { room, held } } => decide(terminal, room, held, false).await?,
        What::Reports { room } => terminal.show(&admin.reports(room).await?, lists::reports),
        What::Pin { room, event, off: true, .. } => {
            let why = terminal.why()?;
            for id in event {
                terminal.done(&format!("event {id} is not pinned in {room}"), &admin.unpin(room, *id, why).await?);
            }
        }
        What::Pin { room, event, lasts, until, .. } => {
            let why = terminal.why()?;
            let after = lasts.map(|lasts| stamp::text(credentials::now() + lasts));
            match until.as_ref().or(after.as_ref()) {
                Some(until) => {
                    for id in event {
                        let answer = admin.pin(room, *id, Some(until.as_str()), why).await?;
                        terminal.done(&format!("event {id} is pinned in {room} until {until}"), &answer);
                    }
                }
                None => {
                    let change = |pinned: Vec<u64>| -> Vec<u64> {
                        let others = pinned.into_iter().filter(|id| !event.contains(id));
                        event.iter().rev().copied().chain(others).collect()
                    };
                    let answer = admin.repin(room, change, why).await?;
                    terminal.done(&format!("pinned in {room}: {}", answer["pinned"]), &answer);
                }
            }
        }
        What::UniqueComment { room, set } => switch(terminal, room, "unique_comment", *set).await?,
        What::EmoteOnly { room, set } => switch(terminal, room, "emote_only", *set).await?,
        What::MembersOnly { room, badge, .. } => {
            let told = match badge {
                Some(badge) => format!("only users with the badge {badge} may comment in {room}"),
                None => format!("members and others may comment in {room}"),
            };
            put(terminal, room, "members_only", json!(badge), &told).await?;
        }
        What::Blackout { room, region, .. } => {
            let told = match region.as_slice() {
                [] => format!("{room} is shown everywhere"),
                regions => format!("{room} is not shown in {}", regions.join(", ")),
            };
            if !region.is_empty() {
                let streams = "Streams from there, and from nobody knows where, are closed within a second.";
                terminal.sure(Some(room), &[format!("{told}."), streams.to_owned()]).await?;
            }
            put(terminal, room, "blackout_regions", json!(region), &told).await?;
        }
    }
    Ok(())
}

async fn ban(terminal: &Terminal<'_>, room: &str, ban: &Ban<'_>) -> Result<()> {
    let why = terminal.why()?;
    let told = told(ban, Some(room));
    if let Some(minutes) = ban.purge_minutes {
        let purge = format!("What it said there in the last {minutes} min is taken back, and cannot be shown again.");
        terminal.sure(Some(room), &[format!("{told}."), purge]).await?;
    }
    terminal.done(&told, &terminal.admin.ban(room, ban, why).await?);
    Ok(())
}

async fn retract(terminal: &Terminal<'_>, room: &str, targets: &[Target], reason: Option<&str>) -> Result<()> {
    let why = terminal.why()?;
    let named = |target: &Target| match target {
        Target::Event(id) => format!("event {id}"),
        Target::User(user) => format!("everything by {user}"),
        Target::All => "everything".to_owned(),
    };
    let all: Vec<String> = targets.iter().map(named).collect();
    let effect = format!("Taken back in {room}, and it cannot be undone: {}.", all.join(", "));
    terminal.sure(Some(room), &[effect]).await?;
    for target in targets {
        let answer = terminal.admin.retract(room, target, reason, why).await?;
        terminal.done(&format!("{} is retracted in {room}", named(target)), &answer);
    }
    Ok(())
}

async fn decide(terminal: &Terminal<'_>, room: &str, held: &[u64], approve: bool) -> Result<()> {
    let why = terminal.why()?;
    if !approve {
        let all: Vec<String> = held.iter().map(u64::to_string).collect();
        let effect = format!("Nobody is shown what is held in {room} as {}; it cannot be undone.", all.join(", "));
        terminal.sure(None, &[effect]).await?;
    }
    for id in held {
        let answer = terminal.admin.decide(room, *id, approve, why).await?;
        match approve || terminal.args.json || terminal.args.dry_run {
            true => terminal.done(&format!("what was held as {id} is shown in {room}"), &answer),
            // The answer's event is null because nobody is shown one, not because there was nothing to do.
            false => terminal.done(&format!("what was held as {id} is refused in {room}"), &Value::Null),
        }
    }
    Ok(())
}

async fn switch(terminal: &Terminal<'_>, room: &str, setting: &str, set: Switch) -> Result<()> {
    let on = set == Switch::On;
    put(terminal, room, setting, json!(on), &format!("{setting} of {room} is {}", if on { "on" } else { "off" })).await
}

/// Changes one setting.
async fn put(terminal: &Terminal<'_>, room: &str, setting: &str, value: Value, told: &str) -> Result<()> {
    let change = Map::from_iter([(setting.to_owned(), value)]);
    let answer = terminal.admin.put_room(room, change, None, terminal.why()?).await?;
    terminal.done(told, &answer);
    Ok(())
}

#[cfg(test)]
mod tests {
    use grandstand_client::admin::Ban;

    use super::{lasting, minutes, told};

    #[test]
    fn a_purge_is_whole_minutes() {
        assert_eq!((minutes("5m"), minutes("120s"), minutes("24h")), (Ok(5), Ok(2), Ok(1_440)));
        assert!(["90s", "1s", "0m", "5"].iter().all(|bad| minutes(bad).is_err()));
    }

    #[test]
    fn a_ban_is_told_by_what_it_does() {
        let ban = Ban { user: "u1", ..Ban::default() };
        assert_eq!(told(&ban, Some("derby")), "u1 may watch and not speak in derby, until it is lifted");
        assert_eq!(told(&ban, None), "u1 may neither speak nor watch anywhere, until it is lifted");
        let shadow = Ban { seconds: Some(60), shadow: true, ..ban };
        assert_eq!(told(&shadow, Some("derby")), "u1 is heard by itself and moderators alone in derby, for 1m");
        assert_eq!([90, 600, 7_200, 604_800, 0].map(lasting), ["90s", "10m", "2h", "7d", "0s"]);
    }
}
