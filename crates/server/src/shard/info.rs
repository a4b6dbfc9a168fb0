//! A room as gateways greet its viewers, its JSON made once for all of them.

use std::sync::Arc;

use grandstand_core::ids::{EpochSpan, Position, Pseq};
use grandstand_core::names::RoomId;
use grandstand_core::record::Room;
use grandstand_wire::event;

use crate::clock;
use crate::link::{EPOCHS_TOLD, RoomInfo};

/// The log as a room's facts tell it.
pub struct Log<'a> {
    pub head: Position,
    pub epochs: &'a [EpochSpan],
}

/// `last_event`, `pseq`, `wide`: as the room's view has them.
pub fn of(
    room: &RoomId,
    settings: Arc<Room>,
    log: Log<'_>,
    (last_event, pseq, wide): (Position, Pseq, bool),
) -> Arc<RoomInfo> {
    let Log { head, epochs } = log;
    let counters = event::Counters { room, likes: &[], viewers: 0, keep_millionths: 1_000_000, as_of: clock::wall() };
    Arc::new(RoomInfo {
        room: room.clone(),
        head,
        epochs: epochs[epochs.len().saturating_sub(EPOCHS_TOLD)..].into(),
        last_event,
        pseq,
        config_json: text(|out| event::write_config(&settings, wide, out)),
        counters_json: text(|out| counters.write_values(out)),
        pinned_json: text(|out| event::write_pinned(&settings, out)),
        banners_json: "[]".into(),
        settings,
        wide,
    })
}

fn text(write: impl FnOnce(&mut Vec<u8>)) -> Arc<str> {
    let mut out = Vec::new();
    write(&mut out);
    String::from_utf8(out).expect("what is written is JSON").into()
}
