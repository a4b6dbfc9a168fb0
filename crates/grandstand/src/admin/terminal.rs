//! What each command has at hand: the server's calls, why it is done, and how it is asked about and told.

use std::io::IsTerminal as _;

use anyhow::Result;
use grandstand_client::admin::Admin;
use serde_json::Value;

use super::{Args, Usage, show};
use crate::plain::plain;

/// Whoever sits at the terminal did not say yes; nothing was done.
#[derive(Debug, thiserror::Error)]
#[error("nothing was done")]
pub struct Declined;

pub struct Terminal<'a> {
    pub admin: &'a Admin,
    pub args: &'a Args,
}

impl Terminal<'_> {
    /// Errors: it was not said, and every change needs it.
    pub fn why(&self) -> Result<&str, Usage> {
        let missing = "--justification is missing: every change says why, in 1 to 200 bytes";
        self.args.justification.as_deref().ok_or_else(|| Usage(missing.to_owned()))
    }

    /// Tells a change.
    pub fn done(&self, what: &str, answer: &Value) {
        if self.args.json { println!("{answer}") } else { show::done(what, answer) }
    }

    /// Tells what was asked.
    pub fn show(&self, answer: &Value, table: impl FnOnce(&Value)) {
        if self.args.json { println!("{answer}") } else { table(answer) }
    }

    /// Says what is about to be done, and asks whether to go on, where somebody is there to answer; a script goes on.
    /// `room`: whose viewers it concerns. Errors: [`Declined`].
    pub async fn sure(&self, room: Option<&str>, effects: &[String]) -> Result<()> {
        let Args { json, dry_run, yes, .. } = self.args;
        let asks = !dry_run && !yes && std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        if *json || !(asks || *dry_run) {
            return Ok(());
        }
        effects.iter().for_each(|effect| eprintln!("{}", plain(effect)));
        if let Some(room) = room {
            // A room that is made by its first use may not be there yet; who asks is not held up by it.
            let settings = self.admin.room(room).await.unwrap_or_default();
            if let Some(viewers) = settings["counters"]["viewers"].as_u64() {
                eprintln!("{room} has {viewers} {} now.", if viewers == 1 { "viewer" } else { "viewers" });
            }
        }
        if !asks {
            return Ok(());
        }
        eprint!("Go on? [y/N] ");
        let mut line = String::new();
        std::io::stdin().read_line(&mut line)?;
        if is_yes(&line) { Ok(()) } else { Err(Declined.into()) }
    }
}

fn is_yes(line: &str) -> bool {
    matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes")
}

#[cfg(test)]
mod tests {
    use super::is_yes;

    #[test]
    fn nothing_but_yes_is_yes() {
        assert!(["y\n", "Y", " yes\r\n", "YES"].iter().all(|line| is_yes(line)));
        assert!(["", "\n", "n\n", "yep", "y y", "ye"].iter().all(|line| !is_yes(line)));
    }
}
