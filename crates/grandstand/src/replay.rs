//! `grandstand replay`: recorded chat and real matches through a live server, with an account that must close.
//!
//! Every author of the recording speaks as its own user over a few connections, at the recording's pace or faster. A viewer
//! cold-loads the room and follows it meanwhile, so that the account has both ends: what was handed in, and what came out.
//!
//! The account closes when everything published was acked or refused, and everything acked was delivered to the viewer or
//! told as `skipped`. What moderators did in the recording is done again, and what it took back or held has its own lines
//! ([`moderation`]). Nothing is estimated; a number that cannot be accounted for is an exit code.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, bail};
use grandstand_client::Endpoint;
use grandstand_client::feed::{Feed, Transport};
use grandstand_client::http::Http;
use grandstand_client::publisher::{Author, Comment, Outcome, Publisher};
use grandstand_client::room::{self, Posted, ScoreEvent};
use grandstand_client::sign::Signer;
use grandstand_core::routing::stable_hash;
use hdrhistogram::Histogram;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;

use crate::trace::{self, Act, Score, Step};
use moderation::{Closed, Desk, Names};

mod gifts;
mod moderation;

/// The provider under which replayed score events are posted.
const PROVIDER: &str = "replay";
/// Matches a room stays bound to: one is played at a time, a few more may still be corrected.
const MATCHES_KEPT: usize = 8;
/// A viewer that gets nothing for so long gets nothing more.
const QUIET: Duration = Duration::from_secs(10);
/// How long a score event is offered to a server that asks for patience.
pub const PATIENCE: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Speed {
    /// So many times the recording's own pace.
    Times(f64),
    Max,
}

impl std::str::FromStr for Speed {
    type Err = String;
    fn from_str(text: &str) -> Result<Speed, String> {
        if text == "max" {
            return Ok(Speed::Max);
        }
        let times = text.parse::<f64>().ok().filter(|n| n.is_finite() && *n > 0.0);
        times.map(Speed::Times).ok_or_else(|| "a positive number or `max`".to_owned())
    }
}

pub struct Settings {
    pub files: Vec<PathBuf>,
    pub room: String,
    pub endpoint: Endpoint,
    /// Role `backend`; with `region-ops` too, the room is bound to its matches by `PUT`.
    pub token: String,
    pub speed: Speed,
    pub json: bool,
    pub connections: usize,
    pub inflight: usize,
    /// The provider whose key signs score events; without it they are posted by the token, in development mode.
    pub signer: Option<Signer>,
}

/// What was read of one file.
#[derive(Serialize)]
struct FileAccount {
    file: String,
    format: &'static str,
    read: u64,
    to_publish: u64,
    derived: u64,
    skipped: BTreeMap<String, u64>,
}

#[derive(Serialize, Default)]
struct Account {
    run: String,
    room: String,
    files: Vec<FileAccount>,
    /// Entries of the files, and those that are nothing to publish, by reason.
    read: u64,
    not_published: BTreeMap<String, u64>,
    published: u64,
    acked: u64,
    /// Acked score events that the room had already.
    repeated: u64,
    refused: BTreeMap<String, u64>,
    /// Held for review.
    held: u64,
    unanswered: u64,
    /// Acked ones that reached the viewer, and comments the viewer was told it was not sent.
    delivered: u64,
    skipped: u64,
    /// Events of other publishers in the same room.
    others: u64,
    duplicates: u64,
    out_of_order: u64,
    missing_pseq: u64,
    comments: Latency,
    scores: Latency,
    /// Where a recording has purchases.
    #[serde(skip_serializing_if = "Option::is_none")]
    gifts: Option<gifts::GiftAccount>,
    /// Where one has moderation.
    #[serde(skip_serializing_if = "Option::is_none")]
    moderation: Option<moderation::ModerationAccount>,
    publisher_connections: u64,
    viewer_connections: u64,
    rate_limited: u64,
    seconds: f64,
    closes: bool,
    why: Vec<String>,
}

/// Publish to delivery, in milliseconds.
#[derive(Serialize, Default)]
struct Latency {
    n: u64,
    p50_ms: f64,
    p99_ms: f64,
    max_ms: f64,
}

impl Latency {
    fn of(micros: &Histogram<u64>) -> Latency {
        let ms = |v: u64| v as f64 / 1_000.0;
        Latency {
            n: micros.len(),
            p50_ms: ms(micros.value_at_quantile(0.5)),
            p99_ms: ms(micros.value_at_quantile(0.99)),
            max_ms: ms(micros.max()),
        }
    }
}

/// What the viewer has been given so far.
#[derive(Default)]
struct Seen {
    at: HashMap<u64, Instant>,
    newest: u64,
    pseq: Option<u64>,
    skipped: u64,
    duplicates: u64,
    out_of_order: u64,
    missing_pseq: u64,
    connections: u64,
    /// Gaps that were told without a count.
    lost: Vec<String>,
    /// What gifts and combos came to.
    gifts: gifts::Shown,
    failed: Option<String>,
    ready: bool,
}

/// One published thing and its answer.
struct Answered {
    score: bool,
    sent: Instant,
    what: What,
}

enum What {
    Acked { event_id: Option<u64>, repeated: bool },
    Refused(String),
    Held,
    Unanswered,
}

pub fn run(settings: Settings) -> Result<ExitCode> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let account = runtime.block_on(play(&settings))?;
    if settings.json {
        println!("{}", serde_json::to_string(&account)?);
    } else {
        print(&account);
    }
    Ok(if account.closes { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

async fn play(settings: &Settings) -> Result<Account> {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos() as u64;
    let run = format!(
        "{:08x}",
        stable_hash(&[nanos.to_le_bytes(), u64::from(std::process::id()).to_le_bytes()].concat()) as u32
    );
    let mut account = Account { run: run.clone(), room: settings.room.clone(), ..Account::default() };
    let steps = read_all(settings, &mut account)?;

    let http = Arc::new(Http::new(&settings.endpoint, Some(&settings.token)));
    let cursor = cold_load(&http, &settings.room).await?;
    let seen = Arc::new((Mutex::new(Seen::default()), Notify::new()));
    let feed = Feed::new(&settings.endpoint, &settings.room, Some(&settings.token), Transport::WebSocket, cursor);
    let viewer = tokio::spawn(follow(feed, seen.clone()));
    wait_for(&seen, Duration::from_secs(30), |s| s.ready || s.failed.is_some()).await;
    if let Some(why) = &lock(&seen).failed {
        bail!("the viewer could not follow the room: {why}");
    }

    let start = Instant::now();
    let (answers, given, desk) = publish_all(settings, &run, steps, http.clone(), &mut account).await?;
    explain(&mut account, given.len() as u64 + desk.as_ref().map_or(0, Desk::n_deeds));
    let n = |of: fn(&Answered) -> bool| answers.iter().filter(|answer| of(answer)).count() as u64;
    let acked = n(|answer| !answer.score && matches!(answer.what, What::Acked { .. }));
    let held = n(|answer| matches!(answer.what, What::Held));
    let closed = match desk {
        Some(desk) => desk.close(&mut account, cursor, (acked, held)).await?,
        None => Closed::default(),
    };
    settle(&mut account, &answers, &seen, &closed).await;
    gifts::settle(&mut account, &given, &seen, &http, cursor).await;
    viewer.abort();
    account.seconds = start.elapsed().as_secs_f64();
    Ok(account)
}

fn read_all(settings: &Settings, account: &mut Account) -> Result<Vec<(usize, Step)>> {
    let mut steps = Vec::new();
    for (n, file) in settings.files.iter().enumerate() {
        let name = file.display().to_string();
        let bytes = std::fs::read(file).with_context(|| name.clone())?;
        let trace = trace::read(&bytes).with_context(|| name.clone())?;
        account.read += trace.read;
        for (why, count) in &trace.skipped {
            *account.not_published.entry(why.clone()).or_default() += count;
        }
        account.files.push(FileAccount {
            file: file_name(file),
            format: trace.format.name(),
            read: trace.read,
            to_publish: trace.steps.len() as u64,
            derived: trace.derived,
            skipped: trace.skipped,
        });
        steps.extend(trace.steps.into_iter().map(|s| (n, s)));
    }
    // Several recordings are played at once, each from its own beginning.
    steps.sort_by_key(|(_, s)| s.at);
    Ok(steps)
}

/// Every entry of the files was played or is told why not. `others`: gifts and deeds.
fn explain(account: &mut Account, others: u64) {
    let derived: u64 = account.files.iter().map(|file| file.derived).sum();
    let not_published: u64 = account.not_published.values().sum();
    if account.read + derived != not_published + account.published + others {
        account.why.push(format!(
            "read {} and derived {derived}, but published {}, did {others} of another kind and left {not_published}",
            account.read, account.published
        ));
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().map_or_else(|| path.display().to_string(), |n| n.to_string_lossy().into_owned())
}

/// Snapshot first, then the stream from where it ends, as a page does. A room that does not exist is put.
async fn cold_load(http: &Http, room: &str) -> Result<Option<u64>> {
    let snapshot = match room::snapshot(http, room, None).await {
        Err(grandstand_client::Fault::Refused { status: 404, .. }) => {
            room::put(http, room, &json!({}), "a recording is replayed into a new room")
                .await
                .context("making the room")?;
            room::snapshot(http, room, None).await
        }
        other => other,
    };
    let snapshot = snapshot.context("loading the room's snapshot")?;
    let cursor = snapshot.get("as_of_event_id").and_then(serde_json::Value::as_u64);
    // 0 is a log without any record: the head is the same place.
    Ok(cursor.filter(|c| *c > 0))
}

type Shared = Arc<(Mutex<Seen>, Notify)>;

fn lock(seen: &Shared) -> std::sync::MutexGuard<'_, Seen> {
    seen.0.lock().expect("no holder of the lock can panic")
}

async fn follow(mut feed: Feed, seen: Shared) {
    loop {
        let event = feed.next().await;
        let now = Instant::now();
        let mut state = lock(&seen);
        state.connections = feed.n_connections();
        match event {
            Err(fault) => {
                state.failed = Some(fault.to_string());
                seen.1.notify_waiters();
                return;
            }
            Ok(event) => {
                let members = &event.members;
                match event.kind() {
                    "hello" => {
                        if !state.ready {
                            state.pseq = members.pseq;
                        }
                        state.ready = true;
                    }
                    "snapshot_required" => {
                        if state.newest > 0 {
                            let reason = members.reason.clone().unwrap_or_default();
                            state.lost.push(format!("the server asked for a new snapshot ({reason})"));
                        }
                        state.pseq = members.pseq;
                    }
                    "skipped" => state.skipped += members.count.unwrap_or(0),
                    _ => {}
                }
                state.gifts.take(&event);
                if let (Some(id), Some(pseq)) = (members.event_id, members.pseq) {
                    let expected = state.pseq.map(|p| p + 1);
                    if expected.is_some_and(|e| pseq > e) && !state.at.contains_key(&id) {
                        state.missing_pseq += pseq - expected.unwrap_or(pseq);
                    }
                    state.pseq = state.pseq.max(Some(pseq));
                }
                if let (Some(id), "comment" | "score_event") = (members.event_id, event.kind()) {
                    if state.at.contains_key(&id) {
                        state.duplicates += 1;
                    } else {
                        if id < state.newest {
                            state.out_of_order += 1;
                        }
                        state.newest = state.newest.max(id);
                        state.at.insert(id, now);
                    }
                }
            }
        }
        drop(state);
        seen.1.notify_waiters();
    }
}

/// Until `done` holds, or nothing has come for `quiet`.
async fn wait_for(seen: &Shared, quiet: Duration, done: impl Fn(&Seen) -> bool) {
    loop {
        let changed = seen.1.notified();
        if done(&lock(seen)) {
            return;
        }
        if tokio::time::timeout(quiet, changed).await.is_err() {
            return;
        }
    }
}

async fn publish_all(
    settings: &Settings,
    run: &str,
    steps: Vec<(usize, Step)>,
    http: Arc<Http>,
    account: &mut Account,
) -> Result<(Vec<Answered>, Vec<gifts::Given>, Option<Desk>)> {
    let bar = ProgressBar::new(steps.len() as u64);
    bar.set_style(
        ProgressStyle::with_template("{elapsed_precise} {bar:40} {pos}/{len} {per_sec} {msg}")
            .expect("a valid template"),
    );
    let n_connections = settings.connections.max(1);
    let (publishers, tasks): (Vec<_>, Vec<_>) = (0..n_connections)
        .map(|_| Publisher::open(&settings.endpoint, &settings.room, &settings.token, settings.inflight))
        .unzip();
    let (answered, mut answers) = mpsc::unbounded_channel::<Answered>();
    let (score_queue, score_steps) = mpsc::channel(1024);
    let (room, signer) = (settings.room.clone(), settings.signer.clone());
    let scorer =
        tokio::spawn(post_scores(http.clone(), room.clone(), run.to_owned(), signer, score_steps, answered.clone()));
    let (gift_queue, gift_steps) = mpsc::channel(1024);
    let giver = tokio::spawn(gifts::post_all(http.clone(), room, run.to_owned(), gift_steps));
    let names = Names::default();
    let mut desk = None;
    if steps.iter().any(|(_, step)| matches!(step.act, Act::Moderate(_))) {
        desk = Some(Desk::open(http, &settings.room, run, names.clone()).await?);
    }
    // Those who wait for an answer.
    let mut waiting = JoinSet::new();

    let start = tokio::time::Instant::now();
    let mut interrupted = std::pin::pin!(tokio::signal::ctrl_c());
    let mut steps = steps.into_iter();
    while let Some((file, step)) = steps.next() {
        if let Speed::Times(times) = settings.speed {
            tokio::select! {
                () = tokio::time::sleep_until(start + step.at.div_f64(times)) => {}
                _ = &mut interrupted => {
                    let left = 1 + steps.len() as u64;
                    *account.not_published.entry("interrupted before it".to_owned()).or_default() += left;
                    break;
                }
            }
        }
        // Gifts and deeds have accounts of their own.
        account.published += u64::from(matches!(step.act, Act::Comment(_) | Act::Score(_)));
        match step.act {
            Act::Comment(said) => {
                // The same author always speaks over the same connection, so its words keep their order.
                let publisher = &publishers[(stable_hash(said.author.id.as_bytes()) % n_connections as u64) as usize];
                let author = Author { id: said.author.id, name: said.author.name, badges: said.author.badges };
                let key = format!("{run}-{file}-{}", step.entry);
                let comment = Comment { client_msg_id: key, body: said.text, reply_to: None, author: Some(author) };
                let handed = Instant::now();
                let answer = publisher.publish(comment).await;
                let (answered, bar) = (answered.clone(), bar.clone());
                let (names, name) = (names.clone(), said.id.map(|id| (file, id)));
                waiting.spawn(async move {
                    let what = match answer.await.unwrap_or(Outcome::Unanswered) {
                        Outcome::Acked { event_id, sent, .. } => {
                            if let Some((name, event)) = name.zip(event_id) {
                                names.lock().expect("no holder of the lock can panic").insert(name, event);
                            }
                            let what = What::Acked { event_id, repeated: false };
                            let _ = answered.send(Answered { score: false, sent, what });
                            return bar.inc(1);
                        }
                        Outcome::Refused { code, message } => What::Refused(reason(&code, &message)),
                        Outcome::Held => What::Held,
                        Outcome::Unanswered => What::Unanswered,
                    };
                    let _ = answered.send(Answered { score: false, sent: handed, what });
                    bar.inc(1);
                });
            }
            Act::Score(score) => {
                bar.set_message(format!("{} {} - {} {}'", score.teams, score.home, score.away, score.minute));
                bar.inc(1);
                if score_queue.send(score).await.is_err() {
                    break;
                }
            }
            Act::Gift(gift) => {
                bar.inc(1);
                if gift_queue.send(gift).await.is_err() {
                    break;
                }
            }
            Act::Moderate(deed) => {
                bar.inc(1);
                // It meets what it met in the recording: what was said before it is answered first.
                while waiting.join_next().await.is_some() {}
                let desk = desk.as_mut().expect("it was opened for the first of them");
                account.published += u64::from(desk.says(&deed));
                desk.act(file, format!("{run}-{file}-{}", step.entry), deed, account).await?;
            }
        }
    }
    while waiting.join_next().await.is_some() {}
    drop((publishers, score_queue, gift_queue, answered));
    let mut all = Vec::new();
    while let Some(answer) = answers.recv().await {
        all.push(answer);
    }
    all.extend(desk.iter_mut().flat_map(Desk::take_answers));
    for task in tasks {
        match task.await? {
            Ok(tally) => {
                account.publisher_connections += tally.connections;
                account.rate_limited += tally.rate_limited;
            }
            Err(fault) => account.why.push(format!("a publishing connection ended: {fault}")),
        }
    }
    scorer.await??;
    let given = giver.await??;
    bar.finish_and_clear();
    Ok((all, given, desk))
}

/// `bad_text: no control characters` and the like; a count or value in the message would make every one a reason of its own.
fn reason(code: &str, message: &str) -> String {
    let plain: String = message.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
    if plain.is_empty() { code.to_owned() } else { format!("{code}: {plain}") }
}

/// Posts score events one by one, in order, each match bound to the room when its first event comes.
async fn post_scores(
    http: Arc<Http>,
    room: String,
    run: String,
    signer: Option<Signer>,
    mut steps: mpsc::Receiver<Score>,
    answered: mpsc::UnboundedSender<Answered>,
) -> Result<()> {
    let mut bound: Vec<String> = Vec::new();
    while let Some(score) = steps.recv().await {
        // Each run is a new telling of the match: without its id the second would be all repeats, and two rooms that play the
        // same match would hear each other.
        let match_id = format!("{}:{run}", score.match_id);
        if !bound.contains(&match_id) {
            bound.push(match_id.clone());
            let from = bound.len().saturating_sub(MATCHES_KEPT);
            let change = json!({ "matches": &bound[from..] });
            match room::put(&http, &room, &change, "a fixture list is replayed").await {
                // Without the right to configure, a server in development mode still binds by `?room=`.
                Ok(_) | Err(grandstand_client::Fault::Refused { status: 401 | 403, .. }) => {}
                Err(fault) => return Err(fault).context("binding a match to the room"),
            }
        }
        let event = ScoreEvent {
            match_id,
            event_id: score.event,
            provider: signer.as_ref().map_or(PROVIDER, |s| &s.provider).to_owned(),
            revision: Some(score.revision),
            kind: score.kind.to_owned(),
            score: room::Score { home: score.home, away: score.away },
            minute: Some(score.minute),
            state: Some(score.state.to_owned()),
            data: Some(json!({ "teams": score.teams })),
        };
        let sent = Instant::now();
        let what = match room::post_score(&http, &event, signer.is_none().then_some(&*room), signer.as_ref(), PATIENCE)
            .await?
        {
            Posted::Accepted { event_id, .. } => What::Acked { event_id, repeated: false },
            Posted::Repeated { event_id } => What::Acked { event_id, repeated: true },
            Posted::Refused { status, code, message } => What::Refused(reason(&format!("{status} {code}"), &message)),
        };
        let _ = answered.send(Answered { score: true, sent, what });
    }
    Ok(())
}

/// Waits for the viewer to catch up with all that was acked and fills in the rest of the account.
async fn settle(account: &mut Account, answers: &[Answered], seen: &Shared, closed: &Closed) {
    let mut ids = Vec::new();
    for answer in answers {
        match &answer.what {
            What::Acked { event_id, repeated } => {
                account.acked += 1;
                account.repeated += u64::from(*repeated);
                if !repeated {
                    ids.push((*event_id, answer.sent, answer.score));
                }
            }
            What::Refused(why) => *account.refused.entry(why.clone()).or_default() += 1,
            What::Held => account.held += 1,
            What::Unanswered => account.unanswered += 1,
        }
    }
    let due = ids.len() as u64;
    let is_given = |s: &Seen, id: &Option<u64>| id.is_some_and(|id| s.at.contains_key(&id));
    // What was taken back before the viewer was given it.
    let gone = |s: &Seen| {
        let hidden = ids.iter().filter(|(id, ..)| id.is_some_and(|id| closed.hidden.contains(&id)));
        hidden.filter(|(id, ..)| !is_given(s, id)).count() as u64
    };
    let owed =
        |s: &Seen| closed.approved.iter().filter(|id| !closed.hidden.contains(id) && !s.at.contains_key(id)).count();
    wait_for(seen, QUIET, |s| {
        let delivered = ids.iter().filter(|(id, _, _)| is_given(s, id)).count() as u64;
        delivered + s.skipped + gone(s) >= due && owed(s) == 0 || s.failed.is_some()
    })
    .await;
    let seen = lock(seen);
    let (gone, owed) = (gone(&seen), owed(&seen));
    let mut latency = [new_histogram(), new_histogram()];
    for (id, sent, score) in &ids {
        if let Some(at) = id.and_then(|id| seen.at.get(&id)) {
            account.delivered += 1;
            let micros = at.saturating_duration_since(*sent).as_micros() as u64;
            latency[usize::from(*score)].saturating_record(micros.max(1));
        }
    }
    account.skipped = seen.skipped;
    let approved = closed.approved.iter().filter(|id| seen.at.contains_key(id)).count() as u64;
    account.others = seen.at.len() as u64 - account.delivered - approved;
    account.duplicates = seen.duplicates;
    account.out_of_order = seen.out_of_order;
    account.missing_pseq = seen.missing_pseq;
    account.viewer_connections = seen.connections;
    [account.comments, account.scores] = [Latency::of(&latency[0]), Latency::of(&latency[1])];

    let refused: u64 = account.refused.values().sum();
    let mut why = std::mem::take(&mut account.why);
    if account.published != account.acked + refused + account.held {
        why.push(format!(
            "published {} but acked {}, refused {refused} and held {}",
            account.published, account.acked, account.held
        ));
    }
    if owed > 0 {
        why.push(format!("{owed} approved comments were never given"));
    }
    let missing = due - account.delivered - gone;
    // Alone in the room the count is exact; beside other publishers a skip may be one of theirs.
    let told = if account.others == 0 { missing == seen.skipped } else { missing <= seen.skipped };
    if !told {
        why.push(format!("acked {due} but delivered {} and skipped {}", account.delivered, seen.skipped));
    }
    for (n, what) in [
        (seen.duplicates, "delivered twice"),
        (seen.out_of_order, "delivered out of order"),
        (seen.missing_pseq, "missing by their pseq"),
    ] {
        if n > 0 {
            why.push(format!("{n} {what}"));
        }
    }
    why.extend(seen.failed.iter().map(|f| format!("the viewer's stream ended: {f}")));
    if !told {
        why.extend(seen.lost.iter().cloned());
    }
    account.closes = why.is_empty();
    account.why = why;
}

fn new_histogram() -> Histogram<u64> {
    // 1 µs to 1 h at three digits.
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("valid bounds")
}

fn print(account: &Account) {
    println!("run {} into room {}", account.run, account.room);
    for file in &account.files {
        println!("  {:<48} {:<18} {:>7} read {:>7} to publish", file.file, file.format, file.read, file.to_publish);
    }
    let line = |name: &str, n: u64, note: &str| println!("{name:<24} {n:>9}  {note}");
    line("read", account.read, "");
    for (why, n) in &account.not_published {
        line("  not published", *n, why);
    }
    line("published", account.published, "");
    let repeated = if account.repeated > 0 { format!("{} of them repeats", account.repeated) } else { String::new() };
    line("acked", account.acked, &repeated);
    for (why, n) in &account.refused {
        line("  refused", *n, why);
    }
    if account.held > 0 {
        line("  held", account.held, "for review");
    }
    if account.unanswered > 0 {
        line("  unanswered", account.unanswered, "");
    }
    line("delivered", account.delivered, "");
    line("skipped", account.skipped, "told by the server");
    if account.others > 0 {
        line("of other publishers", account.others, "");
    }
    if account.rate_limited > 0 {
        line("waits for a rate", account.rate_limited, "retried with the same key");
    }
    for (name, latency) in [("comments", &account.comments), ("score events", &account.scores)] {
        if latency.n > 0 {
            println!(
                "{name:<24} p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms publish to delivery",
                latency.p50_ms, latency.p99_ms, latency.max_ms
            );
        }
    }
    if let Some(gifts) = &account.gifts {
        gifts.print();
    }
    if let Some(moderation) = &account.moderation {
        moderation.print();
    }
    println!("{:.1} s, {} viewer connections", account.seconds, account.viewer_connections);
    if account.closes {
        println!("the account closes");
    } else {
        for why in &account.why {
            println!("does not close: {why}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Speed, reason};

    #[test]
    fn speeds_are_a_factor_or_max() {
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("10".parse(), Ok(Speed::Times(10.0)));
        for bad in ["0", "-1", "nan", "inf", "", "fast"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn refusals_of_one_rule_are_one_reason() {
        assert_eq!(reason("too_long", "601 of 500 clusters"), "too_long: ### of ### clusters");
        assert_eq!(reason("banned", ""), "banned");
    }
}
