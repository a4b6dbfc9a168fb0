//! The people: viewers who also comment, a score feed, a gift backend and an operator for each room. All of them retry.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::access::{Access, Revoked};
use grandstand_core::banners::Site;
use grandstand_core::ids::{EventId, Position, Revision};
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Command, GiftIn, ReportIn, TypedScore};
use grandstand_core::owner::view::RoomView;
use grandstand_core::record::{Audit, Ban, Gift, Policy, RetractTarget, RoomState, ScoreKind, ScoreState};
use grandstand_core::regions::{Region, is_blacked_out};
use grandstand_core::reject::Code;
use grandstand_core::reports::Report;
use grandstand_core::revision::ScoreIn;
use grandstand_core::rooms::{Asks, RoomChange};
use grandstand_core::sampler::switch::Sampling;
use grandstand_core::time::Mono;

use crate::checker::feeds::AUDIT;
use crate::checker::ledger::ORDER;
use crate::history::{Begun, ClientIdx, Seen, Snapshot, Wish};
use crate::options::{Fault, Plan};
use crate::process::ConnId;
use crate::world::storm::Storm;
use crate::world::{ActorIdx, Down, Event, GatewayIdx, ProcessIdx, Up, World};

const ROSE: &str = "rose";
/// The providers of every match.
const FIRST: &str = "feed";
const SECOND: &str = "second";
/// What is worth a banner in every room.
pub const BANNER_ITEM: &str = "rocket";
/// What makes a member; every third client is one.
pub const MEMBER: &str = "sub";
const CLIENT_EVERY: Duration = Duration::from_millis(100);
/// A connection that says nothing for so long is given up.
const SILENCE_MAX: Duration = Duration::from_secs(3);
/// Every other client's phone sleeps with its socket open: nothing is read, and nobody hangs up.
const SLEEP_MAX: Duration = Duration::from_secs(15);
/// On its way, or just come.
const JUST_NOW: Duration = Duration::from_millis(25);
const PING_EVERY: Duration = Duration::from_secs(1);
pub(super) const RETRY_AFTER: Duration = Duration::from_millis(1_500);

pub struct Client {
    pub room: RoomId,
    pub user: UserId,
    /// Where it is.
    pub region: Region,
    pub conn: Option<(GatewayIdx, ConnId)>,
    greeted: bool,
    hello_first: bool,
    cursor: Position,
    pending: Option<Pending>,
    n_keys: u64,
    next_comment: Mono,
    pub away_until: Mono,
    heard: Mono,
    pinged: Mono,
    /// A snapshot is owed, not older than this.
    snapshot_min: Option<Position>,
}

struct Pending {
    wish: Wish,
    key: ClientMsgId,
    text: Arc<str>,
    reply_to: Option<EventId>,
    next_try: Mono,
    /// When it was asked last; `None`: not since it was answered.
    asked: Option<Mono>,
    /// How often it may have reached an owner.
    copies: u64,
}

enum Role {
    Operator,
    Scores,
    /// The provider that stands by.
    SecondScores,
    Gifts,
    /// Turns the room wide and narrow.
    Sampler,
    /// Decides about what is held, and turns from policy to policy.
    Reviewer,
    /// Says what holds of tokens.
    Warden,
    /// Changes what the room asks, its pins, its state and where it may be shown.
    Keeper,
    /// Takes back what a reviewer of the room has just asked to be shown, at that moment.
    Rival,
    /// Bans from the whole site whoever is speaking, and lifts it soon.
    Marshal,
    /// Reports what others said, in anybody's name.
    Reporter,
    /// Says who is shown of the room's match, and types scores.
    Desk,
}

pub struct Actor {
    role: Role,
    room: RoomId,
    n: u64,
    /// The command that is not answered yet.
    open: Option<(u64, Command, Option<Wish>, Mono)>,
    n_asks: u64,
    next: Mono,
    banned: Option<UserId>,
    barred: Option<UserId>,
    slow: bool,
}

pub(super) fn name<T>(parsed: Option<T>) -> T {
    parsed.expect("the names of a run are well formed")
}

impl World {
    pub(super) fn people(&mut self) {
        let rooms: Vec<RoomId> = (0..self.plan.n_rooms).map(|n| name(RoomId::parse(&format!("room-{n}")))).collect();
        for n in 0..self.plan.n_clients {
            let room = rooms[self.rng.below(rooms.len() as u64) as usize].clone();
            let start = self.draw(0, 2_000);
            self.clients.push(Client {
                room,
                // Some users have two tabs open.
                user: name(UserId::parse(&format!("user-{}", n - u64::from(n % 5 == 4)))),
                // In a part of the country that rooms are blacked out in, or elsewhere.
                region: name(Region::parse(if n % 4 == 1 { "GB-SCT" } else { "DE" })),
                conn: None,
                greeted: false,
                hello_first: self.rng.chance(1, 4),
                cursor: Position::START,
                pending: None,
                n_keys: 0,
                next_comment: Mono(0) + start,
                away_until: Mono(0) + start,
                heard: Mono(0),
                pinged: Mono(0),
                snapshot_min: None,
            });
            self.after(start, Event::ClientTick { client: n as ClientIdx });
        }
        let first = rooms[0].clone();
        for room in rooms {
            let flips = self.plan.rates.iter().any(|(fault, _)| *fault == Fault::Flip);
            let judged = self.plan.moderated && (self.plan.has(Fault::PolicyFlip) || self.plan.has(Fault::FlagVerdict));
            let roles = [Role::Operator, Role::Scores, Role::Gifts].into_iter().chain(flips.then_some(Role::Sampler));
            let roles = roles.chain(judged.then_some(Role::Reviewer));
            let rules = self.plan.has(Fault::Rules);
            let roles = roles.chain([Role::Keeper, Role::Reporter].into_iter().filter(|_| rules));
            let roles = roles.chain((rules && judged).then_some(Role::Rival));
            // Apart from the rules of rooms: each has seeds of its own.
            let roles = roles.chain([Role::SecondScores, Role::Desk].into_iter().filter(|_| !rules));
            for role in roles {
                self.actor(role, room.clone());
            }
        }
        self.actor(Role::Warden, first.clone());
        // One alone, so that none lifts what another said.
        self.actor(Role::Marshal, first);
    }

    fn actor(&mut self, role: Role, room: RoomId) {
        let actor = self.actors.len();
        if let Role::Scores | Role::SecondScores = role
            && self.plan.has(Fault::Storm)
        {
            let second = matches!(role, Role::SecondScores);
            let provider = name(Key::parse(if second { SECOND } else { FIRST }));
            let storm = Storm::new(&mut self.rng, room.clone(), provider, second);
            self.storms.insert(actor, storm);
            *self.made.entry(Fault::Storm).or_default() += 1;
        }
        self.actors.push(Actor {
            role,
            room,
            n: 0,
            open: None,
            n_asks: 0,
            next: Mono(0),
            banned: None,
            barred: None,
            slow: false,
        });
        self.after(Duration::from_millis(50), Event::ActorTick { actor });
    }

    // ---- viewers

    pub(super) fn on_client_tick(&mut self, client: ClientIdx) {
        self.after(CLIENT_EVERY, Event::ClientTick { client });
        let now = self.now;
        let me = &self.clients[client];
        let sleeps = client % 2 == 1 && me.greeted && !self.healed;
        let patience = if sleeps { SLEEP_MAX } else { SILENCE_MAX };
        if me.conn.is_some() && now.since(me.heard) > patience {
            self.hang_up(client);
        }
        let me = &mut self.clients[client];
        let Some((gateway, conn)) = me.conn else {
            if now >= me.away_until {
                self.connect(client);
            }
            return;
        };
        if me.greeted && now.since(me.pinged) > PING_EVERY {
            me.pinged = now;
            self.up(gateway, conn, client, Up::Ping);
        }
        if self.clients[client].snapshot_min.is_some() && self.rng.chance(1, 3) {
            let wait = self.draw(1, 30);
            if let Some(process) = self.gateways[gateway].owner {
                self.after(wait, Event::AskSnapshot { process, client });
            }
        }
        if self.clients[client].greeted {
            self.comment(client, gateway, conn);
            self.tap(client, gateway, conn);
        }
    }

    fn connect(&mut self, client: ClientIdx) {
        if self.current.is_none() {
            return;
        }
        let gateway = self.front;
        let conn = self.next_conn;
        self.next_conn += 1;
        let now = self.now;
        let me = &mut self.clients[client];
        me.conn = Some((gateway, conn));
        me.greeted = false;
        (me.heard, me.pinged) = (now, now);
        let (cursor, hello_first) = (me.cursor, me.hello_first);
        self.up(gateway, conn, client, Up::Open { cursor, hello_first });
        if hello_first {
            // Behind the opening on the same connection.
            self.at(now + Duration::from_millis(12), Event::Arrive { gateway, conn, client, up: Up::Hello { cursor } });
        }
    }

    fn up(&mut self, gateway: GatewayIdx, conn: ConnId, client: ClientIdx, up: Up) {
        let wait = self.draw(1, 10);
        self.after(wait, Event::Arrive { gateway, conn, client, up });
    }

    pub(super) fn hang_up(&mut self, client: ClientIdx) {
        let me = &mut self.clients[client];
        let Some((gateway, conn)) = me.conn.take() else { return };
        me.greeted = false;
        self.up(gateway, conn, client, Up::Gone);
    }

    fn comment(&mut self, client: ClientIdx, gateway: GatewayIdx, conn: ConnId) {
        let now = self.now;
        let me = &mut self.clients[client];
        if me.pending.is_none() && now >= me.next_comment && !self.healed {
            me.n_keys += 1;
            let key = name(ClientMsgId::parse(&format!("c{client}-{}", me.n_keys)));
            let text: Arc<str> = words(&self.plan, client, me.n_keys).into();
            let wish =
                Wish::Comment { room: me.room.clone(), user: me.user.clone(), key: key.clone(), text: text.clone() };
            let known = self.acked.get(&me.room).and_then(|ids| ids.last()).copied();
            let reply_to = known.filter(|_| self.rng.chance(1, 5));
            me.pending =
                Some(Pending { wish: wish.clone(), key, text, reply_to, next_try: now, asked: None, copies: 0 });
            let every = self.plan.comment_every_ms;
            let wait = self.draw(every / 2, every * 3 / 2);
            self.clients[client].next_comment = now + wait;
            self.saw(Seen::Asked(wish));
        }
        let twice = self.fault(Fault::DoubleRequest);
        let Some(pending) = self.clients[client].pending.as_mut().filter(|p| now >= p.next_try) else { return };
        (pending.next_try, pending.asked) = (now + RETRY_AFTER, Some(now));
        pending.copies += 1 + u64::from(twice);
        let up = Up::Publish { key: pending.key.clone(), text: pending.text.clone(), reply_to: pending.reply_to };
        if twice {
            let later = self.draw(1, 800);
            self.after(later, Event::Arrive { gateway, conn, client, up: up.clone() });
        }
        self.up(gateway, conn, client, up);
    }

    pub(super) fn on_down(&mut self, client: ClientIdx, conn: ConnId, down: Down) {
        let now = self.now;
        let me = &mut self.clients[client];
        if me.conn.map(|(_, id)| id) != Some(conn) {
            return;
        }
        me.heard = now;
        match down {
            Down::Pong => {}
            Down::Closed { code } => {
                me.conn = None;
                me.greeted = false;
                let wait = if code / 100 == 42 { Duration::from_millis(1) } else { self.draw(50, 500) };
                let me = &mut self.clients[client];
                me.away_until = me.away_until.max(now + wait);
            }
            Down::Totals { totals } => {
                let room = me.room.clone();
                self.saw(Seen::Totals { client, room, totals, first: false });
            }
            Down::Hello { asked, cursor, pseq, kind, skipped, likes } => {
                me.greeted = true;
                me.cursor = cursor;
                if !matches!(kind, Begun::Resumed { .. }) {
                    me.snapshot_min = Some(cursor);
                }
                let room = me.room.clone();
                let (user, region) = (me.user.clone(), me.region);
                self.saw(Seen::Totals { client, room: room.clone(), totals: likes, first: true });
                self.saw(Seen::Hello { client, user, region, room, asked, cursor, pseq, kind, skipped });
            }
            Down::Events { skipped, events, head } => {
                if let Some(last) = events.last() {
                    me.cursor = last.event_id().position();
                }
                let room = me.room.clone();
                self.saw(Seen::Events { client, room, skipped, events, head });
            }
            // Its own wishes are asked again when their time comes.
            Down::Paused => self.saw(Seen::Paused { client }),
            Down::NotAllowed { key } | Down::NotReady { key } => {
                if let Some(pending) = me.pending.as_mut().filter(|p| p.key == key) {
                    pending.next_try = now + RETRY_AFTER;
                }
            }
            Down::Answer { key, answer } => self.on_answer(client, key, answer),
        }
    }

    fn on_answer(&mut self, client: ClientIdx, key: ClientMsgId, answer: Answer) {
        let (now, jitter, healed) = (self.now, self.draw(10, 200), self.healed);
        let me = &mut self.clients[client];
        let (room, user) = (me.room.clone(), me.user.clone());
        let Some(pending) = me.pending.as_mut().filter(|p| p.key == key) else {
            // An answer to something that is settled: still an observation.
            let number = key.as_str().split('-').next_back().and_then(|n| n.parse().ok()).unwrap_or_default();
            let text = words(&self.plan, client, number).into();
            let wish = Wish::Comment { room, user, key, text };
            match answer {
                Answer::Published { event_id, duplicate, .. } => {
                    self.saw(Seen::Acked { wish, id: event_id, duplicate });
                }
                Answer::Raw { raw_id, fate, .. } => self.saw(Seen::Said { wish, raw_id, fate }),
                _ => {}
            }
            return;
        };
        match answer {
            Answer::Published { event_id, duplicate, .. } => {
                let wish = pending.wish.clone();
                me.pending = None;
                self.acked.entry(room).or_default().push(event_id);
                self.saw(Seen::Acked { wish, id: event_id, duplicate });
            }
            Answer::Raw { raw_id, fate, .. } => {
                let wish = pending.wish.clone();
                me.pending = None;
                // Operators know it from the log, and so do those who answer it here.
                self.acked.entry(room).or_default().push(raw_id);
                self.saw(Seen::Said { wish, raw_id, fate });
            }
            // What becomes of it is found out with the same key.
            Answer::Held { .. } => pending.next_try = now + RETRY_AFTER + jitter,
            Answer::Pending { retry_after } => pending.next_try = now + retry_after + jitter,
            Answer::Reject(reject) => {
                let again = matches!(reject.code, Code::Overloaded | Code::NoSpace | Code::NotReady);
                let rate = reject.code.is_rate() && !healed;
                if again || rate {
                    pending.asked = None;
                    pending.next_try = now + reject.retry_after.unwrap_or(RETRY_AFTER) + jitter;
                    return;
                }
                let (wish, once) = (pending.wish.clone(), pending.copies == 1);
                me.pending = None;
                // Of one copy that was refused, no other can have been let in.
                if once {
                    self.saw(Seen::Refused(wish));
                }
            }
            other => self.broken.push(format!("a comment was answered {other:?}")),
        }
    }

    pub(super) fn on_ask_snapshot(&mut self, process: ProcessIdx, client: ClientIdx) {
        let Client { room, region, .. } = &self.clients[client];
        let (room, region) = (room.clone(), *region);
        let settings = self.processes[process].owner.room(&room).map(|view| view.settings.clone());
        if settings.is_some_and(|settings| is_blacked_out(&settings.blackout_regions, Some(region))) {
            return;
        }
        let Some(shot) = self.processes[process].snapshot(&room) else { return };
        let wait = self.draw(1, 60);
        self.after(wait, Event::Snapshot { client, shot: Arc::new(shot) });
    }

    pub(super) fn on_snapshot(&mut self, client: ClientIdx, shot: Arc<Snapshot>) {
        let me = &mut self.clients[client];
        // `min=<cursor>`: the server answers no older one; an answer to an earlier question may be.
        if me.snapshot_min.is_some_and(|min| shot.as_of >= min) {
            me.snapshot_min = None;
            self.saw(Seen::Snapshot { client, shot });
        }
    }

    pub(super) fn note_finals(&mut self) {
        self.note_unsettled();
        for client in 0..self.clients.len() {
            let undecided = self.clients[client].pending.as_ref().map(|p| p.wish.clone());
            let connected = self.is_connected(client) && self.clients[client].greeted;
            let snapshot = self.clients[client].snapshot_min.is_none();
            self.saw(Seen::Final { client, connected: connected && snapshot, undecided });
        }
        if let Some(process) = self.current
            && let Some(raw_id) = self.processes[process].undecided.first()
        {
            self.broken.push(format!("I-16: what was said as {raw_id:?} is undecided at the end"));
        }
        for (id, shown_by) in std::mem::take(&mut self.must_go) {
            if self.current == Some(shown_by) {
                self.saw(Seen::MustGo(id));
            }
        }
        let conns = self.gateways.iter().filter(|gateway| gateway.owner.is_some()).flat_map(|g| g.conns.values());
        if let Some((client, raw_id)) = conns.flat_map(|c| c.awaited.first().map(|raw| (c.client, *raw))).next() {
            self.broken.push(format!("I-16: client {client} was never told what became of {raw_id:?}"));
        }
        if let Some(open) = self.actors.iter().find_map(|a| a.open.as_ref().map(|(_, command, ..)| command)) {
            self.broken.push(format!("I-16: undecided at the end: {open:?}"));
        }
        if let Some(wish) = self.storms.values().find_map(Storm::undecided) {
            self.broken.push(format!("I-16: undecided at the end: {wish:?}"));
        }
    }

    // ---- feeds and operators

    pub(super) fn on_actor_tick(&mut self, actor: ActorIdx) {
        self.after(CLIENT_EVERY, Event::ActorTick { actor });
        if self.storms.contains_key(&actor) {
            return self.storm_tick(actor);
        }
        let now = self.now;
        let me = &mut self.actors[actor];
        match &mut me.open {
            Some((ask, _, _, due)) if now >= *due => {
                // The same command again; an answer to the first asking counts as well.
                *due = now + RETRY_AFTER;
                let ask = *ask;
                self.ask(actor, ask);
            }
            Some(_) => {}
            None if now >= me.next && (!self.healed || matches!(me.role, Role::Reviewer | Role::Keeper)) => {
                let Some((command, wish)) = self.next_command(actor) else { return };
                let me = &mut self.actors[actor];
                me.n_asks += 1;
                let ask = me.n_asks;
                let command = signed(actor, ask, command);
                me.open = Some((ask, command, wish.clone(), now + RETRY_AFTER));
                if let Some(wish) = wish {
                    self.saw(Seen::Asked(wish));
                }
                self.ask(actor, ask);
            }
            None => {}
        }
    }

    fn ask(&mut self, actor: ActorIdx, ask: u64) {
        let Some(process) = self.current else { return };
        let Some((_, command, ..)) = &self.actors[actor].open else { return };
        let command = command.clone();
        let copies = 1 + u64::from(self.fault(Fault::DoubleRequest));
        for _ in 0..copies {
            let wait = self.draw(1, 30);
            self.rival(process, &command, wait);
            self.after(wait, Event::Request { process, actor, ask, command: Box::new(command.clone()) });
        }
    }

    pub(super) fn on_reply(&mut self, actor: ActorIdx, ask: u64, answer: Answer) {
        if self.storms.contains_key(&actor) {
            return self.storm_reply(actor, ask, answer);
        }
        // At the end a queue for review is worked off: it may be long.
        let pause = if self.healed { self.draw(20, 100) } else { self.draw(100, 1_200) };
        let now = self.now;
        let me = &mut self.actors[actor];
        let Some((open, _, wish, due)) = &mut me.open else { return };
        if *open != ask {
            return;
        }
        let wish = wish.clone();
        let is_done = matches!(answer, Answer::Done { .. } | Answer::Room { .. });
        let acked = match answer {
            Answer::Reject(reject) if matches!(reject.code, Code::Overloaded | Code::NoSpace | Code::NotReady) => {
                *due = now + reject.retry_after.unwrap_or(RETRY_AFTER);
                return;
            }
            Answer::Score { event_id, accepted, .. } => Some((event_id, !accepted)),
            Answer::Gift { event_id, duplicate, .. } => Some((event_id, duplicate)),
            Answer::Done { event_id } => event_id.map(|id| (id, false)),
            // An operator who is told that the match has changed looks again.
            _ => None,
        };
        let done = me.open.take().map(|(_, command, ..)| command);
        // A queue is worked off without a pause.
        me.next = now + if matches!(me.role, Role::Reviewer | Role::Marshal) { CLIENT_EVERY } else { pause };
        if let (Some(wish), Some((id, duplicate))) = (wish, acked) {
            self.saw(Seen::Acked { wish, id, duplicate });
        }
        match done {
            Some(Command::Audited { audit, .. }) if is_done && *audit.what == *ORDER => {
                self.saw(Seen::Done(audit.justification));
            }
            Some(Command::EraseUser { user, .. }) if is_done => {
                if let Some((id, _)) = acked {
                    self.saw(Seen::Erased(user, id));
                }
            }
            _ => {}
        }
    }

    fn next_command(&mut self, actor: ActorIdx) -> Option<(Command, Option<Wish>)> {
        let room = self.actors[actor].room.clone();
        self.actors[actor].n += 1;
        let n = self.actors[actor].n;
        match self.actors[actor].role {
            Role::Scores => Some(self.score(false, room, n)),
            Role::SecondScores => Some(self.score(true, room, n)),
            Role::Gifts => {
                let gift_id = name(Key::parse(&format!("gift-{room}-{n}")));
                let gift = Gift {
                    gift_id: gift_id.clone(),
                    display: "a giver".into(),
                    // Two givers take turns at most gifts, so that some follow each other closely and are one combo.
                    item: if n.is_multiple_of(4) { BANNER_ITEM.into() } else { ROSE.into() },
                    count: 1 + (n % 3) as u32,
                    amount_micros: 1_000_000,
                    currency: "EUR".into(),
                    banner_until: None,
                };
                let user = name(UserId::parse(&format!("giver-{}", n / 6 % 2)));
                let wish = Wish::Gift { room: room.clone(), gift_id };
                Some((Command::Gift(GiftIn { room, user, gift }), Some(wish)))
            }
            Role::Reviewer => self.review(actor, room).map(|command| (command, None)),
            Role::Operator => self.order(actor, room, n).map(|command| (command, None)),
            Role::Warden => Some((warden(n), None)),
            Role::Keeper => self.keep(room).map(|command| (command, None)),
            // It speaks when a reviewer does.
            Role::Rival => None,
            Role::Marshal => self.marshal(actor, n).map(|command| (command, None)),
            Role::Reporter => self.report(room, n).map(|command| (command, None)),
            Role::Desk => self.desk(room, n).map(|command| (command, None)),
            Role::Sampler => {
                if !self.fault(Fault::Flip) {
                    return None;
                }
                let me = &mut self.actors[actor];
                me.slow = !me.slow;
                let sampling = Some(if me.slow { Sampling::Always } else { Sampling::None });
                let change = RoomChange { sampling, ..RoomChange::default() };
                Some((Command::PutRoom { room, change: change.into(), if_version: None }, None))
            }
        }
    }

    /// Corrections come in any order: an event's first revisions are asked for again and again beside the new ones. The second
    /// provider names its events otherwise and tells of the same ones, but for some that it sees in its own way.
    fn score(&mut self, second: bool, room: RoomId, n: u64) -> (Command, Option<Wish>) {
        let match_id = match_of(&room);
        let which = 1 + self.rng.below(1 + n / 2);
        let event = if second { format!("s{which}") } else { format!("goal-{which}") };
        let event = name(Key::parse(&event));
        let revision = Revision(1 + self.rng.below(4) as u32);
        // One payload for each identity, so that a repeat is one.
        let mark = 5 * which as u32 + u32::from(second && which.is_multiple_of(4));
        let home = mark % 7 + revision.0;
        let wish = Wish::Score { room: room.clone(), match_id: match_id.clone(), event: event.clone(), revision, home };
        let score = ScoreIn {
            match_id,
            provider: name(Key::parse(if second { SECOND } else { FIRST })),
            event,
            revision: Some(revision),
            kind: ScoreKind::Goal,
            state: if revision.0 == 3 { ScoreState::Withdrawn } else { ScoreState::Confirmed },
            home,
            away: 0,
            minute: Some("78".into()),
            historical: false,
            digest: [mark as u8 ^ revision.0 as u8; 16],
            data: None,
            room: Some(room),
        };
        (Command::Score(score), Some(wish))
    }

    /// One rule after another, and back soon: a room that takes nothing proves nothing.
    fn keep(&mut self, room: RoomId) -> Option<Command> {
        let process = self.current?;
        let dark = !self.processes[process].owner.room(&room)?.settings.blackout_regions.is_empty();
        // At the end everybody may watch.
        let must = self.healed && dark;
        if !must && !self.fault(Fault::Rules) {
            return None;
        }
        let (soon, draw) = (self.wall(process) + self.draw(500, 3_000), self.rng.below(10));
        let (last, likes) = (self.acked.get(&room).and_then(|ids| ids.last()).copied(), self.likes());
        let view = self.processes[process].owner.room(&room)?;
        let settings = &view.settings;
        let ask = |asks: Asks| RoomChange::from(asks);
        let retract = |target| Command::Retract { room: room.clone(), target, reason: "rules".into() };
        let is_shut = settings.emote_only || settings.members_only.is_some() || settings.state == RoomState::Closed;
        let change = match draw {
            _ if dark && (self.healed || draw < 5) => {
                RoomChange { blackout_regions: Some(Vec::new()), ..RoomChange::default() }
            }
            _ if is_shut && draw % 3 > 0 => RoomChange {
                state: Some(RoomState::Live),
                ..ask(Asks { emote_only: Some(false), members_only: Some(None), ..Asks::default() })
            },
            0 => ask(Asks { pin: Some((last?, Some(soon))), ..Asks::default() }),
            1 | 2 => ask(Asks { unique_comment: Some(!settings.unique_comment), ..Asks::default() }),
            3 => ask(Asks { emote_only: Some(!settings.emote_only), ..Asks::default() }),
            4 => {
                let badge = settings.members_only.is_none().then(|| MEMBER.into());
                ask(Asks { members_only: Some(badge), ..Asks::default() })
            }
            // Not where people like: what a closed room does not count would be missing.
            5 if !likes && settings.state == RoomState::Live => {
                RoomChange { state: Some(RoomState::Settling), settle_seconds: Some(1), ..RoomChange::default() }
            }
            6 => RoomChange {
                blackout_regions: Some(Region::parse("GB").into_iter().collect()),
                ..RoomChange::default()
            },
            // By the id it was held under, which moderators know it by.
            7 | 9 => return view.approved.keys().next_back().map(|held| retract(RetractTarget::Event(*held))),
            // While somebody else decides about it.
            _ => {
                let waits = view.held.values().next()?.user.clone()?;
                return Some(retract(RetractTarget::User(waits)));
            }
        };
        Some(Command::PutRoom { room, change: change.into(), if_version: None })
    }

    /// Takes back what is asked to be shown, `wait` from now.
    fn rival(&mut self, process: ProcessIdx, command: &Command, wait: Duration) {
        let Command::Audited { command, .. } = command else { return };
        let Command::Decide { room, held, approve: true } = &**command else { return };
        let is_free = |actor: &Actor| matches!(actor.role, Role::Rival) && actor.room == *room && actor.open.is_none();
        let Some(actor) = self.actors.iter().position(is_free).filter(|_| self.rng.chance(1, 2)) else { return };
        let retract =
            Command::Retract { room: room.clone(), target: RetractTarget::Event(*held), reason: "rules".into() };
        let due = self.now + RETRY_AFTER;
        let me = &mut self.actors[actor];
        me.n_asks += 1;
        let ask = me.n_asks;
        let retract = signed(actor, ask, retract);
        me.open = Some((ask, retract.clone(), None, due));
        self.after(wait, Event::Request { process, actor, ask, command: Box::new(retract) });
    }

    fn marshal(&mut self, actor: ActorIdx, n: u64) -> Option<Command> {
        let by = name(UserId::parse("operator"));
        if let Some(user) = self.actors[actor].barred.clone() {
            if !self.rng.chance(1, 10) {
                return None;
            }
            self.actors[actor].barred = None;
            return Some(Command::SiteUnban { by, user });
        }
        let user = self.speaking()?;
        self.actors[actor].barred = Some(user.clone());
        let shadow = n.is_multiple_of(3);
        let ban = Ban { user, until: None, reason: "rude".into(), shadow };
        Some(Command::SiteBan { by, ban, purge: (!shadow).then_some(Duration::from_secs(2)) })
    }

    /// Whose comment has just been sent.
    fn speaking(&self) -> Option<UserId> {
        let is_fresh = |asked: &Mono| self.now.since(*asked) <= JUST_NOW;
        let asked = |client: &Client| client.pending.as_ref().and_then(|p| p.asked).filter(is_fresh);
        let newest = self.clients.iter().max_by_key(|client| asked(client))?;
        asked(newest).map(|_| newest.user.clone())
    }

    /// One of the last few, again and again.
    fn report(&mut self, room: RoomId, n: u64) -> Option<Command> {
        let someone = self.rng.below(self.clients.len() as u64) as usize;
        let user = self.clients[someone].user.clone();
        let ids = self.acked.get(&room)?;
        let event = *ids.iter().rev().nth(n as usize % 3)?;
        let report = Report { event, reason: "spam".into() };
        Some(Command::Report(ReportIn { room, user, report }))
    }

    /// Each change is made against the match as the newest process shows it when it is asked for.
    fn desk(&mut self, room: RoomId, n: u64) -> Option<Command> {
        let match_id = match_of(&room);
        let process = self.current?;
        let view = self.processes[process].owner.room(&room)?;
        let shown = view.scores.get(&match_id)?.version();
        let if_version = Some(shown);
        let provider = |text: &str| name(Key::parse(text));
        let (first, second) = (provider(FIRST), provider(SECOND));
        let command = match n % 8 {
            3 | 7 => {
                let own = n % 8 == 3;
                let event = if own { format!("desk-{}", n / 8) } else { "goal-1".to_owned() };
                let typed = TypedScore {
                    match_id,
                    event: name(Key::parse(&event)),
                    kind: ScoreKind::Goal,
                    state: ScoreState::Confirmed,
                    home: (n % 5) as u32,
                    away: 1,
                    minute: None,
                    digest: [n as u8; 16],
                };
                // Rarely, because what an operator typed stands above all that providers say.
                return (n > 24).then(|| audited(shown, Command::TypeScore { typed, if_version }));
            }
            n if n.is_multiple_of(2) => {
                Command::SetFeed { match_id, primary: first, stand_by: Some(second), if_version }
            }
            _ => Command::SetFeed { match_id, primary: second, stand_by: Some(first), if_version },
        };
        Some(audited(shown, command))
    }

    /// The oldest that waits first; they read the queue as a console shows it.
    fn review(&mut self, actor: ActorIdx, room: RoomId) -> Option<Command> {
        let process = self.current?;
        let held = self.processes[process].owner.room(&room).and_then(|view| view.held.keys().next().copied());
        if let Some(held) = held {
            // They take their time: what waits outlives a checkpoint, and now and then the owner that held it.
            let decides = self.healed || self.rng.chance(1, 4);
            return decides.then(|| Command::Decide { room, held, approve: self.rng.chance(1, 2) });
        }
        if !self.plan.has(Fault::PolicyFlip) || !self.fault(Fault::PolicyFlip) {
            return None;
        }
        let me = &mut self.actors[actor];
        let policies = [Policy::PreModerate, Policy::PreModerateStrict, Policy::PostModerateFast];
        let policy = policies[me.n as usize % policies.len()];
        let change = RoomChange { moderation_policy: Some(policy), ..RoomChange::default() };
        Some(Command::PutRoom { room, change: Box::new(change), if_version: None })
    }

    fn order(&mut self, actor: ActorIdx, room: RoomId, n: u64) -> Option<Command> {
        if n == 1 {
            let has_few = room.as_str().bytes().last().is_some_and(|last| last.is_multiple_of(2));
            let change = RoomChange {
                user_rate: Some(20),
                user_burst: Some(100),
                resume_window_seconds: Some(self.plan.resume_window),
                merge_ms: self.plan.merge_ms.map(Some),
                moderation_policy: self.plan.moderated.then_some(Policy::PreModerateStrict),
                hold_flagged: self.plan.has(Fault::FlagVerdict).then_some(true),
                // Some have few a minute, and some so many and for so long that they would fill the wall.
                banner_items: Some(if has_few {
                    vec![BANNER_ITEM.into()]
                } else {
                    vec![BANNER_ITEM.into(), ROSE.into()]
                }),
                banner_rate: Some(if has_few { 2 } else { 30 }),
                banner_seconds: Some(if has_few { 15 } else { 600 }),
                ..RoomChange::default()
            };
            return Some(Command::PutRoom { room, change: change.into(), if_version: None });
        }
        let someone = self.rng.below(self.clients.len() as u64) as usize;
        let user = self.clients[someone].user.clone();
        let target = self.acked.get(&room).and_then(|ids| ids.len().checked_sub(1).map(|last| ids[last]));
        let draw = self.rng.below(10);
        let me = &mut self.actors[actor];
        let put =
            |change: RoomChange| Some(Command::PutRoom { room: room.clone(), change: change.into(), if_version: None });
        match draw {
            0 | 7 if me.banned.is_none() => {
                me.banned = Some(user.clone());
                let shadow = draw == 7;
                let purge = (!shadow && n.is_multiple_of(2)).then_some(Duration::from_secs(2));
                let ban = Ban { user, until: None, reason: "rude".into(), shadow };
                Some(Command::Ban { room, ban, purge })
            }
            9 if actor == 0 && n.is_multiple_of(2) => {
                Some(Command::EraseUser { by: name(UserId::parse("operator")), user })
            }
            7..=9 => None,
            1 | 2 => {
                let user = me.banned.take()?;
                Some(Command::Unban { room, user })
            }
            3 => {
                let target = RetractTarget::Event(target?);
                Some(Command::Retract { room, target, reason: "off topic".into() })
            }
            4 => {
                me.slow = !me.slow;
                put(RoomChange { slow_mode_seconds: Some(if me.slow { 3 } else { 0 }), ..RoomChange::default() })
            }
            5 => put(RoomChange { title: Some(format!("title {n}").into()), ..RoomChange::default() }),
            _ => {
                let target = RetractTarget::User(user);
                self.rng.chance(1, 3).then_some(Command::Retract { room, target, reason: "spam".into() })
            }
        }
    }

    /// What the newest process knows of tokens and of the site, and up to where it knows the log.
    pub fn final_of_no_room(&self) -> Option<(Position, Access, Site)> {
        let owner = &self.processes[self.current?].owner;
        Some((owner.head(), owner.access().clone(), owner.site().clone()))
    }

    /// Every room as the newest process knows it, and up to where it knows the log.
    pub fn final_rooms(&self) -> Option<(Position, Vec<RoomView>)> {
        let owner = &self.processes[self.current?].owner;
        Some((owner.head(), owner.rooms().cloned().collect()))
    }

    /// The highest revision of each score event of a room, as the newest process knows it.
    pub fn final_tops(&self) -> BTreeMap<RoomId, Arc<Snapshot>> {
        let Some(process) = self.current.map(|p| &self.processes[p]) else { return BTreeMap::new() };
        let rooms: Vec<RoomId> = process.owner.rooms().map(|view| view.room.clone()).collect();
        rooms.into_iter().filter_map(|room| Some((room.clone(), Arc::new(process.snapshot(&room)?)))).collect()
    }
}

/// The one match of a room.
pub(super) fn match_of(room: &RoomId) -> Key {
    name(Key::parse(&format!("match-{room}")))
}

/// What a client says under its nth key. Where rooms ask things of comments some are emotes and some are said again; not where they
/// are judged, because the classifier's opinions go by texts.
fn words(plan: &Plan, client: ClientIdx, n: u64) -> String {
    let varied = plan.has(Fault::Rules) && !plan.moderated;
    match n % 5 {
        1 if varied => format!(":client-{client}_{n}:"),
        3 if varied => format!("again, says client {client}"),
        _ => format!("comment {n} of client {client}"),
    }
}

/// An operator's order with its number, which nothing else has, as what it was justified by. What has a name of its own stays as it is.
fn signed(actor: ActorIdx, ask: u64, command: Command) -> Command {
    match command {
        Command::PutRoom { .. }
        | Command::Ban { .. }
        | Command::Unban { .. }
        | Command::Retract { .. }
        | Command::Decide { .. } => {
            let audit = Audit { what: ORDER.into(), justification: format!("{actor}-{ask}").into() };
            Command::Audited { by: name(UserId::parse("operator")), audit, command: Box::new(command) }
        }
        other => other,
    }
}

fn audited(shown: Position, command: Command) -> Command {
    let by = name(UserId::parse("desk"));
    let audit = Audit { what: AUDIT.into(), justification: shown.value().to_string().into() };
    Command::Audited { by, audit, command: Box::new(command) }
}

/// Revocations of each kind, some taken back, and outages, long enough that they meet.
fn warden(n: u64) -> Command {
    let by = name(UserId::parse("warden"));
    let lasts = Duration::from_secs(3_600);
    let user = Revoked::User(name(UserId::parse(&format!("user-{}", n / 6 % 4))));
    match n % 6 {
        1 => Command::Revoke { by, what: user, lasts },
        2 => Command::Revoke { by, what: Revoked::Session(format!("session-{n}").into()), lasts },
        3 => Command::Outage { by, lasts: Some(lasts) },
        4 => Command::Revoke { by, what: Revoked::Key(format!("key-{n}").into()), lasts },
        5 => Command::RevokeEnd { by, what: Revoked::Session(format!("session-{}", n - 3).into()) },
        _ if n.is_multiple_of(12) => Command::RevokeEnd { by, what: user },
        _ => Command::Outage { by, lasts: None },
    }
}
