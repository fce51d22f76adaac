//! Receives: one message for each POST.

mod builder;
mod desk;
mod reply;
mod request;
mod wire;

pub use builder::HttpSourceBuilder;

use super::signature::Secret;
use async_trait::async_trait;
use axum::{Router, extract::Request, routing::post};
use builder::Settings;
use desk::Desk;
use postrider_core::{Abilities, Answer, Finding, Invalid, Parcel, Redelivers, Source, SourceError, Ticket};
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

/// What senders like ours obey, unless told otherwise.
const LONGEST_DELAY: Duration = Duration::from_secs(60 * 60);
/// For longer, nobody needs a request to be good.
const WIDE: Duration = Duration::from_secs(15 * 60);

/// Receives webhooks: a [router](Self::router) for your own server. A request waits until its message was answered.
///
/// ```no_run
/// # use postrider_core::Source;
/// # use postrider_transports::http::{HttpSource, signature::Secret};
/// # async fn example(app: axum::Router) -> Result<(), Box<dyn std::error::Error>> {
/// let source = HttpSource::builder("/hooks/orders")
///     .with_secret(Secret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")?)
///     .build()?;
/// let app = app.merge(source.router());
/// // Serve `app` as you do, over TLS, and give `source` to a consumer.
/// # Ok(())
/// # }
/// ```
///
/// # Statuses
///
/// Every status but 204 and 405 comes with a JSON object: `code` never changes, `reason` is for people.
///
/// | status | code | when |
/// |---|---|---|
/// | 204 | | [`Answer::Done`] |
/// | 503, `Retry-After` | `again` | [`Answer::Again`]; whole seconds, an hour at most |
/// | 422 | `refused` | [`Answer::Refuse`]. Senders like ours give up where told to: `HttpOptions::with_rejected` |
/// | 401 | `signature_missing` | a header of the three is missing |
/// | 401 | `signature_wrong` | no signature is by any of the secrets |
/// | 401 | `timestamp_too_old`, `timestamp_too_new`, `timestamp_unreadable` | it is not from now: perhaps somebody sends again what was not theirs |
/// | 405 | | it is no POST |
/// | 408 | `too_slow` | the body did not come in time |
/// | 409, `Retry-After` | `in_hand` | a request with the same `webhook-id` waits for its answer |
/// | 413 | `too_large` | the body is longer than allowed; it is not read to its end |
/// | 415 | `batch`, `encoded` | several events in one request; a body that is compressed |
/// | 503, `Retry-After` | `full`, `closed` | too many requests wait; nobody receives |
///
/// **The same id again** is a duplicate, not a crime: a sender that has not heard the answer must send again, and has to be told that all is well.
/// So it is received like any other, and the consumer, who knows what it has done, answers it. What keeps a stolen request from
/// being of use is its time: after the tolerance it is not believed any more.
///
/// # What is not promised
///
/// That the sender hears an answer: [`Source::answer`] tells whether it still waited. Nothing limits how long a message is in hand but
/// the sender's own timeout; when that strikes, the answer is stale and the message comes again.
pub struct HttpSource {
    path: Arc<str>,
    settings: Arc<Settings>,
    desk: Arc<Desk>,
    is_mounted: AtomicBool,
}

/// Which request, and at which desk.
struct Held(Arc<Desk>, u64);

impl HttpSource {
    /// Receives what is posted to `path`, such as `/hooks/orders`.
    pub fn builder(path: impl Into<String>) -> HttpSourceBuilder {
        HttpSourceBuilder::new(path.into())
    }

    /// Receives what is posted to `path` and signed with `secret`.
    ///
    /// # Errors
    /// When that is no path.
    pub fn new(path: impl Into<String>, secret: Secret) -> Result<Self, Invalid> {
        Self::builder(path).with_secret(secret).build()
    }

    /// The route, to be merged into or nested in the router of your server.
    pub fn router(&self) -> Router {
        self.is_mounted.store(true, Relaxed);
        let (path, settings, desk) =
            (Arc::clone(&self.path), Arc::clone(&self.settings), Arc::clone(&self.desk));
        let answer = move |request: Request| {
            request::answer(Arc::clone(&path), Arc::clone(&settings), Arc::clone(&desk), request)
        };
        Router::new().route(&self.path, post(answer))
    }

    fn number(&self, ticket: &Ticket) -> Result<u64, SourceError> {
        match ticket.inside::<Held>() {
            Some(Held(desk, number)) if Arc::ptr_eq(desk, &self.desk) => Ok(*number),
            _ => Err(SourceError::stale("another source received it")),
        }
    }
}

fn gone(is_there: bool) -> Result<(), SourceError> {
    match is_there {
        true => Ok(()),
        false => Err(SourceError::stale("it was answered before, or its sender has gone")),
    }
}

impl Drop for HttpSource {
    /// Nobody is left to answer.
    fn drop(&mut self) {
        self.desk.close();
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

    fn abilities(&self) -> Abilities {
        // Each request has its own answer: nothing is won by collecting them.
        Abilities::answering(1).delaying(LONGEST_DELAY)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        loop {
            let change = self.desk.change.notified();
            let taken = self.desk.take(most).ok_or_else(|| SourceError::down("it was closed"))?;
            if !taken.is_empty() {
                let ticket = |number| Ticket::new(Held(Arc::clone(&self.desk), number));
                let parcel = |(number, incoming)| Parcel::new(incoming, ticket(number));
                return Ok(taken.into_iter().map(parcel).collect());
            }
            change.await;
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let tell = |(ticket, answer): &(Ticket, Answer)| gone(self.desk.tell(self.number(ticket)?, *answer));
        answers.iter().map(tell).collect()
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        tickets.iter().map(|ticket| gone(self.desk.has(self.number(ticket)?))).collect()
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        Ok(match self.settings.resends_for {
            Some(longest) => Redelivers::within(longest, format!("with_resends_for says {longest:?}")),
            None => Redelivers::for_ever("only its sender knows; say it with with_resends_for"),
        })
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let mut findings = Vec::new();
        if !self.is_mounted.load(Relaxed) {
            findings.push(
                Finding::problem("not_mounted", self.origin())
                    .because("nobody has asked for its router: no request can come")
                    .fixed_by("merge `HttpSource::router` into the router of your server"),
            );
        }
        if self.settings.secrets.is_empty() {
            findings.push(
                Finding::warning("unsigned", self.origin())
                    .because("whoever can reach it is believed")
                    .fixed_by("share a secret with the senders, and give it with `with_secret`"),
            );
        } else if self.settings.tolerance > WIDE {
            findings.push(
                Finding::warning("wide_tolerance", self.origin())
                    .because(format!(
                        "a request that somebody got hold of is believed again for {:?}",
                        self.settings.tolerance
                    ))
                    .fixed_by("leave the tolerance at 5 minutes, and set the clocks of the senders"),
            );
        }
        Ok(findings)
    }

    async fn close(&self) {
        self.desk.close();
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
