//! The connection to the broker, and its pool of channels in confirm mode.
//!
//! A batch has a channel to itself: every reply on that channel belongs to the batch and to no other. A channel returns to the pool only
//! after every confirm of its batch was read. A call that is dropped earlier takes its channel with it, and its connection is not used
//! again: the state of its messages in flight is unknown.

use super::broker::Broker;
use crate::tls;
use lapin::{Channel, Connection, options::ConfirmSelectOptions};
use std::{
    error::Error as StdError,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};
use tokio::time::timeout;

/// At most this many idle channels stay open.
const MAX_IDLE_CHANNELS: usize = 16;

/// Why there is no connection.
#[derive(Debug)]
pub(super) struct ConnectError(String);

/// Connects on first use, and reconnects after a connection has ended.
pub(super) struct ConnectionManager {
    broker: Broker,
    current: Mutex<Option<Arc<BrokerConnection>>>,
    /// One call connects, the others wait for it.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection, with its idle channels.
pub(super) struct BrokerConnection {
    connection: Connection,
    idle_channels: Mutex<Vec<Channel>>,
    /// A batch had a channel of this connection.
    has_served: AtomicBool,
}

/// A channel that one batch has to itself.
pub(super) struct PooledChannel<'a> {
    manager: &'a ConnectionManager,
    connection: Arc<BrokerConnection>,
    pub(super) channel: Channel,
    is_complete: bool,
}

impl ConnectionManager {
    pub(super) fn new(broker: Broker) -> Self {
        Self { broker, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    /// The current connection, or a new one.
    pub(super) async fn connection(&self) -> Result<Arc<BrokerConnection>, ConnectError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let _connecting = self.connecting.lock().await;
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let within = self.broker.connect_timeout;
        let connection = match timeout(within, self.broker.connect()).await {
            Ok(connected) => connected.map_err(|error| self.connect_error(&tls::describe(&error)))?,
            Err(_) => return Err(self.connect_error(&format!("no reply within {within:?}"))),
        };
        let connection = Arc::new(BrokerConnection {
            connection,
            idle_channels: Mutex::default(),
            has_served: AtomicBool::default(),
        });
        *lock(&self.current) = Some(Arc::clone(&connection));
        Ok(connection)
    }

    /// A channel in confirm mode, for one batch.
    ///
    /// A connection that has served batches may end while its next channel is opened: seen with a `CHANNEL_ERROR` of the broker after a
    /// call was cancelled. Nothing of this batch was sent yet, so the batch gets a channel of a new connection. Only a new connection that
    /// fails, too, is an outage.
    pub(super) async fn checkout(
        &self,
        connection: &Arc<BrokerConnection>,
    ) -> Result<PooledChannel<'_>, ConnectError> {
        match self.open_pooled_channel(connection).await {
            Err(_)
                if connection.has_served.load(Ordering::Relaxed)
                    && !connection.connection.status().connected()
                    && !connection.is_blocked() =>
            {
                let new = self.connection().await?;
                self.open_pooled_channel(&new).await
            }
            opened => opened,
        }
    }

    /// An idle channel of this connection, or a new one.
    async fn open_pooled_channel(
        &self,
        connection: &Arc<BrokerConnection>,
    ) -> Result<PooledChannel<'_>, ConnectError> {
        let within = self.broker.request_timeout;
        let idle = lock(&connection.idle_channels).pop().filter(|channel| channel.status().connected());
        let channel = match idle {
            Some(channel) => channel,
            None => match timeout(within, connection.open_confirm_channel()).await {
                Ok(opened) => opened.map_err(|error| {
                    self.discard(connection);
                    self.connect_error(&error)
                })?,
                Err(_) => {
                    self.discard(connection);
                    return Err(self.connect_error(&format!("no channel opened within {within:?}")));
                }
            },
        };
        connection.has_served.store(true, Ordering::Relaxed);
        Ok(PooledChannel { manager: self, connection: Arc::clone(connection), channel, is_complete: false })
    }

    /// Closes the connection, with a handshake if that is possible within the request timeout.
    pub(super) async fn close(&self) {
        let last = lock(&self.current).take();
        if let Some(connection) = last {
            timeout(self.broker.request_timeout, connection.connection.close(200, "closed".into()))
                .await
                .ok();
        }
    }

    fn usable(&self) -> Option<Arc<BrokerConnection>> {
        lock(&self.current).clone().filter(|connection| connection.connection.status().connected())
    }

    /// The next call opens a new connection. Calls in flight finish on the old one.
    pub(super) fn discard(&self, connection: &Arc<BrokerConnection>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, connection)) {
            *current = None;
        }
    }

    /// Names the server, without the password.
    fn connect_error(&self, why: &dyn fmt::Display) -> ConnectError {
        let uri = &self.broker.uri;
        let authority = &uri.authority;
        ConnectError(format!(
            "no connection to RabbitMQ at {}:{} (user {}, virtual host {}): {why}",
            authority.host, authority.port, authority.userinfo.username, uri.vhost
        ))
    }
}

impl BrokerConnection {
    /// A new channel in confirm mode.
    async fn open_confirm_channel(&self) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// A new channel without confirms.
    pub(super) async fn open_channel(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Whether the broker blocks publishers because of a memory or disk alarm.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// The maximum size of a frame.
    pub(super) fn frame_bytes(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }
}

impl PooledChannel<'_> {
    /// Every confirm was read: the channel returns to the pool, unless the broker has closed it.
    pub(super) fn release(mut self) {
        self.is_complete = true;
        let mut idle_channels = lock(&self.connection.idle_channels);
        if self.channel.status().connected() && idle_channels.len() < MAX_IDLE_CHANNELS {
            idle_channels.push(self.channel.clone());
        }
    }
}

impl Drop for PooledChannel<'_> {
    fn drop(&mut self) {
        // While the broker blocks publishers it would accept a new connection with one message, which defeats its alarm.
        if !self.is_complete && !self.connection.is_blocked() {
            self.manager.discard(&self.connection);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for ConnectError {}

impl fmt::Debug for BrokerConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerConnection").finish_non_exhaustive()
    }
}

impl fmt::Debug for ConnectionManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.broker.uri.authority;
        f.debug_struct("ConnectionManager")
            .field("host", &authority.host)
            .field("port", &authority.port)
            .finish_non_exhaustive()
    }
}
