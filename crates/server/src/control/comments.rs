//! `POST /v1/rooms/{room}/comments`: a publish for those who stream one way.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::EventId;
use grandstand_core::likes::Totals;
use grandstand_core::names::{ClientMsgId, RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Author, Command, Publish, React, ReportIn, Standing};
use grandstand_core::record::Room;
use grandstand_core::reject::Code;
use grandstand_core::reports::{self, Report};
use grandstand_core::text;
use grandstand_wire::codes::ErrorCode;
use grandstand_wire::event::{AckId, ModerationPending, PublishAck};
use grandstand_wire::json::Value;
use grandstand_wire::limits::{BADGE_BYTES_MAX, BADGES_MAX};
use http::{HeaderValue, Response, StatusCode, header};

use super::Shared;
use super::answer::{Problem, bytes_answer};
use super::ask::{Ask, Fields};
use crate::auth::{self, Denied, Identity};
use crate::clock;
use crate::early::Early;
use crate::link::ReadRefused;

pub async fn post(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    // Only a guest's right to publish depends on the room, and that of a token which ran out; the others' is in their token.
    let settings = match &who {
        Some(identity) if identity.is_guest() || identity.is_late() => control.settings(&room).await?,
        _ => Arc::new(Room::fresh("")),
    };
    auth::may_publish(who.as_deref(), &room, &settings)?;
    let identity = who.expect("nobody else may publish");
    let mut fields = ask.object()?;
    let client_msg_id = fields.need("client_msg_id", ClientMsgId::RULE, |v| v.as_str().and_then(ClientMsgId::parse));
    let body = fields.need("body", "must be text", |v| v.as_str().map(str::to_owned));
    let reply_to = fields.get("reply_to", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    fields.check(ErrorCode::BadRequest)?;
    let (client_msg_id, body) = (client_msg_id.expect("checked"), body.expect("checked"));
    let author = author(&room, &identity, &mut fields)?;
    let about = |problem: Problem| problem.with("client_msg_id", client_msg_id.as_str());
    let text = text::check(&body).map_err(|fault| {
        let code = if fault.code() == Code::TooLong { ErrorCode::TooLong } else { ErrorCode::BadText };
        about(Problem::new(code, fault.to_string()).with("count", fault.count as u64).with("limit", fault.limit as u64))
    })?;
    let publish = Publish {
        room: room.clone(),
        author,
        client_msg_id: client_msg_id.clone(),
        text: text.as_ref().into(),
        reply_to,
    };
    let mut out = Vec::new();
    let user = (publish.author.standing != Standing::Backend).then(|| publish.author.user.clone());
    if let Some(user) = &user {
        let asks = control.early().may_publish(&room, user, ask.peer.ip(), clock::mono());
        asks.map_err(|reject| about(reject.into()))?;
    }
    let answer = control.deps.shard.ask(Command::Publish(publish)).await?;
    if let Some(user) = &user {
        control.early().note(&room, user, &answer, clock::mono());
    }
    let status = match answer {
        Answer::Published { event_id, partition, offset, duplicate } => {
            let ack = PublishAck {
                room: &room,
                client_msg_id: &client_msg_id,
                id: AckId::Event(event_id),
                partition,
                offset,
                duplicate,
            };
            ack.write(&mut out);
            StatusCode::OK
        }
        Answer::Raw { raw_id, partition, duplicate, fate } => {
            let id = match fate {
                None => AckId::Raw(raw_id),
                Some(fate) => AckId::Decided { raw_id, event_id: fate.event_id() },
            };
            let offset = raw_id.seq();
            PublishAck { room: &room, client_msg_id: &client_msg_id, id, partition, offset, duplicate }.write(&mut out);
            StatusCode::OK
        }
        Answer::Held { .. } => {
            ModerationPending { room: &room, client_msg_id: &client_msg_id, retry_after_ms: None }.write(&mut out);
            StatusCode::ACCEPTED
        }
        Answer::Pending { retry_after } => {
            let retry_after_ms = Some(retry_after.as_millis() as u64);
            ModerationPending { room: &room, client_msg_id: &client_msg_id, retry_after_ms }.write(&mut out);
            StatusCode::ACCEPTED
        }
        Answer::Reject(reject) => return Err(about(reject.into())),
        other => unreachable!("a publish is never answered by {other:?}"),
    };
    let mut response = bytes_answer(status, "application/json", out);
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// `POST /v1/rooms/{room}/reactions`: a reaction of those who stream one way. Nothing of it is kept.
pub async fn react(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let facts = control.facts(&room).await?;
    auth::may_publish(who.as_deref(), &room, &facts.settings)?;
    let user = who.expect("nobody else may publish").user.clone();
    let mut fields = ask.object()?;
    let target = fields.need("event_id", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    let rule = "must be a name of 1 to 32 bytes";
    fields.need("kind", rule, |v| v.as_str().filter(|kind| (1..=BADGE_BYTES_MAX).contains(&kind.len())).map(|_| ()));
    fields.check(ErrorCode::BadRequest)?;
    control.deps.shard.likes().react(&room, &user, clock::mono())?;
    let react = React { room, user, target: target.expect("checked") };
    match control.deps.shard.ask(Command::React(react)).await? {
        Answer::Done { .. } => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a reaction is never answered by {other:?}"),
    }
}

/// `POST /v1/rooms/{room}/reports {event_id, reason}`. Who reported it before, or something that is not there, is answered the same.
pub async fn report(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let room = ask.room()?;
    let who = ask.identity(&control)?;
    let settings = control.settings(&room).await?;
    let _permit = auth::permit::may_view(who.as_deref(), ask.place, &room, &settings)?;
    let user = who.ok_or(Denied::NeedsToken)?.user.clone();
    let mut fields = ask.object()?;
    let event = fields.need("event_id", "must be an event id", |v| v.as_u64().and_then(EventId::new));
    let rule = "must be 1 to 200 bytes on one line";
    let fits = |t: &&str| (1..=reports::REASON_BYTES_MAX).contains(&t.len()) && !t.chars().any(char::is_control);
    let reason = fields.need("reason", rule, |v| v.as_str().filter(fits).map(Arc::from));
    fields.check(ErrorCode::BadRequest)?;
    let report = Report { event: event.expect("checked"), reason: reason.expect("checked") };
    match control.deps.shard.ask(Command::Report(ReportIn { room, user, report })).await? {
        Answer::Done { .. } => {
            let mut response = Response::new(Body::empty());
            *response.status_mut() = StatusCode::NO_CONTENT;
            Ok(response)
        }
        Answer::Reject(reject) => Err(reject.into()),
        other => unreachable!("a report is never answered by {other:?}"),
    }
}

/// The comment's author: the token's user, or the user a backend speaks for.
fn author(room: &RoomId, identity: &Identity, fields: &mut Fields<'_>) -> Result<Author, Problem> {
    let standing = standing(identity, room);
    let Some(other) = fields.object.given("as") else {
        return Ok(Author {
            user: identity.user.clone(),
            display: identity.display(),
            badges: identity.badges(),
            standing,
        });
    };
    auth::may_act_as_backend(Some(identity), room)?;
    let Value::Object(other) = other else {
        return Err(Problem::new(ErrorCode::BadRequest, "as must be an object"));
    };
    let mut other = Fields::of(other.clone());
    let user = other.need("id", UserId::RULE, |v| v.as_str().and_then(UserId::parse));
    let name = other.get("name", "must be a display name", |v| v.as_str().and_then(auth::display_name));
    let badge = |b: &str| auth::display_name(b).filter(|b| b.len() <= BADGE_BYTES_MAX);
    let badges = other.get("badges", "must be at most 8 names of at most 32 bytes", |v| match v {
        Value::Array(items) if items.len() <= BADGES_MAX => {
            items.iter().map(|b| b.as_str().and_then(badge)).collect::<Option<Vec<_>>>()
        }
        _ => None,
    });
    other.check(ErrorCode::BadRequest)?;
    let user = user.expect("checked");
    let display = name.unwrap_or_else(|| user.as_str().into());
    Ok(Author { user, display, badges: badges.unwrap_or_default().into(), standing })
}

fn standing(identity: &Identity, room: &RoomId) -> Standing {
    if identity.is_backend() {
        Standing::Backend
    } else if auth::may_moderate(Some(identity), room).is_ok() {
        Standing::Moderator
    } else {
        Standing::Viewer
    }
}

impl super::Control {
    /// The door of those who publish by POST.
    fn early(&self) -> std::sync::MutexGuard<'_, Early> {
        self.early.lock().expect("no holder of this lock can panic")
    }

    /// The room's settings; those of a fresh room where rooms are made on first use.
    pub async fn settings(&self, room: &RoomId) -> Result<Arc<Room>, Problem> {
        Ok(self.room_or_fresh(room).await?.0)
    }

    /// As [`super::Control::settings`], with the room's likes.
    pub async fn room_or_fresh(&self, room: &RoomId) -> Result<(Arc<Room>, Totals), Problem> {
        match self.deps.shard.room(room.clone()).await {
            Ok(detail) => Ok((detail.settings, detail.likes)),
            Err(ReadRefused::NoRoom) if self.deps.config.create_on_use => {
                Ok((Arc::new(Room::fresh(room.as_str())), Totals::default()))
            }
            Err(refused) => Err(refused.into()),
        }
    }
}
