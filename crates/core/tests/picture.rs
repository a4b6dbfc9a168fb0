//! The picture of one window in docs/sampling.md is drawn from what the rules do with it. `GOLDEN=write` renews it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use grandstand_core::ids::{Epoch, EventId, Seq};
use grandstand_core::names::UserId;
use grandstand_core::record::{Audience, Body, Comment, Record, Verdict};
use grandstand_core::sampler::pick::{Table, ViewerKey, WindowNumber, quota};
use grandstand_core::sampler::window::{Offered, Settings, Window};
use grandstand_core::sampler::{Candidate, Weights};
use grandstand_core::time::{Mono, Wall};

/// Author, badge, text, whom it names.
const SAID: [(&str, &str, &str, &str); 19] = [
    ("ana", "", "what a save", ""),
    ("bo", "", "GOAL", ""),
    ("cy", "", "goal", ""),
    ("dee", "", "offside, no?", ""),
    ("eli", "", "GOOOAL", ""),
    ("fay", "", "@mia did you see that", "mia"),
    ("gus", "", "ref is asleep", ""),
    ("hal", "", "goal", ""),
    ("ida", "member", "best game this year", ""),
    ("jon", "", "ＧＯＡＬ", ""),
    ("kim", "", "number 9 again", ""),
    ("lou", "", "first", ""),
    ("lou", "", "look at me", ""),
    ("nia", "", "my heart", ""),
    ("oto", "", "goaaaal", ""),
    ("pia", "", "that keeper", ""),
    ("qi", "", "草草草", ""),
    ("ray", "", "草", ""),
    ("sol", "", "1-0", ""),
];

/// Name, followed author.
const VIEWERS: [(&str, &str); 3] = [("mia", ""), ("max", "ida"), ("zoe", "")];

const WINNERS: usize = 5;
const WAITING: usize = 4;
/// Of lots in which every case occurs.
const SEED: u64 = 43;
const KEYS_FROM: u64 = 4_400;

/// The first keys with which mia is given one beside what was said to her, max whom he follows, and zoe another than both.
fn keys() -> u64 {
    let is_telling = |keys: &u64| {
        let scene = scene(SEED, *keys);
        let [mia, max, zoe] = &scene.shown[..] else { unreachable!("three viewers") };
        let author = |at: &usize| SAID[scene.boxes[*at].said].0;
        mia.len() == 2
            && max.iter().map(author).eq(["ida"])
            && zoe.iter().all(|at| !mia.contains(at) && !max.contains(at))
    };
    (KEYS_FROM..).find(is_telling).expect("there are such keys")
}

fn record(n: usize, (author, badge, text, _): (&str, &str, &str, &str)) -> Arc<Record> {
    Arc::new(Record {
        epoch: Epoch::new(1).unwrap(),
        seq: Seq::new(n as u64 + 1).unwrap(),
        room: None,
        ts: Wall(0),
        region: "local".into(),
        user: UserId::parse(author),
        client_msg_id: None,
        pseq: None,
        verdict: Verdict::Unjudged,
        policy_version: 0,
        audience: Audience::Everyone,
        source: None,
        body: Body::Comment(Comment {
            display: author.into(),
            badges: [badge].iter().filter(|b| !b.is_empty()).map(|b| Arc::from(*b)).collect(),
            text: text.into(),
            reply_to: None,
            won: None,
            rule: None,
            shadowed: false,
        }),
    })
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    Lot,
    Right,
    Waits,
    Out,
}

struct Held {
    said: usize,
    repeats: u32,
    weight: u32,
    fate: Fate,
}

struct Scene {
    /// Candidates in the order they were said.
    boxes: Vec<Held>,
    /// For each comment said: the candidate it is part of; none when its author has a better one.
    part_of: [Option<usize>; SAID.len()],
    /// For each viewer the candidates it is shown, the addressed one included.
    shown: Vec<Vec<usize>>,
}

/// What the rules do with [`SAID`].
fn scene(seed: u64, keys: u64) -> Scene {
    let now = Mono(1_000_000_000);
    let weights = Weights { badges: vec![("member".into(), 3)], ..Weights::default() };
    let settings = Settings { weights, winners: WINNERS, waiting: WAITING, ..Settings::default() };
    let mut window = Window::new(settings, seed);
    let mut part_of = [None; SAID.len()];
    let mut first: BTreeMap<Box<str>, usize> = BTreeMap::new();
    let mut held: Vec<usize> = Vec::new();
    for (n, said) in SAID.into_iter().enumerate() {
        let addressee = UserId::parse(said.3);
        let offered = window.offer(Candidate::new(record(n, said), addressee, now).unwrap(), now);
        let folded = grandstand_core::sampler::fold::fold(said.2);
        part_of[n] = match offered {
            Offered::Folded => Some(first[&folded]),
            Offered::Held | Offered::ByRight => {
                first.insert(folded, n);
                held.push(n);
                Some(n)
            }
            // Its own box, unless its author has another.
            Offered::Lost if held.iter().any(|h| SAID[*h].0 == said.0) => None,
            Offered::Lost => {
                held.push(n);
                Some(n)
            }
        };
    }
    let id_of = |n: usize| record(n, SAID[n]).event_id();
    let place_of = |id: EventId| (0..SAID.len()).find(|n| id_of(*n) == id).unwrap();
    // Two answered it before the window closed.
    window.raise(id_of(13), 2, 0);
    let winners = window.close(now + Duration::from_millis(200));
    let mut fates: BTreeMap<usize, (Fate, u32, u32)> = BTreeMap::new();
    for winner in &winners {
        let fate = if winner.by_right { Fate::Right } else { Fate::Lot };
        fates.insert(place_of(winner.candidate.id()), (fate, winner.weight, winner.repeats));
    }
    for waiting in window.draw(usize::MAX, now, |_| true) {
        fates.insert(place_of(waiting.candidate.id()), (Fate::Waits, waiting.weight, waiting.repeats));
    }
    let mut table = Table::new(WindowNumber(1), winners.iter().map(|w| w.weight).collect());
    let shown = VIEWERS.iter().enumerate().map(|(n, (viewer, follows))| {
        let key = ViewerKey(keys + n as u64);
        let place = |by: &dyn Fn(usize) -> bool| {
            let places = winners.iter().map(|w| place_of(w.candidate.id())).enumerate();
            places.filter(|(_, said)| by(*said)).map(|(at, _)| at).collect::<Vec<_>>()
        };
        let followed = place(&|said| !follows.is_empty() && SAID[said].0 == *follows);
        let (quota, mut picks) = (quota(key, WindowNumber(1), 5_000, 200), Vec::new());
        match followed.is_empty() {
            true => table.pick(key, quota, |at| picks.push(at)),
            false => table.pick_followed(key, quota, &followed, |at| picks.push(at)),
        }
        picks.extend(place(&|said| SAID[said].3 == *viewer));
        picks.sort_unstable();
        picks.dedup();
        picks.into_iter().map(|at| place_of(winners[at].candidate.id())).collect::<Vec<_>>()
    });
    let shown: Vec<Vec<usize>> = shown.collect();
    let boxes: Vec<Held> = held
        .iter()
        .map(|said| {
            let (fate, weight, repeats) = fates.get(said).copied().unwrap_or((Fate::Out, 1, 0));
            Held { said: *said, repeats, weight, fate }
        })
        .collect();
    let at = |said: usize| boxes.iter().position(|b| b.said == said).unwrap();
    Scene {
        part_of: part_of.map(|said| said.map(at)),
        shown: shown.into_iter().map(|all| all.into_iter().map(at).collect()).collect(),
        boxes,
    }
}

const HEAD: &str = r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 980 620" font-family="system-ui, -apple-system, 'Segoe UI', 'Noto Sans', 'Noto Sans CJK JP', sans-serif" font-size="13" role="img" aria-labelledby="title">
<title id="title">One window of 200 ms: what is said, the candidates, the winners, and what three viewers are shown</title>
<style>
.page { fill: #ffffff } .ink { fill: #1f2328 } .soft { fill: #59636e } .head { fill: #1f2328; font-weight: 600 }
.line { stroke: #8c959f; fill: none } .alike { stroke: #bc4c00; fill: none } .none { stroke: #d1d9e0; fill: none; stroke-dasharray: 3 3 }
.box { fill: #f6f8fa; stroke: #8c959f } .lot { fill: #ddf4ff; stroke: #0969da } .right { fill: #dafbe1; stroke: #1a7f37 }
.out { fill: none; stroke: #d1d9e0; stroke-dasharray: 3 3 } .to-lot { stroke: #0969da; fill: none } .to-right { stroke: #1a7f37; fill: none }
.all { fill: #fff1e5; stroke: #bc4c00 } .to-all { stroke: #bc4c00; fill: none; stroke-width: 2 }
@media (prefers-color-scheme: dark) {
.page { fill: #0d1117 } .ink { fill: #f0f6fc } .soft { fill: #9198a1 } .head { fill: #f0f6fc }
.line { stroke: #656c76 } .alike { stroke: #f0883e } .none { stroke: #3d444d }
.box { fill: #151b23; stroke: #656c76 } .lot { fill: #0c2d6b; stroke: #4493f8 } .right { fill: #033a16; stroke: #3fb950 }
.out { stroke: #3d444d } .to-lot { stroke: #4493f8 } .to-right { stroke: #3fb950 }
.all { fill: #3d1300; stroke: #f0883e } .to-all { stroke: #f0883e }
}
</style>
<rect class="page" width="980" height="620" rx="8"/>
"##;

fn text(out: &mut String, class: &str, x: f64, y: f64, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    writeln!(out, r#"<text class="{class}" x="{x}" y="{y}">{words}</text>"#).unwrap();
}

fn line(out: &mut String, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let middle = (x1 + x2) / 2.0;
    writeln!(out, r#"<path class="{class}" d="M{x1} {y1} C{middle} {y1} {middle} {y2} {x2} {y2}"/>"#).unwrap();
}

fn boxed(out: &mut String, class: &str, (x, y): (f64, f64), (w, h): (f64, f64)) {
    writeln!(out, r#"<rect class="{class}" x="{x}" y="{y}" width="{w}" height="{h}" rx="5"/>"#).unwrap();
}

fn draw(scene: &Scene) -> String {
    let mut out = HEAD.to_owned();
    let said_at = |n: usize| 84.0 + 22.0 * n as f64;
    let box_at = |n: usize| 72.0 + 36.0 * n as f64;
    let winners: Vec<usize> =
        (0..scene.boxes.len()).filter(|n| matches!(scene.boxes[*n].fate, Fate::Lot | Fate::Right)).collect();
    let winner_at = |place: usize| 82.0 + 66.0 * place as f64;
    let viewer_at = |n: usize| 72.0 + 140.0 * n as f64;
    for (x, head, more) in [
        (24.0, "said in 200 ms", "19 comments"),
        (262.0, "candidates", "one an author, alike ones folded"),
        (520.0, "winners", "5 by lot, and by right"),
        (760.0, "shown", "one a window each: 5 a second"),
    ] {
        text(&mut out, "head", x, 32.0, head);
        text(&mut out, "soft", x, 50.0, more);
    }
    for (n, (author, _, words, _)) in SAID.iter().enumerate() {
        text(&mut out, "ink", 24.0, said_at(n) + 4.0, &format!("{author}: {words}"));
        let from = (206.0, said_at(n));
        match scene.part_of[n] {
            Some(at) if scene.boxes[at].said == n => line(&mut out, "line", from, (256.0, box_at(at) + 15.0)),
            Some(at) => line(&mut out, "alike", from, (256.0, box_at(at) + 15.0)),
            None => line(&mut out, "none", from, (226.0, said_at(n))),
        }
    }
    for (n, one) in scene.boxes.iter().enumerate() {
        let class = match one.fate {
            Fate::Lot => "lot",
            Fate::Right => "right",
            Fate::Waits => "box",
            Fate::Out => "out",
        };
        boxed(&mut out, class, (256.0, box_at(n)), (200.0, 30.0));
        let (author, _, words, _) = SAID[one.said];
        let words =
            if words.chars().count() > 16 { words.chars().take(15).chain(['…']).collect() } else { words.to_owned() };
        text(&mut out, "ink", 264.0, box_at(n) + 19.0, &format!("{author}: {words}"));
        let note = match one {
            Held { repeats: 1.., .. } => format!("and {}", one.repeats),
            Held { weight: 2.., .. } => format!("weight {}", one.weight),
            Held { fate: Fate::Waits, .. } => "waits".to_owned(),
            Held { fate: Fate::Out, .. } => "out".to_owned(),
            Held { fate: Fate::Right, .. } => "to mia".to_owned(),
            _ => String::new(),
        };
        let note = note.as_str();
        writeln!(
            out,
            r#"<text class="soft" x="450" y="{}" text-anchor="end" font-size="11">{note}</text>"#,
            box_at(n) + 19.0
        )
        .unwrap();
    }
    for (place, at) in winners.iter().enumerate() {
        let one = &scene.boxes[*at];
        let (class, road) = if one.fate == Fate::Right { ("right", "to-right") } else { ("lot", "to-lot") };
        line(&mut out, road, (456.0, box_at(*at) + 15.0), (514.0, winner_at(place) + 17.0));
        boxed(&mut out, class, (514.0, winner_at(place)), (190.0, 34.0));
        let (author, _, words, _) = SAID[one.said];
        let more = if one.repeats > 0 { format!(" ×{}", one.repeats + 1) } else { String::new() };
        text(&mut out, "ink", 522.0, winner_at(place) + 21.0, &format!("{author}: {words}{more}"));
    }
    for (n, (viewer, follows)) in VIEWERS.iter().enumerate() {
        boxed(&mut out, "box", (754.0, viewer_at(n)), (202.0, 84.0));
        let title = if follows.is_empty() { viewer.to_string() } else { format!("{viewer}, who follows {follows}") };
        text(&mut out, "head", 764.0, viewer_at(n) + 20.0, &title);
        for (row, at) in scene.shown[n].iter().enumerate() {
            let (author, _, words, to) = SAID[scene.boxes[*at].said];
            let place = winners.iter().position(|w| w == at).unwrap();
            let y = viewer_at(n) + 44.0 + 22.0 * row as f64;
            let road = if to == *viewer { "to-right" } else { "to-lot" };
            line(&mut out, road, (704.0, winner_at(place) + 17.0), (754.0, y - 4.0));
            let more = scene.boxes[*at].repeats;
            let more = if more > 0 { format!(" ×{}", more + 1) } else { String::new() };
            text(&mut out, "ink", 764.0, y, &format!("{author}: {words}{more}"));
        }
    }
    boxed(&mut out, "all", (24.0, 536.0), (200.0, 32.0));
    text(&mut out, "ink", 34.0, 557.0, "score event: goal, 1–0");
    line(&mut out, "to-all", (224.0, 552.0), (754.0, 552.0));
    text(&mut out, "ink", 764.0, 557.0, "to every viewer, at once");
    let foot = "In this picture 5 win and 4 wait, so that it fits; a room has 64 and 192. Who waits may still win within 5 s, when answered or liked.";
    text(&mut out, "soft", 24.0, 600.0, foot);
    out += "</svg>\n";
    out
}

#[test]
fn the_picture_of_a_window_shows_what_the_rules_do_with_it() {
    let scene = scene(SEED, keys());
    let fates = |fate| scene.boxes.iter().filter(|b| b.fate == fate).count();
    assert_eq!((fates(Fate::Lot), fates(Fate::Right), fates(Fate::Waits)), (WINNERS, 1, WAITING));
    assert!(fates(Fate::Out) > 0, "somebody loses, or the picture explains nothing");
    let drawn = draw(&scene);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/sampling-window.svg");
    if std::env::var_os("GOLDEN").is_some_and(|how| how == "write") {
        std::fs::write(&path, &drawn).unwrap();
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(kept, drawn, "GOLDEN=write cargo test -p grandstand-core --test picture");
}
