//! A fixture list of openfootball: the reader is the one of `replay`, of which each step is an event already.

use grandstand_client::room::{Score, ScoreEvent};

use super::{Adapted, Fault};
use crate::trace::{self, Act};

pub(super) fn adapt(bytes: &[u8], provider: &str) -> Result<Adapted, Fault> {
    let trace = trace::openfootball::read(bytes).ok_or(Fault::NotOf("a fixture list of openfootball"))?;
    let mut adapted = Adapted { skipped: trace.skipped, ..Adapted::default() };
    for step in trace.steps {
        let Act::Score(score) = step.act else { continue };
        adapted.events.push(ScoreEvent {
            match_id: score.match_id,
            event_id: score.event,
            provider: provider.to_owned(),
            revision: Some(score.revision),
            kind: score.kind.to_owned(),
            score: Score { home: score.home, away: score.away },
            minute: Some(score.minute),
            state: Some(score.state.to_owned()),
            data: None,
        });
    }
    Ok(adapted)
}
