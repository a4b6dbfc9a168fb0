//! I-08: nobody is shown a room where it is blacked out, a moment after the blackout is in the log and until its end is.

use std::collections::BTreeMap;
use std::time::Duration;

use grandstand_core::names::RoomId;
use grandstand_core::regions::Region;
use grandstand_core::time::Mono;

use super::{Log, Violations};
use crate::history::{ClientIdx, Line, Seen};

/// A gateway that is in touch closes within this.
const SOON: Duration = Duration::from_secs(1);
/// One that is cut off from its owner, or stands still with it.
const CUT_OFF: Duration = Duration::from_secs(10);

/// `cut_off`: gateways of the run may stand still, or outlive their owner.
pub fn check(log: &Log<'_>, history: &[Line], cut_off: bool, found: &mut Violations) {
    let bound = if cut_off { CUT_OFF } else { SOON };
    let mut rooms: BTreeMap<&RoomId, Vec<(Mono, &[Region])>> = BTreeMap::new();
    let mut viewers: BTreeMap<ClientIdx, (&RoomId, Region)> = BTreeMap::new();
    for line in history {
        let client = match &line.seen {
            // What a reader of the log passes over holds for nobody.
            Seen::Dark { room, id, regions } if log.by_id.contains_key(id) => {
                rooms.entry(room).or_default().push((line.at, regions));
                continue;
            }
            Seen::Hello { client, room, region, .. } => {
                viewers.insert(*client, (room, *region));
                *client
            }
            Seen::Events { client, .. } | Seen::Snapshot { client, .. } => *client,
            _ => continue,
        };
        let Some((room, region)) = viewers.get(&client) else { continue };
        let said = rooms.get(room).map_or(&[][..], Vec::as_slice);
        let covers = |regions: &[Region]| {
            regions.iter().any(|dark| region.to_string().split('-').next() == Some(dark.to_string().as_str()))
        };
        let dark = said.iter().rev().take_while(|(_, regions)| covers(regions)).last();
        if let Some((since, _)) = dark
            && line.at.since(*since) > bound
        {
            let ago = line.at.since(*since);
            found.push(format!(
                "I-08: client {client} is in {region} and shown {room}, which went dark there {ago:?} ago"
            ));
        }
    }
}
