//! A source of webhooks: one message for each POST.

mod builder;
mod pending_requests;
mod request;
mod response;
mod wire;

pub use builder::HttpSourceBuilder;

use super::signature::Secret;
use async_trait::async_trait;
use axum::{Router, extract::Request, routing::post};
use builder::Settings;
use pending_requests::PendingRequests;
use postrider_core::{
    Ack, AckHandle, Capabilities, Finding, Invalid, ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// The longest `Retry-After` that Postrider's own transport obeys by default.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(60 * 60);
/// No sender needs a longer tolerance.
const WIDE_TOLERANCE: Duration = Duration::from_secs(15 * 60);

/// Receives webhooks: a [router](Self::router) for your own server. A request waits until its message is acked.
///
/// ```no_run
/// # use postrider_core::Source;
/// # use postrider_transports::http::{HttpSource, signature::Secret};
/// # async fn example(app: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
/// let source = HttpSource::builder("/hooks/orders")
///     .with_secret(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?)
///     .build()?;
/// let app = app.merge(source.router());
/// // Serve `app` with your server, over TLS, and pass `source` to a consumer.
/// # Ok(())
/// # }
/// ```
///
/// # Statuses
///
/// Every response but 204 and 405 has a JSON object: `code` is stable, `reason` is for people.
///
/// | status | code | condition |
/// |---|---|---|
/// | 204 | | [`Ack::Ack`] |
/// | 503, `Retry-After` | `nacked` | [`Ack::Nack`]; whole seconds, an hour at most |
/// | 422 | `rejected` | [`Ack::Reject`]. Postrider's transport stops retrying if it is configured with `HttpOptions::with_rejected` |
/// | 400 | `broken_off` | the connection ended before the body was complete |
/// | 401 | `signature_missing` | one of the three signature headers is missing |
/// | 401 | `signature_wrong` | no signature matches any of the secrets |
/// | 401 | `timestamp_too_old`, `timestamp_too_new`, `timestamp_unreadable` | the timestamp is outside the tolerance: possibly a replay |
/// | 405 | | the method is not POST |
/// | 408 | `too_slow` | the body did not arrive in time |
/// | 409, `Retry-After` | `in_flight` | a request with the same `webhook-id` is in flight |
/// | 413 | `too_large` | the body is longer than allowed; it is not read to its end |
/// | 415 | `batch`, `encoded` | several events in one request; a compressed body |
/// | 503, `Retry-After` | `full`, `closed` | too many requests in flight; the source is closed |
///
/// **A repeated id** is a duplicate, not an attack: a sender that missed the response has to retry, and needs a success then. So the request is
/// received like any other, and the consumer, which remembers the messages it has handled, acks it. The timestamp limits the use of a stolen
/// request: after the tolerance it is refused.
///
/// # Not guaranteed
///
/// That the sender receives a response: the result of [`Source::ack`] says whether the sender was still connected. Only the sender's own timeout
/// limits how long a message is in flight; when it expires, the ack is stale and the message is redelivered.
pub struct HttpSource {
    path: Arc<str>,
    settings: Arc<Settings>,
    pending: Arc<PendingRequests>,
    is_mounted: AtomicBool,
}

/// The content of an ack handle: the source's pending requests, and the number of one of them.
struct RequestHandle(Arc<PendingRequests>, u64);

impl HttpSource {
    /// A builder for a source of requests to `path`, such as `/hooks/orders`.
    pub fn builder(path: impl Into<String>) -> HttpSourceBuilder {
        HttpSourceBuilder::new(path.into())
    }

    /// Receives requests to `path` that are signed with `secret`.
    ///
    /// # Errors
    /// If `path` is not a valid path.
    pub fn new(path: impl Into<String>, secret: Secret) -> Result<Self, Invalid> {
        Self::builder(path).with_secret(secret).build()
    }

    /// The route. Merge it into, or nest it in, the router of your server.
    pub fn router(&self) -> Router {
        self.is_mounted.store(true, Relaxed);
        let (path, settings, pending) =
            (Arc::clone(&self.path), Arc::clone(&self.settings), Arc::clone(&self.pending));
        let handler = move |request: Request| {
            request::handle(Arc::clone(&path), Arc::clone(&settings), Arc::clone(&pending), request)
        };
        Router::new().route(&self.path, post(handler))
    }

    fn number(&self, handle: &AckHandle) -> Result<u64, SourceError> {
        match handle.downcast::<RequestHandle>() {
            Some(RequestHandle(pending, number)) if Arc::ptr_eq(pending, &self.pending) => Ok(*number),
            _ => Err(SourceError::stale("the message came from another source")),
        }
    }
}

fn stale_unless(is_pending: bool) -> Result<(), SourceError> {
    match is_pending {
        true => Ok(()),
        false => Err(SourceError::stale("the message was acked before, or its sender has disconnected")),
    }
}

impl Drop for HttpSource {
    /// No message can be acked any more.
    fn drop(&mut self) {
        self.pending.close();
    }
}

#[async_trait]
impl Source for HttpSource {
    fn kind(&self) -> &'static str {
        "http"
    }

    fn origin(&self) -> &str {
        &self.path
    }

    fn capabilities(&self) -> Capabilities {
        // Each request has its own response: batching acks gains nothing.
        Capabilities::new(1).with_max_delay(MAX_RETRY_AFTER)
    }

    async fn receive(&self, most: usize) -> Result<Vec<ReceivedMessage>, SourceError> {
        loop {
            let change = self.pending.change.notified();
            let taken =
                self.pending.take(most).ok_or_else(|| SourceError::unavailable("the source is closed"))?;
            if !taken.is_empty() {
                let handle = |number| AckHandle::new(RequestHandle(Arc::clone(&self.pending), number));
                let message = |(number, incoming)| ReceivedMessage::new(incoming, handle(number));
                return Ok(taken.into_iter().map(message).collect());
            }
            change.await;
        }
    }

    async fn ack(&self, acks: &[(AckHandle, Ack)]) -> Vec<Result<(), SourceError>> {
        let respond =
            |(handle, ack): &(AckHandle, Ack)| stale_unless(self.pending.respond(self.number(handle)?, *ack));
        acks.iter().map(respond).collect()
    }

    async fn extend(&self, handles: &[AckHandle]) -> Vec<Result<(), SourceError>> {
        handles.iter().map(|handle| stale_unless(self.pending.contains(self.number(handle)?))).collect()
    }

    async fn redelivery_window(&self) -> Result<RedeliveryWindow, SourceError> {
        Ok(match self.settings.resend_window {
            Some(longest) => RedeliveryWindow::within(longest, format!("with_resend_window is {longest:?}")),
            None => RedeliveryWindow::unbounded("only the sender knows it; set it with with_resend_window"),
        })
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        if !self.is_mounted.load(Relaxed) {
            findings.push(
                Finding::problem("not_mounted", self.origin())
                    .because("the router of the source is not mounted: no request can arrive")
                    .fixed_by("merge `HttpSource::router` into the router of your server"),
            );
        }
        if self.settings.secrets.is_empty() {
            findings.push(
                Finding::warning("unsigned", self.origin())
                    .because("the webhook endpoint accepts unsigned requests from everybody who can reach it")
                    .fixed_by("share a secret with the senders, and set it with `with_secret`"),
            );
        } else if self.settings.tolerance > WIDE_TOLERANCE {
            findings.push(
                Finding::warning("wide_tolerance", self.origin())
                    .because(format!("a captured request can be replayed for {:?}", self.settings.tolerance))
                    .fixed_by("leave the tolerance at 5 minutes, and synchronize the clocks of the senders"),
            );
        }
        Ok(findings)
    }

    async fn close(&self) {
        self.pending.close();
    }
}

impl fmt::Debug for HttpSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpSource")
            .field("path", &self.path)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
