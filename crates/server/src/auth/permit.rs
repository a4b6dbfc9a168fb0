//! Leave to be shown a room.
//!
//! One token of it is made here and nowhere else, after both questions were asked: may this viewer watch the room, and may the room be
//! shown where the viewer is. Whatever gives a room's content away takes one: a seat in a roster, a resume, a page of the log, a
//! snapshot, a line of the room list. Code that does not ask cannot be written.
//!
//! A permit says what was true when it was made. It is kept by nobody but a seat, and when a room's blackouts change a sweep looks at
//! every seat again.

use grandstand_core::names::RoomId;
use grandstand_core::record::Room;
use grandstand_core::regions::{Region, is_blacked_out};

use super::{Denied, Identity};

/// See the module. Nothing but [`may_view`] makes one.
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
