//! `POST /v1/demo`: a room that lives, so that a newcomer sees at once what this is. Development mode only.
//!
//! A synthetic match of ten minutes and a synthetic crowd, through the same commands as everything else: what is shown was
//! in the log first. One runs at a time; it ends by itself, and its room stays as any other. Everybody in it is invented,
//! and their handles say so: parts of a stand, with a number.

use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::{EventId, Revision};
use grandstand_core::names::{ClientMsgId, Key, RoomId, UserId};
use grandstand_core::owner::answer::Answer;
use grandstand_core::owner::command::{Author, Command, Publish, Standing};
use grandstand_core::record::{RoomState, ScoreKind, ScoreState};
use grandstand_core::revision::ScoreIn;
use grandstand_core::rng::Rng;
use grandstand_core::rooms::RoomChange;
use grandstand_wire::codes::ErrorCode;
use http::{Response, StatusCode};
use serde_json::json;

use super::Shared;
use super::answer::{Problem, json as answer_json};
use super::ask::Ask;
use crate::auth::files;
use crate::link::ShardHandle;

/// The demo that runs, if one does.
#[derive(Default)]
pub struct Slot(Mutex<Option<Run>>);

struct Run {
    room: RoomId,
    over: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
}

impl Slot {
    pub fn stop(&self) {
        if let Some(run) = &*self.0.lock().expect("no holder of this lock can panic") {
            run.stop.store(true, Ordering::Relaxed);
        }
    }
}

pub async fn post(State(control): State<Shared>, _: Ask) -> Result<Response<Body>, Problem> {
    if !control.deps.config.development {
        return Err(Problem::new(ErrorCode::NotAllowed, "demo rooms are for development mode"));
    }
    let (room, started) = {
        let mut slot = control.demo.0.lock().expect("no holder of this lock can panic");
        match &*slot {
            Some(run) if !run.over.load(Ordering::Relaxed) => (run.room.clone(), None),
            _ => {
                let seed = u64::from_le_bytes(files::random());
                let name = format!("demo-{:08x}", seed as u32);
                let room = RoomId::parse(&name).expect("hex is a room id");
                let run = Run { room: room.clone(), over: Arc::default(), stop: Arc::default() };
                let started = (seed, run.over.clone(), run.stop.clone());
                *slot = Some(run);
                (room, Some(started))
            }
        }
    };
    let body = json!({"room_id": room.as_str(), "url": format!("/rooms/{}", room.as_str())});
    let Some((seed, over, stop)) = started else { return Ok(answer_json(StatusCode::OK, &body)) };
    let show = Show { shard: control.deps.shard.clone(), room, rng: Rng::new(seed), n_said: 0, score: [0, 0], stop };
    match show.open().await {
        Ok(show) => {
            // Ends with its script, when the log refuses for good, or when the server stops.
            tokio::spawn(async move {
                show.play().await;
                over.store(true, Ordering::Relaxed);
            });
            Ok(answer_json(StatusCode::CREATED, &body))
        }
        Err(problem) => {
            over.store(true, Ordering::Relaxed);
            Err(problem)
        }
    }
}

const PLACES: [&str; 10] = [
    "northstand",
    "southstand",
    "eaststand",
    "weststand",
    "terrace",
    "upper_tier",
    "lower_tier",
    "corner_flag",
    "tunnel_end",
    "away_end",
];
const PER_PLACE: u64 = 4;

const CALM: [&str; 24] = [
    "good pressing so far",
    "who is warming up?",
    "midfield is wide open",
    "that pass though",
    "come on!",
    "nice tempo this half",
    "anyone else watching with no sound",
    "corner again",
    "the keeper is having a day",
    "offside, surely",
    "no way that was a foul",
    "they look tired",
    "switch it to the left!",
    "what a touch 👏",
    "hold the line",
    "first time here, hello everyone",
    "the rain is not helping",
    "we need a goal",
    "so close",
    "that free kick routine again",
    "ref is letting it flow",
    "great save",
    "keep the ball",
    "sit down in front 😄",
];
const GOAL: [&str; 14] = [
    "GOAL!!!",
    "GOOOOAL",
    "what a strike ⚽🔥",
    "YES YES YES",
    "top corner!",
    "I am shaking",
    "unbelievable",
    "🎉🎉🎉",
    "from nothing!",
    "that is how you finish",
    "say it again: what a strike",
    "the whole stand is jumping",
    "⚽⚽⚽",
    "replay please",
];
const REVIEW: [&str; 10] = [
    "wait, VAR?",
    "no no no",
    "they are checking it",
    "was he off?",
    "please stand",
    "this takes forever",
    "tight one",
    "shoulder or arm?",
    "lines on the screen now",
    "the silence in here",
];
const BREAK: [&str; 8] = [
    "half-time, tea time ☕",
    "what a half",
    "subs at the break?",
    "back in fifteen",
    "I can breathe again",
    "queue at the kiosk is huge",
    "second half will be wild",
    "fair score so far",
];

/// What happens, at which second of the ten minutes.
enum Scene {
    Score {
        event: &'static str,
        revision: u32,
        kind: ScoreKind,
        state: ScoreState,
        score: [u32; 2],
        minute: &'static str,
    },
    /// The crowd says lines of this list, so many a second, for so many seconds.
    Crowd(&'static [&'static str], f64, u64),
}

const fn score(
    event: &'static str,
    revision: u32,
    kind: ScoreKind,
    state: ScoreState,
    score: [u32; 2],
    minute: &'static str,
) -> Scene {
    Scene::Score { event, revision, kind, state, score, minute }
}

/// The match: seconds from the start, in order. A minute of play is about six seconds.
const SCRIPT: &[(u64, Scene)] = {
    use ScoreKind::{Correction, FullTime, Goal, HalfTime, KickOff, Penalty, RedCard, SecondHalf, Var, YellowCard};
    use ScoreState::{Confirmed, Provisional, UnderReview, Withdrawn};
    &[
        (0, score("kick-off", 1, KickOff, Confirmed, [0, 0], "1")),
        (20, score("goal-1", 1, Goal, Provisional, [1, 0], "4")),
        (20, Scene::Crowd(&GOAL, 12.0, 8)),
        (26, score("goal-1", 2, Goal, Confirmed, [1, 0], "4")),
        (90, score("yellow-1", 1, YellowCard, Confirmed, [1, 0], "15")),
        (150, score("goal-2", 1, Goal, Provisional, [1, 1], "25")),
        (150, Scene::Crowd(&GOAL, 12.0, 8)),
        (160, score("goal-2", 2, Goal, UnderReview, [1, 1], "25")),
        (160, score("var-1", 1, Var, UnderReview, [1, 1], "25")),
        (160, Scene::Crowd(&REVIEW, 8.0, 18)),
        (180, score("goal-2", 3, Goal, Withdrawn, [1, 0], "25")),
        (180, score("var-1", 2, Correction, Confirmed, [1, 0], "26")),
        (180, Scene::Crowd(&REVIEW, 6.0, 6)),
        (270, score("half-time", 1, HalfTime, Confirmed, [1, 0], "HT")),
        (270, Scene::Crowd(&BREAK, 2.0, 28)),
        (300, score("second-half", 1, SecondHalf, Confirmed, [1, 0], "46")),
        (372, score("goal-3", 1, Goal, Confirmed, [1, 1], "58")),
        (372, Scene::Crowd(&GOAL, 14.0, 8)),
        (430, score("red-1", 1, RedCard, Confirmed, [1, 1], "68")),
        (430, Scene::Crowd(&REVIEW, 6.0, 6)),
        (500, score("goal-4", 1, Penalty, Confirmed, [2, 1], "79")),
        (500, Scene::Crowd(&GOAL, 16.0, 12)),
        (575, Scene::Crowd(&CALM, 8.0, 20)),
        (598, score("full-time", 1, FullTime, Confirmed, [2, 1], "90+3")),
        (598, Scene::Crowd(&GOAL, 8.0, 6)),
    ]
};
const CALM_RATE: f64 = 1.5;
/// One look at script and crowd. The rates are per second, so this only sets how evenly they fall.
const TICK: Duration = Duration::from_millis(100);

struct Show {
    shard: ShardHandle,
    room: RoomId,
    rng: Rng,
    n_said: u64,
    score: [u32; 2],
    stop: Arc<AtomicBool>,
}

impl Show {
    fn match_id(&self) -> Key {
        let run = self.room.as_str().trim_start_matches("demo-");
        Key::parse(&format!("reds-blues:{run}")).expect("letters and hex are a key")
    }

    /// Makes the room, and a first few lines in it.
    async fn open(mut self) -> Result<Show, Problem> {
        let change = RoomChange {
            title: Some("Demo: Reds against Blues (synthetic)".into()),
            state: Some(RoomState::Live),
            matches: Some(vec![self.match_id()]),
            ..RoomChange::default()
        };
        let put = Command::PutRoom { room: self.room.clone(), change: change.into(), if_version: None };
        if let Answer::Reject(reject) = self.shard.ask(put).await? {
            return Err(reject.into());
        }
        for line in ["hello from the terrace", "kick-off in a moment", "who are you for?"] {
            self.say(line).await;
        }
        Ok(self)
    }

    async fn play(mut self) {
        let began = tokio::time::Instant::now();
        let mut script = SCRIPT.iter();
        let mut next = script.next();
        let mut mood: (&[&str], f64, u64) = (&CALM, CALM_RATE, 0);
        let mut owed = 0.0;
        let mut ticks = tokio::time::interval(TICK);
        // A late tick is one tick: a machine that slept does not get a shouting crowd for it.
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        while !self.stop.load(Ordering::Relaxed) {
            ticks.tick().await;
            let second = began.elapsed().as_secs();
            while let Some((at, scene)) = next
                && *at <= second
            {
                match scene {
                    Scene::Crowd(lines, rate, lasts) => mood = (lines, *rate, at + lasts),
                    Scene::Score { .. } => self.tell(scene).await,
                }
                next = script.next();
            }
            if mood.2 != 0 && second >= mood.2 {
                if next.is_none() {
                    return;
                }
                mood = (&CALM, CALM_RATE, 0);
            }
            owed += mood.1 * TICK.as_secs_f64();
            while owed >= 1.0 {
                owed -= 1.0;
                let line = mood.0[self.rng.below(mood.0.len() as u64) as usize];
                self.say(line).await;
            }
        }
    }

    async fn say(&mut self, line: &str) {
        self.n_said += 1;
        let n = self.rng.below(PLACES.len() as u64 * PER_PLACE);
        let handle = format!("{}_{}", PLACES[(n / PER_PLACE) as usize], n % PER_PLACE + 1);
        let badge: Option<Arc<str>> = n.is_multiple_of(7).then(|| "season ticket".into());
        let publish = Publish {
            room: self.room.clone(),
            author: Author {
                user: UserId::parse(&format!("demo:{handle}")).expect("a handle is a user id"),
                display: handle.into(),
                badges: badge.into_iter().collect(),
                standing: Standing::Backend,
            },
            client_msg_id: ClientMsgId::parse(&format!("demo-{}", self.n_said)).expect("digits are a key"),
            text: line.into(),
            reply_to: None::<EventId>,
        };
        // A crowd that is refused says something else a moment later.
        if let Ok(Answer::Reject(reject)) = self.shard.ask(Command::Publish(publish)).await {
            tracing::debug!(code = reject.code.name(), "a line of the demo was refused");
        }
    }

    async fn tell(&mut self, scene: &Scene) {
        let Scene::Score { event, revision, kind, state, score, minute } = scene else { return };
        self.score = *score;
        let mut told = ScoreIn {
            match_id: self.match_id(),
            provider: Key::parse("demo").expect("a word is a key"),
            event: Key::parse(event).expect("a word is a key"),
            revision: Some(Revision(*revision)),
            kind: *kind,
            state: *state,
            home: self.score[0],
            away: self.score[1],
            minute: Some((*minute).into()),
            historical: false,
            digest: [0; 16],
            data: None,
            room: None,
        };
        told.digest = super::scores::payload_digest(&told);
        match self.shard.ask(Command::Score(told)).await {
            Ok(Answer::Reject(reject)) => {
                tracing::warn!(code = reject.code.name(), event, "a score of the demo was refused")
            }
            Ok(_) => {}
            Err(_) => tracing::warn!(event, "a score of the demo found the shard full"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{SCRIPT, Scene};

    #[test]
    fn the_script_is_in_order_and_ends_by_itself() {
        assert!(SCRIPT.windows(2).all(|pair| pair[0].0 <= pair[1].0));
        assert!(matches!(SCRIPT.last(), Some((at, Scene::Crowd(_, _, lasts))) if at + lasts < 660));
    }
}
