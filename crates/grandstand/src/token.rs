//! `grandstand token`: a token signed with the data folder's key, alone on stdout.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use grandstand_server::auth::keys::SigningKey;
use grandstand_server::auth::token::Claims;
use grandstand_server::auth::{Role, RoomPattern};

use crate::credentials::now;

#[derive(clap::Args)]
pub struct Args {
    /// The server's data folder; its signing key is made when there is none yet.
    #[arg(long, env = "GRANDSTAND_DATA", default_value = "grandstand-data")]
    data: PathBuf,
    /// The user's id.
    #[arg(long)]
    sub: String,
    /// A role; may be given several times. Without any: publisher.
    #[arg(long = "role", value_parser = role)]
    roles: Vec<String>,
    /// The name shown beside the user's comments.
    #[arg(long)]
    name: Option<String>,
    /// A room id, or its start followed by `*`; may be given several times. Without any: every room.
    #[arg(long = "rooms", value_parser = pattern)]
    rooms: Vec<String>,
    /// How long it holds: 90s, 15m, 12h, 7d.
    #[arg(long, default_value = "15m", value_parser = ttl)]
    ttl: Duration,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let given = |list: &Vec<String>| (!list.is_empty()).then(|| list.clone());
    let claims = Claims {
        name: args.name.clone(),
        roles: given(&args.roles),
        rooms: given(&args.rooms),
        ..Claims::new(&args.sub, now(), args.ttl)
    };
    claims.identity().map_err(|fault| anyhow!("no server would take this token: {fault}"))?;
    std::fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&args.data)
        .with_context(|| args.data.display().to_string())?;
    println!("{}", SigningKey::in_folder(&args.data)?.mint(&claims));
    Ok(ExitCode::SUCCESS)
}

fn role(text: &str) -> Result<String, String> {
    let all = || Role::ALL.map(|(_, name)| name).join(", ");
    Role::parse(text).map(|_| text.to_owned()).ok_or_else(|| format!("a role is one of {}", all()))
}

fn pattern(text: &str) -> Result<String, String> {
    RoomPattern::parse(text)
        .map(|_| text.to_owned())
        .ok_or_else(|| "a room id, or its start followed by `*`".to_owned())
}

/// A lifetime: a number and s, m, h or d.
pub fn ttl(text: &str) -> Result<Duration, String> {
    let rule = || "a number followed by s, m, h or d".to_owned();
    let (number, unit) = text.split_at(text.len() - text.chars().next_back().map_or(0, char::len_utf8));
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return Err(rule()),
    };
    let number: u64 = number.parse().ok().filter(|n| (1..=1_000_000).contains(n)).ok_or_else(rule)?;
    Ok(Duration::from_secs(number * seconds))
}

#[cfg(test)]
mod tests {
    use super::{role, ttl};

    #[test]
    fn lifetimes_carry_their_unit() {
        for (text, seconds) in [("90s", 90), ("15m", 900), ("12h", 43_200), ("7d", 604_800)] {
            assert_eq!(ttl(text).unwrap().as_secs(), seconds, "{text}");
        }
        for bad in ["", "15", "m", "0m", "-1m", "15 m", "1.5h", "15é"] {
            assert!(ttl(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn an_unknown_role_is_refused_with_the_known_ones() {
        assert!(role("backend").is_ok());
        assert!(role("root").unwrap_err().contains("region-ops"));
    }
}
