//! Hearing signals, and noticing that one has gone deaf.
//!
//! LISTEN can succeed and hear nothing: behind a pooler it listens in a session that is lent to somebody else a moment later,
//! who then gets signals that it never asked for, and may fail because of them. So where a pooler is known to be, nobody
//! listens through it. And a connection can be dead without either end knowing. So an ear that has heard nothing for a while calls itself, by
//! the way that producers' signals take, and expects to hear that soon. It does so when it is opened, too: an ear
//! that opens can hear.
//!
//! An ear that is deaf or has lost its connection fails; it does not mend itself. Whoever holds it polls meanwhile, and
//! opens another.

use super::{PostgresStore, error::store_error};
use async_trait::async_trait;
use postrider_core::{Error, QueueName, wake::Ear};
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::{fmt, time::Duration};
use tokio::time::{Instant, timeout_at};
use uuid::Uuid;

/// When an ear is taken for deaf.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hearing {
    /// After so long a silence it calls itself.
    pub(super) silence: Duration,
    /// A call is heard within this time, or never.
    pub(super) answers_within: Duration,
}

impl Default for Hearing {
    fn default() -> Self {
        Self { silence: Duration::from_secs(30), answers_within: Duration::from_secs(5) }
    }
}

/// What calls begin with.
const CALL: &str = "probe-";

pub(super) struct PostgresEar {
    store: PostgresStore,
    listener: PgListener,
    queues: Vec<QueueName>,
    heard_at: Instant,
    call: Option<Call>,
}

/// A call that was not heard yet.
#[derive(Debug)]
struct Call {
    text: String,
    /// `None` while it may not have been sent: a dropped wait begins anew.
    expected_by: Option<Instant>,
}

#[derive(Debug, thiserror::Error)]
enum Deaf {
    #[error("the connection that listens was lost")]
    Lost,
    #[error(
        "signals cannot be heard through a pooler; give the server's own address with `PostgresOptions::with_listen_url`, or as \
         `listen_url` in postrider.toml"
    )]
    Pooled,
    #[error(
        "LISTEN succeeded, but a signal that was sent was not heard within {0:?}: a pooler in transaction mode \
         (PgBouncer) may be in between; give the server's own address with `PostgresOptions::with_listen_url`, or as \
         `listen_url` in postrider.toml"
    )]
    Unheard(Duration),
}

impl PostgresEar {
    /// Listens, and makes sure that it hears.
    pub(super) async fn open(store: PostgresStore, queues: &[QueueName]) -> Result<Self, Error> {
        let Some(connect) = store.inner.listen.clone() else {
            return Err(Error::Unavailable(Deaf::Pooled.into()));
        };
        let connect = connect.application_name("postrider listener");
        let pool =
            PgPoolOptions::new().max_connections(1).connect_with(connect).await.map_err(store_error)?;
        let mut listener = PgListener::connect_with(&pool).await.map_err(store_error)?;
        // What is lost is told, so that nobody waits for signals that nobody hears.
        listener.eager_reconnect(false);
        listener.listen(&store.inner.names.channel()).await.map_err(store_error)?;
        let mut ear = Self {
            store,
            listener,
            queues: queues.to_vec(),
            heard_at: Instant::now(),
            call: Some(Call::new()),
        };
        while ear.call.is_some() {
            // A signal that comes before the call is a hint that whoever opens an ear needs no more: it looks anyway.
            ear.hear().await?;
        }
        Ok(ear)
    }

    /// Hears one notification. `None` when it was a call, or there was none for long enough to make one.
    async fn hear(&mut self) -> Result<Option<QueueName>, Error> {
        let hearing = self.store.inner.hearing;
        if let Some(call) = self.call.as_mut().filter(|call| call.expected_by.is_none()) {
            self.store.call(&call.text).await?;
            call.expected_by = Some(Instant::now() + hearing.answers_within);
        }
        let expected_by = self.call.as_ref().and_then(|call| call.expected_by);
        let until = expected_by.unwrap_or(self.heard_at + hearing.silence);
        let Ok(heard) = timeout_at(until, self.listener.try_recv()).await else {
            if expected_by.is_some() {
                return Err(Error::Unavailable(Deaf::Unheard(hearing.answers_within).into()));
            }
            self.call = Some(Call::new());
            return Ok(None);
        };
        let Some(heard) = heard.map_err(store_error)? else {
            return Err(Error::Unavailable(Deaf::Lost.into()));
        };
        // Whatever was heard, even somebody else's call: the ear is well.
        self.heard_at = Instant::now();
        self.call = None;
        let queue = self.queues.iter().find(|queue| queue.as_str() == heard.payload()).cloned();
        if let Some(queue) = &queue {
            self.store.inner.queues.was_signalled(queue);
        }
        Ok(queue)
    }
}

#[async_trait]
impl Ear for PostgresEar {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            if let Some(queue) = self.hear().await? {
                return Ok(queue);
            }
        }
    }
}

impl PostgresStore {
    /// Sends a signal as producers do.
    async fn call(&self, text: &str) -> Result<(), Error> {
        let sql = self.inner.names.sql("select pg_notify('{#signal}', $1)");
        self.inner.connections.run(sql.query().bind(text)).await.map(|_| ())
    }
}

impl Call {
    fn new() -> Self {
        Self { text: format!("{CALL}{}", Uuid::new_v4()), expected_by: None }
    }
}

impl fmt::Debug for PostgresEar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresEar")
            .field("queues", &self.queues)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}
