//! Follows a room and prints who said what, and the score when it changes.
//!
//! ```sh
//! cargo run -p grandstand-client --example follow -- http://127.0.0.1:8080 my-room
//! ```
//!
//! With `GRANDSTAND_TOKEN` it watches as that token's user. It ends when the room says that no retry helps.

use grandstand_client::feed::{Feed, Happening, Transport};
use grandstand_client::http::Http;
use grandstand_client::scores::Scores;
use grandstand_client::{Endpoint, Fault, room};
use serde_json::Value;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Fault> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(name)) = (args.next(), args.next()) else {
        eprintln!("usage: follow URL ROOM");
        std::process::exit(2);
    };
    let token = std::env::var("GRANDSTAND_TOKEN").ok();
    let server = Endpoint::parse(&url)?;
    let http = Http::new(&server, token.as_deref());

    // Snapshot first, then the stream from where it ends.
    let snapshot = room::snapshot(&http, &name, None).await?;
    let mut scores = Scores::default();
    snapshot["scores"].as_array().into_iter().flatten().for_each(|score| drop(scores.take(&score.to_string())));
    tell(&scores);
    let cursor = snapshot["as_of_event_id"].as_u64().filter(|id| *id > 0);

    let mut feed = Feed::new(&server, &name, token.as_deref(), Transport::WebSocket, cursor);
    loop {
        let event = match feed.turn().await? {
            Happening::Event(event) => event,
            Happening::Cut { wait, .. } => {
                eprintln!("cut; on from {:?} in {} ms", feed.cursor(), wait.as_millis());
                continue;
            }
        };
        let whole: Value = serde_json::from_str(&event.json).unwrap_or_default();
        match event.kind() {
            // Printed as debug text: an author's words may hold what a terminal obeys.
            "comment" => println!("{:?}: {:?}", whole["user"]["display"], whole["body"]),
            "score_event" if scores.take(&event.json).is_some() => tell(&scores),
            "retract" => println!("taken back: {}", event.json),
            "snapshot_required" => {
                let snapshot = room::snapshot(&http, &name, event.members.cursor).await?;
                eprintln!(
                    "a gap: the snapshot has {} comments",
                    snapshot["recent_comments"].as_array().map_or(0, Vec::len)
                );
            }
            _ => {}
        }
    }
}

fn tell(scores: &Scores) {
    for event in scores.current() {
        println!("{:?} {}-{}", event.match_id, event.score.home, event.score.away);
    }
}
