//! What one viewer at one position is sent so that it stands at the head of its ring.
//!
//! A tour guide who fetches a straggler: every landmark is shown (priority events, in order), of the chatter on the way only
//! what is still fresh (comments younger than 2 s), and one sentence tells how much was passed over. Afterwards the
//! straggler stands where all others stand.
//!
//! It never passes over a priority event: one that has waited 10 s for a live viewer closes it, so that it resumes. It never
//! moves a place past anything that is neither in the plan nor counted in it. The awkward case is a catching-up viewer:
//! what its resume already told it is left out untold, what it was promised is sent however old, and only what has come
//! since is held to the 2 s.
//!
//! Of a wide room's winners a viewer is given a part: whoever sends a plan that [`Plan::holds_won`] picks among [`Walk::winners`]
//! and sends [`Walk::entries_given`]. Picks that come too late are counted like any comment ([`Walk::passed_over`]); what was not
//! picked is not.
//!
//! Numbers: 2 s and 10 s are the lanes' (docs/decisions/0005-numbers.md); a plan's bytes bound what a slow socket keeps.

use std::ops::Range;
use std::time::Duration;

use super::part::Windows;
use super::ring::{Entry, Ring};
use crate::ids::{EventId, Position};
use crate::planted::planted;
use crate::record::{Lane, Room};
use crate::time::Mono;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Comments older than this are passed over for a live viewer.
    pub comment_age: Duration,
    /// A priority event that waited longer closes a live viewer.
    pub priority_late: Duration,
    /// A plan weighs at most this (one entry always fits), of the winners of a wide room what a viewer is given of them, about.
    pub plan_bytes: u64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            comment_age: Duration::from_secs(2),
            priority_late: Duration::from_secs(10),
            // One socket's share: with the rest of a frame it stays below the 160 KB a connection may hold.
            plan_bytes: 64 << 10,
        }
    }
}

impl Limits {
    /// Those of a room with these settings.
    pub fn of(room: &Room) -> Limits {
        let any = Limits::default();
        let age = room.comment_age_ms.map(|ms| Duration::from_millis(u64::from(ms)));
        Limits { comment_age: age.unwrap_or(any.comment_age), ..any }
    }
}

/// Where one viewer of one room stands: all up to `position` was given or counted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    pub position: Position,
    /// Still being brought up after a resume.
    pub catch_up: Option<CatchUp>,
}

/// What a resume promised.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CatchUp {
    /// Comments up to here are not sent: the resume's own answer told them.
    pub comments_after: Position,
    /// Comments after that and up to here are sent however old they are: the head when the resume was answered.
    pub until: Position,
}

/// Comments a viewer was not sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Skipped {
    pub count: u64,
    pub from: EventId,
    pub to: EventId,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Nothing lies between the viewer and the head. [`Place::rest`] may still move it there.
    AtHead,
    Send(Plan),
    /// The ring does not hold what follows the viewer's place: a catching-up viewer reads the log's next page, a live one
    /// is closed with 4200.
    BelowFloor,
    /// A priority event has waited too long for this viewer: close 4200.
    Late,
}

/// What is sent and where the viewer stands afterwards. Two viewers with equal plans are sent the same bytes (unless
/// `private`). Valid until the ring is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Plan {
    /// Untold, promised, stale, fresh: consecutive places, of the first and third only the priority entries.
    parts: [Part; 4],
    pub skipped: Option<Skipped>,
    /// Where the viewer stands once this is sent.
    pub upto: Position,
    /// Nothing of the ring lies behind it.
    pub to_head: bool,
    /// Neither an event nor a skip to tell: only the place moves.
    pub empty: bool,
    /// Holds entries that are only for their author.
    pub private: bool,
    /// Holds winners of a wide room. `empty` does not speak of them.
    pub holds_won: bool,
    /// When the oldest priority event of it came: see [`is_late`].
    pub priority_since: Option<Mono>,
}

#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Part {
    from: u64,
    to: u64,
}

impl Part {
    fn range(self) -> Range<u64> {
        self.from..self.to
    }
}

impl Plan {
    /// How many of the places `given` are sent.
    pub fn n_sent(&self, given: &[u64]) -> u64 {
        let [_, promised, _, fresh] = self.parts;
        let is_sent = |place: &&u64| promised.range().contains(place) || fresh.range().contains(place);
        given.iter().filter(is_sent).count() as u64
    }
}

impl Place {
    pub fn live(position: Position) -> Place {
        Place { position, catch_up: None }
    }

    /// The viewer's next frame is `plan`: given to its socket, or kept as the unwritten rest of one frame.
    pub fn advance(&mut self, plan: &Plan) {
        assert!(plan.upto >= self.position, "a place never goes back");
        self.position = plan.upto;
        if plan.to_head {
            self.catch_up = None;
        }
    }

    /// The viewer was found at the head: it stands there, live.
    pub fn rest(&mut self, head: Position) {
        self.position = self.position.max(head);
        self.catch_up = None;
    }

    /// One page of the log was sent, complete for the room up to `upto`.
    pub fn advance_page(&mut self, upto: Position) {
        self.position = self.position.max(upto);
    }

    /// Whether an event of a log page is sent to this viewer: not what it has, and of the comments what was promised.
    pub fn wants(&self, id: EventId, lane: Lane) -> bool {
        let told = self.catch_up.is_some_and(|c| id.position() <= c.comments_after);
        (id.position() > self.position || planted(25)) && !(lane == Lane::Comment && told)
    }
}

/// Whether a priority event that came at `since` and still has not left the socket closes its viewer.
pub fn is_late(since: Mono, now: Mono, limits: &Limits) -> bool {
    now.since(since) > limits.priority_late
}

/// One walk over one ring at one moment; asked once for each viewer. Cost of a repeated place: a comparison.
#[derive(Debug)]
pub struct Walk<'r, P> {
    ring: &'r Ring<P>,
    limits: Limits,
    now: Mono,
    /// First place whose comments are fresh.
    fresh: u64,
    last: Option<(Place, Step)>,
}

impl<'r, P> Walk<'r, P> {
    pub fn new(ring: &'r Ring<P>, limits: Limits, now: Mono) -> Walk<'r, P> {
        let fresh = ring.place_younger(limits.comment_age, now);
        Walk { ring, limits, now, fresh, last: None }
    }

    pub fn head(&self) -> Position {
        self.ring.head()
    }

    /// What the viewer at `place` is sent next.
    pub fn step(&mut self, place: &Place) -> Step {
        if let Some((known, step)) = &self.last
            && known == place
        {
            return *step;
        }
        let step = self.plan(place);
        self.last = Some((*place, step));
        step
    }

    /// The winners of a plan's windows, whole where the ring has them whole: what lies before the viewer's place was picked
    /// from too, when it stood there.
    pub fn winners(&self, plan: &Plan) -> Windows {
        let [first, .., last] = plan.parts;
        let ring = self.ring;
        let window = |place: u64| ring.at(place).won.map(|lot| lot.window);
        let (mut from, mut to) = (first.from, last.to);
        let (begun, goes_on) = (window(from), window(to - 1));
        while from > ring.begin() && begun.is_some() && window(from - 1) == begun {
            from -= 1;
        }
        while to < ring.end() && goes_on.is_some() && window(to) == goes_on {
            to += 1;
        }
        Windows::gather((from..to).map(|place| (place, ring.at(place).won)))
    }

    /// The entries of a plan of this walk, in id order; of the winners only those whose places are in `given`, ascending.
    pub fn entries_given<'g>(
        &self,
        plan: &Plan,
        given: &'g [u64],
    ) -> impl Iterator<Item = &'r Entry<P>> + use<'r, 'g, P> {
        let ring = self.ring;
        let [untold, promised, stale, fresh] = plan.parts;
        let priority = move |part: Part| ring.priority_in(part.range());
        let stale = if planted(22) { Part { to: stale.from, ..stale } } else { stale };
        let places = priority(untold).chain(promised.range()).chain(priority(stale)).chain(fresh.range());
        let is_given = move |place: &u64| ring.at(*place).won.is_none() || given.binary_search(place).is_ok();
        places.filter(is_given).map(|place| ring.at(place))
    }

    /// What a plan tells as skipped to a viewer that would have been given these places, ascending.
    pub fn passed_over(&self, plan: &Plan, given: &[u64]) -> Option<Skipped> {
        let stale = plan.parts[2];
        let late = given.iter().copied().filter(|place| stale.range().contains(place) && !planted(35));
        let late = late.map(|place| self.ring.at(place)).filter(|entry| !entry.private);
        late.fold(plan.skipped, |all, Entry { id, .. }| {
            let Skipped { count, from, to } = all.unwrap_or(Skipped { count: 0, from: *id, to: *id });
            Some(Skipped { count: count + 1, from: from.min(*id), to: to.max(*id) })
        })
    }

    /// Winners of a plan that could be sent; what a viewer is spared are those less [`Plan::n_sent`].
    pub fn n_won(&self, plan: &Plan) -> u64 {
        let [_, promised, _, fresh] = plan.parts;
        self.ring.won_in(promised.range()) + self.ring.won_in(fresh.range())
    }

    fn plan(&self, place: &Place) -> Step {
        let ring = self.ring;
        if place.position < ring.floor() && !planted(24) {
            return Step::BelowFloor;
        }
        let (start, end) = (ring.place_after(place.position), ring.end());
        if start == end {
            return Step::AtHead;
        }
        let first_priority = ring.priority_in(start..end).next().map(|at| ring.at(at).at);
        if place.catch_up.is_none() && first_priority.is_some_and(|since| is_late(since, self.now, &self.limits)) {
            return Step::Late;
        }
        let (told, promised) = match place.catch_up {
            None => (start, start),
            Some(c) => {
                let told = ring.place_after(c.comments_after).max(start);
                (told, ring.place_after(c.until).max(told))
            }
        };
        let fresh = self.fresh.max(promised);
        let whole = [(start, told), (told, promised), (promised, fresh), (fresh, end)];
        let mut parts = [Part { from: end, to: end }; 4];
        let mut left = self.limits.plan_bytes;
        let mut stop = start;
        let mut any = false;
        for (idx, (from, to)) in whole.into_iter().enumerate() {
            let cut =
                if idx % 2 == 0 { self.cut_priority(from..to, left, any) } else { self.cut_all(from..to, left, any) };
            parts[idx] = Part { from, to: cut.to };
            left = left.saturating_sub(cut.bytes);
            any |= cut.any;
            stop = cut.to;
            if cut.to < to {
                parts[idx + 1..].fill(Part { from: stop, to: stop });
                break;
            }
        }
        let to_head = stop == end;
        let upto = if to_head || planted(21) { ring.head() } else { ring.at(stop - 1).id.position() };
        let skipped = self.skipped(parts[2].range()).filter(|_| !planted(23));
        Step::Send(Plan {
            parts,
            skipped,
            empty: !any && skipped.is_none(),
            upto,
            to_head,
            private: ring.private_in(parts[1].range()) + ring.private_in(parts[3].range()) > 0,
            holds_won: ring.won_in(parts[1].from..stop) > 0,
            priority_since: first_priority,
        })
    }

    /// How much of a stretch fits when only its priority entries are sent.
    fn cut_priority(&self, places: Range<u64>, left: u64, any: bool) -> Cut {
        let (mut bytes, mut sent) = (0, false);
        for place in self.ring.priority_in(places.clone()) {
            let weight = u64::from(self.ring.at(place).bytes);
            if bytes + weight > left && (any || sent) {
                return Cut { to: place, bytes, any: true };
            }
            bytes += weight;
            sent = true;
        }
        Cut { to: places.end, bytes, any: sent }
    }

    /// How much of a stretch fits when all of it is sent.
    fn cut_all(&self, places: Range<u64>, left: u64, any: bool) -> Cut {
        let first = if places.is_empty() { 0 } else { u64::from(self.ring.at(places.start).bytes) };
        if any && first > left {
            return Cut { to: places.start, bytes: 0, any };
        }
        let to = self.ring.end_within(places.clone(), left);
        Cut { to, bytes: self.ring.load_in(places.start..to), any: to > places.start }
    }

    fn skipped(&self, stale: Range<u64>) -> Option<Skipped> {
        let count = self.ring.comments_in(stale.clone()).saturating_sub(u64::from(planted(27)));
        let comment = |entry: &&Entry<P>| entry.lane == Lane::Comment && !entry.private && entry.won.is_none();
        let from = self.ring.span(stale.clone()).find(comment)?.id;
        let to = self.ring.span(stale).rev().find(comment)?.id;
        Some(Skipped { count, from, to })
    }
}

struct Cut {
    to: u64,
    bytes: u64,
    /// Something of it is sent.
    any: bool,
}

#[cfg(test)]
mod tests {
    use super::{CatchUp, Limits, Place, Skipped, Step, Walk};
    use crate::ids::{EventId, Position, Pseq};
    use crate::record::{Lane, Room};
    use crate::time::Mono;
    use crate::viewer::ring::{self, Entry, Ring};

    const S: u64 = 1_000_000;

    fn id(n: u64) -> EventId {
        EventId::new((7 << 33) + n).unwrap()
    }
    fn pos(n: u64) -> Position {
        id(n).position()
    }

    /// `c3@1` is a comment with id 3 that came at 1 s; `s` is a score, `p` a private comment. Each weighs 100 bytes.
    fn ring(script: &str) -> Ring<()> {
        let mut ring = Ring::new(pos(0), Pseq(0), ring::Limits::default());
        for word in script.split_whitespace() {
            let (kind, rest) = word.split_at(1);
            let (n, at) = rest.split_once('@').unwrap();
            let score = kind == "s";
            ring.push(Entry {
                id: id(n.parse().unwrap()),
                lane: if score { Lane::Priority } else { Lane::Comment },
                closes_window: score,
                private: kind == "p",
                pseq: score.then(|| ring.pseq().next()),
                won: None,
                at: Mono(at.parse::<u64>().unwrap() * S),
                bytes: 100,
                payload: (),
            });
        }
        ring
    }

    /// `sent | skipped count from-to | upto` of one step, or the step's name.
    fn check(script: &str, place: Place, now_s: u64, limits: Limits, expect: &str) {
        let ring = ring(script);
        let mut walk = Walk::new(&ring, limits, Mono(now_s * S));
        let step = walk.step(&place);
        let said = match step {
            Step::Send(plan) => {
                let low = |id: EventId| id.seq().value();
                let ids: Vec<String> = walk.entries_given(&plan, &[]).map(|e| low(e.id).to_string()).collect();
                let skipped = plan
                    .skipped
                    .map_or(String::new(), |Skipped { count, from, to }| format!("{count} {}-{}", low(from), low(to)));
                format!("{} | {skipped} | {}", ids.join(" "), low(plan.upto.event_id().unwrap()))
            }
            other => format!("{other:?}"),
        };
        assert_eq!(said, expect, "{script}");
    }

    fn live(n: u64) -> Place {
        Place::live(pos(n))
    }
    fn limits() -> Limits {
        Limits::default()
    }

    #[test]
    fn a_viewer_at_the_head_is_sent_nothing() {
        check("c1@0 c2@0", live(2), 0, limits(), "AtHead");
    }

    #[test]
    fn fresh_comments_are_all_sent() {
        check("c1@0 c2@1 s3@2 c4@2", live(1), 2, limits(), "2 3 4 |  | 4");
    }

    #[test]
    fn stale_comments_are_passed_over_and_told_once_with_their_range() {
        check("s1@0 c2@0 c3@1 s4@1 c5@1 c6@4", live(0), 5, limits(), "1 4 6 | 3 2-5 | 6");
    }

    #[test]
    fn a_room_may_have_a_comment_age_of_its_own() {
        let room = |ms| Room { comment_age_ms: ms, ..Room::fresh("r") };
        assert_eq!(Limits::of(&room(None)), Limits::default());
        let script = "c1@0 s2@0 c3@1 c4@4";
        check(script, live(0), 4, Limits::of(&room(Some(500))), "2 4 | 2 1-3 | 4");
        check(script, live(0), 4, Limits::of(&room(Some(10_000))), "1 2 3 4 |  | 4");
    }

    #[test]
    fn a_priority_event_that_waited_over_ten_seconds_closes() {
        check("c1@0 s2@0 c3@9", live(0), 10, limits(), "2 3 | 1 1-1 | 3");
        check("c1@0 s2@0 c3@9", live(0), 11, limits(), "Late");
        check("c1@0 s2@0 c3@9", live(2), 11, limits(), "3 |  | 3");
    }

    #[test]
    fn catching_up_sends_the_promised_leaves_the_told_and_skips_only_what_came_since() {
        let catch_up = Some(CatchUp { comments_after: pos(3), until: pos(6) });
        let place = Place { position: pos(1), catch_up };
        let script = "c1@0 c2@0 s3@0 c4@0 c5@0 s6@0 c7@1 s8@1 c9@20";
        check(script, place, 20, limits(), "3 4 5 6 8 9 | 1 7-7 | 9");
    }

    #[test]
    fn a_plan_is_cut_by_bytes_and_the_next_goes_on_from_there() {
        let limits = Limits { plan_bytes: 250, ..limits() };
        let script = "c1@0 s2@0 c3@0 s4@0 c5@0 s6@0 c7@4";
        check(script, live(0), 4, limits, "2 4 | 3 1-5 | 5");
        check(script, live(5), 4, limits, "6 7 |  | 7");
        check("c1@4 c2@4 c3@4", live(0), 4, limits, "1 2 |  | 2");
        check("c1@4 c2@4 c3@4", live(0), 4, Limits { plan_bytes: 1, ..limits }, "1 |  | 1");
    }

    #[test]
    fn private_entries_are_in_the_plan_but_never_counted() {
        check("p1@0 c2@0 p3@0 c4@4", live(0), 4, limits(), "4 | 1 2-2 | 4");
        check("c2@4 p3@4 c4@4", live(0), 4, limits(), "2 3 4 |  | 4");
    }

    #[test]
    fn below_the_floor_is_said() {
        let mut ring = ring("c1@0 c2@40");
        ring.trim(Mono(40 * S));
        let mut walk = Walk::new(&ring, limits(), Mono(40 * S));
        assert_eq!(walk.step(&live(0)), Step::BelowFloor);
        assert!(matches!(walk.step(&live(1)), Step::Send(_)));
    }
}
