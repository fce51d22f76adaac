//! A transport of webhooks: one POST for each message.
//!
//! Messages are encoded with the HTTP binding of CloudEvents 1.0, or plain, and signed as Standard Webhooks. A destination is a whole
//! URL, or a path below a base URL, depending on the options.

mod check;
mod error;
mod guard;
mod hosts;
mod options;
mod refusals;
mod status;
mod target;
mod wire;

pub use options::HttpOptions;

use super::signature;
use async_trait::async_trait;
use error::RequestError;
use futures_util::future::join_all;
use guard::{AddressGuard, Resolver};
use hosts::Hosts;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use refusals::Refusals;
use reqwest::{Client, Response, Url, redirect, retry};
use std::{
    collections::BTreeSet,
    fmt,
    sync::Arc,
    time::{Duration, SystemTime},
};
use tokio::{
    sync::RwLock,
    time::{Instant, timeout_at},
};

/// How much of a response body is read.
const READ_BYTES: usize = 16 * 1024;
/// How much of a response body is quoted in an error.
const QUOTED_CHARS: usize = 200;
/// Many servers close idle connections after five seconds. The outcome of a request on a connection that is being closed is unknown.
const IDLE_TIMEOUT: Duration = Duration::from_secs(4);

type PublishResult = Result<Receipt, PublishError>;

/// Sends messages to webhooks. Cheap to clone; clones share everything.
///
/// ```no_run
/// # use postrider_core::{Invalid, Transport};
/// # use postrider_transports::http::{HttpOptions, HttpTransport, signature::Secret};
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let options = HttpOptions::below("https://shop.example/hooks")?
///     .with_secret(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?);
/// let transport = HttpTransport::new(options)?;
/// for finding in transport.check(&["orders"]).await? {
///     println!("{}: {} {}", finding.severity, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Publish results
///
/// | event | publish result |
/// |---|---|
/// | 2xx, and the body was read to its end or to the limit | accepted |
/// | 410 | rejected permanently; no more messages are sent to that URL, see [`HttpTransport::gone`] |
/// | 413, 414, 415, 431, and statuses of [`HttpOptions::with_rejected`] | rejected permanently |
/// | 401, 403, 404, 429 or 5xx, for the last ten different messages to that URL | address unavailable |
/// | every other status, including 3xx | retry; `Retry-After` is obeyed, up to a limit |
/// | an invalid URL, http or a private address in it, headers that HTTP cannot carry | rejected permanently |
/// | no address or only a private one, no connection, no TLS | see below |
/// | a timeout, a reset, a truncated response | unknown |
/// | the concurrency limit of the host left no time | retry; nothing was sent |
///
/// **A host that is unreachable** did not get the message. Below a base URL that host is the destination, and the result is
/// unavailable: the relay waits, and no attempts are used up. If destinations are whole URLs, one unreachable host must not stop
/// the others: its messages are retried. Only a batch in which several hosts were tried and none was reached is unavailable.
///
/// Redirects are never followed, proxies of the environment are not used, there are no cookies, and no request is sent twice.
/// Requests of one batch run concurrently, so they may arrive in another order. On a queue ordered by key the relay
/// sends the next message of a key only when the one before was accepted.
#[derive(Clone)]
pub struct HttpTransport(Arc<Inner>);

struct Inner {
    options: HttpOptions,
    guard: Arc<AddressGuard>,
    hosts: Hosts,
    refusals: Refusals,
    /// `None` when closed. Calls hold the read lock; closing takes the write lock, and so waits for all calls.
    client: RwLock<Option<Client>>,
}

/// The outcome of sending one message.
enum SendOutcome {
    /// The message was not sent.
    NotSent(PublishError),
    /// The host was reached.
    Reached(PublishResult),
    /// The host was not reached.
    Unreachable { origin: String, why: String },
}

impl HttpTransport {
    /// Validates the options. Connections are opened when messages are published.
    ///
    /// # Errors
    /// Names the invalid option.
    pub fn new(mut options: HttpOptions) -> Result<Self, Invalid> {
        options.check()?;
        options.add_authorization()?;
        let guard = Arc::new(options.guard.clone());
        let mut tls = postrider_tls::client_config(&options.client)?;
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let mut client = Client::builder()
            .tls_backend_preconfigured(tls)
            .dns_resolver(Resolver(Arc::clone(&guard)))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.client.connect_timeout())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(options.concurrency);
        if let Some(idle) = options.client.keepalive() {
            client = client.tcp_keepalive(idle);
        }
        let client = client
            .build()
            .map_err(|error| Invalid::rule("options", format!("cannot create an HTTP client: {error}")))?;
        let hosts = Hosts::new(options.concurrency);
        let (refusals, client) = (Refusals::default(), RwLock::new(Some(client)));
        Ok(Self(Arc::new(Inner { options, guard, hosts, refusals, client })))
    }

    /// The URLs that responded with 410. No more messages are sent to them, until a new transport is created.
    pub fn gone(&self) -> Vec<String> {
        self.0.hosts.gone()
    }
}

impl Inner {
    async fn send(&self, client: &Client, outgoing: &Outgoing, deadline: Instant) -> SendOutcome {
        let rejected = |why: String| SendOutcome::NotSent(PublishError::reject(why));
        let url = match self.options.targets.url(&outgoing.destination, &self.guard) {
            Ok(url) => url,
            Err(wrong) => return rejected(wrong.to_string()),
        };
        let mut headers = match wire::headers(outgoing, &self.options.headers) {
            Ok(headers) => headers,
            Err(why) => return rejected(why),
        };
        let origin = target::origin(&url);
        let permits = self.hosts.permits(&origin);
        // A request that is sent at the last moment gets no response in time.
        let latest = deadline - self.options.timeout() / 4;
        let permit = timeout_at(latest, permits.acquire()).await;
        let Some(_permit) = permit.ok().and_then(Result::ok).filter(|_| Instant::now() < latest) else {
            let why = format!(
                "not sent: other requests to {origin} used up the timeout; raise `with_concurrency` or the request timeout"
            );
            return SendOutcome::NotSent(PublishError::retry(why));
        };
        // Checked here: the URL may have responded with 410 while this message waited.
        if self.hosts.is_gone(&url) {
            let why = format!("not sent: the URL at {origin} is gone: it responded with 410 before");
            return SendOutcome::NotSent(PublishError::reject(why).named("Http410"));
        }
        if !self.options.secrets.is_empty() {
            let (id, timestamp) = (outgoing.id.to_string(), signature::timestamp(SystemTime::now()));
            let signature = signature::sign(&self.options.secrets, &id, &timestamp, &outgoing.body);
            let signed =
                [(signature::ID, id), (signature::TIMESTAMP, timestamp), (signature::SIGNATURE, signature)];
            for (name, text) in signed {
                match wire::value(name, &text) {
                    Ok(value) => headers.insert(name, value),
                    Err(why) => return rejected(why),
                };
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let request = client.post(url.clone()).headers(headers).body(outgoing.body.clone()).timeout(left);
        match request.send().await.map_err(RequestError::from) {
            Ok(response) => SendOutcome::Reached(self.read(response, outgoing, &url, &origin).await),
            Err(RequestError::NoResponse(why)) => {
                SendOutcome::Reached(Err(PublishError::unknown(format!("{origin} did not respond: {why}"))))
            }
            // A name with a private address is no sign that other hosts are unreachable.
            Err(RequestError::PrivateAddress(why)) if !self.options.targets.has_base() => {
                SendOutcome::NotSent(PublishError::retry(why).named("PrivateAddress"))
            }
            Err(
                RequestError::PrivateAddress(why)
                | RequestError::Dns(why)
                | RequestError::Certificate(why)
                | RequestError::Connect(why),
            ) => SendOutcome::Unreachable { why: format!("{origin} is unreachable: {why}"), origin },
        }
    }

    async fn read(
        &self,
        mut response: Response,
        outgoing: &Outgoing,
        url: &Url,
        origin: &str,
    ) -> PublishResult {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut body = Vec::new();
        let end = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if body.len() + chunk.len() < READ_BYTES => body.extend_from_slice(&chunk),
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = end
            && status.is_success()
        {
            let error = error.without_url();
            return Err(PublishError::unknown(format!("the response of {origin} was truncated: {error}")));
        }
        if status == reqwest::StatusCode::GONE && !self.options.classifier.accepted.contains(&status.as_u16())
        {
            self.hosts.mark_gone(url);
        }
        let body: String = String::from_utf8_lossy(&body).chars().take(QUOTED_CHARS).collect();
        let result =
            self.options.classifier.classify(origin, status, &headers, body.trim(), SystemTime::now());
        let is_unavailable = self.refusals.record(url, outgoing.id, status, result.is_ok());
        result.map_err(|error| if is_unavailable { refusals::unavailable(error) } else { error })
    }

    /// Decides whether unreachable hosts are an error of their own messages, or an outage of the destination.
    fn publish_results(&self, outcomes: Vec<SendOutcome>) -> Vec<PublishResult> {
        let is_any_reached = outcomes.iter().any(|each| matches!(each, SendOutcome::Reached(_)));
        let unreachable = outcomes.iter().filter_map(|each| match each {
            SendOutcome::Unreachable { origin, .. } => Some(origin),
            _ => None,
        });
        let are_several = unreachable.collect::<BTreeSet<_>>().len() > 1;
        let is_outage = !is_any_reached && (are_several || self.options.targets.has_base());
        let result = |each| match each {
            SendOutcome::NotSent(error) => Err(error),
            SendOutcome::Reached(result) => result,
            SendOutcome::Unreachable { why, .. } if is_outage => Err(PublishError::unavailable(why)),
            SendOutcome::Unreachable { why, .. } => Err(PublishError::retry(why).named("Unreachable")),
        };
        outcomes.into_iter().map(result).collect()
    }
}

#[async_trait]
impl Transport for HttpTransport {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn capacity(&self) -> Capacity {
        Capacity::of(self.0.options.batch)
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<PublishResult> {
        let client = self.0.client.read().await;
        let Some(client) = client.as_ref() else {
            return batch.iter().map(|_| Err(PublishError::unavailable("the transport is closed"))).collect();
        };
        let deadline = Instant::now() + self.0.options.timeout();
        let sending = batch.iter().map(|outgoing| self.0.send(client, outgoing, deadline));
        self.0.publish_results(join_all(sending).await)
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let client = self.0.client.read().await;
        let client = client.as_ref().ok_or_else(|| PublishError::unavailable("the transport is closed"))?;
        Ok(self.0.findings(client, destinations).await)
    }

    async fn close(&self) {
        self.0.client.write().await.take();
    }
}

impl fmt::Debug for HttpTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpTransport").field("options", &self.0.options).finish_non_exhaustive()
    }
}
