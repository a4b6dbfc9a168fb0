//! A room as gateways greet its viewers, its JSON made once for all of them.

use std::sync::Arc;

use grandstand_core::ids::{EpochSpan, Position, Pseq};
use grandstand_core::likes::Totals;
use grandstand_core::names::RoomId;
use grandstand_core::record::Room;
use grandstand_wire::event;

use crate::link::{EPOCHS_TOLD, RoomInfo};

/// The log as a room's facts tell it.
pub struct Log<'a> {
    pub head: Position,
    pub epochs: &'a [EpochSpan],
}

/// `last_event`, `pseq`, `wide`, `likes`: as the room's view has them.
pub fn of(
    room: &RoomId,
    settings: Arc<Room>,
    log: Log<'_>,
    (last_event, pseq, wide, likes): (Position, Pseq, bool, Totals),
) -> Arc<RoomInfo> {
    let Log { head, epochs } = log;
    Arc::new(RoomInfo {
        room: room.clone(),
        head,
        epochs: epochs[epochs.len().saturating_sub(EPOCHS_TOLD)..].into(),
        last_event,
        pseq,
        likes,
        config_json: text(|out| event::write_config(&settings, wide, out)),
        pinned_json: text(|out| event::write_pinned(&settings, out)),
        settings,
        wide,
    })
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> Arc<str> {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("what is written is JSON").into()
}
