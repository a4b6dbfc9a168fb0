//! Tokens made with a data folder's own key.

use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result, ensure};
use grandstand_core::time::Wall;
use grandstand_server::auth::files::SIGNING_KEY;
use grandstand_server::auth::token::{Claims, SigningKey};

/// A tool's own token outlives any run of it.
const TOOL_TTL: Duration = Duration::from_secs(7 * 24 * 3600);

pub fn now() -> Wall {
    Wall(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis() as u64)
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
