//! Gifts, as a shop's backend tells of them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use crate::http::{Http, Patience};
use crate::{Fault, segment};

/// One purchase. Its `gift_id` is the purchase's own and never changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Gift {
    pub gift_id: String,
    pub user: Giver,
    pub item: String,
    pub count: u32,
    /// Millionths of the currency, of all items together.
    pub amount_micros: u64,
    pub currency: String,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Giver {
    pub id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// What became of a gift.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Given {
    /// In the room's log. `duplicate`: it was there before.
    Logged { event_id: Option<u64>, duplicate: bool },
    /// It will not be taken.
    Refused { status: u16, code: String, message: String },
}

/// Posts one gift until it is in the log or refused for good; waits out 429 and 503 up to `patience`. Role `backend`.
///
/// Errors: no whole answer came. The gift may be in the log: post it again, with the same `gift_id`.
pub async fn post(http: &Http, room: &str, gift: &Gift, patience: Duration) -> Result<Given, Fault> {
    let target = format!("/v1/rooms/{}/gifts", segment(room));
    let body = serde_json::to_vec(gift).expect("text and numbers serialise");
    let patience = Patience::of(patience);
    let reply = loop {
        let reply = http.call("POST", &target, &[], Some(&body)).await?;
        if !patience.again(&reply).await {
            break reply;
        }
    };
    let answer = serde_json::from_slice::<Value>(&reply.body).unwrap_or(Value::Null);
    Ok(match reply.status {
        200 => {
            let event_id = answer.get("event_id").and_then(Value::as_u64);
            let duplicate = answer.get("duplicate").and_then(Value::as_bool).unwrap_or(false);
            Given::Logged { event_id, duplicate }
        }
        status => {
            let code = answer.get("code").and_then(Value::as_str).unwrap_or("refused").to_owned();
            let detail = ["detail", "message", "title"].iter().find_map(|k| answer.get(k)?.as_str());
            Given::Refused { status, code, message: detail.unwrap_or_default().to_owned() }
        }
    })
}

/// What gifts of one user and currency come to.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Total {
    pub gifts: u64,
    /// Items.
    pub count: u64,
    pub amount_micros: u128,
}

/// The account of a room's gifts with ids from `from` on, by currency and user: every part of it, added up. Role `backend`.
pub async fn account(http: &Http, room: &str, from: u64) -> Result<BTreeMap<(String, String), Total>, Fault> {
    let mut totals: BTreeMap<(String, String), Total> = BTreeMap::new();
    let mut from = from;
    loop {
        let part = http.get(&format!("/admin/rooms/{}/gifts?from={from}", segment(room))).await?.success()?.json()?;
        let broken = || Fault::Protocol("an account of gifts that cannot be read".to_owned());
        for row in part["totals"].as_array().ok_or_else(broken)? {
            let text = |name: &str| row[name].as_str().map(str::to_owned).ok_or_else(broken);
            let number = |name: &str| row[name].as_u64().ok_or_else(broken);
            let total = totals.entry((text("currency")?, text("user_id")?)).or_default();
            total.gifts += number("gifts")?;
            total.count += number("count")?;
            total.amount_micros += text("amount_micros")?.parse::<u128>().map_err(|_| broken())?;
        }
        if part["more"].as_bool() != Some(true) {
            return Ok(totals);
        }
        from = part["upto"].as_u64().ok_or_else(broken)? + 1;
    }
}
