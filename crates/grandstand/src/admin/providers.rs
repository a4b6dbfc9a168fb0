//! Commands about score providers: who they are, and the keys they sign with.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Subcommand;

use super::show;
use super::terminal::Terminal;
use crate::plain::plain;

#[derive(Subcommand)]
pub enum What {
    /// A provider's keys by kid, with where each comes from; and makes one, or takes one back.
    Keys {
        provider: String,
        #[command(subcommand)]
        what: Option<KeysWhat>,
    },
}

#[derive(Subcommand)]
pub enum KeysWhat {
    /// Makes a key beside those that hold. Its secret is told this once; needs the role `admin`.
    Add {
        /// Its name in the signature; without it, one is made up.
        #[arg(long)]
        kid: Option<String>,
        /// Write the secret to this file, which only you can read, instead of stdout; it must not be there yet.
        #[arg(long, short)]
        output: Option<PathBuf>,
    },
    /// Nothing that is signed with this key is taken any more; needs the role `admin`.
    Remove { kid: String },
}

pub async fn perform(what: Option<&What>, terminal: &Terminal<'_>) -> Result<()> {
    let admin = terminal.admin;
    let Some(What::Keys { provider, what }) = what else {
        terminal.show(&admin.providers().await?, show::providers);
        return Ok(());
    };
    match what {
        None => terminal.show(&admin.provider_keys(provider).await?, show::provider_keys),
        Some(KeysWhat::Add { kid, output }) => {
            let why = terminal.why()?;
            // Before the key is: a secret that has no place to go would be lost.
            let wanted = output.as_deref().filter(|_| !terminal.args.dry_run);
            let mut file = wanted.map(new_file).transpose()?;
            let mut answer = admin.add_provider_key(provider, kid.as_deref(), why).await?;
            if let Some(file) = &mut file
                && let Some(secret) = answer["key"].as_str()
            {
                file.write_all(secret.as_bytes())?;
                file.sync_all()?;
                answer["key"] = serde_json::Value::Null;
            }
            let named = format!("{provider} has the key {}", answer["kid"].as_str().unwrap_or_default());
            terminal.done(&named, &answer);
            if let Some(secret) = answer["key"].as_str().filter(|_| !terminal.args.json) {
                eprintln!("Its secret, which is told at no other time:");
                println!("{}", plain(secret));
            }
        }
        Some(KeysWhat::Remove { kid }) => {
            let why = terminal.why()?;
            let keys = admin.provider_keys(provider).await?;
            let left = keys["keys"].as_array().map_or(0, |keys| keys.iter().filter(|key| key["kid"] != *kid).count());
            let mut effects = vec![format!("What {provider} signs with {kid} is refused from now on.")];
            if left == 0 {
                effects.push(format!("It is the last key of {provider}: nothing comes from it until it has another."));
            }
            terminal.sure(None, &effects).await?;
            terminal.done(
                &format!("{kid} of {provider} is taken back"),
                &admin.remove_provider_key(provider, kid, why).await?,
            );
        }
    }
    Ok(())
}

fn new_file(path: &Path) -> Result<std::fs::File> {
    if path.exists() {
        bail!("{} is there already", path.display());
    }
    let file = std::fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    file.with_context(|| path.display().to_string())
}
