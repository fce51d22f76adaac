//! The listener: LISTEN on a connection of its own, and a probe that detects when notifications do not arrive.
//!
//! LISTEN can succeed without effect: behind a pooler in transaction mode it listens in a session that the pooler then lends to
//! another client, which gets notifications that it never asked for and may fail because of them. So when the store is behind a
//! pooler, it does not listen through it. And a connection can be dead without either end noticing. So a listener that has
//! received nothing for a while sends itself a probe, on the path of the producers' notifications, and expects to receive it
//! soon. It does so when it is opened, too: a listener that opens has received a notification.
//!
//! A listener that receives nothing or has lost its connection fails; it does not reconnect. Its owner polls meanwhile, and
//! opens another.

use super::{PostgresStore, error::store_error, pool, pooled_connection::connect_within};
use async_trait::async_trait;
use postrider_core::{Error, QueueName, notifier::Listener};
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::{fmt, time::Duration};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// The timeouts after which a listener counts as not working.
#[derive(Debug, Clone, Copy)]
pub(super) struct ListenTimeouts {
    /// Without a notification for this long, the listener sends itself a probe.
    pub(super) probe_after: Duration,
    /// A probe arrives within this time, or the listener fails.
    pub(super) expect_within: Duration,
}

impl Default for ListenTimeouts {
    fn default() -> Self {
        Self { probe_after: Duration::from_secs(30), expect_within: Duration::from_secs(5) }
    }
}

/// The prefix of the payload of a probe.
const PROBE_PREFIX: &str = "probe-";

pub(super) struct PostgresListener {
    store: PostgresStore,
    listener: PgListener,
    queues: Vec<QueueName>,
    received_at: Instant,
    probe: Option<Probe>,
}

/// A probe that was not received yet.
#[derive(Debug)]
struct Probe {
    text: String,
    /// `None` while the probe may not have been sent: a cancelled wait sends it again.
    expected_by: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
enum ListenError {
    #[error("the connection of LISTEN was lost")]
    Lost,
    #[error(
        "notifications do not arrive through a pooler in transaction mode; set the server's own address with \
         `PostgresOptions::with_listen_url`, or as `listen_url` in postrider.toml"
    )]
    Pooled,
    #[error(
        "LISTEN succeeded, but a notification did not arrive within {0:?}: the connection probably goes through a pooler in \
         transaction mode (PgBouncer); set the server's own address with `PostgresOptions::with_listen_url`, or as \
         `listen_url` in postrider.toml"
    )]
    NotReceived(Duration),
}

impl PostgresListener {
    /// Listens, and makes sure that notifications arrive.
    pub(super) async fn open(store: PostgresStore, queues: &[QueueName]) -> Result<Self, Error> {
        let Some(connect) = store.inner.listen.clone() else {
            return Err(Error::Unavailable(ListenError::Pooled.into()));
        };
        let connect = connect.application_name("postrider listener");
        let timeouts = store.inner.timeouts;
        let pool = PgPoolOptions::new().max_connections(1).after_connect(move |connection, _| {
            Box::pin(pool::set_keepalive(connection, timeouts.keepalive))
        });
        let listening = async {
            let pool = pool.connect_with(connect).await?;
            let mut listener = PgListener::connect_with(&pool).await?;
            // A lost connection is an error, so that no worker waits for notifications that cannot arrive.
            listener.eager_reconnect(false);
            listener.listen(&store.inner.names.channel()).await?;
            Ok(listener)
        };
        let listener = connect_within(timeouts.connect, listening).await.map_err(store_error)?;
        let mut opened = Self {
            store,
            listener,
            queues: queues.to_vec(),
            received_at: Instant::now(),
            probe: Some(Probe::new()),
        };
        while opened.probe.is_some() {
            // A notification that arrives before the probe may be dropped: the owner of a new listener polls anyway.
            opened.receive().await?;
        }
        Ok(opened)
    }

    /// Receives one notification. `None` for a probe, or when none arrived for long enough to send a probe.
    async fn receive(&mut self) -> Result<Option<QueueName>, Error> {
        let timeouts = self.store.inner.listen_timeouts;
        if let Some(probe) = self.probe.as_mut().filter(|probe| probe.expected_by.is_none()) {
            self.store.notify(&probe.text).await?;
            probe.expected_by = Some(Instant::now() + timeouts.expect_within);
        }
        let expected_by = self.probe.as_ref().and_then(|probe| probe.expected_by);
        let until = expected_by.unwrap_or(self.received_at + timeouts.probe_after);
        let Ok(received) = timeout_at(until, self.listener.try_recv()).await else {
            if expected_by.is_some() {
                return Err(Error::Unavailable(ListenError::NotReceived(timeouts.expect_within).into()));
            }
            self.probe = Some(Probe::new());
            return Ok(None);
        };
        let Some(notification) = received.map_err(store_error)? else {
            return Err(Error::Unavailable(ListenError::Lost.into()));
        };
        // Any notification shows that the listener works, even the probe of another listener.
        self.received_at = Instant::now();
        self.probe = None;
        let queue = self.queues.iter().find(|queue| queue.as_str() == notification.payload()).cloned();
        if let Some(queue) = &queue {
            self.store.inner.queues.notified(queue);
        }
        Ok(queue)
    }
}

#[async_trait]
impl Listener for PostgresListener {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            if let Some(queue) = self.receive().await? {
                return Ok(queue);
            }
        }
    }
}

impl PostgresStore {
    /// Sends a notification as producers do.
    async fn notify(&self, text: &str) -> Result<(), Error> {
        let sql = self.inner.names.sql(&sql!("select pg_notify('{#signal}', $1)"));
        self.inner.connections.run(sql.query().bind(text)).await.map(|_| ())
    }
}

impl Probe {
    fn new() -> Self {
        Self { text: format!("{PROBE_PREFIX}{}", Uuid::new_v4()), expected_by: None }
    }
}

impl fmt::Debug for PostgresListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresListener")
            .field("queues", &self.queues)
            .field("probe", &self.probe)
            .finish_non_exhaustive()
    }
}
