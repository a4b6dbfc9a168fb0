//! `GET /admin/bans`: who may not speak anywhere, until when, and by whose word.
//!
//! That a ban holds is the log's to say. Who put it up and why is a line of `audit.jsonl`, written before the log was asked: so there
//! may be lines of bans that never came to be, and a line is a ban's only where all that it asked for is what holds.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::record::Ban;
use grandstand_wire::stamp;
use http::{Response, StatusCode};
use serde_json::{Value, json};

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use super::audit;
use crate::auth;
use crate::link::SiteBans;

/// `GET /admin/bans?user=&after=&limit=`. At most 500 of an answer are 250 KB.
pub async fn list(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    auth::may_configure(ask.identity(&control)?.as_deref())?;
    let (user, after) = (audit::user_of(&ask, "user")?, audit::user_of(&ask, "after")?);
    let limit = audit::limit(&ask)?;
    let SiteBans { as_of, bans } = control.deps.shard.site_bans().await?;
    let holds = |ban: &&Ban| ban.until.is_none_or(|until| as_of < until);
    let is_asked_for = |ban: &&Ban| user.as_ref().is_none_or(|user| ban.user == *user);
    let found: Vec<&Ban> = bans.values().filter(holds).filter(is_asked_for).collect();
    let from = after.map_or(0, |after| found.partition_point(|ban| ban.user <= after));
    let page = &found[from..found.len().min(from + limit)];
    let said = match page {
        [] => Vec::new(),
        _ => audit::newest_lines(&control, "site ban").await?,
    };
    let mut by_user: BTreeMap<&str, Vec<&Value>> = BTreeMap::new();
    for row in &said {
        if let Some(user) = row["given"]["user_id"].as_str() {
            by_user.entry(user).or_default().push(row);
        }
    }
    let lines: Vec<Value> = page.iter().map(|ban| line(ban, by_user.get(ban.user.as_str()))).collect();
    let more = from + page.len() < found.len();
    Ok(answer_json(StatusCode::OK, &json!({"bans": lines, "found": found.len(), "more": more})))
}

/// `said`: what was asked for about this user, newest first.
fn line(ban: &Ban, said: Option<&Vec<&Value>>) -> Value {
    let until = ban.until.map(stamp::text);
    let is_its = |row: &&&Value| {
        let given = &row["given"];
        given["until_ts"].as_str() == until.as_deref()
            && given["shadow"].as_bool() == Some(ban.shadow)
            && given["reason"].as_str() == Some(&*ban.reason)
    };
    let its = said.into_iter().flatten().find(is_its);
    let of = |name: &str| its.map_or(Value::Null, |row| row[name].clone());
    json!({
        "user_id": ban.user.as_str(), "until_ts": until, "shadow": ban.shadow, "reason": &*ban.reason,
        "by": of("operator"), "since_ts": of("ts"), "justification": of("justification"),
    })
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::UserId;
    use grandstand_core::record::Ban;
    use grandstand_core::time::Wall;
    use grandstand_wire::stamp;
    use serde_json::{Value, json};

    use super::line;

    fn row(n: u64, until: Option<u64>, shadow: bool) -> Value {
        let until = until.map(|ms| stamp::text(Wall(ms)));
        json!({"ts": format!("t{n}"), "operator": format!("op{n}"), "justification": "j",
            "given": {"user_id": "u", "until_ts": until, "shadow": shadow, "reason": "ads"}})
    }

    #[test]
    fn a_ban_is_of_the_newest_line_that_asked_for_exactly_it() {
        let user = UserId::parse("u").unwrap();
        let ban = |until: Option<u64>| Ban {
            user: user.clone(),
            until: until.map(Wall),
            reason: "ads".into(),
            shadow: false,
        };
        // The newest asked for a shadow ban, and was refused.
        let rows = [row(4, None, true), row(3, Some(9), false), row(2, None, false), row(1, None, false)];
        let said: Vec<&Value> = rows.iter().collect();
        assert_eq!(line(&ban(None), Some(&said))["by"], "op2");
        assert_eq!(line(&ban(Some(9)), Some(&said))["since_ts"], "t3");
        let unknown = line(&ban(Some(8)), Some(&said));
        assert_eq!((&unknown["by"], &unknown["reason"]), (&Value::Null, &json!("ads")));
        assert_eq!(line(&ban(None), None)["by"], Value::Null);
    }
}
