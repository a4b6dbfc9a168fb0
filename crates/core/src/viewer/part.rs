//! The part of a wide room's comments that one viewer is given.
//!
//! A newspaper cut for each reader from one print: the winners of every window are in the ring or on a page of the log once, and
//! [`Windows`] says which of them a reader is given: its picks ([`pick`]), and beside them what was said to the reader itself.
//! Nothing else is ever left out: an entry that is no winner is not known here.
//!
//! It promises the same part for the same viewer wherever the window is read from, because nothing of a window is picked that
//! is not whole: of one that a cursor lies within, what lies before the cursor is read too, and picked from. The awkward case is a
//! retracted winner: it keeps its place in the window and is shown to nobody, so that nobody else's picks move.

use crate::ids::EventId;
use crate::planted::planted;
use crate::sampler::pick::{self, Table, ViewerKey, WindowNumber};
use crate::sampler::silence::Due;

/// What the pick must know of a window's winner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lot {
    pub window: WindowNumber,
    /// Winners of its window, itself included.
    pub of: u32,
    /// At least 1.
    pub weight: u32,
    pub author: ViewerKey,
    /// The comment it answers.
    pub thread: Option<EventId>,
    /// Whom it is given to beside the picks.
    pub addressee: Option<ViewerKey>,
    /// Of a thousand viewers how many are given it, about: see [`share_milli`].
    pub share_milli: u16,
}

/// Of a thousand viewers how many are given one of `of` winners, about: what it weighs in what a viewer is sent. At least 1.
pub fn share_milli(of: u32, cap_milli: u64) -> u16 {
    let a_thousand_windows = cap_milli * pick::WINDOW_MS / 1_000;
    a_thousand_windows.div_ceil(u64::from(of).max(1)).clamp(1, 1_000) as u16
}

/// Whom a viewer follows: most of a window's authors are told apart from them by one bit.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Follows {
    /// Ascending.
    keys: Vec<ViewerKey>,
    bits: [u64; 4],
}

/// Of a viewer that follows nobody.
pub static NOBODY: Follows = Follows { keys: Vec::new(), bits: [0; 4] };

impl Follows {
    pub fn new(keys: impl IntoIterator<Item = ViewerKey>) -> Follows {
        let mut follows = Follows { keys: keys.into_iter().collect(), ..Follows::default() };
        follows.keys.sort_unstable();
        follows.keys.dedup();
        for key in &follows.keys {
            follows.bits[(key.0 >> 6 & 3) as usize] |= 1 << (key.0 & 63);
        }
        follows
    }

    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    fn has(&self, author: ViewerKey) -> bool {
        let may = self.bits[(author.0 >> 6 & 3) as usize] & 1 << (author.0 & 63) != 0;
        may && self.keys.binary_search(&author).is_ok()
    }
}

/// For whom the part is cut.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    pub key: ViewerKey,
    /// Comments a thousand seconds.
    pub cap_milli: u64,
    pub follows: &'a Follows,
    /// The comments it answered lately.
    pub threads: &'a [EventId],
}

impl Reader<'_> {
    fn follows(&self, lot: &Lot) -> bool {
        self.follows.has(lot.author) || lot.thread.is_some_and(|id| self.threads.contains(&id))
    }
}

/// The whole windows of a stretch of events.
#[derive(Clone, Debug, Default)]
pub struct Windows {
    list: Vec<One>,
    n_won: usize,
    /// Whom of a window a viewer follows, for the time of one pick.
    followed: Vec<usize>,
}

#[derive(Clone, Debug)]
struct One {
    table: Table,
    /// Where its winners are in what it was gathered from, ascending.
    places: Vec<u64>,
    lots: Vec<Lot>,
    /// Winners that somebody is given beside the picks.
    addressed: Vec<(ViewerKey, usize)>,
}

impl Windows {
    /// Of events in id order, each with its place; what is no winner is passed over. Winners of one window follow one another.
    pub fn gather(events: impl Iterator<Item = (u64, Option<Lot>)>) -> Windows {
        let mut all = Windows::default();
        let mut run: Vec<(u64, Lot)> = Vec::new();
        for (place, lot) in events {
            let Some(lot) = lot else { continue };
            if run.last().is_some_and(|(_, last)| (last.window, last.of) != (lot.window, lot.of)) {
                all.close(&mut run);
            }
            run.push((place, lot));
            if run.len() == lot.of as usize {
                all.close(&mut run);
            }
        }
        all.close(&mut run);
        all
    }

    fn close(&mut self, run: &mut Vec<(u64, Lot)>) {
        let Some((_, last)) = run.last() else { return };
        self.n_won += run.len();
        if run.len() == last.of as usize || planted(34) {
            let addressed = run.iter().enumerate().filter_map(|(at, (_, lot))| Some((lot.addressee?, at)));
            self.list.push(One {
                table: Table::new(last.window, run.iter().map(|(_, lot)| lot.weight.max(1)).collect()),
                addressed: addressed.collect(),
                places: run.iter().map(|(place, _)| *place).collect(),
                lots: run.iter().map(|(_, lot)| *lot).collect(),
            });
        }
        run.clear();
    }

    /// The windows that are whole.
    pub fn numbers(&self) -> impl Iterator<Item = WindowNumber> {
        self.list.iter().map(|one| one.table.window())
    }

    /// Winners in what was gathered, those of broken windows included.
    pub fn n_won(&self) -> usize {
        self.n_won
    }

    /// [`Windows::pick`] for a live viewer to whom this is due; gives what it came to. Who has waited because it was slow has its
    /// part of all it was passed by in.
    pub fn pick_due(&mut self, due: Due, reader: &Reader<'_>, given: &mut Vec<u64>) -> Due {
        if due == Due::Nothing {
            self.pick(&Reader { cap_milli: 0, ..*reader }, given);
            return Due::Nothing;
        }
        let before = given.len();
        self.pick(reader, given);
        if due == Due::Part || given.len() > before {
            return Due::Part;
        }
        self.pick_last(reader, given);
        Due::Word
    }

    /// One of the last whole window alone, and what is addressed to the viewer: for one who has waited long.
    fn pick_last(&mut self, reader: &Reader<'_>, given: &mut Vec<u64>) {
        let last = self.list.len().saturating_sub(1);
        for (at, one) in self.list.iter_mut().enumerate() {
            // A thousand seconds hold so many windows: one pick each.
            let cap_milli = if at == last { 1_000_000 / pick::WINDOW_MS } else { 0 };
            one.pick(&Reader { cap_milli, ..*reader }, &mut self.followed, given);
        }
    }

    /// Appends the places of the winners this viewer is given, ascending.
    pub fn pick(&mut self, reader: &Reader<'_>, given: &mut Vec<u64>) {
        for one in &mut self.list {
            one.pick(reader, &mut self.followed, given);
        }
    }
}

/// Where the window begins whose end a page lacks: the next page has it whole. `None` where it ends with a whole window, with
/// anything else, or within the only window it holds. Of each event its window and how many winners that has.
pub fn broken_end(page: &[Option<(WindowNumber, u32)>]) -> Option<usize> {
    let last = page.last().copied().flatten()?;
    let n = page.iter().rev().take_while(|window| **window == Some(last)).count();
    (n < last.1 as usize && n < page.len()).then(|| page.len() - n)
}

/// How many winners of its first window a page lacks: they lie before it, and nothing of the window is picked without them. Of a
/// page that does not break off within its only window.
pub fn lacks_before(page: &[Option<(WindowNumber, u32)>]) -> usize {
    let Some(first) = page.first().copied().flatten() else { return 0 };
    let n = page.iter().take_while(|window| **window == Some(first)).count();
    if planted(34) { 0 } else { (first.1 as usize).saturating_sub(n) }
}

/// Where what follows the window begins whose start a page lacks, with the same exceptions.
pub fn broken_start(page: &[Option<(WindowNumber, u32)>]) -> Option<usize> {
    let first = page.first().copied().flatten()?;
    let n = page.iter().take_while(|window| **window == Some(first)).count();
    (n < first.1 as usize && n < page.len()).then_some(n)
}

impl One {
    fn pick(&mut self, reader: &Reader<'_>, followed: &mut Vec<usize>, given: &mut Vec<u64>) {
        let One { table, places, lots, addressed } = self;
        let from = given.len();
        let quota = pick::quota(reader.key, table.window(), reader.cap_milli, pick::WINDOW_MS);
        let picked = |at: usize| given.push(places[at]);
        followed.clear();
        if !(reader.follows.is_empty() && reader.threads.is_empty()) {
            followed.extend((0..lots.len()).filter(|at| reader.follows(&lots[*at])));
        }
        match followed.is_empty() {
            true => table.pick(reader.key, quota, picked),
            false => table.pick_followed(reader.key, quota, followed, picked),
        }
        for (addressee, at) in addressed {
            if *addressee == reader.key
                && let Err(gap) = given[from..].binary_search(&places[*at])
            {
                given.insert(from + gap, places[*at]);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Follows, Lot, NOBODY, Reader, Windows, broken_end, broken_start, share_milli};
    use crate::ids::EventId;
    use crate::sampler::pick::{ViewerKey, WindowNumber};
    use crate::sampler::silence::Due;

    fn lot(window: u64, of: u32) -> Lot {
        let window = WindowNumber(window);
        Lot { window, of, weight: 1, author: ViewerKey(u64::MAX), thread: None, addressee: None, share_milli: 78 }
    }

    fn reader(key: u64) -> Reader<'static> {
        Reader { key: ViewerKey(key), cap_milli: 5_000, follows: &NOBODY, threads: &[] }
    }

    fn given(windows: &mut Windows, reader: &Reader<'_>) -> Vec<u64> {
        let mut given = Vec::new();
        windows.pick(reader, &mut given);
        given
    }

    /// Places 0, 1, 2 … in windows of these sizes.
    fn windows(sizes: &[u32], change: impl Fn(u64, &mut Lot)) -> Windows {
        let lots = sizes.iter().zip(1..).flat_map(|(of, n)| (0..*of).map(move |_| lot(n, *of)));
        Windows::gather(lots.enumerate().map(|(place, mut lot)| {
            change(place as u64, &mut lot);
            (place as u64, Some(lot))
        }))
    }

    #[test]
    fn each_whole_window_gives_its_quota_and_a_broken_one_nothing() {
        let mut whole = windows(&[64, 64, 3], |_, _| {});
        let all = given(&mut whole, &reader(7));
        assert_eq!(all.len(), 3);
        assert!(all[0] < 64 && (64..128).contains(&all[1]) && all[2] >= 128);
        let lots = (0..64).map(|n| (n, Some(lot(1, 64)))).chain((64..128).map(|n| (n, Some(lot(2, 64)))));
        let mut cut = Windows::gather(lots.skip(1));
        assert_eq!(given(&mut cut, &reader(7)), all[1..2], "the same of the window that is whole");
        assert_eq!(cut.n_won(), 127);
    }

    #[test]
    fn a_winner_weighs_what_a_viewer_is_given_of_it() {
        assert_eq!([1, 4, 64].map(|of| share_milli(of, 5_000)), [1_000, 250, 16]);
        assert_eq!([1, 10, 64].map(|of| share_milli(of, 50_000)), [1_000, 1_000, 157]);
        assert_eq!(share_milli(u32::MAX, 0), 1);
    }

    #[test]
    fn a_page_ends_and_begins_with_whole_windows() {
        // `2/3` is a winner of window 2, which has three; `c` a comment of a narrow room.
        let page = |script: &str| {
            let window = |word: &str| {
                let (window, of) = word.split_once('/')?;
                Some((WindowNumber(window.parse().unwrap()), of.parse().unwrap()))
            };
            script.split_whitespace().map(window).collect::<Vec<_>>()
        };
        for (script, end, start) in [
            ("", None, None),
            ("c c", None, None),
            ("1/2 1/2 2/2 2/2", None, None),
            ("c 1/2 1/2 2/3 2/3", Some(3), None),
            ("1/2 2/2 2/2 c", None, Some(1)),
            ("1/3 1/3 c", None, Some(2)),
            ("1/3 1/3", None, None),
        ] {
            assert_eq!((broken_end(&page(script)), broken_start(&page(script))), (end, start), "{script}");
        }
    }

    #[test]
    fn a_page_that_begins_within_a_window_says_how_much_lies_before_it() {
        let of = |page: &[(u64, u32)]| -> usize {
            let page: Vec<_> = page.iter().map(|(n, of)| (*n > 0).then_some((WindowNumber(*n), *of))).collect();
            super::lacks_before(&page)
        };
        assert_eq!(of(&[(1, 3), (2, 2), (2, 2)]), 2);
        assert_eq!(of(&[(1, 2), (1, 2), (2, 3)]), 0, "whole");
        assert_eq!((of(&[(0, 0), (1, 2)]), of(&[])), (0, 0), "no winner");
    }

    #[test]
    fn a_number_that_comes_again_is_another_window() {
        let again = (0..4).map(|n| (n, Some(lot(1, 4)))).chain((4..7).map(|n| (n, Some(lot(1, 3)))));
        let all = given(&mut Windows::gather(again), &reader(3));
        assert!(all.len() == 2 && all[0] < 4 && all[1] >= 4, "{all:?}");
    }

    #[test]
    fn what_is_no_winner_changes_nothing() {
        let mut plain = windows(&[8, 8], |_, _| {});
        let mixed = [(90, None)].into_iter().chain((0..8).map(|n| (n, Some(lot(1, 8))))).chain([(91, None)]);
        let mixed = mixed.chain((8..16).map(|n| (n, Some(lot(2, 8)))));
        assert_eq!(given(&mut Windows::gather(mixed), &reader(3)), given(&mut plain, &reader(3)));
    }

    #[test]
    fn who_waited_has_its_part_and_a_word_only_where_that_is_nothing() {
        // Half a comment a window: of two windows one has a pick.
        let half = Reader { cap_milli: 2_500, ..reader(7) };
        let (mut due, mut part) = (Vec::new(), Vec::new());
        let mut many = windows(&[64; 20], |_, _| {});
        many.pick(&half, &mut part);
        assert_eq!((many.pick_due(Due::Word, &half, &mut due), part.len()), (Due::Part, 10));
        assert_eq!(due, part, "it was slow, and is given or told all of it");
        for first in [1, 2] {
            let mut one = Windows::gather((0..64).map(|n| (n, Some(lot(first, 64)))));
            let (mut due, mut part) = (Vec::new(), Vec::new());
            one.pick(&half, &mut part);
            let came_to = one.pick_due(Due::Word, &half, &mut due);
            assert_eq!((due.len(), came_to == Due::Word), (1, part.is_empty()));
        }
    }

    #[test]
    fn the_addressee_is_given_what_was_said_to_it_beside_its_pick() {
        for key in 0..200 {
            let mut all = windows(&[64], |place, lot| lot.addressee = (place == 9).then_some(ViewerKey(key)));
            let own = given(&mut all, &reader(key));
            assert!(own.contains(&9) && own.is_sorted() && (1..=2).contains(&own.len()), "{own:?}");
            let other = given(&mut all, &reader(key + 1));
            assert_eq!(other.len(), 1);
        }
    }

    #[test]
    fn followed_authors_and_answered_threads_are_likelier() {
        let thread = EventId::new((7 << 33) + 5).unwrap();
        let mut all = windows(&[64], |place, lot| match place {
            3 => lot.author = ViewerKey(1),
            40 => lot.thread = Some(thread),
            _ => {}
        });
        let mut count = |follows: &Follows, threads: &[EventId]| {
            let mut n = [0, 0];
            for key in 0..20_000_u64 {
                let key = ViewerKey(key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 2);
                let got = given(&mut all, &Reader { key, cap_milli: 5_000, follows, threads });
                assert_eq!(got.len(), 1, "whom one follows is no more than the cap");
                n[0] += u32::from(got[0] == 3);
                n[1] += u32::from(got[0] == 40);
            }
            n
        };
        let near = |n: u32, of: f64| (f64::from(n) - of).abs() < 5.0 * of.sqrt();
        let [author, other] = count(&NOBODY, &[]);
        assert!(near(author, 20_000.0 / 64.0) && near(other, 20_000.0 / 64.0), "{author} {other}");
        let [author, answered] = count(&Follows::new([ViewerKey(1)]), &[thread]);
        assert!(near(author, 20_000.0 * 4.0 / 70.0) && near(answered, 20_000.0 * 4.0 / 70.0), "{author} {answered}");
    }
}
