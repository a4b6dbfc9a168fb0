//! `GET /admin/rooms/{room}/export`: the room's log as JSON Lines, so that a checker can hold every ack against it.
//!
//! One line a record, in log order, as `grandstand_wire::export` writes it; with `include=control` also the records no
//! viewer is sent. Read page by page, the next page when the
//! last has left, so an export of any size holds one page.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use axum::body::{Body, HttpBody};
use axum::extract::State;
use bytes::Bytes;
use grandstand_core::ids::Position;
use grandstand_core::names::RoomId;
use grandstand_core::record::{Record, Room};
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::{chain, export};
use http::{HeaderName, HeaderValue, Response, StatusCode, header};
use http_body::Frame;
use tokio::sync::{OwnedSemaphorePermit, mpsc};

use super::answer::{Problem, bytes_answer};
use super::ask::Ask;
use super::{Control, Shared};
use crate::auth;
use crate::auth::permit::{self, Permit};
use crate::link::{ExportPage, OVERLOADED, ReadRefused};

/// The log's head when an export began, and the chain's link there in hex: who keeps it can hold the log against it for ever.
static CHAIN_HEAD: HeaderName = HeaderName::from_static("chain-head");
/// A reader that is busy is asked again this often; then the export breaks off, which the client sees.
const BUSY_TRIES: u32 = 20;

pub async fn get(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let (room, shown, _) = begin(&control, &ask).await?;
    let from = ask.cursor("from")?.unwrap_or(Position::START);
    let to = ask.cursor("to")?;
    let (mut control_too, mut raw_too) = (false, false);
    for name in ask.query("include")?.unwrap_or_default().split(',').filter(|n| !n.is_empty()) {
        match name {
            "control" => control_too = true,
            "raw" => raw_too = true,
            _ => return Err(Problem::new(ErrorCode::BadRequest, "include is a list of control, raw")),
        }
    }
    let slot = slot(&control)?;
    let after = before(from);
    let shard = control.deps.shard.clone();
    // The first page is read before the head is sent, so that what can be refused is refused by status.
    let mut page = shard.export(room.clone(), after).await?;
    let link = shard.chain_link(page.head).await?;
    let head = link.map(|link| format!("{} {}", page.head.value(), chain::hex(&link)));
    let (send, pages) = mpsc::channel(1);
    tokio::spawn(async move {
        let _slot = slot;
        let end = to.unwrap_or(page.head);
        loop {
            let mut out = Vec::with_capacity(320 * page.records.len());
            let wanted = |r: &Record| {
                let asked_for = if r.is_raw() { raw_too } else { control_too || !export::kind(r).1 };
                r.event_id().position() <= end && asked_for
            };
            for record in page.records.iter().filter(|r| wanted(r)) {
                write_line(record, shown, &mut out);
            }
            if !out.is_empty() && send.send(Ok(out.into())).await.is_err() {
                return;
            }
            if page.upto >= end || page.upto >= page.head {
                return;
            }
            let next = || shard.export(room.clone(), page.upto);
            page = match next_page(next, &mut 0).await {
                Ok(page) => page,
                Err(refused) => return break_off(&send, &room, refused).await,
            };
        }
    });
    let mut response = answer("application/jsonl", pages);
    if let Some(head) = head {
        let head = HeaderValue::from_str(&head).expect("digits and hex are a header value");
        response.headers_mut().insert(&CHAIN_HEAD, head);
    }
    Ok(response)
}

/// A room that the caller may take out whole, leave to show it, and its settings.
pub(super) async fn begin(control: &Control, ask: &Ask) -> Result<(RoomId, Permit, Arc<Room>), Problem> {
    let room = ask.room()?;
    let who = ask.identity(control)?;
    auth::may_export(who.as_deref(), &room)?;
    let shown = permit::may_review(who.as_deref(), Some(&room))?;
    let settings = control.settings(&room).await?;
    Ok((room, shown, settings))
}

/// A body that comes page by page.
pub(super) fn answer(kind: &'static str, pages: mpsc::Receiver<Page>) -> Response<Body> {
    let mut response = bytes_answer(StatusCode::OK, kind, Body::new(Pages(pages)));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// The client sees it by the body's end.
pub(super) async fn break_off(send: &mpsc::Sender<Page>, room: &RoomId, refused: ReadRefused) {
    tracing::warn!(?refused, room = room.as_str(), "an export broke off");
    // Who is gone needs no word of it.
    let _ = send.send(Err(BrokeOff)).await;
}

fn write_line(record: &Record, _permit: Permit, out: &mut Vec<u8>) {
    export::write_line(record, out);
}

/// One reading of a log at a time for each of a few callers. Errors: as many run.
pub(super) fn slot(control: &Control) -> Result<OwnedSemaphorePermit, Problem> {
    let busy = || Problem::new(ErrorCode::Overloaded, "too many exports run").after(OVERLOADED);
    control.exports.clone().try_acquire_owned().map_err(|_| busy())
}

/// `from` is the first id wanted; pages start after a position.
pub(super) fn before(from: Position) -> Position {
    Position::new(from.value().saturating_sub(1)).expect("below a position")
}

/// What follows, asked for again while the readers are busy. `tries`: how often that was so already.
pub(super) async fn next_page<P: Future<Output = Result<ExportPage, ReadRefused>>>(
    page: impl Fn() -> P,
    tries: &mut u32,
) -> Result<ExportPage, ReadRefused> {
    loop {
        match page().await {
            Err(ReadRefused::Busy(delay)) if *tries < BUSY_TRIES => {
                *tries += 1;
                tokio::time::sleep(delay.retry_after).await;
            }
            other => return other,
        }
    }
}

/// The log could not be read to the end.
#[derive(Debug, thiserror::Error)]
#[error("the export broke off")]
pub(super) struct BrokeOff;

pub(super) type Page = Result<Bytes, BrokeOff>;

/// A body that is written elsewhere.
struct Pages(mpsc::Receiver<Page>);

impl HttpBody for Pages {
    type Data = Bytes;
    type Error = BrokeOff;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BrokeOff>>> {
        self.0.poll_recv(cx).map(|page| page.map(|page| page.map(Frame::data)))
    }
}
