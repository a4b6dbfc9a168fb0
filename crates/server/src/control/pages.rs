//! The viewer pages and the operators' console, inside the binary: no build step, no file to lose, a policy that runs nothing but them.

use axum::body::Body;
use axum::extract::State;
use grandstand_core::ids::Position;
use grandstand_wire::codes::ErrorCode;
use http::{HeaderValue, Response, StatusCode, header};

use super::answer::{Problem, bytes_answer};
use super::ask::Ask;
use super::{Control, Shared};
use crate::auth::door::Origin;
use crate::edge::Endpoints;

/// Scripts, styles, images and connections of this server alone; nothing inline. What may stand around it and what it may reach follow.
const POLICY: &str = "default-src 'none'; script-src 'self'; img-src 'self'; \
                      manifest-src 'self'; base-uri 'none'; form-action 'self'";

/// What each kind of page may load and reach, and in whose frame it may be.
pub struct Policies {
    page: HeaderValue,
    embed: HeaderValue,
    overlay: HeaderValue,
    /// For browsers that do not know `frame-ancestors`; it has no way to name others.
    embed_frame: Option<HeaderValue>,
}

impl Policies {
    /// `endpoints`: the transports' own base URLs, which pages may reach. `embedders`: whose pages may frame the embed page.
    pub fn new(endpoints: &Endpoints, embedders: &[Origin]) -> Policies {
        let urls: String = endpoints.urls().map(|url| format!(" {url}")).collect();
        let others: String = embedders.iter().map(|origin| format!(" {origin}")).collect();
        let policy = |styles: &str, frames: &str| {
            let text = format!("{POLICY}; style-src {styles}; frame-ancestors {frames}; connect-src 'self'{urls}");
            HeaderValue::from_str(&text).expect("a base URL and an origin are a scheme, a host and a port")
        };
        Policies {
            page: policy("'self'", "'none'"),
            embed: policy("'self'", &format!("'self'{others}")),
            // A broadcaster's own rules are put into the page as a style element by the program that shows it.
            overlay: policy("'self' 'unsafe-inline'", "'none'"),
            embed_frame: embedders.is_empty().then(|| HeaderValue::from_static("SAMEORIGIN")),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Page,
    Embed,
    Overlay,
}

const LOBBY: &[u8] = include_bytes!("../../../../web/pages/index.html");
const ROOM: &[u8] = include_bytes!("../../../../web/pages/room.html");
const CONSOLE: &[u8] = include_bytes!("../../../../web/pages/console.html");
const EMBED: &[u8] = include_bytes!("../../../../web/pages/embed.html");
const OVERLAY: &[u8] = include_bytes!("../../../../web/pages/overlay.html");

/// Whether a value keeps to its parameter's rule.
type Holds = fn(&str) -> bool;

/// Name and rule of each parameter of the overlay. What is left out has its default in the page.
const OVERLAY_PARAMETERS: [(&str, &str, Holds); 3] = [
    ("theme", "is one of dark, light, plain", |v| matches!(v, "dark" | "light" | "plain")),
    ("max", "is a number of lines from 1 to 100", |v| number(v).is_some_and(|n| (1..=100).contains(&n))),
    ("fade", "is a number of seconds from 0 to 3600, 0 being never", |v| number(v).is_some_and(|n| n <= 3600)),
];

/// By the rule of every number that clients send as text.
fn number(text: &str) -> Option<u16> {
    Position::parse(text)?.value().try_into().ok()
}

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
    asset!("kept.js", "text/javascript; charset=utf-8"),
    asset!("overlay.css", "text/css; charset=utf-8"),
    asset!("overlay.js", "text/javascript; charset=utf-8"),
    asset!("room.js", "text/javascript; charset=utf-8"),
    asset!("rooms.js", "text/javascript; charset=utf-8"),
    asset!("wall.js", "text/javascript; charset=utf-8"),
    asset!("words.js", "text/javascript; charset=utf-8"),
];

/// `/`: the rooms, and the button that starts a demo.
pub async fn lobby(State(control): State<Shared>, _: Ask) -> Response<Body> {
    page(LOBBY, Kind::Page, &control)
}

/// `/rooms/{room}`.
pub async fn room(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    ask.room()?;
    Ok(page(ROOM, Kind::Page, &control))
}

/// `/embed/{room}`: the same room, small, for a frame in another page.
pub async fn embed(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    ask.room()?;
    Ok(page(EMBED, Kind::Embed, &control))
}

/// `/overlay/{room}?theme=&max=&fade=`: what a broadcaster lays over a picture.
/// Errors: a parameter that is none, is given twice or breaks its rule: whoever sets one up has to see it.
pub async fn overlay(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    ask.room()?;
    ask.takes_only(&OVERLAY_PARAMETERS.map(|(name, ..)| name))?;
    for (name, rule, holds) in OVERLAY_PARAMETERS {
        if ask.query(name)?.is_some_and(|value| !holds(value)) {
            return Err(Problem::new(ErrorCode::BadRequest, format!("{name} {rule}")));
        }
    }
    Ok(page(OVERLAY, Kind::Overlay, &control))
}

/// `/console`: the same page for everyone; what its API answers depends on the token it is given.
pub async fn console(State(control): State<Shared>, _: Ask) -> Response<Body> {
    page(CONSOLE, Kind::Page, &control)
}

/// `/assets/{name}`: names of the table, compared whole.
pub async fn asset(State(control): State<Shared>, ask: Ask) -> Result<Response<Body>, Problem> {
    let wanted = ask.param("name");
    let found = ASSETS.iter().find(|(name, ..)| *name == wanted);
    let (_, kind, bytes) = found.ok_or_else(|| Problem::new(ErrorCode::NotFound, "there is no such file"))?;
    let mut response = bytes_answer(StatusCode::OK, kind, Body::from(*bytes));
    // A new binary has new files under the same names, so each use asks again; they are small.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    secure(&mut response, Kind::Page, &control);
    Ok(response)
}

fn page(html: &'static [u8], kind: Kind, control: &Control) -> Response<Body> {
    let mut response = bytes_answer(StatusCode::OK, "text/html; charset=utf-8", Body::from(html));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    secure(&mut response, kind, control);
    response
}

fn secure(response: &mut Response<Body>, kind: Kind, control: &Control) {
    let policies = &control.policies;
    let (policy, frame) = match kind {
        Kind::Page => (&policies.page, Some(HeaderValue::from_static("DENY"))),
        Kind::Overlay => (&policies.overlay, Some(HeaderValue::from_static("DENY"))),
        Kind::Embed => (&policies.embed, policies.embed_frame.clone()),
    };
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    headers.insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    if let Some(frame) = frame {
        headers.insert(header::X_FRAME_OPTIONS, frame);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{ASSETS, CONSOLE, EMBED, JS, LOBBY, OVERLAY, Policies, ROOM, number};
    use crate::auth::door::Origin;
    use crate::edge::Endpoints;

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
        for html in [LOBBY, ROOM, CONSOLE, EMBED, OVERLAY] {
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

    #[test]
    fn only_the_embed_page_is_framed_and_only_by_those_named() {
        let text = |value: &http::HeaderValue| value.to_str().unwrap().to_owned();
        let alone = Policies::new(&Endpoints::default(), &[]);
        assert!(text(&alone.embed).contains("frame-ancestors 'self'; "));
        assert_eq!(text(alone.embed_frame.as_ref().unwrap()), "SAMEORIGIN");
        let named = ["https://Club.example.com", "http://localhost:3000"].map(|o| Origin::parse(o).unwrap());
        let named = Policies::new(&Endpoints::default(), &named);
        assert!(
            text(&named.embed).contains("frame-ancestors 'self' https://club.example.com:443 http://localhost:3000; ")
        );
        assert!(named.embed_frame.is_none(), "it can name nobody and would forbid them");
        for policy in [&named.page, &named.overlay] {
            assert!(text(policy).contains("frame-ancestors 'none'; "));
        }
        let inline = [&named.page, &named.embed, &named.overlay].map(|p| text(p).matches("'unsafe-inline'").count());
        assert_eq!(inline, [0, 0, 1]);
        assert!(
            text(&named.overlay).contains("style-src 'self' 'unsafe-inline'; ")
                && !text(&named.overlay).contains("unsafe-eval")
        );
    }

    #[test]
    fn numbers_are_digits_alone() {
        assert_eq!(["0", "7", "3600"].map(number), [Some(0), Some(7), Some(3600)]);
        assert!(["", "+1", "-1", "01", "1.0", " 1", "99999", "١"].iter().all(|t| number(t).is_none()));
    }
}
