//! Commands about receivers of outgoing webhooks.

use anyhow::{Result, ensure};
use clap::Subcommand;
use grandstand_client::admin::WebhookAsked;
use serde_json::Value;

use super::show::{cell, rows, table};
use super::terminal::Terminal;

#[derive(Subcommand)]
pub enum What {
    /// Receivers, how far each was told, and what fails.
    List,
    /// Puts one up: it is told of what happens from now on. Prints its secret, which nobody is told again.
    Put {
        /// https://host[:port]/path
        #[arg(value_name = "URL")]
        receiver: String,
        /// Room ids, or beginnings of some with *; without it all, and what is of the whole site.
        #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
        rooms: Vec<String>,
        /// score_event, gift, gift_combo, banner, banner_end, retract, config, ban, unban, site_ban, site_unban, report, blocked, held, held_end,
        /// room, audit; without it all.
        #[arg(long, value_delimiter = ',', value_name = "TYPE")]
        events: Vec<String>,
    },
    /// Changes one; what is not said stays.
    Change {
        id: String,
        /// Where it is told from now on; `--url` is the server's.
        #[arg(long, value_name = "URL")]
        receiver: Option<String>,
        #[arg(long, value_delimiter = ',', value_name = "PATTERN")]
        rooms: Vec<String>,
        /// Every room, and what is of the whole site.
        #[arg(long, conflicts_with = "rooms")]
        all_rooms: bool,
        #[arg(long, value_delimiter = ',', value_name = "TYPE")]
        events: Vec<String>,
        #[arg(long, conflicts_with = "events")]
        all_events: bool,
        /// It is told again, from where it was left.
        #[arg(long)]
        enable: bool,
        #[arg(long, conflicts_with = "enable")]
        disable: bool,
        /// Prints a new secret; the old one signs beside it for a day.
        #[arg(long)]
        new_secret: bool,
    },
    /// Posts a test event to one, now and once, and tells whether it was taken.
    Test { id: String },
    /// Takes one down.
    End { id: String },
}

pub async fn perform(what: &What, terminal: &Terminal<'_>) -> Result<()> {
    let admin = terminal.admin;
    match what {
        What::List => terminal.show(&admin.webhooks().await?, list),
        What::Put { receiver, rooms, events } => {
            let asked = WebhookAsked {
                url: Some(receiver.clone()),
                rooms: named(rooms, false),
                events: named(events, false),
                ..WebhookAsked::default()
            };
            let answer = admin.put_up_webhook(&asked, terminal.why()?).await?;
            done(terminal, "the receiver is told from now on", &answer);
        }
        What::Change { id, receiver, rooms, all_rooms, events, all_events, enable, disable, new_secret } => {
            let asked = WebhookAsked {
                url: receiver.clone(),
                rooms: named(rooms, *all_rooms),
                events: named(events, *all_events),
                enabled: (*enable || *disable).then_some(*enable),
                new_secret: *new_secret,
            };
            let answer = admin.change_webhook(id, &asked, terminal.why()?).await?;
            done(terminal, "the receiver is changed", &answer);
        }
        What::Test { id } => {
            let answer = admin.try_webhook(id, terminal.why()?).await?;
            ensure!(answer["delivered"] != false, "the test event was not taken: {}", cell(&answer["why"]));
            terminal.done("the test event was taken", &answer);
        }
        What::End { id } => {
            let why = terminal.why()?;
            let effects = ["It is told of nothing any more, and how far it was told is forgotten.".to_owned()];
            terminal.sure(None, &effects).await?;
            terminal.done("the receiver is taken down", &admin.end_webhook(id, why).await?);
        }
    }
    Ok(())
}

fn named(names: &[String], all: bool) -> Option<Option<Vec<String>>> {
    match all {
        true => Some(None),
        false => (!names.is_empty()).then(|| Some(names.to_vec())),
    }
}

fn done(terminal: &Terminal<'_>, what: &str, answer: &Value) {
    terminal.done(what, answer);
    if !terminal.args.json && answer["dry_run"] != true {
        println!("webhook_id: {}", cell(&answer["webhook_id"]));
        if answer["secret"].is_string() {
            println!("secret: {}", cell(&answer["secret"]));
        }
    }
}

fn list(answer: &Value) {
    let row = |w: &Value| {
        let state = match (w["enabled"] == true, &w["failing_since_ts"]) {
            (false, _) => format!("disabled: {}", cell(&w["disabled_why"])),
            (true, Value::Null) => "told".to_owned(),
            (true, since) => format!("failing since {}: {}", cell(since), cell(&w["last_failure"]["why"])),
        };
        let names = |list: &Value| match list.as_array() {
            None => "all".to_owned(),
            Some(all) => all.iter().map(cell).collect::<Vec<_>>().join(" "),
        };
        let n = |name: &str| cell(&w[name]);
        vec![
            n("webhook_id"),
            n("url"),
            names(&w["rooms"]),
            names(&w["events"]),
            n("delivered"),
            n("failed"),
            n("waiting_rooms"),
            state,
        ]
    };
    table(&["ID", "URL", "ROOMS", "EVENTS", "DELIVERED", "FAILED", "WAITING", "STATE"], &rows(answer, "webhooks", row));
}
