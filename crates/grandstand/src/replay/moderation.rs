//! What moderators did in a recording, done again in order, and the room's log held against all of it.
//!
//! Each deed waits until everything said before it is answered, so that it meets what it met in the recording. In the end the room's
//! own log is read as its export, which knows nothing of what was asked: every comment, every held one and what became of it, every
//! retract and ban of the log must be one that this run was told of, and what a newcomer is shown must be what is left of them.
//!
//! The awkward case is a comment that is taken back before the run's viewer was given it: it is in the log, it was acked, and it is
//! rightly never delivered.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use anyhow::{Context as _, Result};
use grandstand_client::admin::{Admin, Ban, NotDone, Target};
use grandstand_client::http::{Http, Patience};
use grandstand_client::segment;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::{Account, Answered, PATIENCE, What, reason};
use crate::trace::{Comment, Deed};

const WHY: &str = "as it was done in the recording";
/// Of a hold in a room whose settings hold nothing.
const HOLDS_NOTHING: &str = "held for review, and the room holds nothing";
/// Comments of one answer when the room is read back.
const PAGE: usize = 200;

/// Events by what the recording calls them: the file's number, and the name.
pub(super) type Names = Arc<Mutex<HashMap<(usize, String), u64>>>;

#[derive(Serialize, Default)]
pub(super) struct ModerationAccount {
    /// Deeds that were asked of the server, by what they are.
    asked: BTreeMap<&'static str, u64>,
    /// Refusals of them, by reason; and those that met nothing, without asking.
    refused: BTreeMap<String, u64>,
    met_nothing: BTreeMap<&'static str, u64>,
    held: u64,
    approved: u64,
    denied: u64,
    /// Held and not decided about.
    waiting: u64,
    /// Comments of the run that were shown, those of them that were taken back, and what a newcomer is shown of them.
    shown: u64,
    taken_back: u64,
    visible: u64,
}

impl ModerationAccount {
    /// Counts a deed by what came of it. The answer, or `None` where it was refused.
    fn take(&mut self, what: &'static str, done: Result<Value, NotDone>) -> Result<Option<Value>> {
        match done {
            Ok(answer) => {
                *self.asked.entry(what).or_default() += 1;
                Ok(Some(answer))
            }
            Err(NotDone::Refused(problem)) => {
                *self.refused.entry(refusal(problem.status, &problem.document)).or_default() += 1;
                Ok(None)
            }
            Err(NotDone::Fault(fault)) => Err(fault.into()),
        }
    }

    pub fn print(&self) {
        let line = |name: &str, n: u64, note: &str| println!("{name:<24} {n:>9}  {note}");
        line("moderation asked", self.asked.values().sum(), "");
        for (what, n) in &self.asked {
            line("  done", *n, what);
        }
        self.refused.iter().for_each(|(why, n)| line("  refused", *n, why));
        self.met_nothing.iter().for_each(|(why, n)| line("  met nothing", *n, why));
        line("held", self.held, &format!("{} approved, {} denied, {} wait", self.approved, self.denied, self.waiting));
        line("shown", self.shown, &format!("{} taken back, {} left to see", self.taken_back, self.visible));
    }
}

/// Does what moderators did.
pub(super) struct Desk {
    admin: Admin,
    http: Arc<Http>,
    room: String,
    /// Begins the keys of what this run says.
    run: String,
    holds: bool,
    names: Names,
    /// What waits, as it was named and under which key it was said.
    waits: Vec<((usize, String), String)>,
    /// Ids of the records that the server said it wrote.
    retracts: BTreeSet<u64>,
    bans: BTreeSet<u64>,
    unbans: BTreeSet<u64>,
    /// What it said itself, where that was answered with an event.
    answers: Vec<Answered>,
    approved: BTreeSet<u64>,
    account: ModerationAccount,
}

/// What moderation came to for whoever counts what the viewer was given.
#[derive(Default)]
pub(super) struct Closed {
    /// Taken back: nobody need have been given it.
    pub hidden: BTreeSet<u64>,
    /// Shown under an id that no answer to its author told.
    pub approved: BTreeSet<u64>,
}

impl Desk {
    pub async fn open(http: Arc<Http>, room: &str, run: &str, names: Names) -> Result<Desk> {
        let admin = Admin::new(http.clone()).patient(PATIENCE);
        let settings = match admin.room(room).await {
            Ok(settings) => settings,
            // Who may not read them may not decide about what is held either.
            Err(NotDone::Refused(_)) => Value::Null,
            Err(fault) => return Err(fault.into()),
        };
        let judges = settings["moderation_policy"].as_str().is_some_and(|policy| policy.starts_with("pre-moderate"));
        Ok(Desk {
            admin,
            http,
            room: room.to_owned(),
            run: run.to_owned(),
            holds: judges && settings["hold_flagged"] == true,
            names,
            waits: Vec::new(),
            retracts: BTreeSet::new(),
            bans: BTreeSet::new(),
            unbans: BTreeSet::new(),
            answers: Vec::new(),
            approved: BTreeSet::new(),
            account: ModerationAccount::default(),
        })
    }

    /// Deeds so far, by the account of them; those that say something are comments.
    pub fn n_deeds(&self) -> u64 {
        let ModerationAccount { asked, refused, met_nothing, .. } = &self.account;
        asked.values().sum::<u64>() + refused.values().sum::<u64>() + met_nothing.values().sum::<u64>()
    }

    /// Whether a deed is something said, in a room like this.
    pub fn says(&self, deed: &Deed) -> bool {
        self.holds && matches!(deed, Deed::Hold(_))
    }

    pub fn take_answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// `key`: for what it says. Everything before it in the recording is answered.
    pub async fn act(&mut self, file: usize, key: String, deed: Deed, account: &mut Account) -> Result<()> {
        match deed {
            Deed::Retract(id) => {
                let known = self.names.lock().expect("no holder of the lock can panic").get(&(file, id)).copied();
                match known {
                    Some(event) => self.retract(Target::Event(event)).await?,
                    None => self.met_nothing("its comment is not shown"),
                }
            }
            Deed::RetractUser(user) => self.retract(Target::User(user)).await?,
            Deed::RetractAll => self.retract(Target::All).await?,
            Deed::Ban { user, seconds } => {
                let ban = Ban { user: &user, seconds, ..Ban::default() };
                let done = self.admin.ban(&self.room, &ban, WHY).await;
                self.bans.extend(event_of(self.account.take("ban", done)?));
            }
            Deed::Unban(user) => {
                let done = self.admin.unban(&self.room, &user, WHY).await;
                self.unbans.extend(event_of(self.account.take("unban", done)?));
            }
            Deed::SlowMode(seconds) => {
                let done = self.admin.slow_mode(&self.room, seconds, None, WHY).await;
                self.account.take("slow mode", done)?;
            }
            Deed::Put { member, value } => {
                let change = Map::from_iter([(member.to_owned(), value)]);
                let done = self.admin.put_room(&self.room, change, None, WHY).await;
                self.account.take("setting", done)?;
            }
            Deed::Hold(said) if self.holds => self.hold(file, key, said).await?,
            Deed::Hold(_) => *account.not_published.entry(HOLDS_NOTHING.to_owned()).or_default() += 1,
            Deed::Decide { id, approve } => self.decide(file, id, approve).await?,
        }
        Ok(())
    }

    fn met_nothing(&mut self, why: &'static str) {
        *self.account.met_nothing.entry(why).or_default() += 1;
    }

    async fn retract(&mut self, target: Target) -> Result<()> {
        let done = self.admin.retract(&self.room, &target, None, WHY).await;
        self.retracts.extend(event_of(self.account.take("retract", done)?));
        Ok(())
    }

    /// Says what was held in the recording; the room holds it too, if its lists know why.
    async fn hold(&mut self, file: usize, key: String, said: Comment) -> Result<()> {
        let author = json!({"id": said.author.id, "name": said.author.name, "badges": said.author.badges});
        let body = json!({"client_msg_id": key, "body": said.text, "as": author});
        let path = format!("/v1/rooms/{}/comments", segment(&self.room));
        let sent = Instant::now();
        let (status, answer) = post(&self.http, &path, &body).await?;
        let what = match status {
            200 => {
                let event_id = answer["event_id"].as_u64();
                if let (Some(id), Some(event)) = (said.id, event_id) {
                    self.names.lock().expect("no holder of the lock can panic").insert((file, id), event);
                }
                What::Acked { event_id, repeated: false }
            }
            202 => {
                self.waits.push(((file, said.id.unwrap_or_default()), key));
                What::Held
            }
            _ => What::Refused(refusal(status, &answer)),
        };
        self.answers.push(Answered { score: false, sent, what });
        Ok(())
    }

    async fn decide(&mut self, file: usize, id: String, approve: bool) -> Result<()> {
        let Some(at) = self.waits.iter().position(|(name, _)| *name == (file, id.clone())) else {
            self.met_nothing("nothing waits under that name");
            return Ok(());
        };
        let ((_, id), key) = self.waits.remove(at);
        let queue = self.admin.held(&self.room).await.context("reading what is held")?;
        let mut held = queue["held"].as_array().into_iter().flatten();
        let Some(held) = held.find(|one| one["client_msg_id"] == *key).and_then(|one| one["held_id"].as_u64()) else {
            self.met_nothing("it waits no more");
            return Ok(());
        };
        let done = self.admin.decide(&self.room, held, approve, WHY).await;
        if let Some(answer) = self.account.take("decision", done)? {
            self.account.approved += u64::from(approve);
            self.account.denied += u64::from(!approve);
            if let Some(event) = answer["event_id"].as_u64() {
                self.approved.insert(event);
                self.names.lock().expect("no holder of the lock can panic").insert((file, id), event);
            }
        }
        Ok(())
    }

    /// Holds the room's log against what was done and answered. `acked`, `held`: comments that were answered so.
    pub async fn close(
        mut self,
        account: &mut Account,
        cursor: Option<u64>,
        (acked, held): (u64, u64),
    ) -> Result<Closed> {
        let log = Log::read(&self.admin, &self.room, cursor.map_or(0, |c| c + 1), &self.run).await?;
        let visible = visible(&self.http, &self.room, &log.shown).await?;
        let (shown, hidden) = (log.shown.len() as u64, log.hidden.len() as u64);
        for (what, told, found) in [
            ("comments shown", acked + self.account.approved, shown),
            ("comments held", held, log.held.len() as u64),
            ("held comments approved", self.account.approved, log.approved),
            ("held comments denied", self.account.denied, log.denied),
            ("retracts", self.retracts.len() as u64, log.retracts.intersection(&self.retracts).count() as u64),
            ("bans", self.bans.len() as u64, log.bans.intersection(&self.bans).count() as u64),
            ("lifted bans", self.unbans.len() as u64, log.unbans.intersection(&self.unbans).count() as u64),
        ] {
            if told != found {
                account.why.push(format!("{what}: {told} by the answers, {found} by the log"));
            }
        }
        let foreign = [(&log.retracts, &self.retracts), (&log.bans, &self.bans), (&log.unbans, &self.unbans)];
        if let Some(id) = foreign.iter().find_map(|(found, told)| found.difference(told).next()) {
            account.why.push(format!("the log has a deed that nobody here did: {id}"));
        }
        if visible != shown - hidden {
            account.why.push(format!("{shown} were shown and {hidden} taken back, a newcomer finds {visible}"));
        }
        self.account.held = held;
        self.account.waiting = held.saturating_sub(log.approved + log.denied);
        (self.account.shown, self.account.taken_back, self.account.visible) = (shown, hidden, visible);
        account.moderation = Some(self.account);
        Ok(Closed { hidden: log.hidden, approved: self.approved })
    }
}

/// The record that a deed became.
fn event_of(done: Option<Value>) -> Option<u64> {
    done?["event_id"].as_u64()
}

fn refusal(status: u16, answer: &Value) -> String {
    let text = |name: &str| answer[name].as_str().unwrap_or_default().to_owned();
    reason(&format!("{status} {}", text("code")), &text("detail"))
}

/// One call, made again while the server asks for patience.
async fn post(http: &Http, path: &str, body: &Value) -> Result<(u16, Value)> {
    let bytes = serde_json::to_vec(body).expect("a value serialises");
    let patience = Patience::of(PATIENCE);
    loop {
        let reply = http.call("POST", path, &[], Some(&bytes)).await?;
        if !patience.again(&reply).await {
            return Ok((reply.status, serde_json::from_slice(&reply.body).unwrap_or(Value::Null)));
        }
    }
}

/// What the room's log says of this run.
#[derive(Default)]
struct Log {
    /// Comments that viewers are sent, with their authors.
    shown: BTreeMap<u64, String>,
    held: BTreeSet<u64>,
    approved: u64,
    denied: u64,
    retracts: BTreeSet<u64>,
    bans: BTreeSet<u64>,
    unbans: BTreeSet<u64>,
    /// Comments among those shown that were taken back.
    hidden: BTreeSet<u64>,
}

#[derive(Deserialize)]
struct Line {
    #[serde(rename = "type")]
    kind: String,
    event_id: u64,
    client_msg_id: Option<String>,
    audience: Option<String>,
    user: Option<User>,
    user_id: Option<String>,
    target_event_id: Option<u64>,
    all: Option<bool>,
    end: Option<String>,
}

#[derive(Deserialize)]
struct User {
    id: String,
}

impl Log {
    async fn read(admin: &Admin, room: &str, from: u64, run: &str) -> Result<Log> {
        let mut text = Vec::new();
        let mut keep = |bytes: &[u8]| {
            text.extend_from_slice(bytes);
            Ok(())
        };
        admin.export(room, (Some(from), None), "control", &mut keep).await.context("reading the room's log")?;
        let mut log = Log::default();
        for line in String::from_utf8_lossy(&text).lines() {
            let line: Line = serde_json::from_str(line).with_context(|| format!("a line of the export: {line}"))?;
            log.take(line, run);
        }
        Ok(log)
    }

    fn take(&mut self, line: Line, run: &str) {
        let is_ours = line.client_msg_id.as_deref().is_some_and(|key| key.starts_with(&format!("{run}-")));
        let id = line.event_id;
        match line.kind.as_str() {
            "comment" if is_ours && line.audience.is_none() => {
                self.shown.insert(id, line.user.map(|user| user.id).unwrap_or_default());
            }
            "held" if is_ours => drop(self.held.insert(id)),
            "held_end" if is_ours => match line.end.as_deref() {
                Some("approved") => self.approved += 1,
                Some("denied") => self.denied += 1,
                _ => {}
            },
            "ban" => drop(self.bans.insert(id)),
            "unban" => drop(self.unbans.insert(id)),
            "retract" => {
                self.retracts.insert(id);
                // No deed of a recording has a time to reach back to.
                let meant = self.shown.iter().filter(|(shown, author)| {
                    line.all == Some(true)
                        || line.target_event_id == Some(**shown)
                        || line.user_id.as_deref().is_some_and(|user| user == *author)
                });
                let meant: Vec<u64> = meant.map(|(shown, _)| *shown).collect();
                self.hidden.extend(meant);
            }
            _ => {}
        }
    }
}

/// How many of these comments somebody finds who reads the room from its end back.
async fn visible(http: &Http, room: &str, shown: &BTreeMap<u64, String>) -> Result<u64> {
    let mut n = 0;
    let mut before = shown.last_key_value().map_or(0, |(id, _)| id + 1);
    while before > 0 {
        let path = format!("/v1/rooms/{}/snapshot?before={before}&limit={PAGE}", segment(room));
        let page = http.get(&path).await?.success().context("reading the room back")?.json()?;
        let ids: Vec<u64> = page["recent_comments"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|comment| comment["event_id"].as_u64())
            .collect();
        n += ids.iter().filter(|id| shown.contains_key(id)).count() as u64;
        before = match ids.first() {
            Some(first) if page["more"] == true => *first,
            _ => 0,
        };
    }
    Ok(n)
}

#[cfg(test)]
mod tests {
    use super::Log;

    fn log(lines: &[&str]) -> Log {
        let mut log = Log::default();
        for line in lines {
            log.take(serde_json::from_str(line).unwrap(), "r");
        }
        log
    }

    #[test]
    fn what_is_left_is_what_no_retract_meant_and_other_runs_are_nobody_s_business() {
        let said = |id: u64, user: &str, key: &str| {
            format!(r#"{{"type":"comment","event_id":{id},"user":{{"id":"{user}"}},"client_msg_id":"{key}"}}"#)
        };
        let lines = [
            said(1, "a", "r-1"),
            said(2, "a", "r-2"),
            said(3, "b", "r-3"),
            said(4, "b", "other-1"),
            r#"{"type":"retract","event_id":5,"target_event_id":3}"#.into(),
            r#"{"type":"retract","event_id":6,"user_id":"a"}"#.into(),
            said(7, "a", "r-4"),
            r#"{"type":"held","event_id":8,"client_msg_id":"r-5","audience":"nobody"}"#.into(),
            r#"{"type":"held_end","event_id":9,"client_msg_id":"r-5","end":"denied"}"#.into(),
        ];
        let log = log(&lines.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(log.shown.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 7]);
        assert_eq!(log.hidden.into_iter().collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!((log.held.len(), log.denied, log.approved, log.retracts.len()), (1, 1, 0, 2));
    }
}
