//! Certificates of clients: whose they are, for score providers and for the internal port, and every kind that is nobody's.

use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::SystemTime;

use grandstand_client::sign::Signer;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use serde_json::json;

use crate::support::{Answer, Http, Server, Wire};

fn openssl(folder: &Path, args: &[&str]) {
    let made = Command::new("openssl").args(args).current_dir(folder).output().expect("openssl is installed");
    assert!(made.status.success(), "{args:?}: {}", String::from_utf8_lossy(&made.stderr));
}

/// An authority in a folder of its own, that keeps a list of what it took back.
struct Authority(PathBuf);

const KEYS: [&str; 5] = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];

impl Authority {
    fn new(folder: &Path, name: &str) -> Authority {
        let folder = folder.join(name);
        std::fs::create_dir(&folder).expect("a folder");
        let files = [
            (
                "ca.cnf",
                "[ca]\ndefault_ca=c\n[c]\ndatabase=index.txt\nnew_certs_dir=.\nserial=serial\ncrlnumber=crlnumber\n\
                 certificate=ca.pem\nprivate_key=ca.key\ndefault_md=sha256\npolicy=p\ndefault_crl_days=30\n\
                 unique_subject=no\ncrl_extensions=e\n[p]\ncommonName=supplied\n[e]\nauthorityKeyIdentifier=keyid\n",
            ),
            ("index.txt", ""),
            ("serial", "01"),
            ("crlnumber", "01"),
        ];
        for (name, text) in files {
            std::fs::write(folder.join(name), text).expect("written");
        }
        let subject = format!("/CN={name}");
        let request = ["req", "-x509", "-days", "30", "-subj", &subject, "-keyout", "ca.key", "-out", "ca.pem"];
        openssl(&folder, &[&request[..], &KEYS].concat());
        Authority(folder)
    }

    /// A certificate with these names and this use, valid between two times (YYYYMMDDHHMMSSZ).
    fn issue(&self, name: &str, san: &str, usage: &str, [from, to]: [&str; 2]) {
        let [request, key, out, ext] = ["csr", "key", "pem", "ext"].map(|kind| format!("{name}.{kind}"));
        let subject = format!("/CN={name}");
        openssl(&self.0, &[&["req", "-subj", &subject, "-keyout", &key, "-out", &request][..], &KEYS].concat());
        let text = format!("basicConstraints=critical,CA:FALSE\nextendedKeyUsage={usage}\nsubjectAltName={san}\n");
        std::fs::write(self.0.join(&ext), text).expect("written");
        openssl(
            &self.0,
            &[
                "ca",
                "-batch",
                "-config",
                "ca.cnf",
                "-in",
                &request,
                "-out",
                &out,
                "-extfile",
                &ext,
                "-startdate",
                from,
                "-enddate",
                to,
                "-notext",
            ],
        );
    }

    fn path(&self, file: &str) -> PathBuf {
        self.0.join(file)
    }
}

const NOW: [&str; 2] = ["20200101000000Z", "20991231235959Z"];

/// A client that believes `shown`, and shows the certificate `name` of an authority itself.
fn client(shown: &Path, own: Option<(&Authority, &str)>) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(shown).expect("a certificate")).expect("a root");
    let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("versions")
        .with_root_certificates(roots);
    Arc::new(match own {
        None => builder.with_no_client_auth(),
        Some((authority, name)) => {
            let certificate = CertificateDer::from_pem_file(authority.path(&format!("{name}.pem"))).expect("one");
            let key = PrivateKeyDer::from_pem_file(authority.path(&format!("{name}.key"))).expect("its key");
            builder.with_client_auth_cert(vec![certificate], key).expect("they belong together")
        }
    })
}

/// Two providers, each with a key; the first is known by a certificate too.
struct Stand {
    server: Server,
    authority: Authority,
    stranger: Authority,
    internal: SocketAddr,
    shown: PathBuf,
}

fn stand(args: &[&str]) -> Stand {
    let mut server = Server::unstarted(&[], &[]);
    let folder = server.folder().to_owned();
    let [authority, stranger] = ["authority", "stranger"].map(|name| Authority::new(&folder, name));
    let feed = "DNS:feed.example.com,URI:spiffe://example.com/feed";
    authority.issue("feed", feed, "clientAuth", NOW);
    authority.issue("other", "DNS:other.example.com", "clientAuth", NOW);
    authority.issue("wildcard", "DNS:*.example.com", "clientAuth", NOW);
    authority.issue("expired", feed, "clientAuth", ["20200101000000Z", "20200201000000Z"]);
    authority.issue("early", feed, "clientAuth", ["20980101000000Z", "20981231235959Z"]);
    authority.issue("server", "DNS:localhost,IP:127.0.0.1", "serverAuth", NOW);
    authority.issue("revoked", feed, "clientAuth", NOW);
    openssl(&folder.join("authority"), &["ca", "-config", "ca.cnf", "-revoke", "revoked.pem"]);
    openssl(&folder.join("authority"), &["ca", "-config", "ca.cnf", "-gencrl", "-out", "crl.pem"]);
    stranger.issue("feed", feed, "clientAuth", NOW);
    // The port is free a moment before.
    let internal = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("an address");
    let path = |file: &str| authority.path(file).display().to_string();
    let text = format!(
        "internal_listen = \"{internal}\"\n\
         [tls]\ncertificate = \"{0}\"\nkey = \"{1}\"\nclient_ca = \"{2}\"\nclient_crl = \"{3}\"\n\
         [internal_tls]\ncertificate = \"{0}\"\nkey = \"{1}\"\nclient_ca = \"{2}\"\nclient_crl = \"{3}\"\n\
         clients = [\"dns:other.example.com\"]\n\
         [[provider]]\nid = \"feed\"\nkid = \"k1\"\nkey = \"sixteen bytes of a key\"\n\
         certificate = \"uri:spiffe://example.com/feed\"\n\
         [[provider]]\nid = \"plain\"\nkid = \"k1\"\nkey = \"another sixteen bytes\"\n",
        path("server.pem"),
        path("server.key"),
        path("ca.pem"),
        path("crl.pem"),
    );
    let config = folder.join("grandstand.toml");
    std::fs::write(&config, text).expect("written");
    let config = config.display().to_string();
    let all: Vec<&str> = ["--config", &config].into_iter().chain(args.iter().copied()).collect();
    server.set_args(&all);
    let shown = authority.path("ca.pem");
    server.trust = Some(client(&shown, None));
    server.restart();
    Stand { server, authority, stranger, internal, shown }
}

impl Stand {
    /// What a score event of `provider` is answered over a connection that shows `own`. `None`: it is not spoken to.
    fn score(
        &self,
        own: Option<(&Authority, &str)>,
        (provider, key): (&str, &str),
        more: &[(&str, &str)],
    ) -> Option<Answer> {
        let wire = Wire::tls(self.server.addr, &client(&self.shown, own)).ok()?;
        let mut http = Http::over(wire);
        let body = json!({"match_id": "m1", "event_id": "e1", "revision": 1, "provider": provider, "kind": "goal",
            "state": "confirmed", "score": {"home": 1, "away": 0}, "minute": "12"});
        let body = body.to_string().into_bytes();
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        let signature = Signer::new(provider, "k1", key.as_bytes()).signature("POST", "/v1/score-event", now, &body);
        let mut headers =
            vec![("Content-Type", "application/json"), ("X-Provider-Id", provider), ("X-Signature", &signature)];
        headers.extend(more);
        // TLS 1.3 says at the first read that it does not take a certificate.
        http.send("POST", "/v1/score-event", &headers, &body).ok()?;
        http.answer().ok()
    }
}

const FEED: (&str, &str) = ("feed", "sixteen bytes of a key");
const PLAIN: (&str, &str) = ("plain", "another sixteen bytes");

#[test]
fn a51_a_provider_is_its_signature_and_its_certificate_together() {
    for args in [&[][..], &["--gateways", "2"]] {
        let stand = stand(args);
        let ops = stand.server.token("ops", &["region-ops"]);
        stand.server.put_room("final", &ops, json!({"matches": ["m1"]}));
        let own = |name| Some((&stand.authority, name));
        let taken = stand.score(own("feed"), FEED, &[]).expect("an answer");
        assert_eq!(taken.status, 202, "{:?}", taken.json);
        let refused = |what: &str, answer: Option<Answer>| {
            let answer = answer.unwrap_or_else(|| panic!("{what}: no answer"));
            assert_eq!(
                (answer.status, &answer.json["code"]),
                (401, &json!("bad_signature")),
                "{what}: {:?}",
                answer.json
            );
        };
        refused("no certificate", stand.score(None, FEED, &[]));
        refused("another's", stand.score(own("other"), FEED, &[]));
        refused("a wildcard", stand.score(own("wildcard"), FEED, &[]));
        refused("another's signature", stand.score(own("feed"), ("feed", PLAIN.1), &[]));
        let claimed = std::fs::read(stand.authority.path("feed.pem")).expect("it is there");
        let claimed =
            String::from_utf8(claimed).expect("PEM").lines().filter(|l| !l.starts_with('-')).collect::<String>();
        let claimed = claimed.replace('+', "-").replace('/', "_").trim_end_matches('=').to_owned();
        refused("a claim", stand.score(None, FEED, &[("X-Grandstand-Certificate", &claimed)]));
        for name in ["expired", "early", "server", "revoked"] {
            assert!(stand.score(own(name), FEED, &[]).is_none(), "{name}: it is spoken to");
        }
        assert!(stand.score(Some((&stand.stranger, "feed")), FEED, &[]).is_none(), "whom nobody vouches for");
        // Who is known by a signature alone needs nothing else, and viewers are asked for nothing.
        let plain = stand.score(None, PLAIN, &[]).expect("an answer");
        assert!([200, 202].contains(&plain.status), "{:?}", plain.json);
    }
}

#[test]
fn a58_the_internal_port_speaks_to_those_it_names_alone() {
    let stand = stand(&[]);
    let ask = |own: Option<&str>| {
        let own = own.map(|name| (&stand.authority, name));
        let wire = Wire::tls(stand.internal, &client(&stand.shown, own)).ok()?;
        let mut http = Http::over(wire);
        http.send("GET", "/metrics", &[], &[]).ok()?;
        http.answer().ok()
    };
    assert_eq!(ask(Some("other")).expect("an answer").status, 200);
    assert_eq!(ask(Some("feed")).expect("an answer").status, 403, "somebody, and not one of those");
    for nobody in [None, Some("expired"), Some("revoked"), Some("server")] {
        assert!(ask(nobody).is_none(), "{nobody:?}");
    }
    let mut plain = Http::connect(stand.internal).expect("it is there");
    plain.send("GET", "/metrics", &[], &[]).expect("it is sent");
    assert!(plain.answer().is_err(), "it is no plain port");
}
