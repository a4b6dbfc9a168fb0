//! `POST /v1/rooms/{room}/gifts`: what a shop's backend tells of a purchase.
//!
//! The purchase's own id is the key: sent again, with a payload that means the same, it gets the first answer. Nothing is
//! answered with 200 that is not in the log.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::names::{Key, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Command, GiftIn};
use grandstand_core::record::Gift;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::Value;
use grandstand_wire::limits::{CURRENCY_BYTES_MAX, GIFT_COUNT_MAX, GIFT_MICROS_MAX};
use http::{Response, StatusCode};
use serde_json::json;

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use crate::auth;

pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_act_as_backend(who.as_deref(), &room)?;
    let (user, gift) = read(&mut ask.object()?)?;
    let gift_id = gift.gift_id.clone();
    match control.deps.shard.ask(Command::Gift(GiftIn { room: room.clone(), user, gift })).await? {
        Answer::Gift { event_id, duplicate } => {
            let mut body = json!({"room_id": room.as_str(), "gift_id": gift_id.as_str(), "event_id": event_id.value()});
            if duplicate {
                body["duplicate"] = true.into();
            }
            Ok(answer_json(StatusCode::OK, &body))
        }
        Answer::Reject(reject) => Err(Problem::from(reject).with("gift_id", gift_id.as_str())),
        other => unreachable!("a gift is never answered by {other:?}"),
    }
}

/// Reads the body. Errors: every member that breaks its rule.
fn read(fields: &mut Fields<'_>) -> Result<(UserId, Gift), Problem> {
    let gift_id = fields.need("gift_id", Key::RULE, |v| v.as_str().and_then(Key::parse));
    let user = fields.need("user", "must be {id, name?}", |v| match v {
        Value::Object(user) => Some(user.clone()),
        _ => None,
    });
    let user = user.and_then(|user| read_user(fields, user));
    let line = "must be 1 to 32 characters on one line, at most 64 bytes";
    let item = fields.need("item", line, |v| v.as_str().and_then(auth::display_name));
    let rule = format!("must be a whole number from 1 to {GIFT_COUNT_MAX}");
    let count = fields.get("count", &rule, |v| {
        v.as_u64().and_then(|n| u32::try_from(n).ok()).filter(|n| (1..=GIFT_COUNT_MAX).contains(n))
    });
    let rule = format!("must be a whole number from 0 to {GIFT_MICROS_MAX}: millionths of the currency, of all items");
    let amount_micros = fields.need("amount_micros", &rule, |v| v.as_u64().filter(|n| *n <= GIFT_MICROS_MAX));
    let rule = format!("must be 1 to {CURRENCY_BYTES_MAX} of A-Z a-z 0-9 _ -");
    let currency = fields.need("currency", &rule, |v| v.as_str().filter(|c| is_currency(c)).map(Arc::from));
    fields.check(ErrorCode::BadField)?;
    let (user, display) = user.expect("checked");
    let gift = Gift {
        gift_id: gift_id.expect("checked"),
        display,
        item: item.expect("checked"),
        count: count.unwrap_or(1),
        amount_micros: amount_micros.expect("checked"),
        currency: currency.expect("checked"),
    };
    Ok((user, gift))
}

fn read_user(fields: &mut Fields<'_>, user: grandstand_wire::json::Object<'_>) -> Option<(UserId, Arc<str>)> {
    let id = user.given("id").and_then(Value::as_str).and_then(UserId::parse);
    if id.is_none() {
        fields.fault("user.id", UserId::RULE);
    }
    let name = match user.given("name") {
        None => id.as_ref().map(UserId::shared),
        Some(name) => name.as_str().and_then(auth::display_name),
    };
    if name.is_none() && user.given("name").is_some() {
        fields.fault("user.name", "must be a display name");
    }
    Some((id?, name?))
}

/// A currency of a mint ("EUR") or of a platform ("gold_coin").
fn is_currency(text: &str) -> bool {
    (1..=CURRENCY_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-'))
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::UserId;
    use grandstand_core::record::Gift;
    use grandstand_wire::json::{Value, parse};

    use super::{Fields, read};
    use crate::control::answer::Problem;

    const GOOD: &str = r#"{"gift_id":"pay-1","user":{"id":"u1","name":"Ada"},"item":"rocket","count":3,"amount_micros":4990000,"currency":"EUR"}"#;

    fn read_text(text: &str) -> Result<(UserId, Gift), Problem> {
        match parse(text) {
            Ok(Value::Object(object)) => read(&mut Fields::of(object)),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_gift_is_read_and_what_may_be_left_out_has_its_meaning() {
        let (user, gift) = read_text(GOOD).unwrap();
        assert_eq!((user.as_str(), &*gift.display, &*gift.item, gift.count), ("u1", "Ada", "rocket", 3));
        assert_eq!((gift.amount_micros, &*gift.currency), (4_990_000, "EUR"));
        let (_, gift) = read_text(&GOOD.replace(r#","name":"Ada""#, "").replace(r#""count":3,"#, "")).unwrap();
        assert_eq!((&*gift.display, gift.count), ("u1", 1));
    }

    #[test]
    fn everything_is_typed_and_bounded_and_each_fault_is_named() {
        for (from, to, field) in [
            ("\"pay-1\"", "\"\"", "gift_id"),
            ("\"pay-1\"", "7", "gift_id"),
            ("\"u1\"", "\"\"", "user.id"),
            ("\"Ada\"", "\"\"", "user.name"),
            ("{\"id\":\"u1\",\"name\":\"Ada\"}", "\"u1\"", "user"),
            ("\"rocket\"", "\"a\\nb\"", "item"),
            (":3,", ":0,", "count"),
            (":3,", ":1.0,", "count"),
            (":3,", ":1000001,", "count"),
            ("4990000", "-1", "amount_micros"),
            ("4990000", "4.99", "amount_micros"),
            ("4990000", "\"4990000\"", "amount_micros"),
            ("4990000", "1000000000000001", "amount_micros"),
            ("\"EUR\"", "\"\"", "currency"),
            ("\"EUR\"", "\"€\"", "currency"),
            ("\"EUR\"", "\"seventeen-letters\"", "currency"),
        ] {
            let bad = GOOD.replacen(from, to, 1);
            let problem = read_text(&bad).expect_err(&bad);
            assert_eq!(problem.code, grandstand_wire::codes::ErrorCode::BadField, "{bad}");
            let told = String::from_utf8(axum_bytes(problem)).unwrap();
            assert!(told.contains(&format!("\"field\":\"{field}\"")), "{bad}: {told}");
        }
    }

    fn axum_bytes(problem: Problem) -> Vec<u8> {
        let body = problem.response().into_body();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(axum::body::to_bytes(body, 1 << 16)).unwrap().to_vec()
    }
}
