//! Publishes each line of stdin as a comment, several in flight, and says what became of each.
//!
//! ```sh
//! export GRANDSTAND_TOKEN=$(grandstand token --sub ann --role publisher)
//! printf 'first\nsecond\n' | cargo run -p grandstand-client --example publish -- http://127.0.0.1:8080 my-room run-7
//! ```
//!
//! The last word names the run: the same lines under the same name are the same comments, however often they are sent. It ends with 1 when a comment was refused.

use std::io::BufRead as _;
use std::process::ExitCode;

use grandstand_client::publisher::{Comment, Outcome, Publisher};
use grandstand_client::{Endpoint, Fault};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<ExitCode, Fault> {
    let mut args = std::env::args().skip(1);
    let (Some(url), Some(room), Some(run), Ok(token)) =
        (args.next(), args.next(), args.next(), std::env::var("GRANDSTAND_TOKEN"))
    else {
        eprintln!("usage: GRANDSTAND_TOKEN=… publish URL ROOM RUN");
        return Ok(ExitCode::from(2));
    };
    let (publisher, task) = Publisher::open(&Endpoint::parse(&url)?, &room, &token, 32);
    let mut answers = Vec::new();
    for (n, line) in std::io::stdin().lock().lines().enumerate() {
        let comment = Comment { client_msg_id: format!("{run}-{n}"), body: line?, reply_to: None, author: None };
        answers.push(publisher.publish(comment).await);
    }
    // Without a handle the task ends when all is answered.
    drop(publisher);
    let mut code = ExitCode::SUCCESS;
    for (n, answer) in answers.into_iter().enumerate() {
        match answer.await.unwrap_or(Outcome::Unanswered) {
            Outcome::Acked { event_id, duplicate, retries, .. } => {
                println!("{n}: {event_id:?} duplicate={duplicate} retries={retries}");
            }
            refused => {
                println!("{n}: {refused:?}");
                code = ExitCode::FAILURE;
            }
        }
    }
    task.await.map_err(|fault| Fault::Connection(std::io::Error::other(fault)))??;
    Ok(code)
}
