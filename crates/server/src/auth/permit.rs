//! Leave to be shown a room.
//!
//! One token of it is made here and nowhere else, after both questions were asked: may this viewer watch the room, and may the room be
//! shown where the viewer is. Whatever gives a room's content away takes one: a seat in a roster, a resume, a page of the log, a
//! snapshot, a line of the room list; and a queue for review, a user's history, a match's revisions, the audit, an export, whose
//! readers work for the operator and are asked for their role instead of their place. Code that does not ask cannot be written.
//!
//! A permit says what was true when it was made. It is kept by nobody but a seat, and when a room's blackouts change a sweep looks at
//! every seat again.

use grandstand_core::names::RoomId;
use grandstand_core::record::Room;
use grandstand_core::regions::{Region, is_blacked_out};

use super::{Denied, Identity, may_configure, may_export, may_moderate};

/// See the module. Nothing but [`may_view`], [`may_review`] and [`of_operators_book`] makes one.
#[derive(Clone, Copy, Debug)]
#[must_use = "a permit is for giving something away"]
pub struct Permit(());

/// Whether a viewer who is at `place` (`None`: nobody knows) may be shown the room. A backend may: it works for the operator.
pub fn may_view(
    who: Option<&Identity>,
    place: Option<Region>,
    room: &RoomId,
    settings: &Room,
) -> Result<Permit, Denied> {
    match who {
        None if !settings.anonymous_view => return Err(Denied::NeedsToken),
        Some(id) if !id.covers(room) => return Err(Denied::NotAllowed),
        Some(id) if id.is_backend() => return Ok(Permit(())),
        _ => {}
    }
    if is_blacked_out(&settings.blackout_regions, place) {
        return Err(Denied::Blackout);
    }
    Ok(Permit(()))
}

/// Leave to tell a receiver of outgoing webhooks: it stands in the book that operators alone write into, after they were asked for their role
/// there, and tells a program of theirs, which is nowhere.
pub fn of_operators_book() -> Permit {
    Permit(())
}

/// Whether somebody may read what is kept of the room for those who look after it: its moderators and who may export it; of the whole
/// site (`None`) its operators. Where they sit is not asked (docs/decisions/0032-blackouts.md).
pub fn may_review(who: Option<&Identity>, room: Option<&RoomId>) -> Result<Permit, Denied> {
    match room {
        Some(room) => may_moderate(who, room).or_else(|_| may_export(who, room))?,
        None => may_configure(who)?,
    }
    Ok(Permit(()))
}
