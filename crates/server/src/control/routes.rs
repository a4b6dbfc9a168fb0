//! The routes, as one table: the router is made from it, and the API's description is held against it.

use std::sync::{Arc, Weak};

use axum::Router;
use axum::extract::FromRef;
use axum::routing::{MethodRouter, delete, get, post, put};
use grandstand_wire::codes::ErrorCode;

use super::answer::Problem;
use super::{
    Control, access, archive, audit, banners, comments, demo, entry, export, gateways, gifts, health, held, ledger,
    likes, matches, moderation, overview, pages, provider_keys, reports, rooms, scores, site_bans, snapshot, users,
    webhooks,
};

/// What the router holds: the role, which holds the router.
#[derive(Clone)]
pub struct Handle(Weak<Control>);

impl FromRef<Handle> for Arc<Control> {
    fn from_ref(handle: &Handle) -> Arc<Control> {
        handle.0.upgrade().expect("a request is answered by a living control")
    }
}

/// Methods, path, handlers.
type Route = (&'static [&'static str], &'static str, MethodRouter<Handle>);

/// Routes that the gateway answers itself, because they are streams.
#[cfg(test)]
pub const STREAMS: [(&str, &str); 4] = [
    ("GET", "/v1/rooms/{room}/stream"),
    ("GET", "/v1/rooms/{room}/sse"),
    ("GET", "/v1/rooms/{room}/poll"),
    ("POST", "/v1/rooms/{room}/auth"),
];

fn routes() -> Vec<Route> {
    vec![
        (&["GET"], "/", get(pages::lobby)),
        (&["GET"], "/rooms/{room}", get(pages::room)),
        (&["GET"], "/embed/{room}", get(pages::embed)),
        (&["GET"], "/overlay/{room}", get(pages::overlay)),
        (&["GET"], "/console", get(pages::console)),
        (&["GET"], "/assets/{name}", get(pages::asset)),
        (&["GET"], "/openapi.json", get(health::openapi)),
        (&["GET"], "/healthz/live", get(health::live)),
        (&["GET"], "/healthz/ready", get(health::ready)),
        (&["GET"], "/metrics", get(health::metrics)),
        (&["POST"], "/v1/guest", post(entry::guest)),
        (&["POST"], "/v1/ticket", post(entry::ticket)),
        (&["POST"], "/v1/demo", post(demo::post)),
        (&["POST"], "/v1/score-event", post(scores::post)),
        (&["POST"], "/v1/score-heartbeat", post(scores::heartbeat)),
        (&["GET"], "/v1/rooms", get(rooms::list)),
        (&["GET"], "/v1/rooms/{room}/snapshot", get(snapshot::get)),
        (&["POST"], "/v1/rooms/{room}/comments", post(comments::post)),
        (&["POST"], "/v1/rooms/{room}/likes", post(likes::post)),
        (&["POST"], "/v1/rooms/{room}/reactions", post(comments::react)),
        (&["POST"], "/v1/rooms/{room}/reports", post(comments::report)),
        (&["POST"], "/v1/rooms/{room}/gifts", post(gifts::post)),
        (&["GET"], "/admin/rooms", get(overview::list)),
        (&["GET", "PUT"], "/admin/rooms/{room}", get(rooms::get).put(rooms::put)),
        (&["GET"], "/admin/rooms/{room}/export", get(export::get)),
        (&["GET"], "/admin/rooms/{room}/archive", get(archive::get)),
        (&["GET"], "/admin/rooms/{room}/gifts", get(gifts::account)),
        (&["GET"], "/admin/rooms/{room}/history", get(audit::history)),
        (&["GET"], "/admin/rooms/{room}/ledger", get(ledger::room)),
        (&["GET"], "/admin/ledger/verify", get(ledger::verify)),
        (&["GET"], "/admin/audit", get(audit::list)),
        (&["GET"], "/admin/gateways", get(gateways::list)),
        (&["GET", "POST"], "/admin/banners", get(banners::list).post(banners::post)),
        (&["DELETE"], "/admin/banners/{banner}", delete(banners::delete)),
        (&["GET", "POST"], "/admin/webhooks", get(webhooks::list).post(webhooks::put_up)),
        (&["DELETE", "PUT"], "/admin/webhooks/{webhook}", put(webhooks::change).delete(webhooks::delete)),
        (&["POST"], "/admin/webhooks/{webhook}/test", post(webhooks::try_out)),
        (&["GET"], "/admin/access", get(access::get)),
        (&["POST", "DELETE"], "/admin/access/revocations", post(access::revoke).delete(access::restore)),
        (&["PUT", "DELETE"], "/admin/access/outage", put(access::declare).delete(access::end_outage)),
        (&["POST"], "/admin/gateways/{gateway}/admission", post(gateways::admission)),
        (&["POST"], "/admin/gateways/{gateway}/drain", post(gateways::drain)),
        (&["POST"], "/admin/gateways/{gateway}/shedding", post(gateways::shedding)),
        (&["GET"], "/admin/providers", get(matches::providers)),
        (&["GET", "POST"], "/admin/providers/{provider}/keys", get(provider_keys::list).post(provider_keys::make)),
        (&["DELETE"], "/admin/providers/{provider}/keys/{kid}", delete(provider_keys::take_back)),
        (&["GET"], "/admin/matches", get(matches::list)),
        (&["GET", "PUT"], "/admin/matches/{match}/providers", get(matches::get).put(matches::put)),
        (&["GET", "POST"], "/admin/matches/{match}/scores", get(matches::scores).post(matches::type_score)),
        (&["POST"], "/admin/rooms/{room}/slow-mode", post(moderation::slow_mode)),
        (&["POST"], "/admin/rooms/{room}/state", post(moderation::state)),
        (&["GET"], "/admin/rooms/{room}/reports", get(reports::list)),
        (&["DELETE", "POST"], "/admin/rooms/{room}/pin", post(moderation::pin).delete(moderation::unpin)),
        (&["POST"], "/admin/rooms/{room}/retract", post(moderation::retract)),
        (&["GET", "POST"], "/admin/rooms/{room}/bans", get(moderation::bans).post(moderation::ban)),
        (&["GET"], "/admin/rooms/{room}/held", get(held::list)),
        (&["POST"], "/admin/rooms/{room}/held/{held}", post(held::decide)),
        (&["DELETE"], "/admin/rooms/{room}/bans/{user}", delete(moderation::unban)),
        (&["DELETE"], "/admin/users/{user}", delete(users::erase)),
        (&["GET"], "/admin/erasures", get(users::list)),
        (
            &["DELETE", "GET", "POST"],
            "/admin/bans",
            get(site_bans::list).post(moderation::site_ban).delete(moderation::site_unban),
        ),
    ]
}

pub fn router(control: Weak<Control>) -> Router {
    let all = routes().into_iter();
    let router = all.fold(Router::new(), |router, (_, path, handlers)| router.route(path, handlers));
    router.fallback(no_route).with_state(Handle(control))
}

async fn no_route() -> Problem {
    Problem::new(ErrorCode::NotFound, "there is no such route")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{STREAMS, routes};
    use crate::control::health::OPENAPI;

    #[test]
    fn the_description_has_every_route_and_no_other() {
        let built: BTreeSet<(String, String)> = routes()
            .iter()
            .flat_map(|(methods, path, _)| methods.iter().map(|m| ((*m).to_owned(), (*path).to_owned())))
            .chain(STREAMS.iter().map(|(m, p)| ((*m).to_owned(), (*p).to_owned())))
            .collect();
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let paths = document["paths"].as_object().unwrap();
        let described: BTreeSet<(String, String)> = paths
            .iter()
            .flat_map(|(path, item)| item.as_object().unwrap().keys().map(|m| (m.to_ascii_uppercase(), path.clone())))
            .filter(|(method, _)| method != "PARAMETERS")
            .collect();
        assert_eq!(described, built);
    }

    #[test]
    fn the_description_describes_every_operation_and_its_parameters() {
        let document: serde_json::Value = serde_json::from_str(OPENAPI).unwrap();
        let mut ids = BTreeSet::new();
        for (path, item) in document["paths"].as_object().unwrap() {
            for (method, operation) in item.as_object().unwrap() {
                let id = operation["operationId"].as_str().unwrap_or_else(|| panic!("{method} {path}"));
                assert!(ids.insert(id.to_owned()), "{id} twice");
                assert!(operation["summary"].is_string() && operation["responses"].is_object(), "{method} {path}");
                for name in path.split('{').skip(1).map(|p| p.split('}').next().unwrap()) {
                    let parameters = operation["parameters"].as_array().unwrap();
                    let named = |p: &serde_json::Value| {
                        p["name"] == name || p["$ref"] == format!("#/components/parameters/{name}")
                    };
                    assert!(parameters.iter().any(named), "{method} {path} does not describe {name}");
                }
            }
        }
    }
}
