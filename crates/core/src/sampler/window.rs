//! The window: which candidates of a moment are sequenced into the room's ordered log.
//!
//! A lottery in which every author has one ticket a window, drawn from the window's seed, and the weight of the comment bends
//! the ticket upwards. The best tickets win; the next best wait up to five seconds for a reply or a reaction, which lift
//! them into the draw again. Those that nothing lifts win only what places a quiet moment leaves free, and only for three windows,
//! so a room that says more than it shows, or about as much, shows what is said now.
//! Posting more brings no second ticket, so a spammer is as likely to be shown as anybody.
//!
//! It promises: at most one winner an author a window, at most [`Settings::winners`] by lot and [`Settings::by_right`] by
//! right, equal chances for equal weights, fixed memory however much is said, and the same winners for the same seed and
//! the same offers. The awkward case is a text said a thousand times: the ones that are offered while it is in the
//! draw fold into it and are counted, and do not raise it. One that comes while it waits takes its place and its count, with
//! its own author's ticket.
//!
//! A ticket is `-ln(u) / weight`, the smallest win (Efraimidis and Spirakis, 2006); `u` is a hash of (seed, window, author).

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::{Candidate, Weights, fold};
use crate::hash::Seeded;
use crate::ids::EventId;
use crate::names::UserId;
use crate::record::{Record, RetractTarget};
use crate::rng::Rng;
use crate::routing::stable_hash;
use crate::time::Mono;

/// By lot, a window. Source of both: docs/decisions/0005-numbers.md.
pub const WINNERS: usize = 64;
/// By right, beside them.
pub const BY_RIGHT: usize = 32;
/// Three windows: what takes a free place is shown within 800 ms, its frame included (docs/decisions/0039-free-places.md).
const FREE: Duration = Duration::from_millis(600);

/// Numbers: docs/decisions/0005-numbers.md.
#[derive(Clone, Debug)]
pub struct Settings {
    pub weights: Weights,
    /// By lot, a window.
    pub winners: usize,
    /// Comments that answer or name somebody who is here, beside the winners by lot, a window.
    pub by_right: usize,
    /// Candidates that lost and wait to be lifted, or for a place that is free.
    pub waiting: usize,
    /// How long they wait to be lifted.
    pub carry: Duration,
    /// How old what is not lifted may be to take a place that is free.
    pub free: Duration,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            weights: Weights::default(),
            winners: WINNERS,
            by_right: BY_RIGHT,
            waiting: 192,
            carry: Duration::from_secs(5),
            free: FREE,
        }
    }
}

/// One addressee is given at most one comment by right in this time.
const RIGHT_EVERY: Duration = Duration::from_secs(1);
/// Addressees whose last right is remembered; past it, nobody wins by right until the second is over.
const ADDRESSEES_MAX: usize = 4_096;

/// What happened to an offered comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Offered {
    /// It is a candidate now.
    Held,
    /// It wins by right when the window closes.
    ByRight,
    /// It says what a candidate says already, which counts it.
    Folded,
    /// Its author's better comment, or better tickets, keep it out.
    Lost,
}

/// A comment that is to be sequenced, once moderation has let it pass.
#[derive(Clone, Debug)]
pub struct Winner {
    pub candidate: Candidate,
    pub weight: u32,
    /// Texts folded into it.
    pub repeats: u32,
    /// Beside the lot.
    pub by_right: bool,
}

/// A ticket's place: smaller wins; of two that are alike the older.
type Ticket = (u64, EventId);

#[derive(Debug)]
struct Held {
    candidate: Candidate,
    weight: u32,
    repeats: u32,
    folded: Box<str>,
    /// `-ln(u)` of its author in the window it was offered in.
    luck: f64,
}

/// The lottery of one wide room.
#[derive(Debug)]
pub struct Window {
    settings: Settings,
    seed: u64,
    number: u64,
    /// In the draw: said in this window, or lifted since.
    fresh: BTreeMap<Ticket, Held>,
    /// Lost, and not lifted yet. A ticket is in one of the two.
    waiting: BTreeMap<Ticket, Held>,
    by_author: HashMap<UserId, Ticket, Seeded>,
    by_text: HashMap<Box<str>, Ticket, Seeded>,
    by_id: HashMap<EventId, Ticket, Seeded>,
    right: Vec<Winner>,
    /// Authors with a ticket in this window, and in the last.
    tickets: usize,
    drawn_of: usize,
    /// Candidates that are none any more and did not win, since [`Window::take_gone`].
    gone: Vec<Arc<Record>>,
    /// Addressees by the end of their second.
    addressed: HashMap<UserId, Mono, Seeded>,
}

impl Window {
    /// `seed` decides every lot: the owner's own, made of its epoch and the room, so that nobody outside can foresee it.
    pub fn new(settings: Settings, seed: u64) -> Window {
        assert!(settings.winners > 0, "a window without winners shows nothing");
        let hasher = Seeded(seed);
        Window {
            settings,
            seed,
            number: 0,
            fresh: BTreeMap::new(),
            waiting: BTreeMap::new(),
            by_author: HashMap::with_hasher(hasher),
            by_text: HashMap::with_hasher(hasher),
            by_id: HashMap::with_hasher(hasher),
            right: Vec::new(),
            tickets: 0,
            drawn_of: 0,
            gone: Vec::new(),
            addressed: HashMap::with_hasher(hasher),
        }
    }

    /// The number of the window that was closed last.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// Passes over numbers, so that the next window to close has this one, or the one after the last when that is higher.
    pub fn skip_to(&mut self, number: u64) {
        self.number = self.number.max(number.saturating_sub(1));
    }

    /// A room's operator changed what raises a comment; those held are weighed anew when they are raised.
    pub fn set_weights(&mut self, weights: &Weights) {
        if self.settings.weights != *weights {
            self.settings.weights = weights.clone();
        }
    }

    /// Who said what waits to be lifted. `None` for what does not wait.
    pub fn author_of(&self, id: EventId) -> Option<&UserId> {
        let ticket = self.by_id.get(&id)?;
        Some(self.fresh.get(ticket).or_else(|| self.waiting.get(ticket))?.candidate.author())
    }

    /// What was a candidate and will not win, each told once. What was never held is told by [`Offered`] alone.
    pub fn take_gone(&mut self) -> Vec<Arc<Record>> {
        std::mem::take(&mut self.gone)
    }

    /// Candidates held now, those by right included.
    pub fn len(&self) -> usize {
        self.fresh.len() + self.waiting.len() + self.right.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub fn offer(&mut self, candidate: Candidate, now: Mono) -> Offered {
        let folded = fold::fold(&candidate.comment().text);
        let same = self.by_text.get(&folded).copied();
        if let Some(held) = same.and_then(|ticket| self.fresh.get_mut(&ticket)) {
            held.repeats += 1;
            return Offered::Folded;
        }
        if self.take_right(&candidate, now) {
            let weight = candidate.weight(&self.settings.weights);
            let repeats = same.map_or(0, |waits| self.supersede(waits));
            self.right.push(Winner { candidate, weight, repeats, by_right: true });
            return Offered::ByRight;
        }
        let weight = candidate.weight(&self.settings.weights);
        let luck = self.luck(candidate.author());
        let ticket = ticket(luck, weight, candidate.id());
        let own = self.by_author.get(candidate.author()).copied();
        match own.filter(|own| self.fresh.contains_key(own)) {
            Some(own) if own <= ticket => return self.lost(same),
            Some(_) => {}
            None => {
                self.tickets += 1;
                if self.fresh.len() >= self.settings.winners + self.settings.waiting {
                    let (&worst, _) = self.fresh.last_key_value().expect("a full window holds something");
                    if worst <= ticket {
                        return self.lost(same);
                    }
                    self.drop_held(worst);
                }
            }
        }
        // What waits for its author or with its text gives its place to what is said now.
        let repeats = same.map_or(0, |waits| self.supersede(waits));
        if let Some(own) = own.filter(|own| same != Some(*own)) {
            self.drop_held(own);
        }
        self.put(ticket, Held { candidate, weight, repeats, folded, luck });
        Offered::Held
    }

    /// What waits with a text that is said again is overtaken; how many texts it stood for, with its own.
    fn supersede(&mut self, waits: Ticket) -> u32 {
        let repeats = self.waiting[&waits].repeats + 1;
        self.drop_held(waits);
        repeats
    }

    /// A comment has no luck; what waits with its text is counted up.
    fn lost(&mut self, same: Option<Ticket>) -> Offered {
        match same.and_then(|waits| self.waiting.get_mut(&waits)) {
            Some(waits) => {
                waits.repeats += 1;
                Offered::Folded
            }
            None => Offered::Lost,
        }
    }

    /// Somebody answered or reacted to a candidate. Nothing happens when it is none any more.
    pub fn raise(&mut self, id: EventId, replies: u32, reactions: u32) {
        let Some(&old) = self.by_id.get(&id) else { return };
        let mut held = self.remove(old);
        held.candidate.replies = held.candidate.replies.saturating_add(replies);
        held.candidate.reactions = held.candidate.reactions.saturating_add(reactions);
        held.weight = held.candidate.weight(&self.settings.weights);
        self.put(ticket(held.luck, held.weight, id), held);
    }

    /// Takes what must not be shown out of the window.
    pub fn retract(&mut self, target: &RetractTarget) {
        let is_meant = |it: &Candidate| target.means(it.id(), Some(it.author()), it.record().ts);
        let meant = self.held().filter(|(_, held)| is_meant(&held.candidate)).map(|(ticket, _)| *ticket);
        for ticket in meant.collect::<Vec<_>>() {
            self.drop_held(ticket);
        }
        let right = self.right.extract_if(.., |winner| is_meant(&winner.candidate));
        self.gone.extend(right.map(|winner| winner.candidate.record));
    }

    /// Nobody in it speaks to this user any more.
    pub fn forget(&mut self, user: &UserId) {
        let held = self.fresh.values_mut().chain(self.waiting.values_mut());
        held.for_each(|held| held.candidate.forget(user));
        self.right.iter_mut().for_each(|winner| winner.candidate.forget(user));
        self.addressed.remove(user);
    }

    /// Ends the window: those by right and the best tickets, in order of arrival. Candidates older than the carry go; of the
    /// others the best wait.
    pub fn close(&mut self, now: Mono) -> Vec<Winner> {
        self.number += 1;
        let mut winners = std::mem::take(&mut self.right);
        // One winner an author: who wins by right needs no luck.
        for winner in &winners {
            if let Some(&ticket) = self.by_author.get(winner.candidate.author()) {
                self.drop_held(ticket);
            }
        }
        self.drawn_of = std::mem::take(&mut self.tickets);
        let first = self.may_win(now).map(|(ticket, _)| *ticket).take(self.settings.winners).collect();
        winners.extend(self.win(first));
        let carry = self.settings.carry;
        for (ticket, held) in std::mem::take(&mut self.fresh) {
            match held.candidate.is_lifted() {
                true => self.fresh.insert(ticket, held),
                false => self.waiting.insert(ticket, held),
            };
        }
        let late = self.held().filter(|(_, held)| now.since(held.candidate.at) >= carry).map(|(ticket, _)| *ticket);
        for ticket in late.collect::<Vec<_>>() {
            self.drop_held(ticket);
        }
        let beyond = self.waiting.keys().skip(self.settings.waiting).copied().collect::<Vec<_>>();
        for ticket in beyond {
            self.drop_held(ticket);
        }
        self.addressed.retain(|_, until| *until > now);
        winners.sort_by_key(|w| w.candidate.id());
        winners
    }

    /// The next best `n` candidates of authors who may win: in place of winners that moderation did not let pass. In order of
    /// arrival. Whoever waits by right is passed over: what was said first is shown first.
    pub fn draw(&mut self, n: usize, now: Mono, may_win: impl Fn(&UserId) -> bool) -> Vec<Winner> {
        let waits_by_right = |author: &UserId| self.right.iter().any(|winner| winner.candidate.author() == author);
        let may_win = |author: &UserId| may_win(author) && !waits_by_right(author);
        // The few that are fresh already are of the next window: they come by their tickets here, or they would win for sure.
        let fit = self.may_win(now).filter(|(_, held)| may_win(held.candidate.author()));
        let mut best: Vec<Ticket> = fit.map(|(ticket, _)| *ticket).collect();
        best.sort_unstable();
        best.truncate(n);
        let mut winners = self.win(best);
        winners.sort_by_key(|w| w.candidate.id());
        winners
    }

    fn win(&mut self, tickets: Vec<Ticket>) -> Vec<Winner> {
        let winner = |ticket| {
            let Held { candidate, weight, repeats, .. } = self.remove(ticket);
            Winner { candidate, weight, repeats, by_right: false }
        };
        tickets.into_iter().map(winner).collect()
    }

    /// Authors that had a ticket in the window closed last.
    pub fn drawn_of(&self) -> usize {
        self.drawn_of
    }

    /// The room becomes narrow: a last window, and nobody waits behind it.
    pub fn finish(&mut self, now: Mono) -> Vec<Winner> {
        let winners = self.close(now);
        for ticket in self.held().map(|(ticket, _)| *ticket).collect::<Vec<_>>() {
            self.drop_held(ticket);
        }
        let gone = std::mem::take(&mut self.gone);
        *self = Window { number: self.number, gone, ..Window::new(self.settings.clone(), self.seed) };
        winners
    }

    /// Whether it wins beside the lot; takes the addressee's place when so.
    fn take_right(&mut self, candidate: &Candidate, now: Mono) -> bool {
        let Some(addressee) = candidate.addressee() else { return false };
        if self.right.len() >= self.settings.by_right
            || addressee == candidate.author()
            || self.right.iter().any(|w| w.candidate.author() == candidate.author())
        {
            return false;
        }
        let free = match self.addressed.get(addressee) {
            Some(until) => *until <= now,
            None => self.addressed.len() < ADDRESSEES_MAX,
        };
        if free {
            self.addressed.insert(addressee.clone(), now + RIGHT_EVERY);
        }
        free
    }

    /// `-ln(u)` with `u` in (0, 1]: an author's luck in this window.
    fn luck(&self, author: &UserId) -> f64 {
        let mut lot = Rng::new(self.seed ^ stable_hash(author.as_str().as_bytes()) ^ self.number.rotate_left(32));
        let u = ((lot.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64;
        -u.ln()
    }

    /// Those that may win now: those in the draw before those that wait and are young enough for a free place, each by their tickets.
    fn may_win(&self, now: Mono) -> impl Iterator<Item = (&Ticket, &Held)> {
        let free = self.settings.free;
        let young = move |(_, held): &(&Ticket, &Held)| now.since(held.candidate.at) < free;
        self.fresh.iter().chain(self.waiting.iter().filter(young))
    }

    /// All that have a ticket: those in the draw before those that wait, each by their tickets.
    fn held(&self) -> impl Iterator<Item = (&Ticket, &Held)> {
        self.fresh.iter().chain(&self.waiting)
    }

    /// Into the draw.
    fn put(&mut self, ticket: Ticket, held: Held) {
        self.by_author.insert(held.candidate.author.clone(), ticket);
        self.by_id.insert(held.candidate.id(), ticket);
        self.by_text.insert(held.folded.clone(), ticket);
        self.fresh.insert(ticket, held);
    }

    /// Takes out what will not win.
    fn drop_held(&mut self, ticket: Ticket) {
        let held = self.remove(ticket);
        self.gone.push(held.candidate.record);
    }

    fn remove(&mut self, ticket: Ticket) -> Held {
        let held = self.fresh.remove(&ticket).or_else(|| self.waiting.remove(&ticket));
        let held = held.expect("a ticket of an index is held");
        self.by_author.remove(&held.candidate.author);
        self.by_id.remove(&held.candidate.id());
        self.by_text.remove(&held.folded);
        held
    }
}

/// A finite, positive luck over a weight orders like its bits.
fn ticket(luck: f64, weight: u32, id: EventId) -> Ticket {
    ((luck / f64::from(weight)).to_bits(), id)
}
