//! What is of no room, read anew from the log, against what an owner that lived through the run knows of it: who may speak nowhere,
//! what the whole site is told, and how often every room's policy version was raised.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use grandstand_core::banners::Site;
use grandstand_core::ids::{EventId, Position};
use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Body, Record};
use grandstand_core::time::Wall;

use super::Violations;

pub fn check(valid: &[&Arc<Record>], head: Position, known: &Site, found: &mut Violations) {
    let mut bans: BTreeMap<UserId, bool> = BTreeMap::new();
    let mut standing: BTreeMap<EventId, (Option<RoomId>, Wall)> = BTreeMap::new();
    let mut givers: BTreeMap<EventId, &UserId> = BTreeMap::new();
    let (mut raised, mut ts) = (0, Wall(0));
    for record in valid.iter().filter(|record| record.event_id().position() <= head) {
        ts = ts.max(record.ts);
        match &record.body {
            Body::SiteBan(ban) => {
                bans.insert(ban.user.clone(), ban.shadow);
                raised += 1;
            }
            Body::SiteUnban(user) => drop(bans.remove(user)),
            Body::Gift(gift) => {
                if let Some(until) = gift.banner_until {
                    standing.insert(record.event_id(), (record.room.clone(), until));
                    givers.extend(record.user.as_ref().map(|user| (record.event_id(), user)));
                }
            }
            Body::Banner(banner) => drop(standing.insert(record.event_id(), (banner.room.clone(), banner.until))),
            Body::BannerEnd(id) => drop(standing.remove(id)),
            Body::EraseUser(user) => {
                bans.remove(user);
                standing.retain(|id, _| givers.get(id) != Some(&user));
            }
            // It may not be shown somewhere, and a banner is shown everywhere.
            Body::Room(settings) if !settings.blackout_regions.is_empty() => {
                standing.retain(|_, (room, _)| room.is_none() || *room != record.room);
            }
            _ => {}
        }
    }
    standing.retain(|_, (_, until)| ts < *until);
    let knows: BTreeMap<UserId, bool> = known.bans.values().map(|ban| (ban.user.clone(), ban.shadow)).collect();
    if knows != bans {
        found.push(format!("I-07: the log bans {bans:?} from the site, an owner knows {knows:?}"));
    }
    let shows: BTreeSet<EventId> =
        known.active.iter().filter(|(_, one)| ts < one.banner.until).map(|(id, _)| *id).collect();
    let stand: BTreeSet<EventId> = standing.into_keys().collect();
    if shows != stand {
        found.push(format!("banners: {stand:?} stand by the log, an owner shows {shows:?}"));
    }
    if known.raised != raised {
        found.push(format!("I-09: {raised} bans of the site, versions were raised {} times", known.raised));
    }
}
