//! The viewer pages and the operators' console, inside the binary: no build step, no file to lose, a policy that runs nothing but them.

use axum::body::Body;
use axum::extract::State;
use grandstand_wire::codes::ErrorCode;
use http::{HeaderValue, Response, StatusCode, header};

use super::answer::{Problem, bytes_answer};
use super::ask::Ask;
use super::{Control, Shared};
use crate::edge::Endpoints;

/// Scripts, styles, images and connections of this server alone; nothing inline, no frame around it.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
                      manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; connect-src 'self'";

/// [`POLICY`], with connections to the transports' own base URLs as well.
pub fn policy(endpoints: &Endpoints) -> HeaderValue {
    let urls: String = endpoints.urls().map(|url| format!(" {url}")).collect();
    HeaderValue::from_str(&format!("{POLICY}{urls}")).expect("a base URL is a scheme, a host and a port")
}

const LOBBY: &[u8] = include_bytes!("../../../../web/pages/index.html");
const ROOM: &[u8] = include_bytes!("../../../../web/pages/room.html");
const CONSOLE: &[u8] = include_bytes!("../../../../web/pages/console.html");

macro_rules! asset {
    ($name:literal, $kind:literal) => {
        ($name, $kind, include_bytes!(concat!("../../../../web/pages/assets/", $name)))
    };
}

#[cfg(test)]
const JS: &str = "text/javascript; charset=utf-8";

/// Name, type, bytes.
const ASSETS: &[(&str, &str, &[u8])] = &[
    asset!("console-access.js", "text/javascript; charset=utf-8"),
    asset!("console-acts.js", "text/javascript; charset=utf-8"),
    asset!("console-api.js", "text/javascript; charset=utf-8"),
    asset!("console-ban.js", "text/javascript; charset=utf-8"),
    asset!("console-bans.js", "text/javascript; charset=utf-8"),
    asset!("console-desk.js", "text/javascript; charset=utf-8"),
    asset!("console-erase.js", "text/javascript; charset=utf-8"),
    asset!("console-held.js", "text/javascript; charset=utf-8"),
    asset!("console-model.js", "text/javascript; charset=utf-8"),
    asset!("console-queue.js", "text/javascript; charset=utf-8"),
    asset!("console-reports.js", "text/javascript; charset=utf-8"),
    asset!("console-room.js", "text/javascript; charset=utf-8"),
    asset!("console-rooms.js", "text/javascript; charset=utf-8"),
    asset!("console-scores.js", "text/javascript; charset=utf-8"),
    asset!("console.css", "text/css; charset=utf-8"),
    asset!("console.js", "text/javascript; charset=utf-8"),
    asset!("danmaku.js", "text/javascript; charset=utf-8"),
    asset!("grandstand-client.js", "text/javascript; charset=utf-8"),
    asset!("grandstand-room.js", "text/javascript; charset=utf-8"),
    asset!("grandstand.css", "text/css; charset=utf-8"),
    asset!("icon.svg", "image/svg+xml"),
    asset!("room.js", "text/javascript; charset=utf-8"),
    asset!("rooms.js", "text/javascript; charset=utf-8"),
    asset!("words.js", "text/javascript; charset=utf-8"),
];

/// `/`: the rooms, and the button that starts a demo.
pub async fn lobby(State(control): State<Shared>, _: Ask) -> Response<Body> {
    page(LOBBY, &control)
}

/// `/rooms/{room}`.
pub async fn room(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    ask.room()?;
    Ok(page(ROOM, &control))
}

/// `/console`: the same page for everyone; what its API answers depends on the token it is given.
pub async fn console(State(control): State<Shared>, _: Ask) -> Response<Body> {
    page(CONSOLE, &control)
}

/// `/assets/{name}`: names of the table, compared whole.
pub async fn asset(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let wanted = ask.param("name");
    let found = ASSETS.iter().find(|(name, ..)| *name == wanted);
    let (_, kind, bytes) = found.ok_or_else(|| Problem::new(ErrorCode::NotFound, "there is no such file"))?;
    let mut response = bytes_answer(StatusCode::OK, kind, Body::from(*bytes));
    // A new binary has new files under the same names, so each use asks again; they are small.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    secure(&mut response, &control);
    Ok(response)
}

fn page(html: &'static [u8], control: &Control) -> Response<Body> {
    let mut response = bytes_answer(StatusCode::OK, "text/html; charset=utf-8", Body::from(html));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    secure(&mut response, control);
    response
}

fn secure(response: &mut Response<Body>, control: &Control) {
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, control.policy.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(header::X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ASSETS, CONSOLE, JS, LOBBY, ROOM};

    #[test]
    fn every_file_of_the_folder_is_embedded_with_its_type() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../web/pages/assets");
        let there: BTreeSet<String> =
            std::fs::read_dir(folder).unwrap().map(|f| f.unwrap().file_name().into_string().unwrap()).collect();
        let embedded: BTreeSet<String> = ASSETS.iter().map(|(name, ..)| (*name).to_owned()).collect();
        assert_eq!(embedded, there);
        assert!(ASSETS.iter().filter(|(name, ..)| name.ends_with(".js")).all(|(_, kind, _)| *kind == JS));
    }

    #[test]
    fn pages_use_embedded_files_only_and_no_inline_script() {
        for html in [LOBBY, ROOM, CONSOLE] {
            let html = std::str::from_utf8(html).unwrap();
            for part in html.split("/assets/").skip(1) {
                let name = part.split('"').next().unwrap();
                assert!(ASSETS.iter().any(|(n, ..)| *n == name), "{name}");
            }
            for tag in html.split("<script").skip(1) {
                assert!(tag.split('>').next().unwrap().contains("src="), "an inline script would not run");
            }
            assert!(!html.contains("style=") && !html.contains("<style"), "an inline style would not hold");
        }
    }
}
