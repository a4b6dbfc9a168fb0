//! The internal address: `/metrics` and the health routes for those who run the server, on a port of their own.
//!
//! One request a connection, read whole and bounded, answered and closed. It serves nothing else, so it needs nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use super::Control;
use super::answer::json as answer_json;
use crate::auth::certificate::Holder;

const CONNECTIONS_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 8 * 1024;
const WAIT: Duration = Duration::from_secs(5);

/// How the port is sealed, and who may ask.
#[derive(Clone)]
pub struct Sealed {
    pub acceptor: TlsAcceptor,
    /// Whose certificate is taken; empty: anyone's whom the authority vouches for.
    pub clients: Arc<[Holder]>,
}

/// Serves until the runtime ends.
pub async fn serve(control: Arc<Control>, listener: std::net::TcpListener, sealed: Option<Sealed>) {
    let listener = match TcpListener::from_std(listener) {
        Ok(listener) => listener,
        Err(fault) => return tracing::error!(%fault, "the internal address cannot be served"),
    };
    let free = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let permit = free.clone().acquire_owned().await.expect("this semaphore is never closed");
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, most likely: those in use come back.
            tokio::time::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let (control, sealed) = (control.clone(), sealed.clone());
        tokio::spawn(async move {
            let _ = tokio::time::timeout(WAIT, accept(&control, stream, sealed)).await;
            drop(permit);
        });
    }
}

async fn accept(control: &Control, stream: TcpStream, sealed: Option<Sealed>) -> std::io::Result<()> {
    let Some(Sealed { acceptor, clients }) = sealed else { return one(control, stream, true).await };
    let stream = acceptor.accept(stream).await?;
    let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first);
    let known = shown.is_some_and(|der| clients.is_empty() || clients.iter().any(|holder| holder.holds(der)));
    one(control, stream, known).await
}

/// `known`: whoever asks is one of those who may.
async fn one(control: &Control, mut stream: impl AsyncRead + AsyncWrite + Unpin, known: bool) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    let path = loop {
        if stream.read_buf(&mut head).await? == 0 || head.len() > HEAD_BYTES_MAX {
            return Ok(());
        }
        let mut headers = [httparse::EMPTY_HEADER; 64];
        let mut request = httparse::Request::new(&mut headers);
        match request.parse(&head) {
            Ok(httparse::Status::Complete(_)) => {
                break (request.method == Some("GET")).then(|| request.path.unwrap_or_default().to_owned());
            }
            Ok(httparse::Status::Partial) => {}
            Err(_) => break None,
        }
    };
    let response = match path.as_deref().map(|p| p.split('?').next().unwrap_or_default()) {
        Some(_) if !known => answer_json(StatusCode::FORBIDDEN, &json!({"code": "not_allowed"})),
        Some("/metrics") => control.metrics_answer(),
        Some("/healthz/ready") => control.readiness(),
        Some("/healthz/live") => answer_json(StatusCode::OK, &json!({"live": true})),
        Some(_) => answer_json(StatusCode::NOT_FOUND, &json!({"code": "not_found"})),
        None => answer_json(StatusCode::BAD_REQUEST, &json!({"code": "bad_request"})),
    };
    stream.write_all(&encode(response).await).await?;
    stream.shutdown().await
}

async fn encode(response: Response<Body>) -> Vec<u8> {
    let (head, body) = response.into_parts();
    let body = body.collect().await.map(|b| b.to_bytes()).unwrap_or_default();
    let mut out = format!("HTTP/1.1 {}\r\n", head.status).into_bytes();
    for (name, value) in &head.headers {
        out.extend_from_slice(name.as_str().as_bytes());
        out.extend_from_slice(b": ");
        out.extend_from_slice(value.as_bytes());
        out.extend_from_slice(b"\r\n");
    }
    out.extend_from_slice(format!("content-length: {}\r\nconnection: close\r\n\r\n", body.len()).as_bytes());
    out.extend_from_slice(&body);
    out
}
