//! How many long-polls wait for a user and for an address, over all workers.
//!
//! Long-poll is the costliest way to watch: a request for each answer, and a connection kept open for it. So of a user's
//! streams fewer may be polls that wait. What counts is the line (user, room, tab), not the call: a newer call of a line ends
//! the older one, and must find a place while both are there. A caller that was answered holds nothing until it calls again.
//!
//! Numbers: docs/protocol.md (2 a user, 32 an IPv4 address or IPv6 /64). A user without a name is told by its address alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};

use grandstand_core::bundles::Limited;

use super::polls::Line;
use super::streams::{Full, Held};
use crate::link::bundles::{Bundles, Key};

const SHARDS: usize = 16;

/// A line with calls that wait.
#[derive(Debug)]
struct Holding {
    n_calls: u32,
    /// Of the first of them, where they have a limit.
    user: Option<Key>,
    address: Option<Key>,
}

pub struct Holders {
    bundles: Arc<Bundles>,
    lines: [Mutex<HashMap<Line, Holding>>; SHARDS],
}

impl Holders {
    pub fn new(bundles: Arc<Bundles>) -> Holders {
        Holders { bundles, lines: Default::default() }
    }

    /// A call on the line will wait, which is the stream that holds this much.
    /// Errors: the limit that is reached; nothing more is held then.
    pub fn enter(&self, line: Line, held: &Held) -> Result<(), Full> {
        let mut lines = self.line(line);
        if let Some(holding) = lines.get_mut(&line) {
            holding.n_calls += 1;
            return Ok(());
        }
        let Held { user, address, .. } = *held;
        if let Some(key) = address {
            self.bundles.add(Limited::AddressPolls, key).ok_or(Full::Polls)?;
        }
        if let Some(key) = user
            && self.bundles.add(Limited::UserPolls, key).is_none()
        {
            address.into_iter().for_each(|key| self.bundles.remove(Limited::AddressPolls, key));
            return Err(Full::Polls);
        }
        lines.insert(line, Holding { n_calls: 1, user, address });
        Ok(())
    }

    /// A call on the line that entered does not wait any more.
    pub fn leave(&self, line: Line) {
        let mut lines = self.line(line);
        let Some(holding) = lines.get_mut(&line) else { return };
        holding.n_calls -= 1;
        if holding.n_calls > 0 {
            return;
        }
        let holding = lines.remove(&line).expect("it was there a moment ago");
        holding.user.into_iter().for_each(|key| self.bundles.remove(Limited::UserPolls, key));
        holding.address.into_iter().for_each(|key| self.bundles.remove(Limited::AddressPolls, key));
    }

    fn line(&self, line: Line) -> MutexGuard<'_, HashMap<Line, Holding>> {
        self.lines[line.number() as usize % SHARDS].lock().expect("no holder of this lock can panic")
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;
    use std::sync::Arc;

    use grandstand_core::names::UserId;

    use super::Holders;
    use crate::gateway::polls::Line;
    use crate::gateway::streams::{self, Full, StreamTable};
    use crate::link::bundles::{Bundles, Limits};

    /// Streams without a limit of their own.
    struct Polls {
        streams: StreamTable,
        holders: Holders,
    }

    impl Polls {
        fn new(limits: Limits) -> Polls {
            let each = Limits { per_user: 999, per_address: 999 };
            let bundles = Arc::new(Bundles::alone(each, limits));
            let many = streams::Limits { each, total: None, per_room: None };
            Polls { streams: StreamTable::new(many, bundles.clone()), holders: Holders::new(bundles) }
        }

        fn enter(&self, line: Line, user: Option<&UserId>, address: Option<IpAddr>) -> Result<(), Full> {
            self.holders.enter(line, &self.streams.enter(user, address, &Default::default())?)
        }
    }

    fn line(of: &str, tab: u32) -> Line {
        Line::of(of, "r", &tab.to_string())
    }

    #[test]
    fn r59_two_lines_of_a_user_wait_and_a_newer_call_of_one_of_them_finds_its_place() {
        let polls = Polls::new(Limits { per_user: 2, per_address: 99 });
        let (ann, bob) = (UserId::parse("ann"), UserId::parse("bob"));
        let enter = |tab, user: &Option<UserId>| {
            let name = user.as_ref().map_or("", |user| user.as_str());
            polls.enter(line(name, tab), user.as_ref(), "192.0.2.1".parse().ok())
        };
        enter(1, &ann).unwrap();
        enter(2, &ann).unwrap();
        assert_eq!(enter(3, &ann), Err(Full::Polls));
        enter(3, &bob).unwrap();
        // The newer call is there before the older one is answered.
        enter(1, &ann).unwrap();
        polls.holders.leave(line("ann", 1));
        assert_eq!(enter(3, &ann), Err(Full::Polls), "the newer one still waits");
        polls.holders.leave(line("ann", 1));
        enter(3, &ann).unwrap();
        assert_eq!(enter(1, &ann), Err(Full::Polls));
    }

    #[test]
    fn r59_an_address_has_its_limit_and_a_refusal_holds_nothing() {
        let polls = Polls::new(Limits { per_user: 1, per_address: 3 });
        let at = |address: &str| address.parse().ok();
        let ann = UserId::parse("ann");
        polls.enter(line("ann", 1), ann.as_ref(), at("2001:db8::1")).unwrap();
        for _ in 0..9 {
            assert_eq!(polls.enter(line("ann", 2), ann.as_ref(), at("2001:db8::2")), Err(Full::Polls));
        }
        polls.enter(line("a", 1), None, at("2001:db8::2")).unwrap();
        polls.enter(line("a", 2), None, at("2001:db8::3")).unwrap();
        assert_eq!(polls.enter(line("a", 3), None, at("2001:db8::4")), Err(Full::Polls));
        polls.enter(line("b", 3), None, at("2001:db8:0:1::4")).unwrap();
        // Loopback and exempt networks have none.
        (0..99).for_each(|tab| polls.enter(line("c", tab), None, None).unwrap());
        polls.holders.leave(line("a", 1));
        polls.enter(line("a", 3), None, at("2001:db8::4")).unwrap();
    }
}
