//! RabbitMQ, by AMQP 0-9-1.
//!
//! A message is accepted when the broker has confirmed it *and* has not returned it ([`batch`](self) tells why both matter). Messages
//! are persistent, mandatory, and carry their id as `message_id`.
//!
//! | what happens | answer |
//! |---|---|
//! | confirmed, not returned | accepted |
//! | returned: no queue is bound, or the queue does not exist | refused for now, with exchange and routing key |
//! | the exchange does not exist, or may not be written to | refused for now |
//! | nacked: a queue is full and rejects | refused for now |
//! | too large, or nothing that AMQP can carry | refused for good |
//! | memory or disk alarm (`connection.blocked`) | down, before anything is sent; what is under way waits |
//! | connection or channel lost with messages under way | nobody knows |
//! | no connection | down |
//!
//! **One bad message harms only itself.** A broker closes the channel on which something was published to a missing exchange, and
//! forgets about everything else that was under way there. So the messages of a batch go on one channel for each exchange. Where the
//! broker closes one for the sake of a single message and does not say which, the next messages to that exchange are sent one by one, until
//! all of them got through.

mod address;
mod batch;
mod broker;
mod check;
mod line;
mod probe;
mod source;
mod wire;

pub use source::{RabbitMqSource, RabbitMqSourceBuilder};

use async_trait::async_trait;
use batch::Answer;
use broker::BrokerOptions;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream};
use lapin::types::ShortString;
use line::{Line, Lines, NoLine};
use postrider_core::{Capacity, Finding, Invalid, Outgoing, PublishError, Receipt, Transport};
use std::{
    collections::BTreeSet,
    fmt,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};
use tokio::{sync::RwLock, time::timeout};
use wire::Parcel;

/// So many exchanges of one batch are published to at one moment.
const EXCHANGES_AT_ONCE: usize = 8;

/// How RabbitMQ is reached, and what is written.
///
/// ```
/// # use postrider_transports::rabbitmq::RabbitMqOptions;
/// # use std::time::Duration;
/// let rabbitmq = RabbitMqOptions::new("amqps://relay:secret@rabbit.example/shop")
///     .with_connect_timeout(Duration::from_secs(5))
///     .with_prefix("cloudEvents:")
///     .build()?;
/// # Ok::<(), postrider_core::Invalid>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until they are built"]
pub struct RabbitMqOptions {
    broker: BrokerOptions,
    prefix: String,
    connect_within: Duration,
    batch: usize,
    message_bytes: usize,
}

impl RabbitMqOptions {
    /// The broker at `url`: `amqp://user:password@host:port/vhost`, or `amqps://` for TLS. Without a path the virtual host is `/`; in
    /// the path it is written `%2f`.
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            broker: BrokerOptions::new(url.into()),
            prefix: "ce-".to_owned(),
            connect_within: Duration::from_secs(10),
            batch: 500,
            message_bytes: 16 << 20,
        }
    }

    /// What the names of CloudEvents attributes begin with; `ce-` unless said otherwise. The binding for AMQP 1.0 has `cloudEvents_` and
    /// `cloudEvents:`.
    pub fn with_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.prefix = prefix.into();
        self
    }

    /// Trusts the certificates in this file of the format PEM, instead of Mozilla's, which are compiled in.
    pub fn with_root_certificates(mut self, file: impl Into<PathBuf>) -> Self {
        self.broker.root_certificates = Some(file.into());
        self
    }

    /// Shows this certificate; both files have the format PEM.
    pub fn with_client_certificate(
        mut self,
        certificate: impl Into<PathBuf>,
        key: impl Into<PathBuf>,
    ) -> Self {
        self.broker.client_certificate = Some((certificate.into(), key.into()));
        self
    }

    /// Waits so long for a connection, a channel, and the goodbye; 10 seconds unless said otherwise.
    pub fn with_connect_timeout(mut self, within: Duration) -> Self {
        self.connect_within = within;
        self
    }

    /// Takes up to so many messages at once; 500 unless said otherwise.
    pub fn with_batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Refuses messages of more bytes; 16 MiB unless said otherwise, which is what RabbitMQ 4 takes by default (`max_message_size`).
    pub fn with_message_bytes(mut self, bytes: usize) -> Self {
        self.message_bytes = bytes;
        self
    }

    /// Checks everything, and makes the transport. It connects when it first publishes.
    ///
    /// # Errors
    /// Names the first setting that makes no sense, and says what does. It never shows the URL, which may hold a password.
    pub fn build(self) -> Result<RabbitMqTransport, Invalid> {
        let wrong = |field: &'static str, rule: &'static str| Err(Invalid::rule(field, rule));
        let broker = self.broker.broker()?;
        if self.connect_within.is_zero() {
            return wrong("connect_timeout", "is zero; no connection could be made");
        }
        if self.batch == 0 || self.message_bytes == 0 {
            return wrong("batch", "takes nothing; give at least 1");
        }
        if self.prefix.is_empty() || self.prefix.len() > 32 || !self.prefix.is_ascii() {
            return wrong("prefix", "must have 1 to 32 characters of ASCII, such as ce-");
        }
        let capacity = Capacity::of(self.batch).with_message_bytes(self.message_bytes);
        Ok(RabbitMqTransport {
            lines: Lines::new(broker, self.connect_within),
            prefix: self.prefix,
            capacity: capacity.with_batch_bytes(self.message_bytes),
            answer_within: self.connect_within,
            fragile: Mutex::default(),
            under_way: RwLock::default(),
            is_closed: AtomicBool::new(false),
        })
    }
}

impl fmt::Debug for RabbitMqOptions {
    /// Without the URL: it has a password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqOptions").field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

/// Publishes to RabbitMQ.
///
/// A destination is `exchange/routing.key`: the text before the first `/` is the exchange. `exchange/` has an empty routing key, for
/// fanouts. `/name`, or a plain `name` without `/`, is the queue of that name, by the default exchange. Where a template begins with a
/// hole, write the `/` yourself: what fills the hole may have one.
///
/// ```no_run
/// # use postrider_core::Transport;
/// # use postrider_transports::rabbitmq::RabbitMqTransport;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let rabbitmq = RabbitMqTransport::new("amqp://guest:guest@localhost:5672/%2f")?;
/// for finding in rabbitmq.check(&["shop/order.placed"]).await? {
///     println!("{}: {}: {} ({})", finding.severity, finding.subject, finding.reason, finding.fix);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct RabbitMqTransport {
    lines: Lines,
    prefix: String,
    capacity: Capacity,
    answer_within: Duration,
    /// Exchanges to which messages go one by one for now.
    fragile: Mutex<BTreeSet<ShortString>>,
    /// Held by every call; closing waits for them.
    under_way: RwLock<()>,
    is_closed: AtomicBool,
}

impl RabbitMqTransport {
    /// To the broker at `url`, with nothing special. It connects when it first publishes.
    ///
    /// # Errors
    /// When that is no URL of RabbitMQ.
    pub fn new(url: impl Into<String>) -> Result<Self, Invalid> {
        RabbitMqOptions::new(url).build()
    }

    /// The parcels of a batch; the answers to what cannot be sent are given.
    fn pack<'a>(&self, batch: &'a [Outgoing], answers: &mut [Option<Answer>]) -> Vec<Parcel<'a>> {
        let mut parcels = Vec::with_capacity(batch.len());
        for (place, outgoing) in batch.iter().enumerate() {
            let most = self.capacity.message_bytes.unwrap_or(usize::MAX);
            let packed = if outgoing.size() > most {
                Err(PublishError::reject(format!(
                    "{} bytes are too many: {most} are allowed",
                    outgoing.size()
                )))
            } else {
                Parcel::pack(place, outgoing, &self.prefix)
            };
            match packed {
                Ok(parcel) => parcels.push(parcel),
                Err(error) => answers[place] = Some(Err(error)),
            }
        }
        parcels
    }

    async fn send(&self, batch: &[Outgoing], answers: &mut [Option<Answer>]) -> Result<(), PublishError> {
        let closed = || PublishError::down("it was closed");
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let _under_way = self.under_way.read().await;
        if self.is_closed.load(Ordering::SeqCst) {
            return Err(closed());
        }
        let mut parcels = self.pack(batch, answers);
        if parcels.is_empty() {
            return Ok(());
        }
        let line = self.lines.line().await.map_err(PublishError::down)?;
        if line.is_blocked() {
            return Err(PublishError::down(
                "the broker is short of memory or disk and asks not to publish (connection.blocked)",
            ));
        }
        let frame_bytes = line.frame_bytes();
        parcels.retain(|parcel| match parcel.fits(frame_bytes) {
            Ok(()) => true,
            Err(error) => {
                answers[parcel.place] = Some(Err(error));
                false
            }
        });
        let sending: Vec<BoxFuture<'_, Vec<(usize, Answer)>>> = by_exchange(parcels)
            .into_iter()
            .map(|parcels| self.send_to_exchange(&line, parcels).boxed())
            .collect();
        let mut sending = stream::iter(sending).buffer_unordered(EXCHANGES_AT_ONCE);
        while let Some(sent) = sending.next().await {
            for (place, answer) in sent {
                answers[place] = Some(answer);
            }
        }
        Ok(())
    }

    /// Sends what goes to one exchange.
    async fn send_to_exchange(&self, line: &Arc<Line>, parcels: Vec<Parcel<'_>>) -> Vec<(usize, Answer)> {
        let Some(exchange) = parcels.first().map(|parcel| parcel.address.exchange.clone()) else {
            return Vec::new();
        };
        let is_fragile = self.fragile().contains(&exchange);
        let together = if is_fragile { 1 } else { parcels.len() };
        let mut answers = Vec::with_capacity(parcels.len());
        for parcels in parcels.chunks(together) {
            let (sent, is_spoilt) = match self.lines.lend(line).await {
                Err(error) => (down(parcels, &error), false),
                Ok(loan) => {
                    let sent = batch::send(&loan.channel, parcels).await;
                    loan.give_back();
                    (sent.answers, sent.is_spoilt)
                }
            };
            if is_spoilt {
                self.fragile().insert(exchange.clone());
            }
            answers.extend(parcels.iter().map(|parcel| parcel.place).zip(sent));
        }
        if is_fragile && answers.iter().all(|(_, answer)| answer.is_ok()) {
            self.fragile().remove(&exchange);
        }
        answers
    }

    fn fragile(&self) -> MutexGuard<'_, BTreeSet<ShortString>> {
        self.fragile.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn down(parcels: &[Parcel<'_>], error: &NoLine) -> Vec<Answer> {
    parcels.iter().map(|_| Err(PublishError::down(error.to_string()))).collect()
}

/// Parcels of one exchange together, in their order.
fn by_exchange(parcels: Vec<Parcel<'_>>) -> Vec<Vec<Parcel<'_>>> {
    let mut groups: Vec<Vec<Parcel<'_>>> = Vec::new();
    for parcel in parcels {
        let same = groups.iter_mut().find(|group| group[0].address.exchange == parcel.address.exchange);
        match same {
            Some(group) => group.push(parcel),
            None => groups.push(vec![parcel]),
        }
    }
    groups
}

#[async_trait]
impl Transport for RabbitMqTransport {
    fn kind(&self) -> &'static str {
        "rabbitmq"
    }

    fn capacity(&self) -> Capacity {
        self.capacity
    }

    async fn publish(&self, batch: &[Outgoing]) -> Vec<Result<Receipt, PublishError>> {
        let mut answers: Vec<Option<Answer>> = batch.iter().map(|_| None).collect();
        // Nothing was sent of what has no answer yet.
        let unsent = match self.send(batch, &mut answers).await {
            Ok(()) => "it was not sent".to_owned(),
            Err(PublishError::Down { source }) => source.to_string(),
            Err(error) => error.to_string(),
        };
        answers
            .into_iter()
            .map(|answer| answer.unwrap_or_else(|| Err(PublishError::down(unsent.clone()))))
            .collect()
    }

    /// Sees what AMQP shows, by declarations that are refused and change nothing. For that it takes the right to configure; without it there
    /// is a note. Exchange and, where messages go to a queue by the default exchange, the queue are looked at. It does not see: what is bound
    /// to an exchange (only publishing shows that, and then a message that nobody gets is returned), what a policy sets, and the
    /// queues behind an exchange.
    async fn check(&self, destinations: &[&str]) -> Result<Vec<Finding>, PublishError> {
        let mut findings: Vec<Finding> = Vec::new();
        let line = self.lines.line().await.map_err(PublishError::down)?;
        for destination in destinations {
            let looking = timeout(self.answer_within, check::check(&line, destination)).await;
            let looked =
                looking.map_err(|_| PublishError::down(format!("no answer in {:?}", self.answer_within)))?;
            // Destinations may share an exchange.
            for finding in looked.map_err(PublishError::down)? {
                if !findings.contains(&finding) {
                    findings.push(finding);
                }
            }
        }
        Ok(findings)
    }

    async fn close(&self) {
        if self.is_closed.swap(true, Ordering::SeqCst) {
            return;
        }
        // Whoever is still under way then will never hear.
        timeout(self.answer_within, self.under_way.write()).await.ok();
        self.lines.close().await;
    }
}
