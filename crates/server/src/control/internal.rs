//! The internal address: `/metrics` and the health routes for those who run the server, on a port of their own.
//!
//! One request a connection, read whole and bounded, answered and closed. It serves nothing else, so it needs nothing else.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http::{Response, StatusCode};
use http_body_util::BodyExt;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use super::Control;
use super::answer::json as answer_json;

const CONNECTIONS_MAX: usize = 32;
const HEAD_BYTES_MAX: usize = 8 * 1024;
const WAIT: Duration = Duration::from_secs(5);

/// Serves until the runtime ends.
pub async fn serve(control: Arc<Control>, listener: std::net::TcpListener) {
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
        let control = control.clone();
        tokio::spawn(async move {
            let _ = tokio::time::timeout(WAIT, one(&control, stream)).await;
            drop(permit);
        });
    }
}

async fn one(control: &Control, mut stream: TcpStream) -> std::io::Result<()> {
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
