//! The certificate of the public listener: read at start, read again when asked, shown to every new connection.
//!
//! One [`Certificates`] lives as long as the process. A new certificate takes the old one's place for handshakes that begin
//! after it; open connections and their tickets live on. What cannot be used never takes a place: a server that lost its
//! certificate to a half-written file would be gone for everyone.
//!
//! Session tickets (TLS's own, RFC 8446; not those of the API) are sealed with keys that live in this process alone and change
//! every six hours, so a crowd that comes back resumes without a signature and without a table of sessions.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::pem::{self, PemObject as _};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{ClientHello, NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::sign::CertifiedKey;
use rustls::version::{TLS12, TLS13};
use rustls::{RootCertStore, ServerConfig};

/// A chain of ten certificates with keys of 8 192 bits is about 40 KiB.
const FILE_BYTES_MAX: u64 = 256 * 1024;
/// A client that comes back has one connection to resume, and is given the next ticket by it.
const SESSION_TICKETS: usize = 1;

/// `tls.certificate`, `tls.key` and `tls.version_min`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Files {
    /// PEM: the server's certificate first, then those that lead to the authority.
    pub certificate: PathBuf,
    /// PEM: PKCS#8, PKCS#1 or SEC1.
    pub key: PathBuf,
    pub oldest: Oldest,
}

/// Whose certificates clients are believed by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Clients {
    /// PEM: the authorities.
    pub ca: PathBuf,
    /// PEM: what they have taken back.
    pub crl: Option<PathBuf>,
}

impl Clients {
    /// How a client's certificate is checked in the handshake: authority, time, use, and what was taken back. `must`: one without is
    /// not spoken to.
    /// Errors: the files cannot be used.
    pub fn verifier(&self, must: bool) -> Result<Arc<dyn ClientCertVerifier>, Fault> {
        let pem = |path: &Path| {
            let path = path.to_owned();
            move |fault| Fault::Pem(path, fault)
        };
        let unusable = |why: String| Fault::Authorities(self.ca.clone(), why);
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_slice_iter(&bytes_of(&self.ca)?) {
            roots.add(certificate.map_err(pem(&self.ca))?).map_err(|why| unusable(why.to_string()))?;
        }
        if roots.is_empty() {
            return Err(Fault::NoCertificate(self.ca.clone()));
        }
        let mut builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider());
        if let Some(path) = &self.crl {
            let lists = CertificateRevocationListDer::pem_slice_iter(&bytes_of(path)?)
                .collect::<Result<Vec<_>, _>>()
                .map_err(pem(path))?;
            builder = builder.with_crls(lists).only_check_end_entity_revocation();
        }
        let builder = if must { builder } else { builder.allow_unauthenticated() };
        builder.build().map_err(|why| unusable(why.to_string()))
    }
}

/// The oldest protocol that is spoken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oldest {
    Tls13,
    Tls12,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("{0} cannot be read: {1}")]
    Read(PathBuf, #[source] std::io::Error),
    #[error("{0} is larger than {FILE_BYTES_MAX} bytes")]
    TooLong(PathBuf),
    #[error("{0} is not PEM: {1}")]
    Pem(PathBuf, #[source] pem::Error),
    #[error("{0} holds no certificate in PEM")]
    NoCertificate(PathBuf),
    #[error("{0} holds no unencrypted private key in PEM")]
    NoKey(PathBuf),
    #[error("{certificate} and {key} do not belong together")]
    Strangers { certificate: PathBuf, key: PathBuf },
    #[error("{certificate} with {key} cannot be used: {why}")]
    Unusable { certificate: PathBuf, key: PathBuf, why: rustls::Error },
    #[error("{0} cannot be used to know clients by: {1}")]
    Authorities(PathBuf, String),
    #[error("the keys of session tickets cannot be made: {0}")]
    Tickets(#[source] rustls::Error),
}

impl Fault {
    /// Whether it is about the key's file alone.
    pub fn is_about_key(&self, files: &Files) -> bool {
        match self {
            Fault::Read(path, _) | Fault::TooLong(path) | Fault::Pem(path, _) | Fault::NoKey(path) => {
                *path == files.key
            }
            _ => false,
        }
    }
}

/// What is shown to clients; a new one can take its place.
#[derive(Debug)]
pub struct Certificates {
    files: Files,
    /// Read once a handshake, written once a reload.
    shown: RwLock<Arc<CertifiedKey>>,
}

impl Certificates {
    /// Errors: the files cannot be read or do not belong together.
    pub fn read(files: Files) -> Result<Certificates, Fault> {
        let shown = RwLock::new(Arc::new(certified(&files)?));
        Ok(Certificates { files, shown })
    }

    /// Reads the files again. Errors: they cannot be used, and what was shown is shown on.
    pub fn reload(&self) -> Result<(), Fault> {
        let fresh = Arc::new(certified(&self.files)?);
        *self.shown.write().unwrap_or_else(PoisonError::into_inner) = fresh;
        Ok(())
    }

    pub fn files(&self) -> &Files {
        &self.files
    }
}

impl ResolvesServerCert for Certificates {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.shown.read().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

/// How handshakes are made: TLS 1.3 (1.2 where asked for), HTTP/1.1 alone, session tickets for coming back.
/// `clients`: how the certificate of a client that has one is checked; without it none is asked for.
/// Errors: the system's random source does not answer.
pub fn server_config(
    certificates: Arc<Certificates>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
) -> Result<Arc<ServerConfig>, Fault> {
    let versions: &[_] = match certificates.files.oldest {
        Oldest::Tls13 => &[&TLS13],
        Oldest::Tls12 => &[&TLS13, &TLS12],
    };
    let builder = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)
        .expect("the provider has suites for 1.3 and 1.2");
    let mut config = match clients {
        Some(clients) => builder.with_client_cert_verifier(clients),
        None => builder.with_no_client_auth(),
    }
    .with_cert_resolver(certificates);
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    config.ticketer = aws_lc_rs::Ticketer::new().map_err(Fault::Tickets)?;
    config.session_storage = Arc::new(NoServerSessionStorage {});
    config.send_tls13_tickets = SESSION_TICKETS;
    Ok(Arc::new(config))
}

/// The same certificates and tickets, for clients that offer HTTP/2.
pub fn for_http2(config: &ServerConfig) -> Arc<ServerConfig> {
    let mut config = config.clone();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Arc::new(config)
}

/// Whether others than the key's owner and group may read it.
pub fn is_open_to_all(key: &Path) -> bool {
    fs::metadata(key).is_ok_and(|meta| meta.mode() & 0o007 != 0)
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn certified(files: &Files) -> Result<CertifiedKey, Fault> {
    let pem = |path: &Path| {
        let path = path.to_owned();
        move |fault| Fault::Pem(path, fault)
    };
    let chain = CertificateDer::pem_slice_iter(&bytes_of(&files.certificate)?)
        .collect::<Result<Vec<_>, _>>()
        .map_err(pem(&files.certificate))?;
    if chain.is_empty() {
        return Err(Fault::NoCertificate(files.certificate.clone()));
    }
    let key = PrivateKeyDer::from_pem_slice(&bytes_of(&files.key)?).map_err(|fault| match fault {
        pem::Error::NoItemsFound => Fault::NoKey(files.key.clone()),
        fault => pem(&files.key)(fault),
    })?;
    let (certificate, key_file) = (files.certificate.clone(), files.key.clone());
    CertifiedKey::from_der(chain, key, &provider()).map_err(|why| match why {
        rustls::Error::InconsistentKeys(_) => Fault::Strangers { certificate, key: key_file },
        why => Fault::Unusable { certificate, key: key_file, why },
    })
}

/// A link is followed: tools that renew certificates put links where servers look.
fn bytes_of(path: &Path) -> Result<Vec<u8>, Fault> {
    let io = |fault| Fault::Read(path.to_owned(), fault);
    let mut bytes = Vec::new();
    let n = fs::File::open(path).map_err(io)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(io)?;
    if n as u64 > FILE_BYTES_MAX { Err(Fault::TooLong(path.to_owned())) } else { Ok(bytes) }
}
