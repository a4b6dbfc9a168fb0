//! `POST /v1/rooms/{room}/gifts`: what a shop's backend tells of a purchase, and the account of all of them.
//!
//! The purchase's own id is the key: sent again, with a payload that means the same, it gets the first answer. Nothing is
//! answered with 200 that is not in the log.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::Position;
use grandstand_core::names::{Key, UserId};
use grandstand_core::owner::answer::{Answer, BannerFate};
use grandstand_core::owner::command::{Command, GiftIn};
use grandstand_core::record::{self, Gift};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::json::Value;
use grandstand_wire::limits::{CURRENCY_BYTES_MAX, GIFT_COUNT_MAX, GIFT_MICROS_MAX};
use http::{Response, StatusCode};
use serde_json::{Value as Json, json};

use super::answer::{Problem, json as answer_json};
use super::ask::{Ask, Fields};
use super::{Shared, export};
use crate::auth;
use crate::clock;

pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_act_as_backend(who.as_deref(), &room)?;
    let (user, gift) = read(&mut ask.object()?)?;
    let gift_id = gift.gift_id.clone();
    match control.deps.shard.ask(Command::Gift(GiftIn { room: room.clone(), user, gift })).await? {
        Answer::Gift { event_id, duplicate, banner } => {
            let mut body = json!({"room_id": room.as_str(), "gift_id": gift_id.as_str(), "event_id": event_id.value()});
            if duplicate {
                body["duplicate"] = true.into();
            }
            match banner {
                BannerFate::Unsaid => {}
                BannerFate::Shown(id) => body["banner_id"] = id.value().to_string().into(),
                BannerFate::Capped(why) => body["banner_capped"] = why.name().into(),
            }
            Ok(answer_json(StatusCode::OK, &body))
        }
        Answer::Reject(reject) => Err(Problem::from(reject).with("gift_id", gift_id.as_str())),
        other => unreachable!("a gift is never answered by {other:?}"),
    }
}

/// A call reads the log for so long, then tells how far it came.
const READ_FOR: Duration = Duration::from_millis(300);
/// Users and currencies of one answer; with it, a call ends as well.
const TOTALS_MAX: usize = 10_000;

/// What gifts came to.
#[derive(Clone, Copy, Default)]
struct Sum {
    gifts: u64,
    count: u64,
    micros: u128,
}

impl Sum {
    fn add(&mut self, gift: &Gift) {
        self.gifts += 1;
        self.count += u64::from(gift.count);
        self.micros += u128::from(gift.amount_micros);
    }

    /// The amount is text: a sum may be above what a JSON number holds exactly.
    fn write(&self, mut row: Json) -> Json {
        row["gifts"] = self.gifts.into();
        row["count"] = self.count.into();
        row["amount_micros"] = self.micros.to_string().into();
        row
    }
}

/// `GET /admin/rooms/{room}/gifts?from=&to=&user=&currency=`: what the gifts in a part of the room's log come to, by currency and
/// user. Read from the log, so it holds whatever was forgotten or restarted; a call that ends before `to` says `more`, and the next one
/// begins at `upto + 1`: the parts add up.
pub async fn account(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    auth::may_export(who.as_deref(), &room)?;
    control.settings(&room).await?;
    let from = ask.cursor("from")?.unwrap_or(Position::START);
    let to = ask.cursor("to")?;
    let user = match ask.query("user")? {
        None => None,
        Some(user) => Some(
            UserId::parse(user)
                .ok_or_else(|| Problem::new(ErrorCode::BadRequest, format!("user: {}", UserId::RULE)))?,
        ),
    };
    let currency = ask.query("currency")?;
    let _slot = export::slot(&control)?;
    let mut upto = export::before(from);
    let (started, mut tries, mut end) = (clock::mono(), 0, to);
    let mut all = Sum::default();
    let mut totals: BTreeMap<(Arc<str>, UserId), Sum> = BTreeMap::new();
    let mut currencies: BTreeMap<Arc<str>, Sum> = BTreeMap::new();
    let more = loop {
        let page = export::next_page(|| control.deps.shard.export(room.clone(), upto), &mut tries).await?;
        // What is committed meanwhile is the next account's.
        let end = *end.get_or_insert(page.head);
        let end = end.min(page.head);
        for record in page.records.iter().filter(|r| r.event_id().position() <= end) {
            let (record::Body::Gift(gift), Some(by)) = (&record.body, &record.user) else { continue };
            if user.as_ref().is_some_and(|user| user != by) || currency.is_some_and(|c| c != &*gift.currency) {
                continue;
            }
            all.add(gift);
            totals.entry((gift.currency.clone(), by.clone())).or_default().add(gift);
            currencies.entry(gift.currency.clone()).or_default().add(gift);
        }
        upto = page.upto.min(end);
        if upto >= end {
            break false;
        }
        if clock::mono().since(started) >= READ_FOR || totals.len() >= TOTALS_MAX {
            break true;
        }
    };
    let currencies: Vec<Json> =
        currencies.iter().map(|(currency, sum)| sum.write(json!({"currency": &**currency}))).collect();
    let row = |((currency, user), sum): (&(Arc<str>, UserId), &Sum)| {
        sum.write(json!({"currency": &**currency, "user_id": user.as_str()}))
    };
    let body = json!({
        "room_id": room.as_str(),
        "from": from.value(),
        "upto": upto.value(),
        "more": more,
        "gifts": all.gifts,
        "currencies": currencies,
        "totals": totals.iter().map(row).collect::<Vec<Json>>(),
    });
    Ok(answer_json(StatusCode::OK, &body))
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
    let count = fields.within("count", 1..=GIFT_COUNT_MAX);
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
        banner_until: None,
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
pub(super) fn is_currency(text: &str) -> bool {
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
