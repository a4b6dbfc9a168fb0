//! Settings: flags over environment over file over defaults, one table for all four.
//!
//! [`KEYS`] is the only list: `config reference` is printed from it, the file and the environment are read by it, and a
//! key that is not in it refuses to start with the nearest known key named. Relations between settings are checked here,
//! once. Without a configuration file the server is in development mode: loopback only, rooms made on first use, anonymous
//! viewing, named guests, and it says so.

use std::fmt::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use grandstand_classifier::Links;
use grandstand_core::revision::OPERATOR;
use grandstand_core::{admission, watch};

use crate::auth::certificate::Holder;
use crate::auth::door::{Network, Origin};
use crate::auth::keys::{Algorithms, TrustedKey, parse_jwks};
use crate::auth::place::{self, Places};
use crate::auth::{fetch, files, key_set};
use crate::edge::{self, Endpoints, Listen, Serves};
use crate::metrics::Transport;
use crate::moderation;
use crate::tls;

/// A transport's own listeners, and its base URLs, at most: more names than that are no fire exits.
const EDGES_MAX: usize = 16;
/// Hosts that may be linked: each is held against each link of a comment.
const LINK_DOMAINS_MAX: usize = 256;

/// Where settings come from, strongest first.
#[derive(Clone, Default)]
pub struct Sources {
    /// Key and text, as given on the command line.
    pub flags: Vec<(String, String)>,
    /// All variables of the process; those that start with `GRANDSTAND_` and name a key count.
    pub env: Vec<(String, String)>,
    /// The file's path and content.
    pub file: Option<(PathBuf, String)>,
}

impl Sources {
    /// This process's environment and the file at `path`.
    /// Errors: the file cannot be read.
    pub fn of_process(flags: Vec<(String, String)>, path: Option<&Path>) -> Result<Sources, Vec<Fault>> {
        let file = match path {
            Some(path) => match std::fs::read_to_string(path) {
                Ok(text) => Some((path.to_owned(), text)),
                Err(e) => {
                    return Err(vec![Fault::new(&path.display().to_string(), "", format!("cannot be read: {e}"))]);
                }
            },
            None => None,
        };
        let env = std::env::vars_os().filter_map(|(k, v)| Some((k.into_string().ok()?, v.into_string().ok()?)));
        Ok(Sources { flags, env: env.collect(), file })
    }
}

/// One thing wrong with the settings.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fault {
    /// The file, the variable or the flag.
    pub source: String,
    /// Empty when it concerns the whole source.
    pub key: String,
    pub message: String,
}

impl Fault {
    fn new(source: &str, key: &str, message: impl Into<String>) -> Fault {
        Fault { source: source.to_owned(), key: key.to_owned(), message: message.into() }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.key.as_str() {
            "" => write!(f, "{}: {}", self.source, self.message),
            key => write!(f, "{}: {key}: {}", self.source, self.message),
        }
    }
}

impl std::error::Error for Fault {}

/// When an acknowledged event is on the disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Durability {
    Fsync,
    Interval(Duration),
    None,
}

/// A provider's key for score events.
#[derive(Clone, PartialEq, Eq)]
pub struct ProviderKey {
    pub provider: String,
    pub kid: String,
    pub key: Vec<u8>,
    /// Whose certificate its requests come with; `None`: none is asked for.
    pub certificate: Option<Holder>,
}

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ProviderKey({} {})", self.provider, self.kid)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LogFormat {
    Full,
    Compact,
}

/// The settings of one server, checked.
#[derive(Clone)]
pub struct Config {
    /// No configuration file: the safe mode for a laptop.
    pub development: bool,
    pub data: PathBuf,
    pub listen: SocketAddr,
    /// `/metrics` and `/healthz/ready` only here when set.
    pub internal_listen: Option<SocketAddr>,
    /// Listeners of one transport each, beside the public one.
    pub edges: Vec<Listen>,
    /// Where IRC is spoken.
    pub irc: edge::Irc,
    /// What clients are told of the transports' own base URLs.
    pub endpoints: Endpoints,
    /// Where clients reach this server, without a trailing slash.
    pub public_url: Option<String>,
    /// Origins besides the server's own host.
    pub origins: Vec<Origin>,
    /// Whose pages may show the embed page in a frame, besides the server's own.
    pub embedders: Vec<Origin>,
    /// The public listener speaks TLS.
    pub tls: Option<tls::Files>,
    /// By whom the certificates of its clients are vouched for; those without one are served as ever.
    pub tls_clients: Option<tls::Clients>,
    /// The internal listener speaks TLS, to clients with a certificate of this authority, of these holders where any are named.
    pub internal_tls: Option<(tls::Files, tls::Clients)>,
    pub internal_clients: Vec<Holder>,
    /// HTTP/2 is spoken to clients that offer it.
    pub http2: bool,
    /// 0: one a core.
    pub workers: u16,
    pub durability: Durability,
    /// `None`: the disk is the limit.
    pub store_bytes_max: Option<u64>,
    pub retention_days: u32,
    pub retention_header_days: u32,
    pub create_on_use: bool,
    pub guests: bool,
    pub guests_per_minute: u32,
    pub streams_per_user: u32,
    pub streams_per_address: u32,
    /// Those of them that are long-polls and wait.
    pub polls_per_user: u32,
    pub polls_per_address: u32,
    /// Resident memory of each process.
    pub memory_bytes: Option<u64>,
    /// Streams of this server, and of one room of it; `None`: unlimited.
    pub connections_max: Option<u32>,
    pub connections_per_room_max: Option<u32>,
    pub exempt: Vec<Network>,
    /// Whose word on the client's address is taken.
    pub trusted_proxies: Vec<Network>,
    /// Where clients are: a header that trusted proxies set, a database of addresses.
    pub region_header: Option<String>,
    pub region_database: Option<PathBuf>,
    /// Connections of trusted proxies begin with a PROXY protocol header.
    pub proxy_protocol: bool,
    /// permessage-deflate is agreed to where a client offers it.
    pub deflate: bool,
    /// New streams a second over all transports; `None`: unlimited.
    pub admission: Option<admission::Limit>,
    pub score_rate: u32,
    pub score_burst: u32,
    /// When viewers are told that a match's primary provider is silent, and when two providers disagree.
    pub feeds: watch::Settings,
    pub jwks_file: Option<PathBuf>,
    /// Where an identity provider publishes its keys, and whose certificate is believed there.
    pub jwks: Option<key_set::Source>,
    /// Names of keys that are not believed, whoever publishes them.
    pub denied_keys: Vec<String>,
    pub algorithms: Algorithms,
    pub issuer: Option<String>,
    pub audience: Vec<String>,
    pub keys: Vec<TrustedKey>,
    pub providers: Vec<ProviderKey>,
    /// Word lists and links of the built-in classifier.
    pub moderation: moderation::Source,
    /// Where outgoing webhooks may go, and when a receiver is given up.
    pub webhooks: Webhooks,
    pub log_format: LogFormat,
    pub log_filter: String,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Webhooks {
    /// Networks that are not public and may be posted to all the same.
    pub allow: Vec<Network>,
    /// Whose certificates are believed; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    pub give_up: Duration,
}

/// What a key takes, for reading text and for the reference.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Takes {
    Text,
    Yes,
    Number,
    /// In the environment and in flags: separated by commas.
    List,
    OneOf(&'static [&'static str]),
}

struct Key {
    name: &'static str,
    takes: Takes,
    /// As it would stand in the file; empty: not set.
    default: &'static str,
    meaning: &'static str,
}

const fn key(name: &'static str, takes: Takes, default: &'static str, meaning: &'static str) -> Key {
    Key { name, takes, default, meaning }
}

/// Every key with a single value. The tables `[[auth.key]]` and `[[provider]]` are in [`TABLES`].
const KEYS: &[Key] = &[
    key("data", Takes::Text, "\"grandstand-data\"", "Folder of the log, the catalog and the keys."),
    key(
        "listen",
        Takes::Text,
        "\"127.0.0.1:8080\"",
        "Address of the public listener. Without a configuration file it must be loopback.",
    ),
    key(
        "internal_listen",
        Takes::Text,
        "",
        "Address of /metrics and /healthz/ready; they leave the public listener when it is set.",
    ),
    key(
        "public_url",
        Takes::Text,
        "",
        "Where clients reach this server (https://live.example.com); its origin is allowed.",
    ),
    key(
        "transport.websocket.listen",
        Takes::List,
        "[]",
        "Further addresses, for WebSocket streams and the viewers' API alone; the public one serves all transports.",
    ),
    key("transport.websocket.url", Takes::Text, "", "Where clients open WebSockets first (wss://ws.example.com)."),
    key("transport.sse.listen", Takes::List, "[]", "The same, for SSE streams."),
    key(
        "transport.sse.urls",
        Takes::List,
        "[]",
        "Where clients open SSE first, any of them (https://sse-1.example.com); needs public_url or origins, as the others.",
    ),
    key("transport.poll.listen", Takes::List, "[]", "The same, for long-polls."),
    key("transport.poll.url", Takes::Text, "", "Where clients poll first (https://poll.example.com)."),
    key(
        "irc.tcp.listen",
        Takes::List,
        "[]",
        "Addresses where IRC is spoken over TCP; off without one (docs/operate/irc.md).",
    ),
    key("irc.websocket.listen", Takes::List, "[]", "The same, for IRC in a WebSocket."),
    key("irc.connections_max", Takes::Number, "1024", "IRC connections of a gateway process; one over it is closed."),
    key("origins", Takes::List, "[]", "Web origins whose pages may use this server, besides its own host."),
    key(
        "embed.origins",
        Takes::List,
        "[]",
        "Web origins whose pages may show /embed/{room} in a frame (https://club.example.com), besides this server's own.",
    ),
    key(
        "tls.certificate",
        Takes::Text,
        "",
        "PEM file with the certificate and its chain: the public listener speaks TLS. Read again on SIGHUP.",
    ),
    key("tls.key", Takes::Text, "", "PEM file with the certificate's private key, unencrypted."),
    key(
        "tls.version_min",
        Takes::OneOf(&["1.3", "1.2"]),
        "\"1.3\"",
        "Oldest TLS that is spoken; 1.2 for clients that have nothing newer.",
    ),
    key(
        "tls.client_ca",
        Takes::Text,
        "",
        "PEM file of the authorities of clients' certificates: a score provider may be asked for one; nobody else is.",
    ),
    key("tls.client_crl", Takes::Text, "", "PEM file of the certificates that those authorities took back."),
    key(
        "internal_tls.certificate",
        Takes::Text,
        "",
        "PEM file with a certificate and its chain: internal_listen speaks TLS, to clients with a certificate alone.",
    ),
    key("internal_tls.key", Takes::Text, "", "PEM file with its private key, unencrypted."),
    key("internal_tls.client_ca", Takes::Text, "", "PEM file of the authorities of its clients' certificates."),
    key("internal_tls.client_crl", Takes::Text, "", "PEM file of the certificates that those took back."),
    key(
        "internal_tls.clients",
        Takes::List,
        "[]",
        "Whose certificates are taken there (dns:NAME, uri:URI, sha256:HEX); without any, all that the authorities vouch for.",
    ),
    key(
        "http2",
        Takes::Yes,
        "false",
        "HTTP/2 for SSE, long-poll and the API to clients that offer it; needs tls.certificate. WebSocket stays on HTTP/1.1.",
    ),
    key(
        "trusted_proxies",
        Takes::List,
        "[]",
        "Networks of proxies whose X-Forwarded-For (and PROXY header) names the client (10.0.0.0/8).",
    ),
    key(
        "region.header",
        Takes::Text,
        "",
        "Header in which trusted_proxies say where the client is (GB, GB-SCT); they must overwrite what a client sends.",
    ),
    key(
        "region.database",
        Takes::Text,
        "",
        "Database of addresses in MaxMind's format (country or city), for clients of whom no trusted proxy says it; read at start.",
    ),
    key(
        "proxy_protocol",
        Takes::Yes,
        "false",
        "Connections from trusted_proxies begin with a PROXY protocol header, version 2.",
    ),
    key(
        "transport.websocket.deflate",
        Takes::Yes,
        "true",
        "Frames of 512 bytes and more go compressed to WebSocket clients that offer permessage-deflate.",
    ),
    key("workers", Takes::Number, "0", "Gateway threads; 0: one a core."),
    key(
        "durability",
        Takes::OneOf(&["fsync", "interval", "none"]),
        "\"fsync\"",
        "When an acknowledged event is on the disk.",
    ),
    key(
        "durability_interval_ms",
        Takes::Number,
        "100",
        "Longest time between two syncs with durability = \"interval\"; 1 to 10000.",
    ),
    key(
        "store.bytes_max",
        Takes::Number,
        "0",
        "Publishes are refused with no_space when the log is this large; 0: the disk is the limit.",
    ),
    key("retention_days", Takes::Number, "14", "Bodies older than this are removed from the log."),
    key("retention_header_days", Takes::Number, "90", "Records older than this are removed whole."),
    key(
        "rooms.create_on_use",
        Takes::Yes,
        "false",
        "A room is made when it is first used. True without a configuration file.",
    ),
    key(
        "guests",
        Takes::Yes,
        "false",
        "POST /v1/guest gives tokens to named guests. True without a configuration file.",
    ),
    key("limits.guests_per_minute", Takes::Number, "30", "Guest tokens an address is given in a minute."),
    key(
        "limits.streams_per_user",
        Takes::Number,
        "16",
        "Streams of one user over all transports and gateway processes.",
    ),
    key(
        "limits.streams_per_address",
        Takes::Number,
        "64",
        "Streams of one IPv4 address or IPv6 /64 over all transports and gateway processes.",
    ),
    key("limits.polls_per_user", Takes::Number, "2", "Long-polls of one user that wait at a time."),
    key(
        "limits.polls_per_address",
        Takes::Number,
        "32",
        "Long-polls of one IPv4 address or IPv6 /64 that wait at a time.",
    ),
    key(
        "limits.memory_bytes",
        Takes::Number,
        "",
        "Resident memory of each process: near it comments are shed, then new streams and comments refused. The limits of control groups count beside it.",
    ),
    key(
        "limits.connections_max",
        Takes::Number,
        "",
        "Streams of this server over all transports; without it there is no limit.",
    ),
    key(
        "limits.connections_per_room_max",
        Takes::Number,
        "",
        "Streams of one room on this server; without it there is no limit.",
    ),
    key("limits.exempt", Takes::List, "[]", "Networks without address limits (10.0.0.0/8); loopback never has them."),
    key(
        "admission.rate",
        Takes::Number,
        "",
        "New streams a second, over all transports; without it there is no limit.",
    ),
    key("admission.burst", Takes::Number, "", "New streams at once, and after a pause; without it 1.2 times the rate."),
    key("limits.score_rate", Takes::Number, "20", "Score events of one match a second."),
    key("limits.score_burst", Takes::Number, "100", "Score events of one match at once."),
    key(
        "scores.stale_seconds",
        Takes::Number,
        "30",
        "Viewers of a live match are told after so many seconds in which nothing came of its primary provider; 0: never.",
    ),
    key(
        "scores.differ_seconds",
        Takes::Number,
        "10",
        "A match's primary and stand-by that say different scores for so many seconds disagree, which is counted.",
    ),
    key(
        "auth.jwks_file",
        Takes::Text,
        "",
        "JWKS document with the keys of your identity provider (RS256, ES256, EdDSA).",
    ),
    key(
        "auth.jwks_url",
        Takes::Text,
        "",
        "Where your identity provider publishes its keys (https://id.example.com/jwks.json): fetched every five minutes, kept for a day.",
    ),
    key(
        "auth.jwks_ca_file",
        Takes::Text,
        "",
        "PEM file of the authorities whose certificate is believed at auth.jwks_url; without it the system's.",
    ),
    key(
        "auth.denied_keys",
        Takes::List,
        "[]",
        "Names (kid) of keys whose tokens are not taken, whoever publishes them.",
    ),
    key(
        "auth.algorithms",
        Takes::List,
        "[\"EdDSA\", \"ES256\", \"RS256\"]",
        "Algorithms whose keys are believed; the server's own key is EdDSA whatever this says.",
    ),
    key("auth.issuer", Takes::Text, "", "The iss that tokens must carry; the server's own tokens carry none."),
    key(
        "auth.audience",
        Takes::List,
        "[]",
        "Tokens must carry one of these in aud; without the setting a token with an aud is refused.",
    ),
    key(
        "moderation.block_file",
        Takes::Text,
        "",
        "Word list of the built-in classifier: what it names is blocked. An entry a line; read again when it changes and on SIGHUP.",
    ),
    key("moderation.flag_file", Takes::Text, "", "The same, of what is flagged."),
    key("moderation.allow_file", Takes::Text, "", "The same, of what is never found: words that hold others."),
    key(
        "moderation.links",
        Takes::OneOf(&["allow", "deny"]),
        "\"allow\"",
        "Whether comments of moderated rooms may have links.",
    ),
    key(
        "moderation.link_domains",
        Takes::List,
        "[]",
        "With links = \"deny\": hosts that may be linked all the same, with all below them (example.com).",
    ),
    key(
        "moderation.english",
        Takes::Yes,
        "true",
        "Strict rooms have a list of English words beside the operator's own.",
    ),
    key(
        "moderation.http_url",
        Takes::Text,
        "",
        "A classifier of your own that is asked as well (http://127.0.0.1:9000/judge); docs/operate/moderation.md.",
    ),
    key("moderation.http_timeout_ms", Takes::Number, "1000", "After so long it has given no verdict; 10 to 10000."),
    key("moderation.http_concurrency", Takes::Number, "32", "Questions that it is asked at a time; 1 to 1024."),
    key(
        "webhooks.allow",
        Takes::List,
        "[]",
        "Networks that outgoing webhooks may go to though they are not public (10.0.0.0/8); plain http goes to these alone.",
    ),
    key(
        "webhooks.ca_file",
        Takes::Text,
        "",
        "PEM file of the authorities that are believed of webhooks' receivers; without it the system's.",
    ),
    key(
        "webhooks.give_up_seconds",
        Takes::Number,
        "259200",
        "After so long without a delivery a receiver is disabled, and an event that alone fails is passed over; 1 to 1209600.",
    ),
    key("log.format", Takes::OneOf(&["full", "compact"]), "\"full\"", "Form of the log lines on stderr."),
    key("log.filter", Takes::Text, "\"info\"", "What is logged: a level, or levels by module."),
];

struct Table {
    name: &'static str,
    meaning: &'static str,
    members: &'static [(&'static str, &'static str)],
}

const TABLES: &[Table] = &[
    Table {
        name: "auth.key",
        meaning: "A public key whose tokens are believed, beside the key set file; any number.",
        members: &[
            ("kid", "the token's kid"),
            ("algorithm", "RS256, ES256 or EdDSA"),
            ("public_key", "PEM, or:"),
            ("public_key_file", "path of a PEM file"),
        ],
    },
    Table {
        name: "provider",
        meaning: "A provider of score events and one of its keys; repeat it for several keys.",
        members: &[
            ("id", "X-Provider-Id, and `provider` in the body"),
            ("kid", "the key's name in X-Signature"),
            ("key", "at least 16 bytes, or:"),
            ("key_file", "path of a file only its owner can read"),
            (
                "certificate",
                "whose certificate its requests must come with: dns:NAME, uri:URI or sha256:HEX; needs tls.client_ca",
            ),
        ],
    },
];

/// Variables that start with `GRANDSTAND_` and are no settings: for tests, and for the command line's own tools.
const OTHER_VARIABLES: &[&str] =
    &["TEST_ECHO", "FAILPOINTS", "FAILPOINTS_REACHED", "TRACES", "LONG", "URL", "TOKEN", "CONFIG"];

/// One value as it was given.
#[derive(Clone, PartialEq, Debug)]
enum Given {
    Text(String),
    Yes(bool),
    Number(u64),
    List(Vec<String>),
}

impl Config {
    /// Reads and checks all settings.
    /// Errors: everything that is wrong, not only the first.
    pub fn load(sources: &Sources) -> Result<Config, Vec<Fault>> {
        let mut faults = Vec::new();
        let mut given: Vec<(usize, Given, String)> = Vec::new();
        let mut tables = Vec::new();
        if let Some((path, text)) = &sources.file {
            read_file(&path.display().to_string(), text, &mut given, &mut tables, &mut faults);
        }
        for (name, text) in &sources.env {
            let Some(rest) = name.strip_prefix("GRANDSTAND_") else { continue };
            match KEYS.iter().position(|k| env_name(k.name) == rest) {
                Some(idx) => read_text(idx, text, name, &mut given, &mut faults),
                None if OTHER_VARIABLES.contains(&rest) => {}
                None => {
                    let near = nearest(rest, KEYS.iter().map(|k| env_name(k.name)));
                    let message = format!("unknown variable; the nearest known one is GRANDSTAND_{near}");
                    faults.push(Fault::new("environment", name, message));
                }
            }
        }
        for (name, text) in &sources.flags {
            match KEYS.iter().position(|k| k.name == name) {
                Some(idx) => read_text(idx, text, &format!("flag for {name}"), &mut given, &mut faults),
                None => faults.push(unknown("flag", name)),
            }
        }
        let base = sources.file.as_ref().and_then(|(p, _)| p.parent()).unwrap_or(Path::new("")).to_owned();
        let development = sources.file.is_none();
        let mut reader = Reader { given, faults, base };
        let config = reader.config(development, tables);
        if reader.faults.is_empty() { Ok(config) } else { Err(reader.faults) }
    }

    /// Every key with its meaning and default, as a file that could be used.
    pub fn reference() -> String {
        let mut out = String::from(
            "# Every setting with its default. Taken from flags, then environment, then this file, then defaults.\n\
             # A key `a.b` is also the variable GRANDSTAND_A_B (lists: separated by commas). Unknown keys refuse to start.\n",
        );
        for key in KEYS {
            let takes = match key.takes {
                Takes::Text => "text".to_owned(),
                Takes::Yes => "true or false".to_owned(),
                Takes::Number => "number".to_owned(),
                Takes::List => "list of text".to_owned(),
                Takes::OneOf(words) => words.join(" | "),
            };
            let _ = write!(out, "\n# {} ({takes})\n", key.meaning);
            let _ = match key.default {
                "" => writeln!(out, "# {} =", key.name),
                default => writeln!(out, "{} = {default}", key.name),
            };
        }
        for table in TABLES {
            let _ = write!(out, "\n# {}\n# [[{}]]\n", table.meaning, table.name);
            for (member, meaning) in table.members {
                let _ = writeln!(out, "# {member} =    # {meaning}");
            }
        }
        out
    }

    /// What to tell an operator at start, each a line. Empty when nothing is unusual.
    pub fn warnings(&self) -> Vec<String> {
        let mut lines = Vec::new();
        if self.development {
            lines.push(format!(
                "DEVELOPMENT MODE: no configuration file. Loopback only; anyone on this machine may view, enter as a guest and create rooms. \
                 Whoever can read {}/signing.key can make any token. Do not put this behind a proxy.",
                self.data.display()
            ));
        }
        if let Some(files) = self.tls.as_ref().filter(|files| tls::is_open_to_all(&files.key)) {
            lines.push(format!(
                "tls.key: {} can be read by everyone on this machine (chmod o= it)",
                files.key.display()
            ));
        }
        match self.durability {
            Durability::Fsync => {}
            Durability::Interval(every) => {
                lines.push(format!(
                    "durability = interval: a power cut may lose up to {} ms of acknowledged events",
                    every.as_millis()
                ));
            }
            Durability::None => lines.push("durability = none: a power cut may lose acknowledged events".to_owned()),
        }
        lines
    }
}

struct Reader {
    /// Later entries are stronger.
    given: Vec<(usize, Given, String)>,
    faults: Vec<Fault>,
    /// Paths of the file are relative to it.
    base: PathBuf,
}

impl Reader {
    fn config(&mut self, development: bool, tables: Vec<TableGiven>) -> Config {
        let durability = match self.text("durability").as_deref() {
            Some("interval") => {
                Durability::Interval(Duration::from_millis(self.number("durability_interval_ms", 1, 10_000)))
            }
            Some("none") => Durability::None,
            _ => Durability::Fsync,
        };
        let (listen, internal) = (self.parsed("listen"), self.parsed("internal_listen"));
        let mut config = Config {
            development,
            data: self.text("data").unwrap_or_default().into(),
            listen: listen.unwrap_or(SocketAddr::from(([127, 0, 0, 1], 0))),
            internal_listen: internal,
            edges: self.edges(),
            irc: self.irc(),
            endpoints: Endpoints::default(),
            public_url: self.text("public_url").map(|u| u.trim_end_matches('/').to_owned()),
            origins: self.each("origins", "is not scheme://host[:port]", Origin::parse),
            embedders: self.each("embed.origins", "is not scheme://host[:port]", Origin::parse),
            tls: self.tls(),
            tls_clients: self.clients("tls"),
            internal_tls: self.internal_tls(),
            internal_clients: self.each("internal_tls.clients", Holder::RULE, Holder::parse),
            http2: self.yes("http2").unwrap_or(false),
            trusted_proxies: self.each("trusted_proxies", "is not a network such as 10.0.0.0/8", Network::parse),
            region_header: self.text("region.header").filter(|name| !name.is_empty()),
            region_database: self.text("region.database").filter(|p| !p.is_empty()).map(|p| self.base.join(p)),
            proxy_protocol: self.yes("proxy_protocol").unwrap_or(false),
            deflate: self.yes("transport.websocket.deflate").unwrap_or(true),
            workers: self.number("workers", 0, 1024) as u16,
            durability,
            store_bytes_max: Some(self.number("store.bytes_max", 0, u64::MAX >> 1)).filter(|n| *n > 0),
            retention_days: self.number("retention_days", 1, 36_500) as u32,
            retention_header_days: self.number("retention_header_days", 1, 36_500) as u32,
            create_on_use: self.yes("rooms.create_on_use").unwrap_or(development),
            guests: self.yes("guests").unwrap_or(development),
            guests_per_minute: self.number("limits.guests_per_minute", 1, 1_000_000) as u32,
            streams_per_user: self.number("limits.streams_per_user", 1, 1_000_000) as u32,
            streams_per_address: self.number("limits.streams_per_address", 1, 1_000_000) as u32,
            polls_per_user: self.number("limits.polls_per_user", 1, 1_000_000) as u32,
            polls_per_address: self.number("limits.polls_per_address", 1, 1_000_000) as u32,
            memory_bytes: self
                .value("limits.memory_bytes")
                .map(|_| self.number("limits.memory_bytes", 1, u64::MAX >> 1)),
            connections_max: self.given_number("limits.connections_max", 1, u32::MAX),
            connections_per_room_max: self.given_number("limits.connections_per_room_max", 1, u32::MAX),
            exempt: self.each("limits.exempt", "is not a network such as 10.0.0.0/8", Network::parse),
            admission: self.admission(),
            score_rate: self.number("limits.score_rate", 1, 1_000_000) as u32,
            score_burst: self.number("limits.score_burst", 1, 1_000_000) as u32,
            feeds: watch::Settings {
                stale_after: Some(self.number("scores.stale_seconds", 0, 86_400))
                    .filter(|seconds| *seconds > 0)
                    .map(Duration::from_secs),
                differ_after: Duration::from_secs(self.number("scores.differ_seconds", 1, 86_400)),
            },
            jwks_file: self.text("auth.jwks_file").map(|p| self.base.join(p)),
            jwks: self.jwks(),
            denied_keys: self.list("auth.denied_keys"),
            algorithms: self.algorithms(),
            issuer: self.text("auth.issuer"),
            audience: self.list("auth.audience"),
            keys: Vec::new(),
            providers: Vec::new(),
            moderation: self.moderation(),
            webhooks: self.webhooks(),
            log_format: if self.text("log.format").as_deref() == Some("compact") {
                LogFormat::Compact
            } else {
                LogFormat::Full
            },
            log_filter: self.text("log.filter").unwrap_or_default(),
        };
        for table in tables {
            match table.name {
                "auth.key" => self.auth_key(&table, &mut config.keys),
                _ => self.provider(&table, &mut config.providers),
            }
        }
        self.relations(&mut config);
        config
    }

    fn edges(&mut self) -> Vec<Listen> {
        let mut edges = Vec::new();
        for (name, transport) in [
            ("transport.websocket.listen", Transport::WebSocket),
            ("transport.sse.listen", Transport::Sse),
            ("transport.poll.listen", Transport::Poll),
        ] {
            let serves = Serves::Only(transport);
            edges.extend(self.listeners(name).into_iter().map(|address| Listen { address, serves }));
        }
        edges
    }

    fn listeners(&mut self, name: &str) -> Vec<SocketAddr> {
        let list = self.each(name, "is not ADDRESS:PORT", |text| text.parse().ok());
        if list.len() > EDGES_MAX {
            self.fault(name, &format!("has at most {EDGES_MAX} addresses"));
        }
        list
    }

    fn irc(&mut self) -> edge::Irc {
        let (tcp, websocket) = (self.listeners("irc.tcp.listen"), self.listeners("irc.websocket.listen"));
        let connections_max = self.number("irc.connections_max", 1, 1_000_000) as u32;
        edge::Irc { tcp, websocket, connections_max }
    }

    /// Every address that is listened on: once, and in development mode on loopback.
    fn addresses(&mut self, config: &Config) {
        let mut taken = Vec::new();
        let own = |edge: &Listen| match edge.serves {
            Serves::Only(Transport::WebSocket) => "transport.websocket.listen",
            Serves::Only(Transport::Sse) => "transport.sse.listen",
            Serves::Only(Transport::Poll) => "transport.poll.listen",
            Serves::All => "listen",
        };
        let edges = config.edges.iter().map(|edge| (own(edge), edge.address));
        let irc = config.irc.tcp.iter().map(|address| ("irc.tcp.listen", *address));
        let irc = irc.chain(config.irc.websocket.iter().map(|address| ("irc.websocket.listen", *address)));
        for (name, address) in std::iter::once(("listen", config.listen)).chain(edges).chain(irc) {
            if config.development && !address.ip().is_loopback() {
                let rule =
                    "without a configuration file only a loopback address may be listened on (give --config FILE)";
                self.fault(name, rule);
            }
            taken.push((name, address));
        }
        taken.extend(config.internal_listen.map(|address| ("internal_listen", address)));
        for (n, (name, address)) in taken.iter().enumerate() {
            if let Some((other, _)) = taken[..n].iter().find(|(_, a)| a == address && a.port() != 0) {
                self.fault(name, &format!("must differ from {other}"));
            }
        }
    }

    /// The base URLs of transports, held against what their pages need.
    fn endpoints(&mut self, config: &Config) -> Endpoints {
        // Browsers refuse the plain ones to an https page, and who reads the wire would read tokens.
        let secure = config.public_url.as_deref().map_or(config.tls.is_some(), |url| url.starts_with("https://"));
        let one = |text: Option<String>| text.filter(|t| !t.is_empty()).into_iter().collect::<Vec<_>>();
        let [websocket, sse, poll] = [
            one(self.text("transport.websocket.url")),
            self.list("transport.sse.urls"),
            one(self.text("transport.poll.url")),
        ];
        let mut read = |name: &str, texts: Vec<String>, [plain, sealed]: [&str; 2]| {
            if texts.len() > EDGES_MAX {
                self.fault(name, &format!("has at most {EDGES_MAX} URLs"));
            }
            let mut urls = Vec::new();
            for text in texts {
                match edge::base_url(&text, [plain, sealed]) {
                    None => {
                        self.fault(name, &format!("{text:?} is not {plain} or {sealed} as {}", edge::RULE));
                    }
                    Some(url) if secure && url.starts_with(&format!("{plain}://")) => {
                        self.fault(name, &format!("{text:?} must be {sealed}, as the pages that use it are https"));
                    }
                    Some(url) if urls.contains(&url) => self.fault(name, &format!("{text:?} is named twice")),
                    Some(url) => urls.push(url),
                }
            }
            if !urls.is_empty() && config.origins.is_empty() {
                self.fault(name, "needs public_url, or origins: no page of another host may use it otherwise");
            }
            urls
        };
        Endpoints {
            websocket: read("transport.websocket.url", websocket, ["ws", "wss"]).pop(),
            sse: read("transport.sse.urls", sse, ["http", "https"]),
            poll: read("transport.poll.url", poll, ["http", "https"]).pop(),
            api: config.public_url.clone(),
        }
    }

    fn admission(&mut self) -> Option<admission::Limit> {
        let rate = self.given_number("admission.rate", 1, 1_000_000);
        let burst = self.given_number("admission.burst", 1, 10_000_000);
        let Some(rate) = rate else {
            if burst.is_some() {
                self.fault("admission.burst", "says nothing without admission.rate");
            }
            return None;
        };
        let steady = admission::Limit::steady(rate);
        Some(admission::Limit { burst: burst.unwrap_or(steady.burst), ..steady })
    }

    fn relations(&mut self, config: &mut Config) {
        if config.data.as_os_str().is_empty() {
            self.fault("data", "must name a folder");
        }
        if config.http2 && config.tls.is_none() {
            self.fault("http2", "is chosen in the TLS handshake, and there is no tls.certificate");
        }
        if config.proxy_protocol && config.tls.is_some() {
            self.fault("proxy_protocol", "is not taken before TLS: let the proxy end TLS, or pass X-Forwarded-For");
        }
        if config.proxy_protocol && config.trusted_proxies.is_empty() {
            self.fault("proxy_protocol", "is taken from trusted_proxies alone, and none are named");
        }
        if let Some(name) = &config.region_header {
            if http::HeaderName::from_bytes(name.as_bytes()).is_err() || place::is_own_word(name) {
                self.fault("region.header", "must be the name of a header");
            }
            if config.trusted_proxies.is_empty() {
                self.fault("region.header", "is taken from trusted_proxies alone, and none are named");
            }
        }
        if config.tls_clients.is_some() && config.tls.is_none() {
            self.fault("tls.client_ca", "is asked in the TLS handshake, and there is no tls.certificate");
        }
        if config.internal_tls.is_some() && config.internal_listen.is_none() {
            self.fault("internal_tls.certificate", "is of internal_listen, which is not set");
        }
        if config.tls_clients.is_none() && config.providers.iter().any(|p| p.certificate.is_some()) {
            self.fault("provider", "a certificate is asked for by tls.client_ca, which is not set");
        }
        if let Err(why) = Places::new(None, &[], config.region_database.as_deref()) {
            self.fault("region.database", &why.to_string());
        }
        if config.retention_header_days < config.retention_days {
            self.fault("retention_header_days", "must not be below retention_days");
        }
        // Smaller than this, recovery and checkpoints alone would fill it.
        if config.store_bytes_max.is_some_and(|n| n < 1 << 20) {
            self.fault("store.bytes_max", "must be 0 or at least 1048576");
        }
        if config.score_burst < config.score_rate {
            self.fault("limits.score_burst", "must not be below limits.score_rate");
        }
        if let Some(url) = &config.public_url {
            match Origin::parse(url) {
                Some(origin) => config.origins.push(origin),
                None => self.fault("public_url", "must be scheme://host[:port] without a path"),
            }
        }
        config.endpoints = self.endpoints(config);
        self.addresses(config);
        if config.jwks_file.is_some() && config.jwks.is_some() {
            self.fault("auth.jwks_url", "and auth.jwks_file are two sources of one thing: give one");
        }
        if let Some(key) = config.keys.iter().find(|key| !key.is_of(config.algorithms)) {
            let rule = format!("does not have the algorithm of the key {:?}", key.kid());
            self.fault("auth.algorithms", &rule);
        }
        if let Some(path) = &config.jwks_file {
            let parsed = std::fs::read(path).map_err(|e| e.to_string());
            if let Err(why) = parsed.and_then(|bytes| parse_jwks(&bytes).map_err(|e| e.to_string())) {
                let message = format!("{}: {why}", path.display());
                self.fault("auth.jwks_file", &message);
            }
        }
    }

    /// `tls.client_ca` and its like of another listener.
    fn clients(&mut self, of: &str) -> Option<tls::Clients> {
        let [ca, crl] = [format!("{of}.client_ca"), format!("{of}.client_crl")];
        let path = |text: Option<String>| text.filter(|t| !t.is_empty()).map(|t| self.base.join(t));
        let (authorities, taken_back) = (path(self.text(&ca)), path(self.text(&crl)));
        let Some(authorities) = authorities else {
            if taken_back.is_some() {
                self.fault(&crl, &format!("says nothing without {ca}"));
            }
            return None;
        };
        let clients = tls::Clients { ca: authorities, crl: taken_back };
        if let Err(why) = clients.verifier(true) {
            self.fault(&ca, &why.to_string());
            return None;
        }
        Some(clients)
    }

    /// All of certificate, key and client_ca, or nothing.
    fn internal_tls(&mut self) -> Option<(tls::Files, tls::Clients)> {
        let names = ["internal_tls.certificate", "internal_tls.key"];
        let [certificate, key] = names.map(|name| self.text(name).filter(|t| !t.is_empty()).map(|t| self.base.join(t)));
        let clients = self.clients("internal_tls");
        let (Some(certificate), Some(key), Some(clients)) = (certificate.clone(), key.clone(), clients.clone()) else {
            let some = certificate.is_some() || key.is_some() || clients.is_some();
            if some || !self.list("internal_tls.clients").is_empty() {
                self.fault(names[0], "goes with internal_tls.key and internal_tls.client_ca");
            }
            return None;
        };
        let files = tls::Files { certificate, key, oldest: tls::Oldest::Tls13 };
        if let Err(why) = tls::Certificates::read(files.clone()) {
            self.fault(names[usize::from(why.is_about_key(&files))], &why.to_string());
            return None;
        }
        Some((files, clients))
    }

    fn webhooks(&mut self) -> Webhooks {
        let ca_file = self.text("webhooks.ca_file").filter(|p| !p.is_empty()).map(|p| self.base.join(p));
        if let Some(Err(why)) = ca_file.as_deref().map(|path| fetch::roots(Some(path))) {
            self.fault("webhooks.ca_file", &why.to_string());
        }
        Webhooks {
            allow: self.each("webhooks.allow", "is not a network such as 10.0.0.0/8", Network::parse),
            ca_file,
            give_up: Duration::from_secs(self.number("webhooks.give_up_seconds", 1, 1_209_600)),
        }
    }

    fn jwks(&mut self) -> Option<key_set::Source> {
        let given = |text: Option<String>| text.filter(|t| !t.is_empty());
        let ca_file = given(self.text("auth.jwks_ca_file")).map(|path| self.base.join(path));
        let Some(text) = given(self.text("auth.jwks_url")) else {
            if ca_file.is_some() {
                self.fault("auth.jwks_ca_file", "says nothing without auth.jwks_url");
            }
            return None;
        };
        let Some(url) = fetch::Url::parse(&text) else {
            self.fault("auth.jwks_url", fetch::Url::RULE);
            return None;
        };
        let trust = match text.starts_with("https://").then(|| fetch::roots(ca_file.as_deref())).transpose() {
            Ok(trust) => trust,
            Err(why) => {
                self.fault("auth.jwks_ca_file", &why.to_string());
                return None;
            }
        };
        Some(key_set::Source { url, text, trust })
    }

    fn algorithms(&mut self) -> Algorithms {
        let names = self.list("auth.algorithms");
        Algorithms::of(&names).unwrap_or_else(|| {
            self.fault("auth.algorithms", "must be a list of EdDSA, ES256 and RS256, one at least");
            Algorithms::default()
        })
    }

    /// Both files or neither, and such that a client can be shown them.
    fn tls(&mut self) -> Option<tls::Files> {
        let path = |text: Option<String>| text.filter(|t| !t.is_empty()).map(|t| self.base.join(t));
        let (certificate, key) = (path(self.text("tls.certificate")), path(self.text("tls.key")));
        let oldest = match self.text("tls.version_min").as_deref() {
            Some("1.2") => tls::Oldest::Tls12,
            _ => tls::Oldest::Tls13,
        };
        let files = match (certificate, key) {
            (None, None) => return None,
            (Some(certificate), Some(key)) => tls::Files { certificate, key, oldest },
            (Some(_), None) => {
                self.fault("tls.certificate", "needs tls.key as well");
                return None;
            }
            (None, Some(_)) => {
                self.fault("tls.key", "needs tls.certificate as well");
                return None;
            }
        };
        match tls::Certificates::read(files.clone()) {
            Ok(_) => Some(files),
            Err(why) => {
                let key = if why.is_about_key(&files) { "tls.key" } else { "tls.certificate" };
                self.fault(key, &why.to_string());
                None
            }
        }
    }

    /// The lists as files that can be read: rules that do not hold are told at the start, not by the first comment.
    fn moderation(&mut self) -> moderation::Source {
        let path = |text: Option<String>| text.filter(|t| !t.is_empty()).map(|t| self.base.join(t));
        let [block, flag, allow] = ["moderation.block_file", "moderation.flag_file", "moderation.allow_file"]
            .map(|name| path(self.text(name)));
        let is_domain = |text: &str| {
            let label = |l: &str| !l.is_empty() && l.bytes().all(|b| matches!(b, b'a'..=b'z' | b'0'..=b'9' | b'-'));
            (text.len() <= 253 && text.split('.').all(label)).then(|| text.into())
        };
        let domains = self.each("moderation.link_domains", "is not a host in small letters", is_domain);
        let denied = self.text("moderation.links").as_deref() == Some("deny");
        if domains.len() > LINK_DOMAINS_MAX {
            self.fault("moderation.link_domains", &format!("has at most {LINK_DOMAINS_MAX} hosts"));
        }
        if !denied && !domains.is_empty() {
            self.fault("moderation.link_domains", "says nothing without moderation.links = \"deny\"");
        }
        let links = if denied { Links::Deny(domains) } else { Links::Allow };
        let english = self.yes("moderation.english").unwrap_or(true);
        let timeout = Duration::from_millis(self.number("moderation.http_timeout_ms", 10, 10_000));
        let at_once = self.number("moderation.http_concurrency", 1, 1_024) as u16;
        let http = self.text("moderation.http_url").filter(|url| !url.is_empty()).and_then(|url| {
            let http = moderation::Http::parse(&url, timeout, at_once);
            if http.is_none() {
                self.fault("moderation.http_url", &format!("{url:?} {}", moderation::Http::RULE));
            }
            http
        });
        let source = moderation::Source { block, flag, allow, links, english, http };
        if let Err(why) = moderation::Live::read(source.clone()) {
            let message = why.to_string();
            let about =
                |path: &Option<PathBuf>| path.as_ref().is_some_and(|p| message.starts_with(&p.display().to_string()));
            let key = match (about(&source.flag), about(&source.allow)) {
                (true, _) => "moderation.flag_file",
                (_, true) => "moderation.allow_file",
                _ => "moderation.block_file",
            };
            self.fault(key, &message);
        }
        source
    }

    fn auth_key(&mut self, table: &TableGiven, keys: &mut Vec<TrustedKey>) {
        let pem = match (table.get("public_key"), table.get("public_key_file")) {
            (Some(pem), None) => Ok(pem.as_bytes().to_vec()),
            (None, Some(path)) => std::fs::read(self.base.join(path)).map_err(|e| format!("{path}: {e}")),
            _ => Err("needs either public_key or public_key_file".to_owned()),
        };
        let (Some(kid), Some(algorithm)) = (table.get("kid"), table.get("algorithm")) else {
            return self.fault("auth.key", "needs kid and algorithm");
        };
        match pem.and_then(|pem| TrustedKey::from_pem(kid, algorithm, &pem).map_err(|e| e.to_string())) {
            Ok(key) => keys.push(key),
            Err(why) => self.fault("auth.key", &why),
        }
    }

    fn provider(&mut self, table: &TableGiven, providers: &mut Vec<ProviderKey>) {
        let secret = match (table.get("key"), table.get("key_file")) {
            (Some(key), None) => Ok(key.as_bytes().to_vec()),
            // An editor's last newline is no part of the key.
            (None, Some(path)) => files::read(&self.base.join(path))
                .map(|bytes| bytes.strip_suffix(b"\n").map_or(bytes.clone(), <[u8]>::to_vec))
                .map_err(|e| e.to_string()),
            _ => Err("needs either key or key_file".to_owned()),
        };
        let name =
            |n: &str| table.get(n).filter(|t| grandstand_core::names::Key::parse(t).is_some()).map(str::to_owned);
        let (Some(provider), Some(kid)) = (name("id"), name("kid")) else {
            return self.fault("provider", "needs id and kid, each 1 to 128 bytes");
        };
        let certificate = table.get("certificate").map(Holder::parse);
        if certificate == Some(None) {
            return self.fault("provider", &format!("certificate {}", Holder::RULE));
        }
        let certificate = certificate.flatten();
        if providers.iter().any(|p| p.provider == provider && p.certificate != certificate) {
            return self.fault("provider", "all keys of a provider have the same certificate, or none has one");
        }
        match secret {
            Ok(key) if key.len() < 16 => self.fault("provider", "a key has at least 16 bytes"),
            Ok(_) if provider == OPERATOR => {
                self.fault("provider", "operator is the name of what operators type");
            }
            Ok(_) if kid.contains([',', '=']) => self.fault("provider", "a kid has no comma and no equals sign"),
            Ok(_) if providers.iter().any(|p| p.provider == provider && p.kid == kid) => {
                self.fault("provider", "the same id and kid twice");
            }
            Ok(key) => providers.push(ProviderKey { provider, kid, key, certificate }),
            Err(why) => self.fault("provider", &why),
        }
    }

    fn fault(&mut self, key: &str, message: &str) {
        let source = KEYS
            .iter()
            .position(|k| k.name == key)
            .and_then(|idx| self.given.iter().rev().find(|(i, ..)| *i == idx))
            .map_or("settings", |(_, _, source)| source);
        self.faults.push(Fault::new(source, key, message));
    }

    /// The strongest value given, or the default. Types were checked when it was read.
    fn value(&self, name: &str) -> Option<Given> {
        let idx = KEYS.iter().position(|k| k.name == name).expect("the key is in the table");
        let given = self.given.iter().rev().find(|(i, ..)| *i == idx).map(|(_, given, _)| given.clone());
        given.or_else(|| default_of(&KEYS[idx]))
    }

    fn text(&self, name: &str) -> Option<String> {
        match self.value(name) {
            Some(Given::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// Only what was given: what this defaults to depends on the mode.
    fn yes(&self, name: &str) -> Option<bool> {
        let idx = KEYS.iter().position(|k| k.name == name).expect("the key is in the table");
        match self.given.iter().rev().find(|(i, ..)| *i == idx) {
            Some((_, Given::Yes(yes), _)) => Some(*yes),
            _ => None,
        }
    }

    fn number(&mut self, name: &str, from: u64, to: u64) -> u64 {
        match self.value(name) {
            Some(Given::Number(n)) if (from..=to).contains(&n) => n,
            Some(Given::Number(_)) => {
                self.fault(name, &format!("must be {from} to {to}"));
                from
            }
            _ => from,
        }
    }

    /// A number that has no default.
    fn given_number(&mut self, name: &str, from: u32, to: u32) -> Option<u32> {
        self.value(name)?;
        Some(self.number(name, from.into(), to.into()) as u32)
    }

    fn list(&self, name: &str) -> Vec<String> {
        match self.value(name) {
            Some(Given::List(items)) => items,
            _ => Vec::new(),
        }
    }

    fn each<T>(&mut self, name: &str, rule: &str, parse: impl Fn(&str) -> Option<T>) -> Vec<T> {
        let mut out = Vec::new();
        for item in self.list(name) {
            match parse(&item) {
                Some(value) => out.push(value),
                None => self.fault(name, &format!("{item:?} {rule}")),
            }
        }
        out
    }

    fn parsed(&mut self, name: &str) -> Option<SocketAddr> {
        let text = self.text(name)?;
        let addr = text.parse().ok();
        if addr.is_none() {
            self.fault(name, &format!("{text:?} is not ADDRESS:PORT"));
        }
        addr
    }
}

/// One `[[table]]` of the file: members and their texts.
struct TableGiven {
    name: &'static str,
    members: Vec<(String, String)>,
}

impl TableGiven {
    fn get(&self, name: &str) -> Option<&str> {
        self.members.iter().find(|(n, _)| n == name).map(|(_, text)| text.as_str())
    }
}

fn read_file(
    source: &str,
    text: &str,
    given: &mut Vec<(usize, Given, String)>,
    tables: &mut Vec<TableGiven>,
    faults: &mut Vec<Fault>,
) {
    match text.parse::<toml::Table>() {
        Ok(table) => read_table(source, "", &table, given, tables, faults),
        Err(e) => faults.push(Fault::new(source, "", e.to_string().trim_end().to_owned())),
    }
}

fn read_table(
    source: &str,
    prefix: &str,
    table: &toml::Table,
    given: &mut Vec<(usize, Given, String)>,
    tables: &mut Vec<TableGiven>,
    faults: &mut Vec<Fault>,
) {
    for (name, value) in table {
        let full = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        if let Some(idx) = KEYS.iter().position(|k| k.name == full) {
            match from_toml(value, KEYS[idx].takes) {
                Ok(value) => given.push((idx, value, source.to_owned())),
                Err(rule) => faults.push(Fault::new(source, &full, rule)),
            }
        } else if let Some(known) = TABLES.iter().find(|t| t.name == full) {
            read_tables(source, known, value, tables, faults);
        } else if let (toml::Value::Table(inner), true) = (value, is_group(&full)) {
            read_table(source, &full, inner, given, tables, faults);
        } else {
            faults.push(unknown(source, &full));
        }
    }
}

fn read_tables(
    source: &str,
    known: &Table,
    value: &toml::Value,
    tables: &mut Vec<TableGiven>,
    faults: &mut Vec<Fault>,
) {
    let rows = value.as_array().and_then(|rows| rows.iter().map(toml::Value::as_table).collect::<Option<Vec<_>>>());
    let Some(rows) = rows else {
        return faults.push(Fault::new(source, known.name, format!("is a list of tables: [[{}]]", known.name)));
    };
    for row in rows {
        let mut members = Vec::new();
        for (name, value) in row {
            let full = format!("{}.{name}", known.name);
            match value.as_str() {
                _ if !known.members.iter().any(|(m, _)| m == name) => {
                    let near = nearest(name, known.members.iter().map(|(m, _)| (*m).to_owned()));
                    faults.push(Fault::new(source, &full, format!("unknown key; the nearest known one is {near}")));
                }
                Some(text) => members.push((name.clone(), text.to_owned())),
                None => faults.push(Fault::new(source, &full, "must be text")),
            }
        }
        tables.push(TableGiven { name: known.name, members });
    }
}

fn is_group(name: &str) -> bool {
    let start = format!("{name}.");
    KEYS.iter().map(|k| k.name).chain(TABLES.iter().map(|t| t.name)).any(|n| n.starts_with(&start))
}

fn from_toml(value: &toml::Value, takes: Takes) -> Result<Given, String> {
    match (takes, value) {
        (Takes::Text, toml::Value::String(text)) => Ok(Given::Text(text.clone())),
        (Takes::OneOf(words), toml::Value::String(text)) => one_of(words, text),
        (Takes::Yes, toml::Value::Boolean(yes)) => Ok(Given::Yes(*yes)),
        (Takes::Number, toml::Value::Integer(n)) => {
            u64::try_from(*n).map(Given::Number).map_err(|_| "must not be negative".into())
        }
        (Takes::List, toml::Value::Array(items)) => items
            .iter()
            .map(|i| i.as_str().map(str::to_owned))
            .collect::<Option<Vec<_>>>()
            .map(Given::List)
            .ok_or_else(|| "must be a list of text".to_owned()),
        _ => Err(match takes {
            Takes::Text | Takes::OneOf(_) => "must be text",
            Takes::Yes => "must be true or false",
            Takes::Number => "must be a whole number",
            Takes::List => "must be a list of text",
        }
        .to_owned()),
    }
}

fn one_of(words: &[&str], text: &str) -> Result<Given, String> {
    if words.contains(&text) {
        Ok(Given::Text(text.to_owned()))
    } else {
        Err(format!("must be one of {}", words.join(", ")))
    }
}

fn read_text(idx: usize, text: &str, source: &str, given: &mut Vec<(usize, Given, String)>, faults: &mut Vec<Fault>) {
    let value = match KEYS[idx].takes {
        Takes::Text => Ok(Given::Text(text.to_owned())),
        Takes::OneOf(words) => one_of(words, text),
        Takes::Yes => text.parse().map(Given::Yes).map_err(|_| "must be true or false".to_owned()),
        Takes::Number => text.parse().map(Given::Number).map_err(|_| "must be a whole number".to_owned()),
        Takes::List => {
            Ok(Given::List(text.split(',').map(|t| t.trim().to_owned()).filter(|t| !t.is_empty()).collect()))
        }
    };
    match value {
        Ok(value) => given.push((idx, value, source.to_owned())),
        Err(rule) => faults.push(Fault::new(source, KEYS[idx].name, rule)),
    }
}

fn default_of(key: &Key) -> Option<Given> {
    if key.default.is_empty() {
        return None;
    }
    let table: toml::Table = format!("x = {}", key.default).parse().expect("defaults are TOML");
    Some(from_toml(&table["x"], key.takes).expect("a default is of its key's type"))
}

fn env_name(key: &str) -> String {
    key.to_ascii_uppercase().replace('.', "_")
}

fn unknown(source: &str, name: &str) -> Fault {
    let known = KEYS.iter().map(|k| k.name).chain(TABLES.iter().map(|t| t.name)).map(str::to_owned);
    Fault::new(source, name, format!("unknown key; the nearest known one is {}", nearest(name, known)))
}

/// The known name with the fewest single-character edits.
fn nearest(name: &str, known: impl Iterator<Item = String>) -> String {
    known.min_by_key(|k| edits(name.as_bytes(), k.as_bytes())).expect("there are known names")
}

/// Levenshtein distance, one row at a time.
fn edits(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let cost = if x == y { diagonal } else { 1 + diagonal.min(row[j]).min(row[j + 1]) };
            diagonal = std::mem::replace(&mut row[j + 1], cost);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Config, Durability, KEYS, Serves, Sources, Transport, default_of};

    fn file(text: &str) -> Sources {
        Sources { file: Some(("stand.toml".into(), text.to_owned())), ..Sources::default() }
    }

    fn faults(sources: &Sources) -> String {
        let faults = Config::load(sources).err().expect("it is refused");
        faults.iter().map(|f| format!("{f}\n")).collect()
    }

    #[test]
    fn without_anything_it_is_the_safe_mode_for_a_laptop() {
        let config = Config::load(&Sources::default()).unwrap();
        assert!(config.development && config.create_on_use && config.guests && config.listen.ip().is_loopback());
        assert!(config.warnings()[0].contains("DEVELOPMENT MODE"));
        assert_eq!((config.durability, config.store_bytes_max), (Durability::Fsync, None));
        let config = Config::load(&file("")).unwrap();
        assert!(!config.development && !config.create_on_use && !config.guests && config.warnings().is_empty());
    }

    #[test]
    fn development_mode_never_leaves_the_machine() {
        let flags = vec![("listen".to_owned(), "0.0.0.0:8080".to_owned())];
        let sources = Sources { flags, ..Sources::default() };
        assert!(faults(&sources).contains("loopback"));
    }

    #[test]
    fn flags_beat_the_environment_which_beats_the_file_which_beats_defaults() {
        let mut sources = file("workers = 1\n[store]\nbytes_max = 1048576\n");
        assert_eq!(Config::load(&sources).unwrap().workers, 1);
        sources.env = vec![("GRANDSTAND_WORKERS".into(), "2".into()), ("PATH".into(), "x".into())];
        let config = Config::load(&sources).unwrap();
        assert_eq!((config.workers, config.store_bytes_max), (2, Some(1 << 20)));
        sources.flags = vec![("workers".into(), "3".into())];
        assert_eq!(Config::load(&sources).unwrap().workers, 3);
    }

    #[test]
    fn unknown_keys_are_named_with_the_nearest_known_one() {
        assert!(
            faults(&file("listn = \"x\"")).contains("stand.toml: listn: unknown key; the nearest known one is listen")
        );
        assert!(
            faults(&file("[store]\nbyte_max = 1"))
                .contains("store.byte_max: unknown key; the nearest known one is store.bytes_max")
        );
        assert!(
            faults(&file("[[provider]]\nidd = \"x\""))
                .contains("provider.idd: unknown key; the nearest known one is id")
        );
        assert!(faults(&file("[nothing]\nx = 1")).contains("nothing: unknown key"));
        let env = vec![("GRANDSTAND_LISTN".into(), "x".into())];
        assert!(faults(&Sources { env, ..Sources::default() }).contains("GRANDSTAND_LISTEN"));
    }

    #[test]
    fn everything_that_is_wrong_is_told_at_once() {
        let text = "listen = 7\nworkers = -1\ndurability = \"sometimes\"\norigins = [\"null\"]\nguests = \"yes\"\n\
                    retention_days = 30\nretention_header_days = 7\n[embed]\norigins = [\"*\"]\n[limits]\nexempt = [\"::ffff:10.0.0.0/104\"]\n\
                    [auth]\njwks_file = \"/nonexistent\"\n[[provider]]\nid = \"p\"\nkid = \"k\"\nkey = \"short\"\n";
        let told = faults(&file(text));
        for key in [
            "listen:",
            "workers:",
            "durability:",
            "origins:",
            "embed.origins:",
            "guests:",
            "retention_header_days:",
            "limits.exempt:",
            "auth.jwks_file:",
            "provider: a key has at least 16 bytes",
        ] {
            assert!(told.contains(key), "{key} in {told}");
        }
    }

    #[test]
    fn providers_and_intervals_are_read() {
        let text = "durability = \"interval\"\ndurability_interval_ms = 50\npublic_url = \"https://live.example.com/\"\n\
                    [[provider]]\nid = \"feed\"\nkid = \"a\"\nkey = \"0123456789abcdef\"\n\
                    [[provider]]\nid = \"feed\"\nkid = \"b\"\nkey = \"fedcba9876543210\"\n";
        let config = Config::load(&file(text)).unwrap();
        assert_eq!(config.durability, Durability::Interval(Duration::from_millis(50)));
        assert_eq!(config.providers.len(), 2);
        assert_eq!(config.public_url.as_deref(), Some("https://live.example.com"));
        assert_eq!(config.origins.len(), 1);
        let twice = text.replace("kid = \"b\"", "kid = \"a\"");
        assert!(faults(&file(&twice)).contains("twice"));
    }

    #[test]
    fn irc_is_spoken_where_it_is_asked_for_and_in_development_on_loopback() {
        assert!(Config::load(&Sources::default()).unwrap().irc.tcp.is_empty());
        let given =
            |text: &str| Sources { file: Some(("grandstand.toml".into(), text.to_owned())), ..Sources::default() };
        let text =
            "[irc]\ntcp.listen = [\"0.0.0.0:6667\"]\nwebsocket.listen = [\"127.0.0.1:6668\"]\nconnections_max = 9\n";
        let irc = Config::load(&given(text)).unwrap().irc;
        let at = |text: &str| vec![text.parse::<std::net::SocketAddr>().unwrap()];
        assert_eq!(irc.tcp, at("0.0.0.0:6667"));
        assert_eq!((irc.websocket, irc.connections_max), (at("127.0.0.1:6668"), 9));
        let same = "irc.tcp.listen = [\"127.0.0.1:8080\"]";
        assert!(faults(&given(same)).contains("irc.tcp.listen: must differ from listen"));
        let flags = vec![("irc.websocket.listen".to_owned(), "0.0.0.0:0".to_owned())];
        assert!(faults(&Sources { flags, ..Sources::default() }).contains("irc.websocket.listen: without a"));
    }

    #[test]
    fn transports_have_listeners_and_base_urls_of_their_own() {
        let text = "listen = \"127.0.0.1:8080\"\npublic_url = \"https://live.example.com\"\n\
                    [transport.websocket]\nlisten = [\"127.0.0.1:8081\"]\nurl = \"wss://WS.example.com\"\n\
                    [transport.sse]\nlisten = [\"127.0.0.1:8082\", \"127.0.0.1:8083\"]\nurls = [\"https://a.example.com:8443\"]\n";
        let config = Config::load(&file(text)).unwrap();
        let serves: Vec<Serves> = config.edges.iter().map(|edge| edge.serves).collect();
        assert_eq!(serves, [Transport::WebSocket, Transport::Sse, Transport::Sse].map(Serves::Only));
        assert_eq!(
            config.endpoints.json().unwrap(),
            r#"{"websocket":"wss://ws.example.com","sse":["https://a.example.com:8443"],"api":"https://live.example.com"}"#
        );
        assert_eq!(Config::load(&file("")).unwrap().endpoints.json(), None);
        let flags = vec![("transport.poll.listen".to_owned(), "0.0.0.0:0".to_owned())];
        assert!(faults(&Sources { flags, ..Sources::default() }).contains("transport.poll.listen: without a"));
        for (bad, told) in [
            (text.replace(":8083", ":8081"), "transport.sse.listen: must differ from transport.websocket.listen"),
            (text.replace("wss://WS", "ws://WS"), "must be wss"),
            (text.replace("wss://WS", "https://WS"), "is not ws or wss as scheme://host[:port] without a path"),
            (text.replace("com:8443", "com/x"), "transport.sse.urls: \"https://a.example.com/x\" is not http or https"),
            (text.replace("public_url = \"https://live.example.com\"", ""), "transport.sse.urls: needs public_url"),
            (text.replace("127.0.0.1:8082", "8082"), "transport.sse.listen: \"8082\" is not ADDRESS:PORT"),
            (text.replace("127.0.0.1:8081", "127.0.0.1:8080"), "transport.websocket.listen: must differ from listen"),
        ] {
            let said = faults(&file(&bad));
            assert!(said.contains(told), "{told} in {said}");
        }
    }

    #[test]
    fn the_reference_is_a_file_that_loads_and_names_every_key() {
        let reference = Config::reference();
        for key in KEYS {
            assert!(reference.contains(&format!("{} =", key.name)), "{}", key.name);
            let _ = default_of(key);
        }
        assert!(Config::load(&file(&reference)).is_ok());
    }
}
