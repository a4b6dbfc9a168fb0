//! I-18: whatever an operator orders is in the room's ledger once, beside what it changed, and what is done to nobody's order says so.

use std::collections::BTreeMap;
use std::sync::Arc;

use grandstand_core::record::{Body, End, Record, RetractTarget};

use super::{Log, Violations};
use crate::history::{Line, Seen};

/// What the orders of a run are audited as; each is justified by a number of its own.
pub const ORDER: &str = "order";

pub(super) fn check(log: &Log<'_>, history: &[Line], found: &mut Violations) {
    let mut rows: BTreeMap<&str, usize> = BTreeMap::new();
    for record in &log.valid {
        if let Body::Audit(audit) = &record.body
            && *audit.what == *ORDER
        {
            *rows.entry(&audit.justification).or_default() += 1;
        }
    }
    // As often as an owner was asked, at most: asked again, it is done again.
    let mut asked: BTreeMap<&str, usize> = BTreeMap::new();
    for line in history {
        match &line.seen {
            Seen::Ordered(number) => *asked.entry(number).or_default() += 1,
            Seen::Done(number) if !rows.contains_key(&**number) => {
                found.push(format!("I-18: order {number} was done, and no row says so"));
            }
            Seen::Erased(user, id) if log.by_id.get(id).and_then(|record| record.erases()) != Some(user) => {
                found.push(format!("I-18: {user} was erased by {id:?}, which says something else"));
            }
            _ => {}
        }
    }
    for (number, n) in rows {
        let asked = asked.get(number).copied().unwrap_or_default();
        if n > asked {
            found.push(format!("I-18: order {number} came {asked} times and has {n} rows"));
        }
    }
    check_changes(&log.valid, found);
}

/// What only an order or moderation itself does stands directly before the row that says who did it.
fn check_changes(valid: &[&Arc<Record>], found: &mut Violations) {
    for (at, record) in valid.iter().enumerate() {
        let is_ordered = match &record.body {
            Body::Ban(_) | Body::Unban(_) => true,
            Body::HeldEnd(end) => end.end != End::Expired,
            // By its author, or all of them, it may be a part of a ban of the site or of an erase.
            Body::Retract(retract) => matches!(retract.target, RetractTarget::Event(_)),
            _ => false,
        };
        if !is_ordered {
            continue;
        }
        let is_part =
            |next: &Record| matches!(next.body, Body::Retract(_) | Body::Config(_)) && next.room == record.room;
        let next = valid[at + 1..].iter().find(|next| !is_part(next));
        // The rest of a torn batch is not in the log.
        let says = next.is_none_or(|next| match &next.body {
            Body::EpochStart => true,
            Body::Audit(_) => next.room == record.room,
            _ => false,
        });
        if !says {
            found.push(format!("I-18: nobody says who did {:?}", record.event_id()));
        }
    }
}
