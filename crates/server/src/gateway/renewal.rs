//! A new token for a stream that cannot speak: `POST /v1/rooms/{room}/auth {session, token}`.
//!
//! A session's name says which connection it is of, and carries a number that no other connection ever had, so that a name
//! from before can never mean somebody else's stream. The stream's own session judges the token, as it does on a WebSocket.

use std::time::Duration;

use grandstand_core::names::RoomId;
use grandstand_core::viewer::session::{Action, Op};
use grandstand_wire::codes::{CloseCode, ErrorCode};
use grandstand_wire::{http, json};

use super::conn::Kind;
use super::stream::{cors, credential};
use super::web::{self, Renewal};
use super::worker::Worker;
use crate::link::{ConnKey, OVERLOADED, ToWorker, WorkerId};

/// For the worker that holds the stream, in whichever process it is.
const WAIT: Duration = Duration::from_secs(2);

/// A session's name in `hello`: 36 hex digits.
pub fn session_name(conn: ConnKey, nonce: u64) -> String {
    format!("{:04x}{:08x}{:08x}{nonce:016x}", conn.worker.number(), conn.slot, conn.generation)
}

/// Errors: `None` for anything that no session was ever called.
fn read_session(name: &str) -> Option<(ConnKey, u64)> {
    if name.len() != 36 || !name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return None;
    }
    let conn = ConnKey {
        worker: WorkerId(u32::from_str_radix(&name[..4], 16).ok()?),
        slot: u32::from_str_radix(&name[4..12], 16).ok()?,
        generation: u32::from_str_radix(&name[12..20], 16).ok()?,
    };
    Some((conn, u64::from_str_radix(&name[20..], 16).ok()?))
}

fn read_body(body: &[u8]) -> Option<(String, String)> {
    let value = json::parse(std::str::from_utf8(body).ok()?).ok()?;
    let json::Value::Object(object) = &value else { return None };
    let text = |key: &str| object.given(key).and_then(json::Value::as_str).map(str::to_owned);
    Some((text("session")?, text("token")?))
}

impl Worker {
    pub(super) fn ask_renewal(
        &mut self,
        slot: usize,
        room: RoomId,
        body: &[u8],
        origin: Option<&str>,
        keep_alive: bool,
    ) {
        let headers = cors(origin);
        let refuse = |w: &mut Worker, code: ErrorCode, detail: &str| {
            w.answer(slot, web::problem(code, detail, keep_alive, &headers), keep_alive);
        };
        let Some((session, token)) = read_body(body) else {
            return refuse(self, ErrorCode::BadRequest, "the body is {session, token}");
        };
        let Some((conn, nonce)) = read_session(&session) else {
            return refuse(self, ErrorCode::NotFound, "there is no such stream");
        };
        match self.verify(&token) {
            Ok(_) => {}
            Err(CloseCode::TokenExpired) => return refuse(self, ErrorCode::BadToken, "the token has expired"),
            Err(CloseCode::NotReady) => {
                return refuse(self, ErrorCode::NotReady, "the token's key is not known here yet: try again");
            }
            Err(_) => return refuse(self, ErrorCode::BadToken, "the token does not hold"),
        };
        if !self.shared.workers.is_known(conn.worker) {
            return refuse(self, ErrorCode::NotFound, "there is no such stream");
        }
        let (reply, request, until) = (self.key(slot), self.rng.next(), self.now + WAIT);
        if let Kind::Http(http) = &mut self.conns[slot].kind {
            http.renewal = Some(Renewal { request, origin: origin.map(str::to_owned), keep_alive });
            http.deadline = until;
        }
        self.schedule(slot);
        let mail = ToWorker::Renew { conn, nonce, room, token: token.into(), reply, request };
        if self.shared.workers.send(conn.worker, mail).is_err() {
            self.give_up_renewal(slot);
        }
    }

    /// It was not heard, or not answered in time. `false`: nothing of the kind is waited for.
    pub(super) fn give_up_renewal(&mut self, slot: usize) -> bool {
        let Kind::Http(http) = &mut self.conns[slot].kind else { return false };
        let Some(Renewal { origin, keep_alive, .. }) = http.renewal.take() else { return false };
        let detail = "the worker that holds the stream is too far behind";
        let seconds = http::retry_after(OVERLOADED.wait().retry_after_ms).to_string();
        let mut headers = cors(origin.as_deref());
        headers.push(("retry-after", &seconds));
        let answer = web::problem_after(ErrorCode::Overloaded, detail, OVERLOADED, keep_alive, &headers);
        self.answer(slot, answer, keep_alive);
        true
    }

    /// Gives a stream of `room` its new token. `None` when there is no such stream.
    pub(super) fn renew(&mut self, slot: usize, nonce: u64, room: &RoomId, token: &str) -> Option<bool> {
        let now = self.now;
        // It was good a moment ago, where it was asked.
        let verified = self.verify(token);
        let Some(Kind::Viewer(viewer)) = self.conns.get_mut(slot).map(|c| &mut c.kind) else { return None };
        if viewer.nonce != nonce || !viewer.session.rooms().contains(room) {
            return None;
        }
        let Ok(identity) = verified else { return Some(false) };
        let action = viewer.session.on_op(Op::Auth { credential: Ok(credential(&identity)) }, now, &mut self.rng);
        let taken = action == Action::Renewed;
        if taken {
            viewer.identity = Some(identity);
            self.schedule(slot);
        }
        Some(taken)
    }

    pub(super) fn answer_renewal(&mut self, slot: usize, request: u64, taken: Option<bool>) {
        let Kind::Http(http) = &mut self.conns[slot].kind else { return };
        let asked = http.renewal.take_if(|renewal| renewal.request == request);
        let Some(Renewal { origin, keep_alive, .. }) = asked else { return };
        let headers = cors(origin.as_deref());
        let answer = match taken {
            Some(true) => web::whole(204, "", &[], keep_alive, &headers),
            Some(false) => web::problem(ErrorCode::NotAllowed, "a renewal is for the same user", keep_alive, &headers),
            None => web::problem(ErrorCode::NotFound, "there is no such stream", keep_alive, &headers),
        };
        self.answer(slot, answer, keep_alive);
    }
}

#[cfg(test)]
mod tests {
    use super::{read_session, session_name};
    use crate::link::{ConnKey, WorkerId};

    #[test]
    fn a_sessions_name_is_read_back_and_nothing_else_is() {
        let conn = ConnKey { worker: WorkerId(3), slot: 70_000, generation: u32::MAX };
        assert_eq!(read_session(&session_name(conn, 7)), Some((conn, 7)));
        for bad in ["", "x", &"g".repeat(36), &"+".repeat(36), &"0".repeat(35), &"é".repeat(18)] {
            assert_eq!(read_session(bad), None, "{bad}");
        }
    }
}
