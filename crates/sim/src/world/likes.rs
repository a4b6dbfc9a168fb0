//! Likes: people tap, gateways gather and hand on in rounds, owners count, and everyone is told the totals.
//!
//! The rules are the real ones of `core::likes`; a shell adds only the link, which loses a round with the process it went to
//! and may bring one twice. What a gateway takes with it when it dies may have been counted or not, and is said so.

use grandstand_core::likes::{self, Frame, RoomLikes, Totals};
use grandstand_core::names::{LikeKind, RoomId, UserId};
use grandstand_core::viewer::session::{Action, Op};

use crate::history::{ClientIdx, Seen};
use crate::options::Fault;
use crate::process::{ConnId, State};
use crate::world::gateway::LINK_WAIT;
use crate::world::{Down, Event, GatewayIdx, ProcessIdx, Up, World};

impl World {
    /// Whether people of this run like.
    pub(super) fn likes(&self) -> bool {
        self.plan.rates.iter().any(|(fault, _)| *fault == Fault::DoubleLikes)
    }

    /// A viewer taps, or does not.
    pub(super) fn tap(&mut self, client: ClientIdx, gateway: GatewayIdx, conn: ConnId) {
        if !self.likes() || self.healed || !self.rng.chance(1, 3) {
            return;
        }
        let n = 1 + self.rng.below(3) as u32;
        let wait = self.draw(1, 10);
        self.after(wait, Event::Arrive { gateway, conn, client, up: Up::Like { n } });
    }

    pub(super) fn on_like(&mut self, gateway: GatewayIdx, id: ConnId, client: ClientIdx, n: u32) {
        let now = self.now;
        let Some(conn) = self.gateways[gateway].conns.get_mut(&id) else { return };
        let Action::Like { room } = conn.session.on_op(Op::Like { room: None }, now, &mut self.rng) else { return };
        let kind = LikeKind::parse(["like", "heart"][client % 2]).expect("a kind");
        // Nobody bans a fan, so that what was taken is what must be counted.
        let fan = UserId::parse(&format!("fan-{client}")).expect("a user");
        let limit = likes::limit(likes::RATE, std::time::Duration::ZERO);
        if self.gateways[gateway].likes.like(&room, &kind, &fan, n, limit, now).is_ok() {
            self.saw(Seen::Liked { room, kind, n });
        }
    }

    /// A gateway's tick: what was gathered leaves, and who was not told the newest totals is.
    pub(super) fn keep_likes(&mut self, gateway: GatewayIdx) {
        if !self.likes() {
            return;
        }
        let now = self.now;
        let host = &mut self.gateways[gateway];
        if let Some(process) = host.owner
            && host.sender.may_send()
            && !host.likes.is_empty()
        {
            let frame = host.sender.send(host.likes.take(now));
            self.hand_on(gateway, process, frame);
        }
        let host = &mut self.gateways[gateway];
        let mut news = Vec::new();
        for (id, conn) in &mut host.conns {
            let Some(roster) = host.rooms.get(&conn.room).filter(|_| conn.place.is_some()) else { continue };
            if conn.stalled_until.is_none() && conn.told != roster.likes {
                conn.told = roster.likes.clone();
                news.push((*id, roster.likes.clone()));
            }
        }
        news.into_iter().for_each(|(id, totals)| self.send(gateway, id, Down::Totals { totals }, None));
    }

    fn hand_on(&mut self, gateway: GatewayIdx, process: ProcessIdx, frame: Frame) {
        if self.fault(Fault::DoubleLikes) {
            let later = self.draw(1, 300);
            self.after(later, Event::Likes { gateway, process, frame: frame.clone() });
        }
        self.after(LINK_WAIT, Event::Likes { gateway, process, frame });
    }

    /// What an earlier owner may not have counted comes again, under its number.
    pub(super) fn hand_on_again(&mut self, gateway: GatewayIdx, process: ProcessIdx) {
        let frames: Vec<Frame> = self.gateways[gateway].sender.unsettled().cloned().collect();
        frames.into_iter().for_each(|frame| self.hand_on(gateway, process, frame));
    }

    pub(super) fn on_likes(&mut self, process: ProcessIdx, frame: Frame) {
        let (now, wall) = (self.now, self.wall(process));
        self.processes[process].owner.take_likes(frame, now, wall);
        self.pump(process);
    }

    /// An owner has counted all frames of a sender up to this one.
    pub(super) fn tell_settled(&mut self, sender: u64, number: u64) {
        if let Some(gateway) = self.gateways.iter().position(|g| g.sender.id() == sender) {
            self.after(LINK_WAIT, Event::Settled { gateway, number });
        }
    }

    /// The newest totals of the rooms that a gateway has viewers of.
    pub(super) fn take_totals(&mut self, gateway: GatewayIdx, rooms: &[(RoomId, Totals)]) {
        for (room, totals) in rooms {
            if let Some(roster) = self.gateways[gateway].rooms.get_mut(room) {
                roster.likes = likes::highest(&roster.likes, totals);
            }
        }
    }

    /// A gateway dies: what is in it may have been counted or not.
    pub(super) fn lose_likes(&mut self, gateway: GatewayIdx) {
        let now = self.now;
        let host = &mut self.gateways[gateway];
        let mut rounds = vec![host.likes.take(now)];
        rounds.extend(host.sender.unsettled().map(|frame| frame.round.clone()));
        for RoomLikes { room, kinds } in rounds.iter().flat_map(|round| round.rooms.iter()) {
            for (kind, users) in kinds {
                let n = users.iter().map(|(_, n)| n).sum();
                self.saw(Seen::LikesAtRisk { room: room.clone(), kind: kind.clone(), n });
            }
        }
    }

    /// Whether anything of likes is still on its way at the end.
    pub(super) fn note_unsettled(&mut self) {
        let living = self.gateways.iter().filter(|g| g.state == State::Running);
        let left = living.filter(|g| !g.likes.is_empty() || g.sender.unsettled().next().is_some()).count();
        if left > 0 {
            self.broken.push(format!("I-16: {left} gateways hold likes that nobody counts"));
        }
    }
}
