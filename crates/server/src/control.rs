//! The control role: everything HTTP that is no stream.
//!
//! Like the office beside the gates: the gates (gateway) let viewers in and hand over every other paper; the office reads
//! it, asks the shard, and hands an answer back through the same gate, piece by piece. It owns no socket and no truth: what
//! is true of a room is asked of the shard each time (but by those who only count there, see `facts`), and a write is answered
//! after its commit. A handler that panics costs
//! its own request and nothing else.
//!
//! [`Control::call`] is the whole role as one function, request in and response out; [`start`] runs it on its own thread
//! over the link. Bounds: 1 024 requests at a time (each connection has one), 8 exports.

mod access;
mod answer;
mod archive;
mod ask;
mod audit;
mod banners;
mod bucket;
mod comments;
mod demo;
mod entry;
mod export;
mod facts;
mod feeds;
mod gateways;
mod gifts;
mod health;
mod held;
mod internal;
mod ledger;
mod likes;
mod matches;
mod metrics;
mod moderation;
mod overview;
mod pages;
mod provider_keys;
mod reports;
mod rooms;
mod routes;
mod scores;
mod signature;
mod site_bans;
mod snapshot;
mod users;
mod webhooks;

use std::future::poll_fn;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use bytes::Bytes;
use grandstand_wire::codes::ErrorCode;
use http::header::{self, HeaderMap, HeaderName, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use tokio::sync::{Semaphore, mpsc, watch};
use tower::ServiceExt;

use crate::admission::Admission;
use crate::auth::door;
use crate::auth::keys::SigningKey;
use crate::auth::provider_keys::ProviderKeys;
use crate::auth::ticket::Tickets;
use crate::auth::token::Verifier;
use crate::config::Config;
use crate::early::Early;
use crate::link::host::Host;
use crate::link::{Full, HttpPart, HttpRequest, ShardHandle, Tallies, ToWorker, Workers};
use crate::metrics::Metrics;
use answer::Problem;

/// Requests answered at a time; the link holds as many again.
pub const REQUESTS_MAX: usize = 1024;
/// Exports running at a time: each holds a reader for a page after page.
const EXPORTS_MAX: usize = 8;
/// A task that failed is begun anew after so long.
const AFTER_FAULT: Duration = Duration::from_secs(1);
/// A part that finds its worker's mailbox full is offered again this often, for about 5 s.
const OFFER_EVERY: Duration = Duration::from_millis(5);
const OFFERS_MAX: u32 = 1000;

/// What control needs of the process.
#[derive(Clone)]
pub struct Deps {
    pub config: Arc<Config>,
    pub shard: ShardHandle,
    pub workers: Workers,
    pub verifier: Arc<Verifier>,
    /// Signs guests; `None` where the server has no key of its own.
    pub signing: Option<Arc<SigningKey>>,
    pub tickets: Arc<Tickets>,
    pub tallies: Tallies,
    pub metrics: Arc<Metrics>,
    pub admission: Arc<Admission>,
    pub provider_keys: Arc<ProviderKeys>,
    /// The links to gateway processes; `None` where the gateway is in this one.
    pub host: Option<Arc<Host>>,
}

/// The role's state, shared by all requests.
pub struct Control {
    deps: Deps,
    router: Router,
    snapshots: snapshot::Cache,
    known: facts::Known,
    looked: reports::Looked,
    score_rates: bucket::Buckets<Box<str>>,
    feeds: feeds::Feeds,
    guest_rates: bucket::Buckets<door::AddressKey>,
    early: Mutex<Early>,
    exports: Arc<Semaphore>,
    /// Held while `audit.jsonl` is written to.
    audit: Mutex<()>,
    demo: demo::Slot,
    webhooks: webhooks::Webhooks,
    /// What the pages may load and reach.
    policies: pages::Policies,
    /// Answers by the hundreds digit of their status, from 1xx.
    answered: [AtomicU64; 5],
    panics: AtomicU64,
}

type Shared = Arc<Control>;

impl Control {
    pub fn new(deps: Deps) -> Arc<Control> {
        let per_match = bucket::Rate { per_second: f64::from(deps.config.score_rate), burst: deps.config.score_burst };
        let per_minute = f64::from(deps.config.guests_per_minute);
        let guests = bucket::Rate { per_second: per_minute / 60.0, burst: deps.config.guests_per_minute };
        let exempt = deps.config.exempt.clone();
        Arc::new_cyclic(|weak| Control {
            router: routes::router(weak.clone()),
            policies: pages::Policies::new(&deps.config.endpoints, &deps.config.embedders),
            feeds: feeds::Feeds::new(deps.config.feeds),
            webhooks: webhooks::Webhooks::read(&deps.config.data, &deps.config.webhooks),
            deps,
            snapshots: snapshot::Cache::default(),
            known: facts::Known::default(),
            looked: reports::Looked::default(),
            score_rates: bucket::Buckets::new(per_match),
            guest_rates: bucket::Buckets::new(guests),
            early: Mutex::new(Early::new(exempt.clone())),
            exports: Arc::new(Semaphore::new(EXPORTS_MAX)),
            audit: Mutex::new(()),
            demo: demo::Slot::default(),
            answered: Default::default(),
            panics: AtomicU64::new(0),
        })
    }

    /// Answers one request. Never panics: a handler's panic is a 500.
    pub async fn call(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Body> {
        let origin = request.headers().get(header::ORIGIN).cloned();
        let checked = self.door(&request);
        let welcome = checked.is_ok();
        let mut response = match checked {
            Err(problem) => problem.response(),
            Ok(()) if request.method() == Method::OPTIONS => preflight(),
            Ok(()) => self.route(request, peer).await,
        };
        let headers = response.headers_mut();
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
        headers.append(header::VARY, HeaderValue::from_static("origin"));
        if let Some(origin) = origin.filter(|_| welcome) {
            headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("etag, retry-after"));
        }
        let class = usize::from(response.status().as_u16() / 100).clamp(1, 5) - 1;
        self.answered[class].fetch_add(1, Ordering::Relaxed);
        response
    }

    /// Whether the page and the name this request came by may use this server.
    fn door(&self, request: &Request<Bytes>) -> Result<(), Problem> {
        let headers = request.headers();
        let host = headers.get(header::HOST).and_then(|h| h.to_str().ok());
        let config = &self.deps.config;
        if config.development && !host.is_some_and(door::is_loopback_host) {
            return Err(Problem::new(ErrorCode::BadOrigin, "without a configuration the host must be this machine"));
        }
        let origins = headers.get_all(header::ORIGIN).iter().map(HeaderValue::as_bytes);
        if !door::may_enter(origins, host, &config.origins) {
            return Err(Problem::new(ErrorCode::BadOrigin, "this origin is not allowed here"));
        }
        Ok(())
    }

    async fn route(&self, request: Request<Bytes>, peer: SocketAddr) -> Response<Body> {
        let (mut head, body) = request.into_parts();
        head.extensions.insert(peer);
        // The gateway leaves the body out; the head is the same.
        if head.method == Method::HEAD {
            head.method = Method::GET;
        }
        let path = head.uri.path().to_owned();
        let call = self.router.clone().oneshot(Request::from_parts(head, Body::from(body)));
        let mut call = pin!(call);
        let answered = poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => Poll::Ready(Ok(answer)),
            Err(panic) => Poll::Ready(Err(panic)),
        })
        .await;
        let response = match answered {
            Ok(Ok(response)) => response,
            Ok(Err(never)) => match never {},
            Err(_) => {
                self.panics.fetch_add(1, Ordering::Relaxed);
                tracing::error!(path, "a request's handler panicked");
                Problem::new(ErrorCode::ServerFault, "the server failed at this request").response()
            }
        };
        if response.status() == StatusCode::METHOD_NOT_ALLOWED {
            let mut problem = Problem::new(ErrorCode::BadMethod, "this route does not have the method").response();
            if let Some(allow) = response.headers().get(header::ALLOW) {
                problem.headers_mut().insert(header::ALLOW, allow.clone());
            }
            return problem;
        }
        response
    }
}

fn preflight() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    let headers: &mut HeaderMap = response.headers_mut();
    let set = |headers: &mut HeaderMap, name: HeaderName, value| headers.insert(name, HeaderValue::from_static(value));
    set(headers, header::ACCESS_CONTROL_ALLOW_METHODS, "GET, HEAD, POST, PUT, DELETE");
    set(
        headers,
        header::ACCESS_CONTROL_ALLOW_HEADERS,
        "authorization, content-type, last-event-id, if-match, if-none-match",
    );
    set(headers, header::ACCESS_CONTROL_MAX_AGE, "600");
    response
}

/// The running role.
pub struct Running {
    stop: watch::Sender<bool>,
    thread: JoinHandle<()>,
    /// Where `/metrics` and `/healthz/ready` are, when they have an address of their own.
    pub internal: Option<SocketAddr>,
}

/// Starts the role's thread. `requests` is the other end of what the gateway holds.
/// Errors: the thread or the internal address cannot be had.
///
/// `internal_tls`: the internal address speaks it, and asks for a certificate.
pub fn start(
    deps: Deps,
    requests: mpsc::Receiver<HttpRequest>,
    internal_tls: Option<Arc<rustls::ServerConfig>>,
) -> std::io::Result<Running> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let internal = match deps.config.internal_listen {
        Some(address) => {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Some(listener)
        }
        None => None,
    };
    let address = internal.as_ref().map(std::net::TcpListener::local_addr).transpose()?;
    let (stop, stopped) = watch::channel(false);
    let clients: Arc<[_]> = deps.config.internal_clients.clone().into();
    let sealed = internal_tls.map(|config| internal::Sealed { acceptor: config.into(), clients });
    let control = Control::new(deps);
    let thread = std::thread::Builder::new().name("control".to_owned()).spawn(move || {
        runtime.block_on(async move {
            if let Some(listener) = internal {
                tokio::spawn(internal::serve(control.clone(), listener, sealed));
            }
            // They end with the runtime; a look that fails is followed by the next.
            tokio::spawn(kept("the watch over feeds", AFTER_FAULT, Arc::downgrade(&control), feeds::watch));
            tokio::spawn(kept("telling receivers", AFTER_FAULT, Arc::downgrade(&control), webhooks::run));
            serve(control, requests, stopped).await;
        });
    })?;
    Ok(Running { stop, thread, internal: address })
}

impl Running {
    /// Answers what was taken, at the latest for 3 s, and ends.
    pub fn stop(self) {
        let _ = self.stop.send(true);
        let _ = self.thread.join();
    }
}

/// A task that is begun anew, so much later, when a fault of its own ended it; it ends when the task does.
async fn kept<F: Future<Output = ()> + Send + 'static>(
    name: &'static str,
    after: Duration,
    control: Weak<Control>,
    begin: impl Fn(Weak<Control>) -> F,
) {
    while let Err(fault) = tokio::spawn(begin(control.clone())).await {
        if !fault.is_panic() {
            return;
        }
        tracing::error!(name, "a task panicked, and is begun anew");
        if let Some(control) = control.upgrade() {
            control.panics.fetch_add(1, Ordering::Relaxed);
        }
        tokio::time::sleep(after).await;
    }
}

async fn serve(control: Arc<Control>, mut requests: mpsc::Receiver<HttpRequest>, mut stopped: watch::Receiver<bool>) {
    let free = Arc::new(Semaphore::new(REQUESTS_MAX));
    loop {
        let permit = free.clone().acquire_owned().await.expect("this semaphore is never closed");
        let request = tokio::select! {
            request = requests.recv() => request,
            _ = stopped.wait_for(|s| *s) => None,
        };
        let Some(request) = request else { break };
        let control = control.clone();
        // One task a request; it ends with its answer, or when the connection is gone.
        tokio::spawn(async move {
            control.answer(request).await;
            drop(permit);
        });
    }
    control.demo.stop();
    let all = u32::try_from(REQUESTS_MAX).expect("the bound is small");
    let _ = tokio::time::timeout(Duration::from_secs(3), free.acquire_many(all)).await;
}

impl Control {
    /// Answers one request of the link, part by part.
    async fn answer(&self, request: HttpRequest) {
        let HttpRequest { request, peer, conn, flow } = request;
        let (head, mut body) = self.call(request, peer).await.into_parts();
        let send = async |part| {
            let mut item = ToWorker::Http { conn, part };
            for _ in 0..OFFERS_MAX {
                match self.deps.workers.send(conn.worker, item) {
                    Ok(()) => return true,
                    Err(Full(back)) => item = back,
                }
                if flow.is_closed() {
                    return false;
                }
                tokio::time::sleep(OFFER_EVERY).await;
            }
            tracing::warn!("an answer found no place in its worker's mailbox");
            false
        };
        use axum::body::HttpBody as _;
        if body.size_hint().exact().is_some() {
            // A body of known length is in memory already.
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            send(HttpPart::Whole { head, body }).await;
            return;
        }
        if !send(HttpPart::Head(head)).await {
            return;
        }
        loop {
            let frame = body.frame().await;
            match frame {
                None => {
                    send(HttpPart::End).await;
                    return;
                }
                Some(Ok(frame)) => {
                    let Ok(chunk) = frame.into_data() else { continue };
                    if flow.next().await.is_err() || !send(HttpPart::Chunk(chunk)).await {
                        return;
                    }
                }
                Some(Err(_)) => {
                    send(HttpPart::Broken).await;
                    return;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Weak;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::Duration;

    #[tokio::test]
    async fn a_task_that_panics_is_begun_anew_and_one_that_ends_is_not() {
        static BEGUN: AtomicU64 = AtomicU64::new(0);
        let task = |_| async {
            assert!(BEGUN.fetch_add(1, Ordering::Relaxed) == 2, "a fault for this test");
        };
        super::kept("a test", Duration::ZERO, Weak::new(), task).await;
        assert_eq!(BEGUN.load(Ordering::Relaxed), 3);
    }
}
