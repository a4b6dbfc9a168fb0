//! Runs that once failed, by name, with what they found. Each is a file of `scenarios/`: a sentence, then the options.
//!
//! A seed is a run only together with the model: a change of the model's draws makes other runs of the same seeds. Whoever
//! changes them finds each scenario's seed again, by taking the rule out that answered it.

use std::collections::BTreeSet;

use crate::options::{Fault, Options};

#[derive(Clone, Debug)]
pub struct Scenario {
    pub name: &'static str,
    pub found: String,
    pub options: Options,
}

/// Every saved run, by name.
const FILES: &[(&str, &str)] = &[
    ("a-block-among-winners", include_str!("../scenarios/a-block-among-winners.txt")),
    ("a-new-owner-with-something-to-say", include_str!("../scenarios/a-new-owner-with-something-to-say.txt")),
    ("a-window-number-twice", include_str!("../scenarios/a-window-number-twice.txt")),
    ("overtaken-take-over", include_str!("../scenarios/overtaken-take-over.txt")),
    ("slow-mode-across-a-clock-jump", include_str!("../scenarios/slow-mode-across-a-clock-jump.txt")),
    ("slow-mode-and-a-comment-on-its-way", include_str!("../scenarios/slow-mode-and-a-comment-on-its-way.txt")),
    ("snapshot-before-any-event", include_str!("../scenarios/snapshot-before-any-event.txt")),
    ("winners-in-a-narrow-rooms-gap", include_str!("../scenarios/winners-in-a-narrow-rooms-gap.txt")),
    ("zombie-with-nothing-to-write", include_str!("../scenarios/zombie-with-nothing-to-write.txt")),
];

/// Panics: when a file breaks the format; the files are part of the build.
pub fn all() -> Vec<Scenario> {
    FILES.iter().map(|(name, text)| parse(name, text).unwrap_or_else(|why| panic!("scenario {name}: {why}"))).collect()
}

/// `# what it found`, then `seed N`, `seconds N`, and any of `clients N` and `without FAULT`, a line each.
fn parse(name: &'static str, text: &str) -> Result<Scenario, String> {
    let mut options = Options::new(0, 0);
    let mut found = Vec::new();
    let number = |text: &str| text.parse::<u64>().map_err(|_| format!("{text:?} is not a number"));
    let mut off = BTreeSet::new();
    for line in text.lines().filter(|line| !line.is_empty()) {
        if let Some(words) = line.strip_prefix("# ") {
            found.push(words);
            continue;
        }
        match line.split_once(' ') {
            Some(("seed", n)) => options.seed = number(n)?,
            Some(("seconds", n)) => options.seconds = number(n)?,
            Some(("clients", n)) => options.clients_max = number(n)?,
            Some(("without", name)) => {
                off.insert(Fault::parse(name).ok_or_else(|| format!("no fault is called {name}"))?);
            }
            _ => return Err(format!("{line:?} is not understood")),
        }
    }
    if options.seconds == 0 || found.is_empty() {
        return Err("a scenario says what it found, its seed and its seconds".into());
    }
    options.off = off;
    Ok(Scenario { name, found: found.join(" "), options })
}

#[cfg(test)]
mod tests {
    use super::{all, parse};

    #[test]
    fn every_saved_run_can_be_read() {
        all();
    }

    #[test]
    fn a_run_that_does_not_say_what_it_found_is_refused() {
        assert_eq!(
            parse("x", "seed 1\nseconds 5").unwrap_err(),
            "a scenario says what it found, its seed and its seconds"
        );
        assert_eq!(parse("x", "# y\nwithout rain").unwrap_err(), "no fault is called rain");
        assert_eq!(parse("x", "# y\nseed 3\nseconds 5\nwithout torn").unwrap().options.off.len(), 1);
    }
}
