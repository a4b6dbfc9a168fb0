//! Receivers of outgoing webhooks.

use serde_json::{Map, Value, json};

use super::{Admin, NotDone, segment};

/// What a receiver is told. What is `None` stays as it is, or for a new one is everything; the inner `None` is everything.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct WebhookAsked {
    pub url: Option<String>,
    /// Room ids, or beginnings of some with `*`.
    pub rooms: Option<Option<Vec<String>>>,
    pub events: Option<Option<Vec<String>>>,
    pub enabled: Option<bool>,
    /// A new secret; the old one signs beside it for a day.
    pub new_secret: bool,
}

impl WebhookAsked {
    fn body(&self) -> Map<String, Value> {
        let mut body = Map::new();
        let mut put = |name: &str, value: Option<Value>| value.map(|value| body.insert(name.to_owned(), value));
        put("url", self.url.as_ref().map(|url| json!(url)));
        put("rooms", self.rooms.as_ref().map(|rooms| json!(rooms)));
        put("events", self.events.as_ref().map(|events| json!(events)));
        put("enabled", self.enabled.map(|enabled| json!(enabled)));
        put("new_secret", self.new_secret.then_some(json!(true)));
        body
    }
}

const WEBHOOKS: &str = "/admin/webhooks";

impl Admin {
    /// Every receiver, and how far it was told.
    pub async fn webhooks(&self) -> Result<Value, NotDone> {
        self.get(WEBHOOKS, &[]).await
    }

    /// The answer has the receiver's id and, this once, its secret.
    pub async fn put_up_webhook(&self, asked: &WebhookAsked, why: &str) -> Result<Value, NotDone> {
        self.write("POST", WEBHOOKS, &[], asked.body(), why).await
    }

    /// With a new secret the answer has it, this once.
    pub async fn change_webhook(&self, id: &str, asked: &WebhookAsked, why: &str) -> Result<Value, NotDone> {
        self.write("PUT", &format!("{WEBHOOKS}/{}", segment(id)), &[], asked.body(), why).await
    }

    /// Posts a test event to it now: `delivered`, or `why` not.
    pub async fn try_webhook(&self, id: &str, why: &str) -> Result<Value, NotDone> {
        self.write("POST", &format!("{WEBHOOKS}/{}/test", segment(id)), &[], Map::new(), why).await
    }

    pub async fn end_webhook(&self, id: &str, why: &str) -> Result<Value, NotDone> {
        self.write("DELETE", &format!("{WEBHOOKS}/{}", segment(id)), &[], Map::new(), why).await
    }
}
