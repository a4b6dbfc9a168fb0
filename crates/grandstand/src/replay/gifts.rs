//! The gifts of a replay: posted in order, and held against what the viewer was shown and what the room's account says.
//!
//! Three sums by currency must be one: of the purchases that were logged, of the gifts and combos that the viewer was given, and of
//! the server's own account of the room's log. A purchase that a recording shows twice is posted twice and logged once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use grandstand_client::event::Event;
use grandstand_client::gift::{self, Given as Answer, Giver};
use grandstand_client::http::Http;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use super::{Account, PATIENCE, Shared, lock, reason, wait_for};
use crate::trace::Gift;

/// A combo's last word comes when its patience is over, a minute at most; the next thing is heard well before.
const QUIET: Duration = Duration::from_secs(70);

/// One posted gift and its answer.
pub(super) struct Given {
    gift: Gift,
    answer: Answer,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Sum {
    gifts: u64,
    micros: u128,
}

impl Sum {
    fn add(&mut self, gifts: u64, micros: u128) {
        self.gifts += gifts;
        self.micros += micros;
    }
}

type Sums = BTreeMap<String, Sum>;

#[derive(Serialize)]
pub(super) struct GiftAccount {
    posted: u64,
    logged: u64,
    /// Answered as known: copies of a purchase.
    repeated: u64,
    /// What the viewer's events come to, and how many they were.
    shown: u64,
    events: u64,
    /// What the server's account has.
    counted: u64,
    /// Amounts in millionths, as text, by currency.
    amounts: BTreeMap<String, String>,
}

impl GiftAccount {
    pub fn print(&self) {
        let line = |name: &str, n: u64, note: &str| println!("{name:<24} {n:>9}  {note}");
        line("gifts posted", self.posted, &format!("{} of them copies of a purchase", self.repeated));
        line("  logged", self.logged, "");
        line("  shown", self.shown, &format!("in {} events", self.events));
        line("  counted", self.counted, &format!("in {} currencies, by the room's account", self.amounts.len()));
    }
}

/// What a viewer has been told of gifts: each combo's newest totals.
#[derive(Default)]
pub(super) struct Shown {
    combos: BTreeMap<u64, (String, Sum)>,
    events: u64,
}

#[derive(Deserialize)]
struct Told {
    event_id: u64,
    combo_id: Option<u64>,
    gifts: Option<u64>,
    amount_micros: u64,
    currency: String,
}

impl Shown {
    pub fn take(&mut self, event: &Event) {
        if !matches!(event.kind(), "gift" | "gift_combo") {
            return;
        }
        let Ok(told) = serde_json::from_str::<Told>(&event.json) else { return };
        self.events += 1;
        let sum = Sum { gifts: told.gifts.unwrap_or(1), micros: u128::from(told.amount_micros) };
        self.combos.insert(told.combo_id.unwrap_or(told.event_id), (told.currency, sum));
    }

    fn sums(&self) -> Sums {
        let mut sums = Sums::new();
        for (currency, sum) in self.combos.values() {
            sums.entry(currency.clone()).or_default().add(sum.gifts, sum.micros);
        }
        sums
    }
}

/// Posts gifts one by one, in order.
pub(super) async fn post_all(
    http: Arc<Http>,
    room: String,
    run: String,
    mut steps: mpsc::Receiver<Gift>,
) -> Result<Vec<Given>> {
    let mut given = Vec::new();
    while let Some(step) = steps.recv().await {
        // Each run is a new telling: without its id the second would be all repeats.
        let mut gift_id = format!("{run}:{}", step.key);
        gift_id.truncate(gift_id.floor_char_boundary(128));
        let posted = gift::Gift {
            gift_id,
            user: Giver { id: step.author.id.clone(), name: Some(step.author.name.clone()) },
            item: step.item.clone(),
            count: step.count,
            amount_micros: step.amount_micros,
            currency: step.currency.clone(),
        };
        let answer = gift::post(&http, &room, &posted, PATIENCE).await?;
        given.push(Given { gift: step, answer });
    }
    Ok(given)
}

/// Waits until the viewer was shown all that was logged, asks the server for its account, and says where they differ.
pub(super) async fn settle(account: &mut Account, given: &[Given], seen: &Shared, http: &Http, cursor: Option<u64>) {
    if given.is_empty() {
        return;
    }
    let (mut logged, mut repeated, mut why) = (Sums::new(), 0, Vec::new());
    for Given { gift, answer } in given {
        match answer {
            Answer::Logged { duplicate: true, .. } => repeated += 1,
            Answer::Logged { duplicate: false, .. } => {
                logged.entry(gift.currency.clone()).or_default().add(1, u128::from(gift.amount_micros));
            }
            Answer::Refused { status, code, message } => {
                *account.refused.entry(reason(&format!("{status} {code}"), message)).or_default() += 1;
                why.push(format!("a gift was refused: {code} {message}"));
            }
        }
    }
    wait_for(seen, QUIET, |s| s.gifts.sums() == logged || s.failed.is_some()).await;
    let (shown, events) = {
        let seen = lock(seen);
        (seen.gifts.sums(), seen.gifts.events)
    };
    let counted = match gift::account(http, &account.room, cursor.map_or(0, |c| c + 1)).await {
        Ok(totals) => {
            let mut sums = Sums::new();
            for ((currency, _), total) in totals {
                sums.entry(currency).or_default().add(total.gifts, total.amount_micros);
            }
            sums
        }
        Err(fault) => {
            why.push(format!("the room's account of gifts could not be read: {fault}"));
            Sums::new()
        }
    };
    for (what, sums) in [("was shown", &shown), ("has in its account", &counted)] {
        if *sums != logged {
            why.push(format!("gifts: {logged:?} were logged, the room {what} {sums:?}"));
        }
    }
    let n = |sums: &Sums| sums.values().map(|sum| sum.gifts).sum();
    account.gifts = Some(GiftAccount {
        posted: given.len() as u64,
        logged: n(&logged),
        repeated,
        shown: n(&shown),
        events,
        counted: n(&counted),
        amounts: counted.iter().map(|(currency, sum)| (currency.clone(), sum.micros.to_string())).collect(),
    });
    account.closes &= why.is_empty();
    account.why.extend(why);
}
