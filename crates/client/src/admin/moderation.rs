//! What a room's moderators do beside its settings: bans, the queue for review, reports, pins.

use serde_json::{Map, Value, json};

use super::{Admin, NotDone, path};
use crate::segment;

/// A user may not speak: in a room, or in any.
#[derive(Clone, Default, Debug)]
pub struct Ban<'a> {
    pub user: &'a str,
    /// Without it, until it is lifted.
    pub seconds: Option<u64>,
    /// Its user is not told, and heard by itself and the moderators alone.
    pub shadow: bool,
    /// What it said in the last so many minutes is taken back.
    pub purge_minutes: Option<u64>,
    /// Kept with the ban.
    pub reason: Option<&'a str>,
}

impl Ban<'_> {
    pub(super) fn body(&self) -> Value {
        json!({
            "user_id": self.user, "seconds": self.seconds, "shadow": self.shadow.then_some(true),
            "purge_last_minutes": self.purge_minutes, "reason": self.reason,
        })
    }
}

impl Admin {
    pub async fn ban(&self, room: &str, ban: &Ban<'_>, why: &str) -> Result<Value, NotDone> {
        self.post(&path(room, "/bans"), ban.body(), why).await
    }

    pub async fn unban(&self, room: &str, user: &str, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", &path(room, &format!("/bans/{}", segment(user))), &[], Map::new(), why).await
    }

    /// Those that hold now.
    pub async fn bans(&self, room: &str) -> Result<Value, NotDone> {
        self.get(&path(room, "/bans"), &[]).await
    }

    /// What waits for a moderator's word, oldest first.
    pub async fn held(&self, room: &str) -> Result<Value, NotDone> {
        self.get(&path(room, "/held"), &[]).await
    }

    pub async fn decide(&self, room: &str, held_id: u64, approve: bool, why: &str) -> Result<Value, NotDone> {
        let decision = if approve { "approve" } else { "deny" };
        self.post(&path(room, &format!("/held/{held_id}")), json!({"decision": decision}), why).await
    }

    /// What viewers reported, the most reported first.
    pub async fn reports(&self, room: &str) -> Result<Value, NotDone> {
        self.get(&path(room, "/reports"), &[]).await
    }

    /// One more pin, or another end for one that is there. `until`: RFC 3339; without it, until it is taken down.
    pub async fn pin(&self, room: &str, event: u64, until: Option<&str>, why: &str) -> Result<Value, NotDone> {
        self.post(&path(room, "/pin"), json!({"event_id": event, "until": until}), why).await
    }

    pub async fn unpin(&self, room: &str, event: u64, why: &str) -> Result<Value, NotDone> {
        let body = super::object(json!({"event_id": event}));
        self.write("DELETE", &path(room, "/pin"), &[], body, why).await
    }
}
