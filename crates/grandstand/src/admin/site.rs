//! Commands about the whole site: bans everywhere, and which tokens hold.

use std::time::Duration;

use anyhow::Result;
use clap::Subcommand;
use grandstand_client::admin::Whose;
use serde_json::{Value, json};

use super::moderate::{How, lasting, told};
use super::terminal::Terminal;
use super::{PAGE, lists};
use crate::token;

#[derive(Subcommand)]
pub enum What {
    /// Bans of the whole site.
    Site {
        #[command(subcommand)]
        what: SiteWhat,
    },
    /// Which tokens hold: what is revoked, and a declared outage of the identity provider.
    Access {
        #[command(subcommand)]
        what: AccessWhat,
    },
}

#[derive(Subcommand)]
pub enum SiteWhat {
    /// Those that hold now, by user, with who put them up and why where the audit still says it.
    Bans {
        /// This user's alone.
        #[arg(long)]
        user: Option<String>,
        /// Bans to print.
        #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
        limit: u32,
    },
    /// A user may speak nowhere, and its open streams are closed; with `--shadow` it is not told and stays.
    Ban {
        user: String,
        /// How long: 90s, 15m, 12h, 7d. Without it, until it is lifted.
        #[arg(long = "for", value_parser = token::ttl)]
        lasts: Option<Duration>,
        #[command(flatten)]
        how: How,
    },
    /// Lifts one; those of single rooms stay.
    Unban { user: String },
}

#[derive(Subcommand)]
pub enum AccessWhat {
    /// What is revoked, and the declared outage.
    List,
    /// Tokens of a user that were issued up to now, of a session or of a key are not taken any more; streams on them are closed.
    Revoke {
        #[command(flatten)]
        whose: Named,
        /// How long: 60s to 400d; without it 30 days, which no token should outlive.
        #[arg(long = "for", value_parser = token::ttl)]
        lasts: Option<Duration>,
    },
    /// What was revoked is taken again.
    Restore {
        #[command(flatten)]
        whose: Named,
    },
    /// No new tokens can be had for so long, 1m to 24h: those that ran out up to 12 h ago let their holders watch.
    Outage {
        #[arg(value_parser = token::ttl)]
        lasts: Duration,
    },
    /// The outage is over: streams on tokens that ran out are closed.
    OutageEnd,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Named {
    /// The tokens' `sub`.
    #[arg(long)]
    user: Option<String>,
    /// Their `sid`.
    #[arg(long)]
    session: Option<String>,
    /// Their `kid`; needs the role `admin`.
    #[arg(long)]
    key: Option<String>,
}

impl Named {
    /// What is meant, and in words.
    fn whose(&self) -> (Whose, String) {
        match (&self.user, &self.session, &self.key) {
            (Some(user), ..) => (Whose::User(user.clone()), format!("tokens of the user {user}")),
            (_, Some(session), _) => (Whose::Session(session.clone()), format!("tokens of the session {session}")),
            (_, _, Some(key)) => (Whose::Key(key.clone()), format!("tokens that the key {key} signed")),
            _ => unreachable!("the group needs one"),
        }
    }
}

pub async fn perform(what: &What, terminal: &Terminal<'_>) -> Result<()> {
    match what {
        What::Site { what } => site(what, terminal).await,
        What::Access { what } => access(what, terminal).await,
    }
}

async fn site(what: &SiteWhat, terminal: &Terminal<'_>) -> Result<()> {
    let admin = terminal.admin;
    match what {
        SiteWhat::Bans { user, limit } => {
            let bans = bans(terminal, user.as_deref(), *limit as usize).await?;
            terminal.show(&json!({"bans": bans}), lists::site_bans);
        }
        SiteWhat::Ban { user, lasts, how } => {
            let why = terminal.why()?;
            let ban = how.ban(user, *lasts);
            let told = told(&ban, None);
            let mut effects = vec![format!("{told}.")];
            if !ban.shadow {
                effects.push("Its open streams are closed within a second.".to_owned());
            }
            if let Some(minutes) = ban.purge_minutes {
                effects.push(format!("What it said in the last {minutes} min is taken back in every room, for good."));
            }
            terminal.sure(None, &effects).await?;
            terminal.done(&told, &admin.site_ban(&ban, why).await?);
        }
        SiteWhat::Unban { user } => {
            let answer = admin.site_unban(user, terminal.why()?).await?;
            terminal.done(&format!("{user} may speak again, where no room bans it"), &answer);
        }
    }
    Ok(())
}

async fn bans(terminal: &Terminal<'_>, user: Option<&str>, limit: usize) -> Result<Vec<Value>> {
    let mut bans: Vec<Value> = Vec::new();
    loop {
        let after = bans.last().and_then(|ban| ban["user_id"].as_str()).map(str::to_owned);
        let answer = terminal.admin.site_bans(user, after.as_deref(), PAGE.min(limit - bans.len())).await?;
        let page = answer["bans"].as_array().cloned().unwrap_or_default();
        let is_last = page.is_empty() || answer["more"] != true;
        bans.extend(page);
        if is_last || bans.len() >= limit {
            return Ok(bans);
        }
    }
}

async fn access(what: &AccessWhat, terminal: &Terminal<'_>) -> Result<()> {
    let admin = terminal.admin;
    match what {
        AccessWhat::List => terminal.show(&admin.access().await?, lists::access),
        AccessWhat::Revoke { whose, lasts } => {
            let why = terminal.why()?;
            let (whose, named) = whose.whose();
            let effect =
                format!("No {named} are taken any more; streams that are open on them are closed within a second.");
            terminal.sure(None, &[effect]).await?;
            let answer = admin.revoke(&whose, lasts.map(|d| d.as_secs()), why).await?;
            terminal.done(&format!("{named} are revoked"), &answer);
        }
        AccessWhat::Restore { whose } => {
            let (whose, named) = whose.whose();
            let answer = admin.restore(&whose, terminal.why()?).await?;
            terminal.done(&format!("{named} are taken again"), &answer);
        }
        AccessWhat::Outage { lasts } => {
            let why = terminal.why()?;
            let seconds = lasts.as_secs();
            let effect = format!(
                "For {} a token that ran out up to 12 h ago lets its holder watch; what is revoked stays so.",
                lasting(seconds)
            );
            terminal.sure(None, &[effect]).await?;
            terminal
                .done(&format!("an outage is declared for {}", lasting(seconds)), &admin.outage(seconds, why).await?);
        }
        AccessWhat::OutageEnd => {
            terminal.done("the outage is over", &admin.end_outage(terminal.why()?).await?);
        }
    }
    Ok(())
}
