//! How the rate of new streams is shared out over the gateways of a server, and what operators asked of them.
//!
//! Like the owner of a hall with several doors and one fire regulation: he counts the doors that are open and tells each
//! doorkeeper his part whenever one opens or closes. A gateway without a link takes nobody, so it has no part; one that joins
//! begins with nothing in hand, so that no moment lets in more than the whole. A gateway that is being emptied, or that has a
//! rate of its own, has no part either.
//!
//! The awkward case is the keeper's own death: what operators asked lives in the gateways and is brought back by the first
//! that joins.

use std::collections::HashMap;
use std::sync::Arc;

use grandstand_core::admission::Limit;
use grandstand_core::places;
use grandstand_core::time::Mono;

use super::codec::{Down, Hello, Order, Ordered, Share};
use super::host::{Away, Host, Link};
use crate::clock;

/// What operators asked.
#[derive(Default)]
pub(super) struct Orders {
    /// The last orders of each process, as long as the process is the one that was given them.
    each: HashMap<(u8, Asked), (u32, Order, Mono)>,
    /// The last change of the whole server's rate.
    whole: Option<Order>,
}

/// What an order is about: the later one of the same takes the place of the earlier.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Asked {
    Streams,
    Shedding,
}

impl Asked {
    fn by(order: &Order) -> Asked {
        match order.what {
            Ordered::Admission(_) | Ordered::Drain(_) => Asked::Streams,
            Ordered::Shedding(_) => Asked::Shedding,
        }
    }
}

impl Orders {
    pub(super) fn of(&self, what: Asked, hello: &Hello) -> Option<(&Order, Mono)> {
        let (_, order, since) = self.each.get(&(hello.process, what)).filter(|(pid, ..)| *pid == hello.pid)?;
        Some((order, *since))
    }

    /// Takes what a process brings that this one does not know.
    fn learn(&mut self, hello: &Hello) {
        if self.of(Asked::Streams, hello).is_none()
            && let Some(order) = hello.order.as_ref().filter(|order| Asked::by(order) == Asked::Streams)
        {
            // An operator sees how long a drain still takes.
            let age = clock::wall().since(order.change.at);
            let since = Mono(clock::mono().0.saturating_sub(age.as_micros() as u64));
            self.each.insert((hello.process, Asked::Streams), (hello.pid, order.clone(), since));
        }
        let is_newer = |whole: &Order| self.whole.as_ref().is_none_or(|known| whole.change.at > known.change.at);
        if let Some(whole) = hello.whole.as_ref().filter(|whole| is_newer(whole)) {
            self.whole = Some(whole.clone());
        }
    }

    /// Whether whoever comes may be let in: it is neither being emptied nor told to take nobody.
    fn takes_streams(&self, hello: &Hello) -> bool {
        let own = match self.of(Asked::Streams, hello).map(|(order, _)| order.what) {
            Some(Ordered::Drain(_)) => return false,
            Some(Ordered::Admission(limit)) => limit,
            None | Some(Ordered::Shedding(_)) => None,
        };
        own.is_none_or(|limit| limit.per_second > 0)
    }

    fn stands(&self, hello: &Hello) -> Stands {
        match self.of(Asked::Streams, hello).map(|(order, _)| order.what) {
            None | Some(Ordered::Admission(None) | Ordered::Shedding(_)) => Stands::Shares,
            Some(Ordered::Admission(Some(_))) => Stands::Alone,
            Some(Ordered::Drain(_)) => Stands::Leaves,
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Stands {
    Shares,
    Alone,
    Leaves,
}

impl Host {
    /// A link is there: the first thing it hears, and what the others hear of it.
    pub(super) fn welcome(&self, links: &[Arc<Link>], new: &Arc<Link>) {
        let mut orders = self.orders();
        orders.learn(new.hello());
        tell(links, &orders, |link, share| match Arc::ptr_eq(link, new) {
            true => Down::Welcome(share),
            false => Down::Share(share),
        });
    }

    /// Tells every gateway its share of the rate, and whether it leaves the port to others.
    pub(super) fn share_out(&self) {
        let links = self.all();
        tell(&links, &self.orders(), |_, share| Down::Share(share));
    }

    /// Gives an operator's order to a gateway. Errors: it is not linked.
    pub fn order(&self, process: u8, order: Order) -> Result<(), Away> {
        let link = self.all().into_iter().find(|link| link.hello().process == process).ok_or(Away)?;
        self.give(&link, order)?;
        self.share_out();
        Ok(())
    }

    /// The same without telling the others what it changes for them.
    fn give(&self, link: &Link, order: Order) -> Result<(), Away> {
        link.put(Down::Order(order.clone())).map_err(|_| Away)?;
        let key = (link.hello().process, Asked::by(&order));
        self.orders().each.insert(key, (link.hello().pid, order, clock::mono()));
        Ok(())
    }

    /// The same for the whole server: a rate is shared by all its gateways from now on, those among them that had one of
    /// their own; a drain empties each.
    pub fn order_all(&self, order: &Order) {
        if let Ordered::Admission(_) = order.what {
            self.orders().whole = Some(order.clone());
        }
        let each = match order.what {
            Ordered::Admission(_) => Order { what: Ordered::Admission(None), ..order.clone() },
            Ordered::Drain(_) | Ordered::Shedding(_) => order.clone(),
        };
        for link in self.all() {
            // One that is too far behind for a word loses its link, and its streams, before long.
            let _ = self.give(&link, each.clone());
        }
        self.share_out();
    }

    /// The last change of the whole server's rate.
    pub fn whole(&self) -> Option<Order> {
        self.orders().whole.clone()
    }

    /// How many gateways share the server's rate.
    pub fn n_sharing(&self) -> u32 {
        let links = self.all();
        n_that(&links, &self.orders(), |stands| stands == Stands::Shares)
    }
}

fn n_that(links: &[Arc<Link>], orders: &Orders, holds: impl Fn(Stands) -> bool) -> u32 {
    links.iter().filter(|link| holds(orders.stands(link.hello()))).count() as u32
}

fn tell(links: &[Arc<Link>], orders: &Orders, word: impl Fn(&Arc<Link>, Share) -> Down) {
    let of = n_that(links, orders, |stands| stands == Stands::Shares).max(1);
    let open = n_that(links, orders, |stands| stands != Stands::Leaves);
    let places: Vec<_> = links.iter().map(|link| (link.places(), orders.takes_streams(link.hello()))).collect();
    for (link, port) in links.iter().zip(places::answers(&places)) {
        let itself = u32::from(orders.stands(link.hello()) != Stands::Leaves);
        let share = Share { of, others: open - itself, whole: orders.whole.clone(), port };
        // A link that has no place for a word is about to be given up.
        let _ = link.put(word(link, share));
    }
}

impl Share {
    pub(super) fn limit(&self) -> Option<Limit> {
        match self.whole.as_ref()?.what {
            Ordered::Admission(limit) => limit,
            Ordered::Drain(_) | Ordered::Shedding(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    use grandstand_core::admission::Limit;
    use grandstand_core::names::UserId;
    use grandstand_core::places::{Answer, Word};
    use grandstand_core::time::Wall;

    use super::super::codec::{self, Down, Frames, Hello, Order, Ordered, Up};
    use super::super::host::{self, Deps, Host, SOCKET};
    use super::super::{ShardEnds, ShardHandle, Tallies};
    use crate::admission::Change;

    struct Stage {
        folder: tempfile::TempDir,
        host: Arc<Host>,
        _ends: ShardEnds,
        _running: host::Running,
    }

    fn stage() -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let (shard, _ends) = ShardHandle::new();
        let (control, _) = tokio::sync::mpsc::channel(1);
        let host = Host::new();
        let deps = Deps::alone(shard, control, Tallies::default());
        let _running = host::start(host.clone(), folder.path(), deps).unwrap();
        Stage { folder, host, _ends, _running }
    }

    /// One gateway's end of a link.
    struct Gateway {
        socket: UnixStream,
        frames: Frames,
        heard: Option<(u32, u32, Option<Limit>)>,
    }

    impl Gateway {
        fn join(folder: &Path, process: u8, order: Option<Order>, whole: Option<Order>) -> Gateway {
            let build = env!("CARGO_PKG_VERSION").to_owned();
            let hello = Hello { version: codec::VERSION, build, process, n_workers: 1, pid: 7, order, whole };
            let mut out = Vec::new();
            codec::write_up(&Up::Hello(hello), &mut out).unwrap();
            let mut socket = UnixStream::connect(folder.join(SOCKET)).unwrap();
            socket.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
            socket.write_all(&out).unwrap();
            let mut gateway = Gateway { socket, frames: Frames::default(), heard: None };
            gateway.hear(|down| matches!(down, Down::Welcome(_)));
            gateway
        }

        /// Reads until it is told something of this kind.
        fn hear(&mut self, is_it: impl Fn(&Down) -> bool) {
            loop {
                while let Some(frame) = self.frames.whole().unwrap() {
                    let down = codec::read_down(frame).unwrap();
                    if let Down::Welcome(share) | Down::Share(share) = &down {
                        self.heard = Some((share.of, share.others, share.limit()));
                    }
                    if is_it(&down) {
                        return;
                    }
                }
                assert!(self.frames.fill(&mut self.socket).unwrap() > 0, "the link ended");
            }
        }

        /// Reads until its share is this one.
        fn shares(&mut self, of: u32, others: u32, limit: Option<Limit>) {
            while self.heard != Some((of, others, limit)) {
                self.hear(|down| matches!(down, Down::Share(_)));
            }
        }
    }

    fn order(what: Ordered, at: u64) -> Order {
        let change = Change { by: UserId::parse("ops").unwrap(), justification: "a test".into(), at: Wall(at) };
        Order { what, change }
    }

    #[test]
    fn a_rate_is_shared_by_those_who_are_linked_and_open() {
        let stage = stage();
        let join = |process| Gateway::join(stage.folder.path(), process, None, None);
        let mut first = join(0);
        assert_eq!(first.heard, Some((1, 0, None)));
        let mut second = join(1);
        assert_eq!(second.heard, Some((2, 1, None)));
        first.shares(2, 1, None);
        let mut third = join(2);
        first.shares(3, 2, None);
        // One that is emptied has no part and nobody's streams; the others are told.
        stage.host.order(2, order(Ordered::Drain(Duration::ZERO), 1)).unwrap();
        first.shares(2, 1, None);
        third.shares(2, 2, None);
        // One with a rate of its own has no part, but takes streams.
        let own = Some(Limit::steady(9));
        stage.host.order(1, order(Ordered::Admission(own), 2)).unwrap();
        second.shares(1, 1, None);
        first.shares(1, 1, None);
        // The whole's rate is everybody's again.
        let whole = Some(Limit::steady(100));
        stage.host.order_all(&order(Ordered::Admission(whole), 3));
        for gateway in [&mut first, &mut second, &mut third] {
            gateway.shares(3, 2, whole);
        }
        drop(third);
        first.shares(2, 1, whole);
        // All are emptied: none has another to leave its viewers to.
        stage.host.order_all(&order(Ordered::Drain(Duration::ZERO), 4));
        first.shares(1, 0, whole);
        second.shares(1, 0, whole);
    }

    #[test]
    fn what_operators_asked_is_learned_from_the_gateways_by_a_new_keeper() {
        let stage = stage();
        let limit = |rate| Some(Limit::steady(rate));
        let whole = |rate, at| Some(order(Ordered::Admission(limit(rate)), at));
        let drain = order(Ordered::Drain(Duration::from_secs(60)), 5);
        let mut first = Gateway::join(stage.folder.path(), 0, Some(drain), whole(5, 8));
        assert_eq!(first.heard, Some((1, 0, limit(5))));
        // It was away when the rate was changed.
        let second = Gateway::join(stage.folder.path(), 1, None, whole(3, 7));
        assert_eq!(second.heard, Some((1, 0, limit(5))));
        first.shares(1, 1, limit(5));
        let gateways = stage.host.gateways();
        let orders: Vec<_> = gateways.iter().map(|g| g.order.as_ref().map(|(order, _)| order.what)).collect();
        assert_eq!(orders, [Some(Ordered::Drain(Duration::from_secs(60))), None]);
    }

    #[test]
    fn who_is_full_leaves_the_port_while_another_has_places_and_not_when_all_are_full() {
        let stage = stage();
        let mut gateways: Vec<Gateway> =
            (0..3).map(|process| Gateway::join(stage.folder.path(), process, None, None)).collect();
        let say = |gateway: &mut Gateway, number, full| {
            let mut out = Vec::new();
            codec::write_up(&Up::Places(Word { number, full }), &mut out).unwrap();
            gateway.socket.write_all(&out).unwrap();
        };
        let is_told = |gateway: &mut Gateway, number, leaves| {
            let wanted = Answer { number, leaves };
            gateway.hear(|down| matches!(down, Down::Share(share) if share.port == wanted));
        };
        say(&mut gateways[0], 1, true);
        is_told(&mut gateways[0], 1, true);
        // One that takes nobody has no places for others.
        let closed = Some(Limit { per_second: 0, burst: 0 });
        stage.host.order(2, order(Ordered::Admission(closed), 1)).unwrap();
        say(&mut gateways[1], 1, true);
        is_told(&mut gateways[0], 1, false);
        is_told(&mut gateways[1], 1, false);
        say(&mut gateways[0], 2, false);
        is_told(&mut gateways[1], 1, true);
        // The one with places dies.
        drop(gateways.remove(0));
        is_told(&mut gateways[0], 1, false);
    }
}
