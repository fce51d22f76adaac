//! The connection to the broker, and its pool of channels in confirm mode.
//!
//! A batch has a channel to itself: every reply on that channel belongs to the batch and to no other. A channel returns to the pool only
//! after every confirm of its batch was read. A call that is dropped earlier takes its channel with it, and its connection is not used
//! again: the state of its messages in flight is unknown.

use super::broker::Broker;
use crate::{
    session::{Generation, ReusableConnection, Session, SessionError},
    tls,
};
use lapin::{Channel, Connection, options::ConfirmSelectOptions};
use std::{
    error::Error as StdError,
    fmt,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
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
    session: Session<BrokerConnection>,
}

/// A connection, with its idle channels.
pub(super) struct BrokerConnection {
    connection: Connection,
    idle_channels: Mutex<Vec<Channel>>,
    /// A channel of this connection was opened before.
    has_served: AtomicBool,
}

/// A channel that one batch has to itself.
pub(super) struct PooledChannel<'a> {
    manager: &'a ConnectionManager,
    connection: Generation<BrokerConnection>,
    pub(super) channel: Channel,
    is_complete: bool,
}

impl ConnectionManager {
    pub(super) fn new(broker: Broker) -> Self {
        Self { session: Session::new(broker.connect_timeout), broker }
    }

    /// The current connection, or a new one.
    pub(super) async fn connection(&self) -> Result<Generation<BrokerConnection>, ConnectError> {
        let connect = async {
            let connected = self.broker.connect().await;
            Ok(BrokerConnection {
                connection: connected.map_err(|error| ConnectError(tls::describe(&error)))?,
                idle_channels: Mutex::default(),
                has_served: AtomicBool::default(),
            })
        };
        self.session.connection(connect).await.map_err(|error: ConnectError| self.connect_error(&error))
    }

    /// A channel in confirm mode, for one batch, on a new connection if this one [ended unnoticed](BrokerConnection::has_ended_unnoticed).
    pub(super) async fn checkout(
        &self,
        connection: &Generation<BrokerConnection>,
    ) -> Result<PooledChannel<'_>, ConnectError> {
        match self.open_pooled_channel(connection).await {
            Err(_) if connection.has_ended_unnoticed() => {
                let new = self.connection().await?;
                self.open_pooled_channel(&new).await
            }
            opened => opened,
        }
    }

    /// An idle channel of this connection, or a new one.
    async fn open_pooled_channel(
        &self,
        connection: &Generation<BrokerConnection>,
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
        connection.mark_served();
        Ok(PooledChannel { manager: self, connection: connection.clone(), channel, is_complete: false })
    }

    /// Closes the connection, with a handshake if that is possible within the request timeout.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.session.close().await {
            timeout(self.broker.request_timeout, connection.connection.close(200, "closed".into()))
                .await
                .ok();
        }
    }

    /// The next call opens a new connection. Calls in flight finish on the old one.
    pub(super) fn discard(&self, connection: &Generation<BrokerConnection>) {
        self.session.suspect(connection);
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

    /// A channel of this connection was opened.
    pub(super) fn mark_served(&self) {
        self.has_served.store(true, Ordering::Relaxed);
    }

    /// Whether the failure to open a channel is no outage yet.
    ///
    /// A connection that has served before may end while its next channel is opened: seen with a `CHANNEL_ERROR` of the broker after a
    /// call was cancelled. Nothing was sent on that channel, so the call opens one on a new connection. Only a new connection that fails,
    /// too, is an outage.
    pub(super) fn has_ended_unnoticed(&self) -> bool {
        self.has_served.load(Ordering::Relaxed) && !self.is_usable() && !self.is_blocked()
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

impl ReusableConnection for BrokerConnection {
    fn is_usable(&self) -> bool {
        self.connection.status().connected()
    }
}

impl SessionError for ConnectError {
    fn closed() -> Self {
        Self("the client is closed".to_owned())
    }

    fn timed_out(within: Duration) -> Self {
        Self(format!("no reply within {within:?}"))
    }
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
