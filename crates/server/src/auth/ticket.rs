//! Tickets: what a browser puts into the URL of a stream, because it cannot set a header there.
//!
//! Like a paper ticket with a stub: it is good for 30 s and opens one stream of one room. Torn, it still lets its holder
//! back in: while that stream lives and for 2 minutes after it breaks, the same ticket with a `Last-Event-ID` resumes it
//! (an `EventSource` repeats the URL it was made with, and nothing else). It must never open a second stream from the
//! start, or another room. The awkward case is a restart: the stubs are gone, so for 2 minutes after its start a server
//! takes a ticket that was sold before it, if it resumes.
//! With several gateway processes the torn half lies in the data folder, a file for each ticket: who makes it first has the
//! stream, whichever process that is.
//! Everything the stream needs to know of the user is inside, signed with the data folder's secret, which signs nothing else.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, SystemTime};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use grandstand_core::names::RoomId;
use grandstand_core::time::Wall;
use serde::{Deserialize, Serialize};

use super::board::{Board, Word};
use super::keys::KeyName;
use super::token::Claims;
use super::{Identity, files};

/// How long an unused ticket is good.
pub const UNUSED_FOR: Duration = Duration::from_secs(30);
/// How long after its stream broke a ticket resumes it.
pub const RESUMES_FOR: Duration = Duration::from_secs(120);
/// Stubs kept; each lives at most as long as its stream and 2 minutes. 64 Ki streams of a process, about 8 MiB.
const STUBS_MAX: usize = 64 * 1024;

#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Fault {
    #[error("the ticket is not one of this server's")]
    Forged,
    #[error("the ticket is for another room")]
    OtherRoom,
    #[error("the ticket is used up or too old")]
    Spent,
    #[error("too many streams were opened by ticket")]
    Full,
    #[error("the token it was sold for is revoked")]
    Revoked { by_key: bool },
}

/// Names a ticket's stub, to be given back when its stream ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct StubId([u8; 12]);

/// A ticket that opened or resumed a stream.
#[derive(Clone, Debug)]
pub struct Admitted {
    pub identity: Arc<Identity>,
    pub stub: StubId,
}

pub struct Tickets {
    key: hmac::Key,
    started: Wall,
    stubs: Mutex<HashMap<StubId, Stub>>,
    /// Where several processes take tickets: a file for each torn one, in a folder they share.
    torn: Option<Folder>,
    board: Arc<Board>,
}

struct Folder {
    path: PathBuf,
    /// When this process last took away what no ticket can resume any more.
    swept: Mutex<Wall>,
}

struct Stub {
    n_live: u32,
    /// When the last of its streams ended; meaningful while none lives.
    broke: Wall,
}

#[derive(Serialize, Deserialize)]
struct Body {
    room: String,
    sold: u64,
    stub: String,
    claims: Claims,
    /// The `kid` of the token it was sold for.
    #[serde(default)]
    key: String,
}

impl Tickets {
    pub fn new(secret: &[u8; 32], started: Wall) -> Tickets {
        // The secret signs tickets only, and says so, so that another use of it could never be taken for one.
        let derived = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), b"grandstand ticket v1");
        let key = hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref());
        Tickets { key, started, stubs: Mutex::new(HashMap::new()), torn: None, board: Arc::default() }
    }

    /// One of several processes that take the same tickets. The first to make a ticket's file in `folder` tears it.
    /// Errors: the folder cannot be made or read.
    pub fn shared(secret: &[u8; 32], started: Wall, folder: PathBuf) -> io::Result<Tickets> {
        fs::create_dir_all(&folder)?;
        sweep(&folder, started)?;
        let torn = Some(Folder { path: folder, swept: Mutex::new(started) });
        Ok(Tickets { torn, ..Tickets::new(secret, started) })
    }

    /// With what the log says of tokens; without it nothing is said.
    pub fn with_board(self, board: Arc<Board>) -> Tickets {
        Tickets { board, ..self }
    }

    /// A ticket for `room`, in the name of a verified token's claims.
    pub fn sell(&self, identity: &Identity, room: &RoomId, now: Wall) -> String {
        let body = Body {
            room: room.as_str().to_owned(),
            sold: now.0,
            stub: URL_SAFE_NO_PAD.encode(files::random::<12>()),
            claims: claims_of(identity),
            key: identity.key.text().to_string(),
        };
        let body = serde_json::to_vec(&body).expect("a ticket is plain data");
        let tag = hmac::sign(&self.key, &body);
        format!("{}.{}", URL_SAFE_NO_PAD.encode(&body), URL_SAFE_NO_PAD.encode(tag.as_ref()))
    }

    /// Admits a ticket to `room`; `resumes` is true when the request carries a last event id.
    ///
    /// Each admission must be followed by one [`Tickets::ended`] with its stub.
    pub fn admit(&self, ticket: &str, room: &RoomId, resumes: bool, now: Wall) -> Result<Admitted, Fault> {
        let body = self.open(ticket).ok_or(Fault::Forged)?;
        if body.room != room.as_str() {
            return Err(Fault::OtherRoom);
        }
        let mut identity = body.claims.identity().map_err(|_| Fault::Forged)?;
        identity.key = KeyName::of(&body.key).unwrap_or_default();
        let stub_id =
            StubId(URL_SAFE_NO_PAD.decode(&body.stub).ok().and_then(|b| b.try_into().ok()).ok_or(Fault::Forged)?);
        let identity = match self.board.judge(&identity, now) {
            Word::Stays => Arc::new(identity),
            Word::Late(late) => Arc::from(late),
            Word::Expired => return Err(Fault::Spent),
            Word::Revoked { by_key } => return Err(Fault::Revoked { by_key }),
        };
        let sold = Wall(body.sold);
        let mut stubs = self.stubs.lock().expect("no holder of the stubs can panic");
        match stubs.get_mut(&stub_id) {
            Some(stub) => {
                if !resumes || (stub.n_live == 0 && now.since(stub.broke) > RESUMES_FOR) {
                    return Err(Fault::Spent);
                }
                stub.n_live += 1;
            }
            None => {
                let mut unused = now.since(sold) <= UNUSED_FOR;
                let mut resumed = false;
                let outlived_us = resumes && sold < self.started && now.since(self.started) <= RESUMES_FOR;
                if let Some(folder) = &self.torn {
                    let path = folder.path.join(&body.stub);
                    // Only what is taken is torn: a torn ticket resumes.
                    let torn = if unused || outlived_us { tear(&path, identity.ends_at()) } else { look(&path) };
                    match torn {
                        Ok(Torn::Now | Torn::Not) => {}
                        Ok(Torn::Before { broke }) => {
                            unused = false;
                            resumed = resumes && now.since(broke) <= RESUMES_FOR;
                        }
                        Err(fault) => {
                            tracing::error!(%fault, "a ticket could not be torn, so it is not taken");
                            return Err(Fault::Full);
                        }
                    }
                    folder.keep(now);
                }
                if !unused && !outlived_us && !resumed {
                    return Err(Fault::Spent);
                }
                if stubs.len() >= STUBS_MAX {
                    stubs.retain(|_, s| s.n_live > 0 || now.since(s.broke) <= RESUMES_FOR);
                }
                if stubs.len() >= STUBS_MAX {
                    return Err(Fault::Full);
                }
                stubs.insert(stub_id, Stub { n_live: 1, broke: now });
            }
        }
        Ok(Admitted { identity, stub: stub_id })
    }

    /// A stream that was opened by ticket has ended.
    pub fn ended(&self, id: StubId, now: Wall) {
        let mut stubs = self.stubs.lock().expect("no holder of the stubs can panic");
        if let Some(stub) = stubs.get_mut(&id) {
            stub.n_live = stub.n_live.saturating_sub(1);
            stub.broke = now;
            if let (Some(folder), 0) = (&self.torn, stub.n_live) {
                let path = folder.path.join(URL_SAFE_NO_PAD.encode(id.0));
                let broke = SystemTime::UNIX_EPOCH + Duration::from_millis(now.0);
                // Without it the ticket resumes as long as its token lasts.
                let _ = File::options().write(true).open(path).and_then(|file| file.set_modified(broke));
            }
        }
    }

    fn open(&self, ticket: &str) -> Option<Body> {
        if ticket.len() > 8192 {
            return None;
        }
        let (body, tag) = ticket.split_once('.')?;
        let body = URL_SAFE_NO_PAD.decode(body).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.key, &body, &tag).ok()?;
        serde_json::from_slice(&body).ok()
    }
}

impl Folder {
    /// Sweeps it every two minutes, on a thread of its own: a worker has no time to read a folder.
    fn keep(&self, now: Wall) {
        {
            let mut swept = self.swept.lock().expect("no holder of this lock can panic");
            if now.since(*swept) < RESUMES_FOR {
                return;
            }
            *swept = now;
        }
        let path = self.path.clone();
        let sweeps = thread::Builder::new().name("torn-tickets".to_owned()).spawn(move || {
            if let Err(fault) = sweep(&path, now) {
                tracing::warn!(%fault, "the folder of torn tickets could not be swept");
            }
        });
        if let Err(fault) = sweeps {
            tracing::warn!(%fault, "no thread to sweep the folder of torn tickets");
        }
    }
}

/// Takes away what no ticket can resume any more.
fn sweep(folder: &Path, now: Wall) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        // Another process may have been quicker.
        if let Torn::Before { broke } = look(&path)?
            && now.since(broke) > RESUMES_FOR
        {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

enum Torn {
    /// By nobody yet.
    Not,
    Now,
    /// By this process or another. `broke`: when its last stream ended, in the future while one lives.
    Before {
        broke: Wall,
    },
}

/// Makes the file of a torn ticket, unless it is there. Its time says until when it is in use, or when its use ended.
fn tear(path: &Path, ends_at: Wall) -> io::Result<Torn> {
    let at = |wall: Wall| SystemTime::UNIX_EPOCH + Duration::from_millis(wall.0);
    match File::options().write(true).create_new(true).mode(0o600).open(path) {
        Ok(file) => file.set_modified(at(ends_at)).map(|()| Torn::Now),
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists => look(path),
        Err(e) => Err(e),
    }
}

/// What became of a ticket, without tearing it.
fn look(path: &Path) -> io::Result<Torn> {
    match fs::metadata(path) {
        Ok(meta) => {
            let since = meta.modified()?.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            Ok(Torn::Before { broke: Wall(since.as_millis() as u64) })
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(Torn::Not),
        Err(e) => Err(e),
    }
}

fn claims_of(identity: &Identity) -> Claims {
    let roles = super::Role::ALL.iter().filter(|(r, _)| identity.roles.has(*r)).map(|(_, n)| (*n).to_owned());
    Claims {
        sub: identity.user.as_str().to_owned(),
        name: identity.name.as_ref().map(|name| name.to_string()),
        badges: Some(identity.badges().iter().map(|b| b.to_string()).collect()),
        rooms: identity.rooms().map(|r| r.iter().map(|p| p.to_string()).collect()),
        follows: Some(identity.follows().iter().map(|u| u.as_str().to_owned()).collect()),
        roles: Some(roles.collect()),
        exp: identity.exp.0 / 1000,
        iat: (identity.issued != 0).then_some(u64::from(identity.issued)),
        nbf: None,
        iss: None,
        aud: None,
        sid: identity.more.as_ref().and_then(|more| more.session.as_deref()).map(str::to_owned),
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use grandstand_core::names::RoomId;
    use grandstand_core::time::Wall;

    use super::{Fault, Tickets};
    use crate::auth::token::Claims;

    const T0: Wall = Wall(1_800_000_000_000);

    fn at(seconds: u64) -> Wall {
        T0 + Duration::from_secs(seconds)
    }

    #[test]
    fn a_ticket_opens_one_stream_whichever_process_takes_it() {
        let (_, ticket, room) = office();
        let folder = tempfile::tempdir().unwrap();
        let process = || Tickets::shared(&[7; 32], T0, folder.path().join("torn")).unwrap();
        let (one, two) = (process(), process());
        let stub = one.admit(&ticket, &room, false, at(1)).unwrap().stub;
        assert_eq!(two.admit(&ticket, &room, false, at(2)).unwrap_err(), Fault::Spent);
        assert_eq!(one.admit(&ticket, &room, false, at(2)).unwrap_err(), Fault::Spent);
        // Its holder comes back to another process while it lives, and for two minutes after.
        let second = two.admit(&ticket, &room, true, at(3)).unwrap().stub;
        one.ended(stub, at(4));
        two.ended(second, at(10));
        assert!(process().admit(&ticket, &room, true, at(100)).is_ok());
        assert_eq!(process().admit(&ticket, &room, true, at(131)).unwrap_err(), Fault::Spent);
    }

    #[test]
    fn a_ticket_that_came_too_late_is_not_torn_into_one_that_resumes() {
        let (_, ticket, room) = office();
        let folder = tempfile::tempdir().unwrap();
        let process = || Tickets::shared(&[7; 32], T0, folder.path().join("torn")).unwrap();
        let (one, two) = (process(), process());
        for (tickets, resumes) in [(&one, false), (&one, true), (&two, true), (&one, true)] {
            assert_eq!(tickets.admit(&ticket, &room, resumes, at(31)).unwrap_err(), Fault::Spent);
        }
        assert_eq!(
            std::fs::read_dir(folder.path().join("torn")).unwrap().count(),
            0,
            "what was refused leaves nothing"
        );
    }

    #[test]
    fn torn_tickets_that_nobody_can_resume_are_taken_away_while_the_server_runs() {
        let (tickets, ticket, room) = office();
        let folder = tempfile::tempdir().unwrap();
        let process = Tickets::shared(&[7; 32], T0, folder.path().to_owned()).unwrap();
        let stub = process.admit(&ticket, &room, false, at(1)).unwrap().stub;
        process.ended(stub, at(10));
        let identity = Claims::new("v", at(200), Duration::from_secs(900)).identity().unwrap();
        process.admit(&tickets.sell(&identity, &room, at(200)), &room, false, at(200)).unwrap();
        let until = Instant::now() + Duration::from_secs(30);
        while std::fs::read_dir(folder.path()).unwrap().count() != 1 {
            assert!(Instant::now() < until, "the first ticket's file is still there");
            std::thread::yield_now();
        }
    }

    fn office() -> (Tickets, String, RoomId) {
        let tickets = Tickets::new(&[7; 32], T0);
        let mut claims = Claims::new("u", T0, Duration::from_secs(900));
        claims.rooms = Some(vec!["a".into(), "match:*".into()]);
        claims.roles = Some(vec!["publisher".into()]);
        let room = RoomId::parse("a").unwrap();
        let ticket = tickets.sell(&claims.identity().unwrap(), &room, T0);
        (tickets, ticket, room)
    }

    #[test]
    fn a_ticket_brings_back_the_whole_identity() {
        let (tickets, ticket, room) = office();
        let mut claims = Claims::new("u", T0, Duration::from_secs(900));
        claims.rooms = Some(vec!["a".into(), "match:*".into()]);
        claims.roles = Some(vec!["publisher".into()]);
        let admitted = tickets.admit(&ticket, &room, false, at(29)).unwrap();
        assert_eq!(*admitted.identity, claims.identity().unwrap());
    }

    #[test]
    fn a_user_id_too_long_to_be_a_display_name_gets_tickets_that_hold() {
        let tickets = Tickets::new(&[7; 32], T0);
        let claims = Claims::new("550e8400-e29b-41d4-a716-446655440000", T0, Duration::from_secs(900));
        let room = RoomId::parse("a").unwrap();
        let ticket = tickets.sell(&claims.identity().unwrap(), &room, T0);
        let admitted = tickets.admit(&ticket, &room, false, at(1)).unwrap();
        assert_eq!(*admitted.identity, claims.identity().unwrap());
    }

    #[test]
    fn a_ticket_opens_one_stream_within_30_seconds() {
        let (tickets, ticket, room) = office();
        assert_eq!(tickets.admit(&ticket, &room, false, at(31)).unwrap_err(), Fault::Spent);
        assert_eq!(tickets.admit(&ticket, &room, true, at(31)).unwrap_err(), Fault::Spent);
        tickets.admit(&ticket, &room, false, at(30)).unwrap();
        assert_eq!(tickets.admit(&ticket, &room, false, at(30)).unwrap_err(), Fault::Spent);
    }

    #[test]
    fn the_same_ticket_resumes_while_its_stream_lives_and_2_minutes_after() {
        let (tickets, ticket, room) = office();
        let first = tickets.admit(&ticket, &room, false, at(1)).unwrap();
        let second = tickets.admit(&ticket, &room, true, at(400)).unwrap();
        tickets.ended(first.stub, at(401));
        tickets.ended(second.stub, at(500));
        let third = tickets.admit(&ticket, &room, true, at(620)).unwrap();
        tickets.ended(third.stub, at(630));
        assert_eq!(tickets.admit(&ticket, &room, true, at(751)).unwrap_err(), Fault::Spent);
    }

    #[test]
    fn a_ticket_is_bound_to_its_room_and_cannot_be_changed() {
        let (tickets, ticket, _) = office();
        let other = RoomId::parse("b").unwrap();
        assert_eq!(tickets.admit(&ticket, &other, false, T0).unwrap_err(), Fault::OtherRoom);
        let room = RoomId::parse("a").unwrap();
        for forged in ["", ".", "x", &ticket[1..], &format!("{ticket}="), &ticket.replace('.', "..")] {
            assert_eq!(tickets.admit(forged, &room, false, T0).unwrap_err(), Fault::Forged, "{forged}");
        }
        let stranger = Tickets::new(&[8; 32], T0);
        assert_eq!(stranger.admit(&ticket, &room, false, T0).unwrap_err(), Fault::Forged);
    }

    #[test]
    fn a_ticket_sold_before_a_restart_resumes_for_2_minutes_after_it() {
        let (_, ticket, room) = office();
        let restarted = Tickets::new(&[7; 32], at(300));
        assert_eq!(restarted.admit(&ticket, &room, false, at(310)).unwrap_err(), Fault::Spent);
        assert_eq!(restarted.admit(&ticket, &room, true, at(421)).unwrap_err(), Fault::Spent);
        restarted.admit(&ticket, &room, true, at(420)).unwrap();
    }

    #[test]
    fn a_ticket_ends_with_its_token() {
        let (tickets, ticket, room) = office();
        tickets.admit(&ticket, &room, false, at(1)).unwrap();
        tickets.admit(&ticket, &room, true, at(930)).unwrap();
        assert_eq!(tickets.admit(&ticket, &room, true, at(931)).unwrap_err(), Fault::Spent);
    }
}
