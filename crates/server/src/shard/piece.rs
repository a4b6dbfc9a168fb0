//! Records into pieces: each event is encoded once, whoever reads it.

use std::sync::Arc;

use grandstand_core::record::{Body, Comment, Record};
use grandstand_wire::event;

use crate::link::{Piece, Won};

/// A winner whose comment nobody may be shown any more: its place in its window.
/// Errors: `None` for anything that is no winner.
pub fn emptied(record: &Record) -> Option<Arc<Piece>> {
    let mut piece = Arc::into_inner(of(record)?)?;
    piece.won.as_ref()?;
    piece.json = Box::default();
    Some(Arc::new(piece))
}

/// [`of`] a record that its room does not allow to be shown: whoever shows it says so.
pub fn of_unallowed(record: &Record) -> Option<Arc<Piece>> {
    let mut piece = Arc::into_inner(of(record)?)?;
    piece.unallowed = true;
    Some(Arc::new(piece))
}

/// The event a viewer is sent for this record.
/// Errors: `None` for records that no viewer is sent.
pub fn of(record: &Record) -> Option<Arc<Piece>> {
    let (lane, kind) = (record.lane()?, event::kind(record)?);
    let mut json = Vec::with_capacity(384);
    event::write_event(record, &mut json);
    let author = match &record.body {
        Body::Comment(_) => record.user.clone().map(|user| (user, record.client_msg_id.clone())),
        _ => None,
    };
    let retracts = match &record.body {
        Body::Retract(retract) => Some(retract.target.clone()),
        _ => None,
    };
    let won = match &record.body {
        Body::Comment(Comment { won: Some(won), reply_to, .. }) => Some(Won {
            window: won.window,
            of: won.of,
            weight: won.weight,
            by_right: won.by_right,
            addressee: won.addressee.clone(),
            reply_to: *reply_to,
        }),
        _ => None,
    };
    Some(Arc::new(Piece {
        id: record.event_id(),
        lane,
        ts: record.ts,
        closes_window: record.closes_window(),
        pseq: record.pseq,
        kind,
        json: json.into_boxed_slice(),
        author,
        audience: record.audience,
        // Who makes it of a commit knows its room and says it.
        unallowed: false,
        retracts,
        won,
    }))
}
