//! TLS as a client speaks it: whose certificates are believed, and a stream that is plain or not.
//!
//! What it must never do: believe a certificate that nobody vouched for, unless it was asked to in so many words.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, aws_lc_rs};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::Fault;

/// Where systems keep the certificates of their authorities: Debian and Alpine, Fedora, others.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// Whose certificates are believed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Trust {
    /// The system's authorities; `SSL_CERT_FILE` names another file of them.
    System,
    /// The authorities of a PEM file, and no others.
    File(PathBuf),
    /// Anyone who shows any certificate: the bytes are sealed, and nobody knows for whom.
    Anyone,
}

/// Settings of sessions, with a memory of their tickets: connections that share them resume.
///
/// Errors: the certificates cannot be read.
pub fn config(trust: &Trust) -> Result<Arc<ClientConfig>, Fault> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_safe_default_protocol_versions()
        .expect("the provider has suites for 1.3 and 1.2");
    let mut config = match trust {
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider.signature_verification_algorithms)))
            .with_no_client_auth(),
        Trust::File(path) => builder.with_root_certificates(roots(path)?).with_no_client_auth(),
        Trust::System => builder.with_root_certificates(roots(&system_file()?)?).with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// The host as a certificate names it.
pub fn name(host: &str) -> Result<ServerName<'static>, Fault> {
    ServerName::try_from(host.to_owned()).map_err(|_| Fault::Address(host.to_owned()))
}

fn system_file() -> Result<PathBuf, Fault> {
    if let Some(named) = std::env::var_os("SSL_CERT_FILE") {
        return Ok(named.into());
    }
    let found = SYSTEM.iter().map(PathBuf::from).find(|path| path.exists());
    found.ok_or_else(|| Fault::Trust(format!("the system has none at {}; name a file", SYSTEM.join(", "))))
}

fn roots(path: &Path) -> Result<RootCertStore, Fault> {
    let fault = |why: &dyn std::fmt::Display| Fault::Trust(format!("{}: {why}", path.display()));
    let certificates = CertificateDer::pem_file_iter(path).map_err(|e| fault(&e))?;
    let mut roots = RootCertStore::empty();
    for certificate in certificates {
        let certificate = certificate.map_err(|e| fault(&e))?;
        // A system's file may hold old kinds that are no use here; one that was named must be of use.
        roots.add_parsable_certificates([certificate]);
    }
    if roots.is_empty() { Err(fault(&"no certificate of an authority in it")) } else { Ok(roots) }
}

/// Checks that the other side holds the key of what it shows, and not who it is.
#[derive(Debug)]
struct Anyone(WebPkiSupportedAlgorithms);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls12_signature(message, certificate, signature, &self.0)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        rustls::crypto::verify_tls13_signature(message, certificate, signature, &self.0)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.supported_schemes()
    }
}

/// A connection to a server.
pub enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_read(cx, buf),
            Stream::Tls(stream) => Pin::new(stream).poll_read(cx, buf),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Stream::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Stream::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Stream::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::{Trust, config};

    #[test]
    fn a_file_without_certificates_is_refused_by_its_name() {
        for path in [PathBuf::from("/nonexistent/ca.pem"), PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml")]
        {
            let fault = config(&Trust::File(path.clone())).expect_err("nobody to believe").to_string();
            assert!(fault.contains(&path.display().to_string()), "{fault}");
        }
        assert!(config(&Trust::Anyone).is_ok());
    }
}
