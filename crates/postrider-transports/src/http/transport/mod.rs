//! Sends: one POST for each message.
//!
//! Messages are written by the HTTP binding of CloudEvents 1.0, or plain, and signed as Standard Webhooks. What a
//! destination's name is, depends on the options: a whole URL, or a path below a base URL.

mod answer;
mod check;
mod guard;
mod hosts;
mod options;
mod target;
mod tls;
mod trouble;
mod wire;

pub use options::HttpOptions;

use super::signature;
use async_trait::async_trait;
use futures_util::future::join_all;
use guard::{Guard, Resolver};
use hosts::Hosts;
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
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
use trouble::Trouble;

/// So much of an answer is read; it is not for us.
const READ_BYTES: usize = 16 * 1024;
/// So much of it is repeated when it is a refusal.
const TOLD_CHARS: usize = 200;
/// Many servers end idle connections after five seconds. A request that meets the end is one that nobody knows of.
const IDLE_FOR: Duration = Duration::from_secs(4);

type Answer = Result<Receipt, PublishError>;

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
/// # Answers
///
/// | what happened | answer |
/// |---|---|
/// | 2xx, and its body came to an end or to the limit | accepted |
/// | 410 | refused for good; that URL is sent nothing any more, see [`HttpTransport::gone`] |
/// | 413, 414, 415, 431, and what [`HttpOptions::with_rejected`] says | refused for good |
/// | every other status, 3xx among them | refused for now; `Retry-After` is obeyed, up to a limit |
/// | no URL, http or a private address in it, headers that HTTP cannot carry | refused for good |
/// | no address or only a private one, no connection, no TLS | see below |
/// | a timeout, a reset, an answer that was cut off | nobody knows |
/// | no turn at its host in time | refused for now; nothing was sent |
///
/// **A host that cannot be reached** did not get the message. Below a base URL that host is the destination, and the answer is
/// that nothing gets through: the relay waits, and no attempts are used up. Where destinations are whole URLs, one host that is
/// missing must not stop the others: its messages are refused for now. Only a batch in which several hosts were tried and none
/// was reached says that nothing gets through.
///
/// Redirects are never followed, proxies of the environment are not used, there are no cookies, and nothing is sent twice.
/// Requests of one batch run side by side, so the order of a batch is not that of arrival. On a queue ordered by key the relay
/// sends the next message of a key only when the one before was accepted.
#[derive(Clone)]
pub struct HttpTransport(Arc<Inner>);

struct Inner {
    options: HttpOptions,
    guard: Arc<Guard>,
    hosts: Hosts,
    /// Nobody has it for long but closing, which waits for everybody else.
    client: RwLock<Option<Client>>,
}

/// What became of one message.
enum Tried {
    /// It was not sent.
    Refused(PublishError),
    /// Its host was reached.
    Reached(Answer),
    /// Its host was not.
    Unreachable { origin: String, why: String },
}

impl HttpTransport {
    /// Checks the options. Connections are made when there is something to send.
    ///
    /// # Errors
    /// Names the option that makes no sense.
    pub fn new(options: HttpOptions) -> Result<Self, Invalid> {
        options.check()?;
        let guard = Arc::new(options.guard.clone());
        let client = Client::builder()
            .tls_backend_preconfigured(tls::config(options.roots.clone())?)
            .dns_resolver(Resolver(Arc::clone(&guard)))
            .no_proxy()
            .redirect(redirect::Policy::none())
            .retry(retry::never())
            .referer(false)
            .user_agent(concat!("postrider/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(options.connect_timeout)
            .pool_idle_timeout(IDLE_FOR)
            .pool_max_idle_per_host(options.at_once)
            .build()
            .map_err(|error| Invalid::rule("options", format!("make no client: {error}")))?;
        let hosts = Hosts::new(options.at_once);
        Ok(Self(Arc::new(Inner { options, guard, hosts, client: RwLock::new(Some(client)) })))
    }

    /// The URLs that answered 410. They are sent nothing any more, until a new transport is made.
    pub fn gone(&self) -> Vec<String> {
        self.0.hosts.gone()
    }
}

impl Inner {
    async fn send(&self, client: &Client, outgoing: &Outgoing, deadline: Instant) -> Tried {
        let refused = |why: String| Tried::Refused(PublishError::reject(why));
        let url = match self.options.targets.url(&outgoing.destination, &self.guard) {
            Ok(url) => url,
            Err(wrong) => return refused(wrong.to_string()),
        };
        let mut headers = match wire::headers(outgoing, &self.options.headers) {
            Ok(headers) => headers,
            Err(why) => return refused(why),
        };
        let origin = target::origin(&url);
        let turns = self.hosts.turns(&origin);
        // Whoever would be sent at the last moment would not be answered in time.
        let latest = deadline - self.options.timeout / 4;
        let turn = timeout_at(latest, turns.acquire()).await;
        let Some(_turn) = turn.ok().and_then(Result::ok).filter(|_| Instant::now() < latest) else {
            let why = format!("not sent: other requests to {origin} took all the time");
            return Tried::Refused(PublishError::retry(why));
        };
        // Asked now: it may have gone while this one waited.
        if self.hosts.is_gone(&url) {
            let why = format!("not sent: the URL at {origin} is gone, it answered 410 before");
            return Tried::Refused(PublishError::reject(why).named("Http410"));
        }
        if !self.options.secrets.is_empty() {
            let (id, timestamp) = (outgoing.id.to_string(), signature::timestamp(SystemTime::now()));
            let signature = signature::sign(&self.options.secrets, &id, &timestamp, &outgoing.body);
            let signed =
                [(signature::ID, id), (signature::TIMESTAMP, timestamp), (signature::SIGNATURE, signature)];
            for (name, text) in signed {
                match wire::value(name, &text) {
                    Ok(value) => headers.insert(name, value),
                    Err(why) => return refused(why),
                };
            }
        }
        let left = deadline.saturating_duration_since(Instant::now());
        let request = client.post(url.clone()).headers(headers).body(outgoing.body.clone()).timeout(left);
        match request.send().await.map_err(Trouble::from) {
            Ok(response) => Tried::Reached(self.read(response, &url, &origin).await),
            Err(Trouble::Silence(why)) => {
                Tried::Reached(Err(PublishError::unknown(format!("{origin} did not answer: {why}"))))
            }
            // Names that lead inside are no sign that others cannot be reached.
            Err(Trouble::Private(why)) if !self.options.targets.are_below_one() => {
                Tried::Refused(PublishError::retry(why).named("PrivateAddress"))
            }
            Err(
                Trouble::Private(why)
                | Trouble::Name(why)
                | Trouble::Certificate(why)
                | Trouble::Connection(why),
            ) => Tried::Unreachable { why: format!("{origin} cannot be reached: {why}"), origin },
        }
    }

    async fn read(&self, mut response: Response, url: &Url, origin: &str) -> Answer {
        let (status, headers) = (response.status(), response.headers().clone());
        let mut said = Vec::new();
        let end = loop {
            match response.chunk().await {
                Ok(Some(chunk)) if said.len() + chunk.len() < READ_BYTES => said.extend_from_slice(&chunk),
                Ok(_) => break Ok(()),
                Err(error) => break Err(error),
            }
        };
        if let Err(error) = end
            && status.is_success()
        {
            let error = error.without_url();
            return Err(PublishError::unknown(format!("the answer of {origin} was cut off: {error}")));
        }
        if status == reqwest::StatusCode::GONE && !self.options.reading.accepted.contains(&status.as_u16()) {
            self.hosts.went(url);
        }
        let said: String = String::from_utf8_lossy(&said).chars().take(TOLD_CHARS).collect();
        self.options.reading.answer(origin, status, &headers, said.trim(), SystemTime::now())
    }

    /// Whether hosts that were not reached are a matter of their messages, or of everything.
    fn judge(&self, tried: Vec<Tried>) -> Vec<Answer> {
        let is_any_there = tried.iter().any(|each| matches!(each, Tried::Reached(_)));
        let missing = tried.iter().filter_map(|each| match each {
            Tried::Unreachable { origin, .. } => Some(origin),
            _ => None,
        });
        let are_several = missing.collect::<BTreeSet<_>>().len() > 1;
        let is_down = !is_any_there && (are_several || self.options.targets.are_below_one());
        let answer = |each| match each {
            Tried::Refused(error) => Err(error),
            Tried::Reached(answer) => answer,
            Tried::Unreachable { why, .. } if is_down => Err(PublishError::down(why)),
            Tried::Unreachable { why, .. } => Err(PublishError::retry(why).named("Unreachable")),
        };
        tried.into_iter().map(answer).collect()
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

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Answer> {
        let client = self.0.client.read().await;
        let Some(client) = client.as_ref() else {
            return batch.iter().map(|_| Err(PublishError::down("it was closed"))).collect();
        };
        let deadline = Instant::now() + self.0.options.timeout;
        let sending = batch.iter().map(|outgoing| self.0.send(client, outgoing, deadline));
        self.0.judge(join_all(sending).await)
    }

    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let client = self.0.client.read().await;
        let client = client.as_ref().ok_or_else(|| PublishError::down("it was closed"))?;
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
