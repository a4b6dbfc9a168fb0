//! The sampler's promises: fairness by statistics, limits by property.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId, Seq};
use grandstand_core::names::UserId;
use grandstand_core::record::{Audience, Body, Comment, Record, RetractTarget, Verdict, Won, count_winners};
use grandstand_core::rng::Rng;
use grandstand_core::sampler::pick::{FOLLOWED, Line, Table, ViewerKey, WindowNumber, quota};
use grandstand_core::sampler::window::{Offered, Settings, Window, Winner};
use grandstand_core::sampler::{Candidate, Weights};
use grandstand_core::time::{Mono, Wall};
use grandstand_core::viewer::merge::{Leave, MergeWindow};
use proptest::prelude::*;

const T0: Mono = Mono(1_000_000);
const WINDOW: Duration = Duration::from_millis(200);

fn user(name: &str) -> UserId {
    UserId::parse(name).unwrap()
}

fn record(seq: u64, author: &str, text: &str, badges: &[&str]) -> Arc<Record> {
    Arc::new(Record {
        epoch: Epoch::new(1).unwrap(),
        seq: Seq::new(seq).unwrap(),
        room: None,
        ts: Wall(0),
        region: "local".into(),
        user: Some(user(author)),
        client_msg_id: None,
        pseq: None,
        verdict: Verdict::Unjudged,
        policy_version: 0,
        audience: Audience::Everyone,
        source: None,
        body: Body::Comment(Comment {
            display: author.into(),
            badges: badges.iter().map(|b| Arc::from(*b)).collect(),
            text: text.into(),
            reply_to: None,
            won: None,
            rule: None,
            shadowed: false,
        }),
    })
}

fn said(seq: u64, author: &str, text: &str, at: Mono) -> Candidate {
    Candidate::new(record(seq, author, text, &[]), None, at).unwrap()
}

fn settings(winners: usize, waiting: usize) -> Settings {
    Settings { winners, waiting, ..Settings::default() }
}

fn ids(winners: &[Winner]) -> Vec<u64> {
    winners.iter().map(|w| w.candidate.id().seq().value()).collect()
}

/// Who says what; one of them is shown, and the other waits.
const TWO: [(&str, &str); 2] = [("a", "one"), ("b", "two")];

/// A window of one place after them, and the seq of what waits.
fn one_waits(waiting: usize, seed: u64) -> (Window, u64) {
    let mut window = Window::new(settings(1, waiting), seed);
    for (seq, (user, text)) in (1..).zip(TWO) {
        window.offer(said(seq, user, text, T0), T0);
    }
    let loser = 3 - ids(&window.close(T0))[0];
    (window, loser)
}

/// The sum of squared deviations of what was counted from what was expected.
fn chi_square(counts: &[u64], expected: &[f64]) -> f64 {
    counts.iter().zip(expected).map(|(n, e)| (*n as f64 - e).powi(2) / e).sum()
}

/// The 99.9 % point of the chi-square distribution, by Wilson and Hilferty.
fn critical(degrees: usize) -> f64 {
    let k = degrees as f64;
    k * (1.0 - 2.0 / (9.0 * k) + 3.090 * (2.0 / (9.0 * k)).sqrt()).powi(3)
}

#[test]
fn only_a_user_s_comment_becomes_a_candidate() {
    let score = Record { body: Body::EpochStart, ..(*record(1, "a", "x", &[])).clone() };
    assert!(Candidate::new(Arc::new(score), None, T0).is_none());
    let nobody = Record { user: None, ..(*record(1, "a", "x", &[])).clone() };
    assert!(Candidate::new(Arc::new(nobody), None, T0).is_none());
}

#[test]
fn a_window_that_fits_passes_whole_and_in_order() {
    let mut window = Window::new(settings(64, 192), 7);
    for seq in 1..=64 {
        assert_eq!(window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), T0), T0), Offered::Held);
    }
    assert_eq!(ids(&window.close(T0)), (1..=64).collect::<Vec<_>>());
    assert!(window.is_empty());
}

#[test]
fn equal_weights_have_equal_chances() {
    // 50 authors for 5 places, 20 000 windows: 10^6 lots.
    let (authors, places, windows) = (50, 5, 20_000);
    let mut window = Window::new(settings(places, 0), 42);
    let mut won = vec![0_u64; authors];
    let mut seq = 0;
    for n in 0..windows {
        let now = Mono(T0.0 + n * 200_000);
        for author in 0..authors {
            seq += 1;
            window.offer(said(seq, &format!("author-{author}"), &format!("{n}:{author}"), now), now);
        }
        for winner in window.close(now) {
            let author: usize = winner.candidate.author().as_str()["author-".len()..].parse().unwrap();
            won[author] += 1;
        }
    }
    let expected = vec![(windows as usize * places) as f64 / authors as f64; authors];
    let statistic = chi_square(&won, &expected);
    assert!(statistic < critical(authors - 1), "chi-square {statistic}: {won:?}");
}

#[test]
fn a_weight_of_four_is_four_times_as_likely() {
    let weights = Weights { badges: vec![("member".into(), 3)], ..Weights::default() };
    let mut window = Window::new(Settings { weights, ..settings(1, 0) }, 9);
    let mut won = [0_u64; 8];
    let windows = 40_000;
    let mut seq = 0;
    for n in 0..windows {
        let now = Mono(T0.0 + n * 200_000);
        for author in 0..8_usize {
            seq += 1;
            let badges: &[&str] = if author == 0 { &["member"] } else { &[] };
            let record = record(seq, &format!("{author}"), &format!("{n}:{author}"), badges);
            window.offer(Candidate::new(record, None, now).unwrap(), now);
        }
        won[window.close(now)[0].candidate.author().as_str().parse::<usize>().unwrap()] += 1;
    }
    let one = windows as f64 / 11.0;
    let expected = [4.0 * one, one, one, one, one, one, one, one];
    let statistic = chi_square(&won, &expected);
    assert!(statistic < critical(7), "chi-square {statistic}: {won:?}");
}

#[test]
fn saying_more_is_no_better_chance() {
    let mut window = Window::new(settings(1, 0), 3);
    let (mut spammer, windows) = (0_u64, 20_000);
    let mut seq = 0;
    for n in 0..windows {
        let now = Mono(T0.0 + n * 200_000);
        for other in 0..9 {
            seq += 1;
            window.offer(said(seq, &format!("calm-{other}"), &format!("{n} calm {other}"), now), now);
        }
        for again in 0..20 {
            seq += 1;
            window.offer(said(seq, "spammer", &format!("{n} spam {again}"), now), now);
        }
        spammer += u64::from(window.close(now)[0].candidate.author().as_str() == "spammer");
    }
    let expected = [windows as f64 / 10.0, windows as f64 * 0.9];
    let statistic = chi_square(&[spammer, windows - spammer], &expected);
    assert!(statistic < critical(1), "the spammer won {spammer} of {windows}");
}

#[test]
fn what_a_crowd_repeats_is_shown_once_and_counted() {
    let mut window = Window::new(settings(64, 192), 1);
    assert_eq!(window.offer(said(1, "a", "GOAL!", T0), T0), Offered::Held);
    for seq in 2..=60 {
        assert_eq!(window.offer(said(seq, &format!("u{seq}"), "goal!!!", T0), T0), Offered::Folded);
    }
    let winners = window.close(T0);
    assert_eq!(ids(&winners), [1]);
    assert_eq!((winners[0].repeats, winners[0].weight), (59, 1), "counted, and not lifted");
    assert_eq!(window.offer(said(61, "b", "goal", T0), T0), Offered::Held, "a shown text takes no more");
}

#[test]
fn a_lifted_candidate_wins_a_later_window() {
    // One place; the loser waits, is answered, and beats fresh comments.
    let (mut window, loser) = one_waits(8, 5);
    window.raise(EventId::at(Epoch::new(1).unwrap(), Seq::new(loser).unwrap()), 190, 0);
    let now = T0 + WINDOW;
    window.offer(said(3, "c", "three", now), now);
    let winners = window.close(now);
    assert_eq!(ids(&winners), [loser]);
    assert_eq!(winners[0].weight, 951);
}

#[test]
fn who_waits_wins_only_places_that_are_free() {
    // One place, so that each window leaves one behind; what is fresh wins however good the tickets of those are.
    let mut window = Window::new(settings(1, 8), 5);
    for seq in (1..=40).step_by(2) {
        let now = T0 + WINDOW * (seq as u32 / 2);
        window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), now), now);
        window.offer(said(seq + 1, &format!("v{seq}"), &format!("word {seq}"), now), now);
        let won = ids(&window.close(now));
        assert!(won == [seq] || won == [seq + 1], "{won:?} in the window of {seq}");
    }
    assert_eq!(window.len(), 8, "no more wait");
    let (mut window, loser) = one_waits(8, 5);
    assert_eq!(ids(&window.close(T0 + WINDOW * 2)), [loser], "nothing was said, so one that waited has the place");
    let (mut window, _) = one_waits(8, 5);
    assert!(
        window.close(T0 + WINDOW * 3).is_empty() && window.len() == 1,
        "it was said too long ago, and can still be lifted"
    );
}

#[test]
fn a_text_said_again_takes_the_place_of_what_waits() {
    let (mut window, loser) = one_waits(8, 5);
    let now = T0 + WINDOW;
    let text = TWO[loser as usize - 1].1;
    assert_eq!(window.offer(said(3, "c", text, now), now), Offered::Held);
    assert_eq!(window.offer(said(4, "d", text, now), now), Offered::Folded);
    let winners = window.close(now);
    assert_eq!((ids(&winners), winners[0].repeats), (vec![3], 2), "it stands for what waited");
    assert_eq!(window.take_gone().len(), 1);
}

#[test]
fn an_author_who_speaks_again_gives_up_what_waits() {
    let (mut window, loser) = one_waits(8, 5);
    let now = T0 + WINDOW;
    window.offer(said(3, TWO[loser as usize - 1].0, "three", now), now);
    assert_eq!(window.take_gone().len(), 1, "one candidate an author");
    assert_eq!(ids(&window.close(now)), [3]);
    assert!(window.is_empty());
}

#[test]
fn a_replacement_is_drawn_by_its_ticket_and_not_because_it_came_late() {
    // Ninety of a hundred said in a window wait; one says something after its end, while moderation thinks. Each is as likely.
    let (mut late, rounds) = (0, 4_000);
    for seed in 0..rounds {
        let mut window = Window::new(settings(10, 90), seed);
        for seq in 1..=100 {
            window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), T0), T0);
        }
        window.close(T0);
        window.offer(said(101, "late", "late", T0), T0);
        late += u64::from(ids(&window.draw(3, T0, |_| true)).contains(&101));
    }
    // A ticket among the best 13 of 101.
    let expected = rounds as f64 * 13.0 / 101.0;
    assert!((late as f64 - expected).abs() < 4.0 * expected.sqrt(), "{late} of {rounds}, expected {expected}");
}

#[test]
fn a_waiting_text_is_counted_by_whoever_says_it() {
    let (mut window, loser) = one_waits(1, 5);
    let text = TWO[loser as usize - 1].1;
    // By right: it stands for what waited, which is not shown beside it.
    let to = Candidate::new(record(3, "c", text, &[]), Some(user("z")), T0).unwrap();
    assert_eq!(window.offer(to, T0), Offered::ByRight);
    let winners = window.close(T0);
    assert_eq!((ids(&winners), winners[0].repeats), (vec![3], 1));
    // A repeat without luck of its own.
    let mut folded = 0;
    for seed in 0..40 {
        let (mut window, loser) = one_waits(1, seed);
        window.offer(said(3, "c", "three", T0), T0);
        window.offer(said(4, "d", "four", T0), T0);
        if window.offer(said(5, "e", TWO[loser as usize - 1].1, T0), T0) == Offered::Folded {
            folded += 1;
            window.close(T0);
            assert!(window.draw(2, T0, |_| true).iter().any(|w| w.repeats == 1) || window.is_empty());
        }
    }
    assert!(folded > 0);
}

#[test]
fn who_waited_five_seconds_goes() {
    let mut window = Window::new(settings(1, 8), 5);
    for seq in 1..=9 {
        window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), T0), T0);
    }
    assert_eq!(window.close(T0 + Duration::from_millis(4_900)).len(), 1);
    assert_eq!(window.len(), 8);
    window.raise(EventId::at(Epoch::new(1).unwrap(), Seq::new(window_seq(&window)).unwrap()), 1, 0);
    assert_eq!(window.close(T0 + Duration::from_secs(5)).len(), 1, "what is lifted may still win when its time ends");
    assert!(window.is_empty());
}

/// The seq of the first of nine comments that waits.
fn window_seq(window: &Window) -> u64 {
    let id = |seq| EventId::at(Epoch::new(1).unwrap(), Seq::new(seq).unwrap());
    (1..=9).find(|seq| window.author_of(id(*seq)).is_some()).expect("eight of them wait")
}

const WINDOWS: u64 = 1_000;

/// How old what is shown is when its window closes, in milliseconds, in a room in which so many comments are said in a window.
fn ages(a_window: f64) -> Vec<u64> {
    let mut window = Window::new(Settings::default(), 9);
    let (mut rng, mut seq, mut ages) = (Rng::new(20_260_711), 0, Vec::new());
    let unit = |rng: &mut Rng| (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
    let mut at = 0.0;
    for n in 1..=WINDOWS {
        let closes = n * 200_000;
        // They come by themselves, as people do: the times between them are exponential.
        loop {
            let next = at - (1.0 - unit(&mut rng)).ln() * 200_000.0 / a_window;
            if next > closes as f64 {
                at = closes as f64;
                break;
            }
            at = next;
            seq += 1;
            let now = Mono(at as u64);
            window.offer(said(seq, &format!("author-{}", seq % 5_000), &format!("text {seq}"), now), now);
        }
        let now = Mono(closes);
        ages.extend(window.close(now).iter().map(|winner| now.since(winner.candidate.at()).as_millis() as u64));
    }
    ages.sort_unstable();
    ages
}

#[test]
fn a_room_that_says_just_about_what_it_shows_shows_what_was_said_now() {
    // From half of what a window shows to five times it: nothing is older than three windows, which with its frame's 200 ms is below
    // the second that is promised.
    for a_window in [32.0, 58.0, 64.0, 70.0, 320.0] {
        let ages = ages(a_window);
        let at = |q: f64| ages[(ages.len() as f64 * q) as usize];
        assert!(at(0.5) <= 200 && *ages.last().unwrap() < 600, "{a_window}: {} and {:?}", at(0.5), ages.last());
        let places = WINDOWS as usize * a_window.min(64.0) as usize;
        assert!(ages.len() > places * 93 / 100, "{} of {places} places", ages.len());
    }
}

#[test]
fn with_those_that_wait_and_those_that_moderation_replaces_chances_are_equal() {
    // Of 40 authors a half speaks in a window of 4 places, and in each fourth window nearly nobody; moderation takes a share of
    // the winners, and the next best comes instead.
    for (waiting, blocked, seed) in [(0, 4, 1_u64), (8, 4, 2), (30, 4, 3), (30, 2, 4)] {
        let mut window = Window::new(settings(4, waiting), seed);
        let (mut rng, mut seq, mut won) = (Rng::new(seed), 0, [0_u64; 40]);
        let mut replaced = 0;
        for n in 0..4_000_u64 {
            let now = Mono(T0.0 + n * 200_000);
            let of_20 = if n % 4 == 3 { 1 } else { 10 };
            for author in 0..40 {
                if rng.chance(of_20, 20) {
                    seq += 1;
                    window.offer(said(seq, &format!("author-{author}"), &format!("{n}:{author}"), now), now);
                }
            }
            let mut line: Vec<Winner> = window.close(now);
            let mut here: BTreeSet<UserId> = line.iter().map(|winner| winner.candidate.author().clone()).collect();
            while let Some(winner) = line.pop() {
                if !rng.chance(1, blocked) {
                    let author: usize = winner.candidate.author().as_str()["author-".len()..].parse().unwrap();
                    won[author] += 1;
                    continue;
                }
                let next = window.draw(1, now, |author| !here.contains(author));
                replaced += next.len();
                here.extend(next.iter().map(|winner| winner.candidate.author().clone()));
                line.extend(next);
            }
        }
        let expected = vec![won.iter().sum::<u64>() as f64 / 40.0; 40];
        let statistic = chi_square(&won, &expected);
        assert!(statistic < critical(39), "chi-square {statistic} with {waiting} waiting: {won:?}");
        assert!(waiting == 0 || replaced > 400, "{replaced} were replaced");
    }
}

#[test]
fn one_answer_a_second_wins_by_right() {
    let mut window = Window::new(settings(1, 0), 5);
    let answer = |seq: u64, author: &str, to: &str| {
        Candidate::new(record(seq, author, &format!("hello {seq}"), &[]), Some(user(to)), T0).unwrap()
    };
    assert_eq!(window.offer(answer(1, "a", "z"), T0), Offered::ByRight);
    assert_eq!(window.offer(answer(2, "b", "z"), T0), Offered::Held, "the addressee had its one");
    assert_ne!(window.offer(answer(3, "c", "c"), T0), Offered::ByRight, "nobody answers itself by right");
    let winners = window.close(T0);
    assert_eq!(winners.iter().filter(|w| w.by_right).count(), 1);
    assert_eq!(winners.len(), 2, "the right is beside the lot");
    let later = T0 + Duration::from_millis(999);
    assert_ne!(window.offer(answer(4, "d", "z"), later), Offered::ByRight);
    assert_eq!(window.offer(answer(5, "e", "z"), T0 + Duration::from_secs(1)), Offered::ByRight);
}

#[test]
fn a_retracted_candidate_never_wins() {
    let mut window = Window::new(settings(64, 192), 1);
    for seq in 1..=6 {
        window.offer(said(seq, if seq % 2 == 0 { "b" } else { "a" }, &format!("text {seq}"), T0), T0);
    }
    window.offer(said(7, "c", "text 7", T0), T0);
    window.retract(&RetractTarget::User(user("a")));
    window.retract(&RetractTarget::Event(EventId::at(Epoch::new(1).unwrap(), Seq::new(7).unwrap())));
    let winners = window.close(T0);
    assert_eq!(winners.iter().map(|w| w.candidate.author().as_str()).collect::<Vec<_>>(), ["b"]);
    window.offer(said(8, "d", "text 8", T0), T0);
    window.retract(&RetractTarget::All);
    assert!(window.is_empty());
}

#[test]
fn nobody_waits_behind_the_last_window() {
    let mut window = Window::new(settings(2, 8), 1);
    for seq in 1..=9 {
        window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), T0), T0);
    }
    assert_eq!(window.finish(T0).len(), 2);
    assert!(window.is_empty());
}

#[test]
fn a_place_that_moderation_took_goes_to_the_next_best() {
    let mut window = Window::new(settings(2, 8), 1);
    for seq in 1..=5 {
        window.offer(said(seq, &format!("u{seq}"), &format!("text {seq}"), T0), T0);
    }
    let shown: BTreeSet<u64> = ids(&window.close(T0)).into_iter().collect();
    let next = ids(&window.draw(1, T0, |_| true));
    assert_eq!(next.len(), 1);
    assert!(!shown.contains(&next[0]));
}

proptest! {
    #[test]
    fn a_window_keeps_its_limits_and_forgets_nobody_it_holds(
        seed in any::<u64>(),
        winners in 1_usize..8,
        waiting in 0_usize..8,
        steps in prop::collection::vec((0_u8..10, 0_u8..6, 0_u8..12, prop::option::of(0_u8..4)), 1..120),
    ) {
        let settings = Settings { by_right: 3, ..settings(winners, waiting) };
        let (mut window, mut twin) = (Window::new(settings.clone(), seed), Window::new(settings, seed));
        let (mut now, mut seq) = (T0, 0);
        let mut won: BTreeMap<u64, u64> = BTreeMap::new();
        for (what, author, text, addressee) in steps {
            match what {
                0 => {
                    now = now + WINDOW;
                    let got = window.close(now);
                    prop_assert_eq!(ids(&got), ids(&twin.close(now)), "the same seed, the same winners");
                    prop_assert!(got.iter().filter(|w| !w.by_right).count() <= winners);
                    prop_assert!(got.iter().filter(|w| w.by_right).count() <= 3);
                    let authors: BTreeSet<_> = got.iter().map(|w| w.candidate.author().clone()).collect();
                    prop_assert_eq!(authors.len(), got.len(), "one winner an author");
                    prop_assert!(got.is_sorted_by_key(|w| w.candidate.id()));
                    for winner in got {
                        let n = won.entry(winner.candidate.id().seq().value()).or_default();
                        *n += 1;
                        prop_assert_eq!(*n, 1, "a comment wins once");
                    }
                }
                1 if seq > 0 => {
                    let id = EventId::at(Epoch::new(1).unwrap(), Seq::new(1 + u64::from(text) % seq).unwrap());
                    window.raise(id, 1, 0);
                    twin.raise(id, 1, 0);
                }
                2 => {
                    let target = RetractTarget::User(user(&format!("u{author}")));
                    window.retract(&target);
                    twin.retract(&target);
                }
                _ => {
                    seq += 1;
                    let to = addressee.map(|a| user(&format!("u{a}")));
                    let record = record(seq, &format!("u{author}"), &format!("text {}", "x y".repeat(usize::from(text))), &[]);
                    let candidate = Candidate::new(record, to, now).unwrap();
                    prop_assert_eq!(window.offer(candidate.clone(), now), twin.offer(candidate, now));
                }
            }
            prop_assert!(window.len() <= winners + 2 * waiting + 3);
        }
    }

    #[test]
    fn a_viewer_s_cap_is_never_exceeded(
        viewer in any::<u64>(),
        first in 0_u64..1 << 40,
        cap in 1_u64..60,
        window_ms in prop::sample::select(vec![100_u64, 200, 400]),
        seconds in 1_u64..20,
    ) {
        let windows = seconds * 1_000 / window_ms;
        let given: usize = (0..windows).map(|n| quota(ViewerKey(viewer), WindowNumber(first + n), cap * 1_000, window_ms)).sum();
        prop_assert!(given as u64 <= (cap * windows * window_ms).div_ceil(1_000));
        prop_assert!(given as u64 + 1 > cap * windows * window_ms / 1_000);
    }

    #[test]
    fn who_follows_somebody_is_picked_as_from_a_line_of_its_own(
        viewer in any::<u64>(),
        number in any::<u32>(),
        weights in prop::collection::vec(prop_oneof![3 => 1_u32..3, 1 => 1_u32..1_000], 1..96),
        quota in 0_usize..12,
        followed in prop::collection::btree_set(0_usize..96, 0..6),
    ) {
        let window = WindowNumber(u64::from(number));
        let longer = |(place, w): (usize, &u32)| if followed.contains(&place) { w * FOLLOWED } else { *w };
        let mut own = Vec::new();
        Line::new(window, &weights.iter().enumerate().map(longer).collect::<Vec<_>>(), quota)
            .pick(ViewerKey(viewer), |place| own.push(place));
        prop_assert_eq!(picked(&weights, window, ViewerKey(viewer), quota, &followed), own);
    }

    #[test]
    fn a_pick_is_the_same_again_and_names_each_winner_once(
        viewer in any::<u64>(),
        number in any::<u32>(),
        weights in prop::collection::vec(1_u32..1_000, 0..96),
        quota in 0_usize..12,
        followed in prop::collection::btree_set(0_usize..96, 0..6),
    ) {
        let picked = picked(&weights, WindowNumber(u64::from(number)), ViewerKey(viewer), quota, &followed);
        prop_assert_eq!(&picked, &self::picked(&weights, WindowNumber(u64::from(number)), ViewerKey(viewer), quota, &followed));
        prop_assert_eq!(picked.len(), quota.min(weights.len()));
        prop_assert!(picked.is_sorted_by(|a, b| a < b));
    }
}

fn picked(
    weights: &[u32],
    window: WindowNumber,
    viewer: ViewerKey,
    quota: usize,
    followed: &BTreeSet<usize>,
) -> Vec<usize> {
    let mut table = Table::new(window, weights.to_vec());
    let mut picked = Vec::new();
    match followed.is_empty() {
        true => table.pick(viewer, quota, |place| picked.push(place)),
        false => {
            let here: Vec<usize> = followed.iter().copied().filter(|place| *place < weights.len()).collect();
            table.pick_followed(viewer, quota, &here, |place| picked.push(place));
        }
    }
    picked
}

/// How often each of the winners is among the picks of 10^6 viewers.
fn picks(weights: &[u32], quota: usize, followed: &[usize]) -> Vec<u64> {
    let longer = |(place, w): (usize, &u32)| if followed.contains(&place) { w * FOLLOWED } else { *w };
    let line = Line::new(WindowNumber(77), &weights.iter().enumerate().map(longer).collect::<Vec<_>>(), quota);
    let mut counts = vec![0_u64; weights.len()];
    let mut keys = Rng::new(1);
    for _ in 0..1_000_000 {
        line.pick(ViewerKey(keys.next()), |place| counts[place] += 1);
    }
    counts
}

#[test]
fn a_heavy_winner_is_picked_by_everyone_and_takes_nobody_s_place() {
    let mut weights = vec![1; 63];
    weights.push(1_000);
    let counts = picks(&weights, 10, &[]);
    assert_eq!(
        (counts[63], counts.iter().sum::<u64>()),
        (1_000_000, 10_000_000),
        "ten picks each, one of them the heavy one"
    );
    let expected = vec![9e6 / 63.0; 63];
    let statistic = chi_square(&counts[..63], &expected);
    assert!(statistic < critical(62), "chi-square {statistic}: {counts:?}");
}

#[test]
fn a_window_has_no_more_kinds_of_picks_than_winners() {
    let weights: Vec<u32> = (0..64).map(|i| 1 + i % 7).collect();
    for quota in [1, 10, 20] {
        let line = Line::new(WindowNumber(5), &weights, quota);
        let mut keys = Rng::new(2);
        let kinds: BTreeSet<Vec<usize>> = (0..100_000)
            .map(|_| {
                let mut picked = Vec::new();
                line.pick(ViewerKey(keys.next()), |place| picked.push(place));
                picked
            })
            .collect();
        assert!(kinds.len() <= weights.len(), "{} kinds of {quota}", kinds.len());
    }
}

#[test]
fn viewers_pick_winners_of_one_weight_equally_and_others_by_weight() {
    let weights: Vec<u32> = (0..64).map(|i| if i < 60 { 1 } else { 10 }).collect();
    let counts = picks(&weights, 1, &[]);
    let expected: Vec<f64> = weights.iter().map(|w| f64::from(*w) * 1e6 / 100.0).collect();
    let statistic = chi_square(&counts, &expected);
    assert!(statistic < critical(63), "chi-square {statistic}: {counts:?}");
}

#[test]
fn a_followed_winner_is_four_times_as_likely() {
    let counts = picks(&[1; 16], 1, &[3, 9]);
    let one = 1e6 / (14.0 + 2.0 * f64::from(FOLLOWED));
    let expected: Vec<f64> = (0..16).map(|i| if i == 3 || i == 9 { one * f64::from(FOLLOWED) } else { one }).collect();
    let statistic = chi_square(&counts, &expected);
    assert!(statistic < critical(15), "chi-square {statistic}: {counts:?}");
}

#[test]
fn a_small_cap_serves_a_fifth_of_the_viewers_in_each_window() {
    let served = (0..10_000).filter(|v| quota(ViewerKey(*v), WindowNumber(5), 1_000, 200) == 1).count();
    assert!((1_800..2_200).contains(&served), "{served} of 10 000");
}

#[test]
fn each_winner_of_a_batch_is_told_how_many_its_window_has() {
    let winner = |seq, window: Option<u64>| {
        let mut record = (*record(seq, "a", "x", &[])).clone();
        let won = window.map(|n| Won {
            window: WindowNumber(n),
            of: 0,
            weight: 1,
            repeats: 0,
            by_right: false,
            addressee: None,
        });
        let Body::Comment(comment) = &mut record.body else { unreachable!() };
        comment.won = won.map(Box::new);
        Arc::new(record)
    };
    let mut batch =
        [(1, None), (2, Some(7)), (3, Some(7)), (4, Some(8)), (5, None), (6, Some(9))].map(|(s, w)| winner(s, w));
    count_winners(&mut batch);
    let of = |record: &Arc<Record>| match &record.body {
        Body::Comment(Comment { won, .. }) => won.as_ref().map_or(0, |won| won.of),
        _ => unreachable!(),
    };
    assert_eq!(batch.each_ref().map(of), [0, 2, 2, 1, 0, 1]);
    count_winners(&mut []);
}

#[test]
fn a_hundred_and_twenty_thousand_comments_a_second_are_ten_batches_of_a_hundred_millisecond_window() {
    let mut merge = MergeWindow::new(Some(Duration::from_millis(100)));
    let mut batches = Vec::new();
    let mut waiting = 0_u64;
    for n in 0..120_000_u64 {
        let now = Mono(T0.0 + n * 1_000_000 / 120_000);
        if merge.deadline().is_some_and(|at| at <= now) {
            merge.on_walk(now);
            batches.push(std::mem::take(&mut waiting));
        }
        waiting += 1;
        if merge.on_events(false, now) == Leave::Now {
            merge.on_walk(now);
            batches.push(std::mem::take(&mut waiting));
        }
    }
    // The first two leave at once: until then it was quiet.
    assert!((10..=12).contains(&batches.len()), "{batches:?}");
    assert!(batches[2..].iter().all(|n| (11_000..=13_000).contains(n)), "{batches:?}");
}

#[test]
fn a_quota_that_is_used_up_lets_nothing_pass_instead_of_everything() {
    // The barrage's limiter asked for `remain > 0` before it sampled: once paid events had filled the quota, all the rest passed.
    for (quota, expect) in [(0, 0), (1, 1), (95, 95), (96, 96), (1_000, 96)] {
        let mut picked = 0;
        Table::new(WindowNumber(3), vec![1; 96]).pick(ViewerKey(7), quota, |_| picked += 1);
        assert_eq!(picked, expect, "quota {quota}");
    }
    assert_eq!(quota(ViewerKey(7), WindowNumber(3), 0, 200), 0);
}
