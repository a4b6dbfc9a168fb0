//! What the log says of tokens, read anew, against what an owner that lived through the run knows and does with it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::access::{Access, Pass, Revoked, Standing};
use grandstand_core::ids::Position;
use grandstand_core::names::UserId;
use grandstand_core::record::{Body, Record};
use grandstand_core::time::Wall;

use super::Violations;

const LATE: Duration = Duration::from_secs(12 * 3_600);

pub fn check(valid: &[&Arc<Record>], (head, known): (Position, &Access), found: &mut Violations) {
    let mut said: BTreeMap<&Revoked, (Wall, Wall)> = BTreeMap::new();
    let (mut outage, mut ts) = (None, Wall(0));
    for record in valid.iter().filter(|record| record.event_id().position() <= head) {
        ts = ts.max(record.ts);
        match &record.body {
            Body::Revoke(what, until) => drop(said.insert(what, (record.ts, *until))),
            Body::RevokeEnd(what) => drop(said.remove(what)),
            Body::Outage(until) => outage = until.map(|until| (record.ts, until)),
            Body::EraseUser(user) => said.retain(|what, _| **what != Revoked::User(user.clone())),
            _ => {}
        }
    }
    said.retain(|_, (_, until)| ts < *until);
    let outage = outage.filter(|(_, until)| ts < *until);
    let now = known.at(ts);
    let knows: BTreeMap<_, _> = now.revoked.iter().map(|(what, term)| (what, (term.since, term.until))).collect();
    if knows != said || now.outage.map(|term| (term.since, term.until)) != outage {
        found.push(format!("tokens: the log says {said:?} and {outage:?}, an owner knows {now:?}"));
        return;
    }
    let nobody = UserId::parse("nobody").expect("a user");
    for (what, (since, _)) in said {
        let mut pass = Pass { user: &nobody, session: None, key: "-", issued: Some(since), exp: ts + LATE };
        match what {
            Revoked::User(user) => pass.user = user,
            Revoked::Session(session) => pass.session = Some(session),
            Revoked::Key(key) => pass.key = key,
        }
        if !matches!(known.judge(&pass, ts), Standing::Revoked { .. }) {
            found.push(format!("tokens: {what:?} is revoked and taken"));
        }
    }
    let late = Pass { user: &nobody, session: None, key: "-", issued: None, exp: Wall(ts.0 - 3_600_000) };
    let takes = |at: Wall| known.judge(&late, at) == Standing::Late;
    if takes(ts) != outage.is_some() {
        found.push(format!("tokens: a late one is taken: {}, the outage is {outage:?}", takes(ts)));
    }
    if outage.is_some_and(|(_, until)| takes(until)) {
        found.push("tokens: a late one is taken after the outage".into());
    }
}
