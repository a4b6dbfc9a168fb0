//! Tokens made with a data folder's own key, and the keys of providers.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use grandstand_client::sign::Signer;
use grandstand_core::time::Wall;
use grandstand_server::auth::files::SIGNING_KEY;
use grandstand_server::auth::keys::SigningKey;
use grandstand_server::auth::token::Claims;

/// A tool's own token outlives any run of it.
const TOOL_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

const DAY_MS: u64 = 24 * 3_600 * 1_000;

pub fn now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
}

/// Signs as this provider, with the key in this file.
pub fn signer(provider: &str, kid: &str, file: &Path) -> Result<Signer> {
    let key = std::fs::read(file).with_context(|| file.display().to_string())?;
    // As the server reads a key file: an editor's last line end is no part of the key.
    Ok(Signer::new(provider, kid, key.strip_suffix(b"\n").unwrap_or(&key)))
}

/// A token that may publish as others, set rooms up and read everything.
///
/// Errors: the folder holds no signing key, so it is not that of a server which believes one.
pub fn tool_token(data: &Path) -> Result<String> {
    let key = data.join(SIGNING_KEY);
    ensure!(key.exists(), "{} is missing: give --token, or --data with the server's data folder", key.display());
    let claims = Claims {
        roles: Some(["publisher", "backend", "region-ops"].map(str::to_owned).to_vec()),
        ..Claims::new("grandstand-tool", now(), TOOL_TTL)
    };
    Ok(SigningKey::in_folder(data).with_context(|| data.display().to_string())?.mint(&claims))
}

/// One token a viewer, each for a user of its own. Those of one day are the same, so that a server that has verified them
/// once knows them again.
///
/// Errors: the folder holds no signing key.
pub fn viewer_tokens(data: &Path, n: u32) -> Result<Vec<String>> {
    users(data, "load-viewer", &[], n)
}

/// One token a liker. As backends they may say more operations a second than people do; their likes have the room's rate like
/// anybody's.
///
/// Errors: the folder holds no signing key.
pub fn liker_tokens(data: &Path, n: u32) -> Result<Vec<String>> {
    users(data, "load-liker", &["publisher", "backend"], n)
}

fn users(data: &Path, name: &str, roles: &[&str], n: u32) -> Result<Vec<String>> {
    let key = data.join(SIGNING_KEY);
    ensure!(key.exists(), "{} is missing: users of their own need the server's data folder", key.display());
    let key = SigningKey::in_folder(data).with_context(|| data.display().to_string())?;
    let day = Wall(now().0 / DAY_MS * DAY_MS);
    let roles = (!roles.is_empty()).then(|| roles.iter().map(|role| (*role).to_owned()).collect::<Vec<_>>());
    let claims = |n: u32| Claims { roles: roles.clone(), ..Claims::new(&format!("{name}-{n}"), day, TOOL_TTL) };
    Ok((0..n).map(|n| key.mint(&claims(n))).collect())
}
