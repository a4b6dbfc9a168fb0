//! One connection that publishes comments and hears each one's answer.
//!
//! Like registered mail: a comment is kept until it has been answered. A refusal that asks for patience is repeated after
//! the server's wait; a broken connection is opened again and everything unanswered is sent once more, always under the same
//! `client_msg_id`, so that the server can tell a repeat from a second comment.
//!
//! What it must never do: change a key, or give up a comment without telling its caller.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::sync::{mpsc, oneshot};

use crate::addresses::{Addresses, is_elsewhere};
use crate::event::Event;
use crate::retry::{End, Next, Retry};
use crate::socket::{Open, Socket, Turn};
use crate::{Endpoint, Fault, seeded, segment};

/// Frames queued at the connection before more comments are taken: one socket buffer's worth.
const UNSENT_BYTES_MAX: usize = 256 << 10;
/// Waits of a refusal that told none.
const WAIT: Duration = Duration::from_millis(500);

/// One comment. Its key is the caller's for ever.
#[derive(Clone, Debug, Serialize)]
pub struct Comment {
    pub client_msg_id: String,
    pub body: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_to: Option<u64>,
    /// Publish as this user; role `backend` only.
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    pub author: Option<Author>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Author {
    pub id: String,
    pub name: String,
    pub badges: Vec<String>,
}

/// The end of one comment's way.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Outcome {
    Acked {
        /// Absent in a wide room, where an ack comes before a place in the order.
        event_id: Option<u64>,
        duplicate: bool,
        /// When it was last given to the connection.
        sent: Instant,
        /// When its answer was read.
        acked: Instant,
        /// Repeats after a refusal that asked for patience.
        retries: u32,
    },
    Refused {
        code: String,
        message: String,
    },
    /// It waits for a moderator's word, which may take hours: the same key asks for it.
    Held,
    /// The publisher ended before an answer came: it may or may not have been published.
    Unanswered,
}

/// How a publisher's connection has fared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tally {
    pub connections: u64,
    /// Refusals that were waited out, by `rate_limited` and by everything else.
    pub rate_limited: u64,
    pub other_waits: u64,
}

/// A handle; cloning it shares the connection.
#[derive(Clone)]
pub struct Publisher {
    queue: mpsc::Sender<Order>,
}

struct Order {
    comment: Comment,
    done: oneshot::Sender<Outcome>,
}

struct Waiting {
    frame: String,
    done: oneshot::Sender<Outcome>,
    sent: Instant,
    retries: u32,
}

impl Publisher {
    /// Starts the connection's task; it ends when every handle is gone and all is answered, and gives its tally.
    ///
    /// `inflight`: comments that may await an answer at one time; more wait their turn.
    pub fn open(
        endpoint: &Endpoint,
        room: &str,
        token: &str,
        inflight: usize,
    ) -> (Publisher, tokio::task::JoinHandle<Result<Tally, Fault>>) {
        let (queue, orders) = mpsc::channel(inflight.max(1));
        let task = Task {
            addresses: Addresses::new(endpoint),
            path: format!("/v1/rooms/{}/stream", segment(room)),
            token: token.to_owned(),
            inflight: inflight.max(1),
            orders,
            open: true,
            waiting: HashMap::new(),
            unsent: VecDeque::new(),
            later: BTreeMap::new(),
            retry: Retry::new(seeded()),
            tally: Tally::default(),
        };
        (Publisher { queue }, tokio::spawn(task.run()))
    }

    /// Hands one comment over; the answer comes by the receiver. Waits while as many as may be are in flight.
    pub async fn publish(&self, comment: Comment) -> oneshot::Receiver<Outcome> {
        let (done, answer) = oneshot::channel();
        if let Err(mpsc::error::SendError(order)) = self.queue.send(Order { comment, done }).await {
            let _ = order.done.send(Outcome::Unanswered);
        }
        answer
    }
}

struct Task {
    addresses: Addresses,
    path: String,
    token: String,
    inflight: usize,
    orders: mpsc::Receiver<Order>,
    /// Handles exist that may order more.
    open: bool,
    /// Unanswered comments by key.
    waiting: HashMap<String, Waiting>,
    /// Keys to be written to the connection, in order.
    unsent: VecDeque<String>,
    /// Keys waiting out a refusal.
    later: BTreeMap<(Instant, u64), String>,
    retry: Retry,
    tally: Tally,
}

impl Task {
    async fn run(mut self) -> Result<Tally, Fault> {
        let ended = loop {
            let end = match self.connect().await {
                Ok(socket) => {
                    self.tally.connections += 1;
                    // Whatever is unanswered may have been lost with the connection before.
                    self.later.clear();
                    self.unsent = self.in_order();
                    match self.serve(socket).await {
                        Ok(()) => break Ok(self.tally),
                        Err(end) => end,
                    }
                }
                Err(Fault::Connection(_)) => End::Broken,
                Err(Fault::Refused { status: 429 | 500.., retry_after, spread, .. }) => {
                    End::Refused { retry_after, spread }
                }
                Err(fault) => break Err(fault),
            };
            match self.retry.after(end, Instant::now()) {
                Next::Stop { code, reason } => break Err(Fault::Closed { code, reason }),
                Next::Wait(wait) => tokio::time::sleep(wait).await,
            }
        };
        self.orders.close();
        while let Some(order) = self.orders.recv().await {
            let _ = order.done.send(Outcome::Unanswered);
        }
        for (_, waiting) in self.waiting.drain() {
            let _ = waiting.done.send(Outcome::Unanswered);
        }
        ended
    }

    async fn connect(&self) -> Result<Socket, Fault> {
        let open = Open { token: Some(&self.token), ..Open::default() };
        let mut unreached = None;
        for endpoint in self.addresses.websocket(self.tally.connections) {
            match Socket::open(endpoint, &self.path, &open).await {
                Err(fault) if is_elsewhere(&fault) => unreached = Some(fault),
                opened => return opened,
            }
        }
        Err(unreached.expect("home is always tried"))
    }

    fn in_order(&self) -> VecDeque<String> {
        let mut keys: Vec<(&String, Instant)> = self.waiting.iter().map(|(key, w)| (key, w.sent)).collect();
        keys.sort_by(|a, b| (a.1, a.0).cmp(&(b.1, b.0)));
        keys.into_iter().map(|(key, _)| key.clone()).collect()
    }

    /// Until all is done (`Ok`) or the connection ends.
    async fn serve(&mut self, mut socket: Socket) -> Result<(), End> {
        let mut n_later = 0;
        loop {
            let now = Instant::now();
            while let Some(entry) = self.later.first_entry()
                && entry.key().0 <= now
            {
                self.unsent.push_back(entry.remove());
            }
            while socket.unsent() < UNSENT_BYTES_MAX
                && let Some(key) = self.unsent.pop_front()
            {
                if let Some(waiting) = self.waiting.get_mut(&key) {
                    socket.send(&waiting.frame);
                    waiting.sent = now;
                }
            }
            if !self.open && self.waiting.is_empty() {
                socket.close();
                // The answer to our close is a courtesy; the comments are all answered.
                let _ = tokio::time::timeout(Duration::from_secs(1), socket.turn()).await;
                return Ok(());
            }
            let room = self.waiting.len() < self.inflight && socket.unsent() < UNSENT_BYTES_MAX;
            let wake = self.later.first_key_value().map(|(k, _)| k.0);
            tokio::select! {
                order = self.orders.recv(), if self.open && room => match order {
                    None => self.open = false,
                    Some(order) => self.take(order, now),
                },
                turn = socket.turn() => match turn {
                    Ok(Turn::Wrote) => {}
                    Ok(Turn::Text(text)) => {
                        let events = Event::parse_frame(&text).map_err(|_| End::Broken)?;
                        for event in events {
                            if let Some(end) = (event.kind() == "close").then(|| event.end()).flatten() {
                                return Err(end);
                            }
                            if event.kind() == "hello" {
                                self.addresses.take(event.members.endpoints.as_ref());
                            }
                            self.hear(&event, &mut n_later);
                        }
                    }
                    Ok(Turn::Closed(Some(code), reason)) => {
                        return Err(End::Code { code, reason, retry_after: None, spread: None });
                    }
                    Ok(Turn::Closed(None, _)) | Err(_) => return Err(End::Broken),
                },
                () = tokio::time::sleep_until(wake.unwrap_or(now).into()), if wake.is_some() => {}
            }
        }
    }

    fn take(&mut self, order: Order, now: Instant) {
        #[derive(Serialize)]
        struct Frame<'a> {
            op: &'static str,
            #[serde(flatten)]
            comment: &'a Comment,
        }
        let key = order.comment.client_msg_id.clone();
        let frame = serde_json::to_string(&Frame { op: "publish", comment: &order.comment })
            .expect("text and numbers serialise");
        let waiting = Waiting { frame, done: order.done, sent: now, retries: 0 };
        if let Some(twice) = self.waiting.insert(key.clone(), waiting) {
            // Two comments under one key: the server would answer both as one.
            let message = "the key is in flight already".to_owned();
            let _ = twice.done.send(Outcome::Refused { code: "idempotency_conflict".to_owned(), message });
        }
        self.unsent.push_back(key);
    }

    fn hear(&mut self, event: &Event, n_later: &mut u64) {
        // The room's own events pass by on this connection as well; those without a key are not answers.
        let Some(key) = &event.members.client_msg_id else { return };
        let Some(waiting) = self.waiting.get_mut(key) else { return };
        let wait = match event.kind() {
            "publish_ack" => {
                let waiting = self.waiting.remove(key).expect("it was found just above");
                let _ = waiting.done.send(Outcome::Acked {
                    event_id: event.members.event_id,
                    duplicate: event.members.duplicate.unwrap_or(false),
                    sent: waiting.sent,
                    acked: Instant::now(),
                    retries: waiting.retries,
                });
                return self.retry.progress();
            }
            "rate_limited" => {
                self.tally.rate_limited += 1;
                event.retry_after()
            }
            // No verdict yet: the next answer to the same key tells it.
            "moderation_pending" if event.retry_after().is_some() => event.retry_after(),
            "moderation_pending" => {
                let waiting = self.waiting.remove(key).expect("it was found just above");
                let _ = waiting.done.send(Outcome::Held);
                return self.retry.progress();
            }
            "error"
                if matches!(
                    event.code(),
                    Some("overloaded" | "no_space" | "not_ready" | "outcome_unknown" | "rate_limited")
                ) =>
            {
                self.tally.other_waits += 1;
                event.retry_after()
            }
            "error" | "moderation_failed" => {
                let waiting = self.waiting.remove(key).expect("it was found just above");
                let code = event.code().map_or_else(|| event.kind().to_owned(), str::to_owned);
                let message =
                    event.members.message.clone().or_else(|| event.members.reason.clone()).unwrap_or_default();
                let _ = waiting.done.send(Outcome::Refused { code, message });
                return;
            }
            _ => return,
        };
        waiting.retries += 1;
        let spread = Duration::from_millis(event.members.spread_ms.unwrap_or(0));
        let wait = wait.unwrap_or(WAIT) + self.retry.draw(spread);
        *n_later += 1;
        self.later.insert((Instant::now() + wait, *n_later), key.clone());
    }
}
