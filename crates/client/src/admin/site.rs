//! What operators do to the whole site: bans everywhere, and which tokens hold.

use serde_json::{Map, Value, json};

use super::{Admin, Ban, NotDone, object};

/// Whose tokens are meant.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Whose {
    User(String),
    /// A token's `sid`.
    Session(String),
    /// A token's `kid`.
    Key(String),
}

impl Whose {
    fn body(&self) -> Map<String, Value> {
        let (of, name) = match self {
            Whose::User(name) => ("user", name),
            Whose::Session(name) => ("session", name),
            Whose::Key(name) => ("key", name),
        };
        Map::from_iter([(of.to_owned(), json!(name))])
    }
}

const REVOCATIONS: &str = "/admin/access/revocations";
const OUTAGE: &str = "/admin/access/outage";

impl Admin {
    /// As [`Admin::ban`], in every room.
    pub async fn site_ban(&self, ban: &Ban<'_>, why: &str) -> Result<Value, NotDone> {
        self.post("/admin/bans", ban.body(), why).await
    }

    pub async fn site_unban(&self, user: &str, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", "/admin/bans", &[], object(json!({"user_id": user})), why).await
    }

    /// The site's bans that hold now, by user: this one's alone, or those behind `after`. At most 500 of an answer.
    pub async fn site_bans(&self, user: Option<&str>, after: Option<&str>, limit: usize) -> Result<Value, NotDone> {
        let (user, after) = (user.map(str::to_owned), after.map(str::to_owned));
        self.get("/admin/bans", &[("user", &user), ("after", &after), ("limit", &Some(limit.to_string()))]).await
    }

    /// What is revoked, and the declared outage.
    pub async fn access(&self) -> Result<Value, NotDone> {
        self.get("/admin/access", &[]).await
    }

    /// `seconds`: without it 30 days.
    pub async fn revoke(&self, whose: &Whose, seconds: Option<u64>, why: &str) -> Result<Value, NotDone> {
        let mut body = whose.body();
        body.insert("seconds".to_owned(), json!(seconds));
        self.write("POST", REVOCATIONS, &[], body, why).await
    }

    /// What was revoked is taken again.
    pub async fn restore(&self, whose: &Whose, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", REVOCATIONS, &[], whose.body(), why).await
    }

    /// No new tokens can be had, for so long.
    pub async fn outage(&self, seconds: u64, why: &str) -> Result<Value, NotDone> {
        self.write("PUT", OUTAGE, &[], object(json!({"seconds": seconds})), why).await
    }

    pub async fn end_outage(&self, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", OUTAGE, &[], Map::new(), why).await
    }
}
