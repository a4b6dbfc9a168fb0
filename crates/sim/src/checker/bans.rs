//! Who may speak, by the log alone: I-07, with the reading that a shadow-banned user speaks to itself.

use std::collections::BTreeMap;

use grandstand_core::names::{RoomId, UserId};
use grandstand_core::record::{Audience, Body, Comment, Record};

use super::Violations;

/// The bans in force, each with whether it is a shadow. The simulation's bans are lifted, they do not end.
#[derive(Default)]
pub struct Bans {
    rooms: BTreeMap<(RoomId, UserId), bool>,
    site: BTreeMap<UserId, bool>,
}

impl Bans {
    /// Takes in the next record of the log, after it was held against what was before it.
    pub fn take(&mut self, record: &Record) {
        match (&record.body, &record.room) {
            (Body::Ban(ban), Some(room)) => {
                self.rooms.insert((room.clone(), ban.user.clone()), ban.shadow);
            }
            (Body::Unban(user), Some(room)) => {
                self.rooms.remove(&(room.clone(), user.clone()));
            }
            (Body::SiteBan(ban), _) => {
                self.site.insert(ban.user.clone(), ban.shadow);
            }
            (Body::SiteUnban(user), _) => {
                self.site.remove(user);
            }
            (Body::EraseUser(user), _) => {
                self.rooms.retain(|(_, whose), _| whose != user);
                self.site.remove(user);
            }
            _ => {}
        }
    }

    /// A comment, said or shown, or a report, against the bans before it.
    pub fn judge(&self, record: &Record, found: &mut Violations) {
        if let (Body::Report(_), Some(room), Some(user)) = (&record.body, &record.room, &record.user)
            && (self.rooms.contains_key(&(room.clone(), user.clone())) || self.site.contains_key(user))
        {
            found.push(format!("I-07: {user} is banned in {room} and reports at {:?}", record.event_id()));
        }
        let (Body::Comment(Comment { shadowed, .. }), Some(room), Some(user)) =
            (&record.body, &record.room, &record.user)
        else {
            return;
        };
        let id = record.event_id();
        let of_room = self.rooms.get(&(room.clone(), user.clone())).copied();
        let of_site = self.site.get(user).copied();
        if of_room == Some(false) || of_site == Some(false) {
            found.push(format!("I-07: {user} is banned in {room} and speaks at {id:?}"));
        }
        let is_shadowed = of_room == Some(true) || of_site == Some(true);
        if record.audience == Audience::Everyone && (is_shadowed || *shadowed) {
            found.push(format!("I-07: {user} is shadow-banned in {room} and everyone is shown {id:?}"));
        }
        if record.source.is_none() && is_shadowed != *shadowed {
            found.push(format!("I-07: {id:?} of {user} in {room} is marked the wrong way"));
        }
        if record.audience == Audience::Author && !*shadowed {
            found.push(format!("I-07: {id:?} of {user} in {room} is kept from everyone without a ban"));
        }
    }
}
