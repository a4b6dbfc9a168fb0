//! `GET /admin/rooms/{room}/archive`: a room's comments of a time, as the files that players of danmaku read.
//!
//! An archive is for everybody's eyes: what was taken back, waits for a moderator or is shown to its author alone is not in it, and authors
//! are told apart by a keyed hash that says nothing of them and is another one in each room. A file knows no region, so of a room with a blackout
//! none is given unless whoever asks says that it will see to that. Read page by page like an export, so one of any length holds one page.
//!
//! The awkward case: a comment that is taken back after its page was read. The archive is as of its reading; make it again.

use std::sync::Arc;

use aws_lc_rs::hmac;
use axum::body::Body;
use axum::extract::State;
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body as RecordBody, Record};
use grandstand_core::time::Wall;
use grandstand_wire::archive::{Entry, Format};
use grandstand_wire::codes::ErrorCode;
use http::Response;
use tokio::sync::mpsc;

use super::answer::Problem;
use super::ask::Ask;
use super::audit::time;
use super::signature::hex;
use super::{Shared, export};
use crate::auth::files;
use crate::auth::permit::Permit;
use crate::link::After;

pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, shown, settings) = export::begin(&control, &ask).await?;
    let wrong = |what: &str| Problem::new(ErrorCode::BadRequest, what);
    let format = ask.query("format")?.and_then(Format::parse).ok_or_else(|| wrong("format is bilibili or dplayer"))?;
    let start =
        time(&ask, "start")?.ok_or_else(|| wrong("start is missing: the time at which the recording begins"))?;
    let from = time(&ask, "from")?.unwrap_or(start);
    let to = time(&ask, "to")?;
    if from < start || to.is_some_and(|to| to < from) {
        return Err(wrong("start, from and to are in this order"));
    }
    let is_seen_to = match ask.query("include")? {
        None | Some("") => false,
        Some("blacked_out") => true,
        Some(_) => return Err(wrong("include is blacked_out")),
    };
    if !settings.blackout_regions.is_empty() && !is_seen_to {
        let why = "the room may not be shown everywhere, and a file knows no region: include=blacked_out says that you see to that";
        return Err(Problem::new(ErrorCode::Blackout, why));
    }
    let hashes = Hashes::of(&control.deps.config.data, &room).await?;
    let slot = export::slot(&control)?;
    let shard = control.deps.shard.clone();
    // The first page is read before the head is sent, so that what can be refused is refused by status.
    let mut page = shard.archive(room.clone(), After::From(from)).await?;
    let (send, pages) = mpsc::channel(1);
    // It ends with its last page, or when the connection is gone.
    tokio::spawn(async move {
        let _slot = slot;
        let (mut out, mut first) = (Vec::new(), true);
        format.begin(&room, &mut out);
        loop {
            let is_after = |record: &Record| to.is_some_and(|to| record.ts >= to);
            for record in page.records.iter().filter(|record| !is_after(record)) {
                write(record, format, start, &hashes, std::mem::take(&mut first), shown, &mut out);
            }
            // Log time never falls.
            let is_whole = page.upto >= page.head || page.records.last().is_some_and(|record| is_after(record));
            if is_whole {
                format.end(&mut out);
            }
            if !out.is_empty() && send.send(Ok(std::mem::take(&mut out).into())).await.is_err() || is_whole {
                return;
            }
            let next = || shard.archive(room.clone(), After::Position(page.upto));
            page = match export::next_page(next, &mut 0).await {
                Ok(page) => page,
                Err(refused) => return export::break_off(&send, &room, refused).await,
            };
        }
    });
    Ok(export::answer(format.content_type(), pages))
}

fn write(
    record: &Arc<Record>,
    format: Format,
    start: Wall,
    hashes: &Hashes,
    first: bool,
    _permit: Permit,
    out: &mut Vec<u8>,
) {
    let RecordBody::Comment(comment) = &record.body else { return };
    let entry = Entry {
        offset_ms: record.ts.since(start).as_millis() as u64,
        sent: record.ts,
        user: &hashes.of_user(record.user.as_ref()),
        event_id: record.event_id().value(),
        text: &comment.text,
    };
    format.entry(&entry, first, out);
}

/// What stands for authors in one room's archives.
struct Hashes(hmac::Key);

impl Hashes {
    /// Errors: the server's secret cannot be read.
    async fn of(data: &std::path::Path, room: &RoomId) -> Result<Hashes, Problem> {
        let failed = |fault: String| {
            tracing::error!(%fault, "an archive's key could not be read");
            Problem::new(ErrorCode::ServerFault, "the server's secret could not be read")
        };
        let data = data.to_owned();
        let secret = tokio::task::spawn_blocking(move || files::secret(&data)).await;
        let secret = secret.map_err(|e| failed(e.to_string()))?.map_err(|e| failed(e.to_string()))?;
        Ok(Hashes::from_secret(&secret, room))
    }

    fn from_secret(secret: &[u8; 32], room: &RoomId) -> Hashes {
        // A key of its own: what signs tickets signs nothing else.
        let whole = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let of_room = hmac::sign(&whole, format!("archive\n{}", room.as_str()).as_bytes());
        Hashes(hmac::Key::new(hmac::HMAC_SHA256, of_room.as_ref()))
    }

    /// Eight hex digits, as Bilibili's players expect: enough to tell two authors of a screen apart, and no way back.
    fn of_user(&self, user: Option<&UserId>) -> String {
        let tag = hmac::sign(&self.0, user.map_or("", UserId::as_str).as_bytes());
        hex(&tag.as_ref()[..4])
    }
}

#[cfg(test)]
mod tests {
    use grandstand_core::names::{RoomId, UserId};

    use super::Hashes;

    #[test]
    fn an_author_is_the_same_in_a_room_and_another_in_the_next() {
        let room = |name: &str| RoomId::parse(name).unwrap();
        let hash = |secret: u8, of: &str, user: &str| {
            Hashes::from_secret(&[secret; 32], &room(of)).of_user(UserId::parse(user).as_ref())
        };
        assert_eq!(hash(1, "a", "ann"), hash(1, "a", "ann"));
        assert_eq!(hash(1, "a", "ann").len(), 8);
        let all = [hash(1, "a", "ann"), hash(1, "a", "bo"), hash(1, "b", "ann"), hash(2, "a", "ann")];
        assert!((1..4).all(|i| !all[..i].contains(&all[i])), "{all:?}");
    }
}
