//! Which records an operator's change wrote, found again from its audit.
//!
//! They stand directly before it, and are read back one by one. An audit may also follow what somebody else did: an unban of nobody
//! writes nothing and is audited, and what the room does by itself is not audited at all. So each kind of change is known by what
//! it can have written, and its first record ends the way back.

use grandstand_core::record::{Body, End, HeldEnd, Retract, RetractTarget};

/// Records of one change that are told with it.
pub const CHANGES_MAX: usize = 3;

/// What a record is of the change that an audit is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// Nothing before it is of the change.
    First,
    Later,
    None,
}

/// `newer`: the record after it, when that is of the change too.
pub fn part_of(what: &str, newer: Option<&Body>, body: &Body) -> Part {
    let is_purge = |retract: &Retract| matches!(retract.target, RetractTarget::Since(..));
    match (what, body) {
        ("ban", Body::Retract(retract)) if newer.is_none() && is_purge(retract) => Part::Later,
        ("ban" | "shadow ban", Body::Ban(_))
        | ("unban", Body::Unban(_))
        | ("retract" | "moderation: retract", Body::Retract(_))
        | ("held: deny", Body::HeldEnd(HeldEnd { end: End::Denied, .. })) => Part::First,
        ("held: approve", Body::HeldEnd(HeldEnd { end: End::Approved(_), .. })) => Part::Later,
        ("held: approve", Body::Comment(_)) if matches!(newer, Some(Body::HeldEnd(_))) => Part::First,
        ("ban" | "shadow ban" | "unban" | "retract", _) => Part::None,
        (what, _) if what.starts_with("moderation:") || what.starts_with("held:") => Part::None,
        (_, Body::Config(_)) if newer.is_none() => Part::Later,
        (_, Body::Room(_)) => Part::First,
        _ => Part::None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use grandstand_core::ids::EventId;
    use grandstand_core::names::{ClientMsgId, UserId};
    use grandstand_core::record::{Ban, Body, Comment, Config, End, HeldEnd, Retract, RetractTarget, Room};
    use grandstand_core::time::Wall;

    use super::{Part, part_of};

    fn user() -> UserId {
        UserId::parse("u").unwrap()
    }

    fn id() -> EventId {
        EventId::new(1 << 33 | 7).unwrap()
    }

    fn retract(target: RetractTarget) -> Body {
        Body::Retract(Retract { target, reason: "".into() })
    }

    fn ban() -> Body {
        Body::Ban(Ban { user: user(), until: None, reason: "".into(), shadow: false })
    }

    fn held_end(end: End) -> Body {
        Body::HeldEnd(HeldEnd { held: id(), client_msg_id: ClientMsgId::parse("k").unwrap(), end })
    }

    fn comment() -> Body {
        Body::Comment(Comment {
            display: "u".into(),
            badges: [].into(),
            text: "hi".into(),
            reply_to: None,
            won: None,
            shadowed: false,
            rule: None,
        })
    }

    fn room() -> Body {
        Body::Room(Arc::new(Room::fresh("r")))
    }

    /// How many of the records before an audit, the nearest first, are of its change.
    fn n_changes(what: &str, before: &[Body]) -> usize {
        let mut n = 0;
        while n < before.len() {
            let newer = n.checked_sub(1).map(|newer| &before[newer]);
            match part_of(what, newer, &before[n]) {
                Part::None => break,
                Part::First => return n + 1,
                Part::Later => n += 1,
            }
        }
        n
    }

    #[test]
    fn a_change_is_told_with_what_it_wrote_and_with_nothing_else() {
        let since = || retract(RetractTarget::Since(user(), Wall(1)));
        let event = || retract(RetractTarget::Event(id()));
        let config = || Body::Config(Config::default());
        for (what, before, n) in [
            ("ban", vec![since(), ban(), ban()], 2),
            ("ban", vec![ban(), since()], 1),
            ("ban", vec![event(), ban()], 0),
            ("shadow ban", vec![ban(), ban()], 1),
            ("shadow ban", vec![since(), ban()], 0),
            ("unban", vec![ban()], 0),
            ("unban", vec![Body::Unban(user()), ban()], 1),
            ("retract", vec![event(), event()], 1),
            ("retract", vec![config(), room()], 0),
            ("moderation: retract", vec![event(), since()], 1),
            ("moderation: retract", vec![config(), room()], 0),
            ("held: approve", vec![held_end(End::Approved(id())), comment(), comment()], 2),
            ("held: approve", vec![comment()], 0),
            ("held: approve", vec![held_end(End::Expired)], 0),
            ("held: approve", vec![config(), room()], 0),
            ("held: deny", vec![held_end(End::Denied), held_end(End::Denied)], 1),
            ("held: deny", vec![held_end(End::Approved(id())), comment()], 0),
            ("held: deny", vec![room()], 0),
            ("slow mode", vec![config(), room(), config(), room()], 2),
            ("put room", vec![room(), room()], 1),
            ("state", vec![event()], 0),
            ("pin", vec![comment()], 0),
        ] {
            assert_eq!(n_changes(what, &before), n, "{what}: {before:?}");
        }
    }
}
