//! The options of the store.

use super::{
    claim::Sweeps,
    connect_options::{EXPOSURE_REMEDY, connect_options, exposure},
    connections::ConnectionMode,
    listener::ListenTimeouts,
    names::PostgresNames,
};
use postrider_core::{ClientOptions, Error, Invalid, Limits};
use sqlx::postgres::PgConnectOptions;
use std::time::Duration;

/// Longer than `statement_timeout` of the store's connections: a server that is slow, but there, ends the statement itself.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(70);

/// Options of a [`PostgresStore`](super::PostgresStore).
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    pub(super) client: ClientOptions,
    pub(super) connect: PgConnectOptions,
    pub(super) listen: Option<PgConnectOptions>,
    pub(super) listen_timeouts: ListenTimeouts,
    pub(super) mode: ConnectionMode,
    pub(super) names: PostgresNames,
    pub(super) limits: Limits,
    pub(super) connections: u32,
    pub(super) sweeps: Sweeps,
}

/// The bounds of the client's side, and the interval of keepalive probes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Timeouts {
    pub(super) connect: Duration,
    pub(super) request: Duration,
    pub(super) keepalive: Option<Duration>,
}

impl PostgresOptions {
    /// Connects with these options of a client, or to a URL, with the default names, and with up to eight connections for claims and
    /// settlements.
    ///
    /// [`connect_options`] describes trust and `sslmode`. The request timeout bounds each statement of the store's own connections, and
    /// each of its transactions; without a reply the connection is closed, and the statement may or may not have been executed. Default:
    /// 70 seconds, because the server itself ends a statement after 60. Migrations have no bound. The keepalive is that of the server's
    /// end of the connection (`tcp_keepalives_idle`), 30 seconds by default; behind a pooler it is the pooler's.
    ///
    /// # Errors
    /// When the URL is invalid, a timeout is out of bounds, or a certificate cannot be used.
    pub fn new(client: impl Into<ClientOptions>) -> Result<Self, Error> {
        let client = client.into();
        Ok(Self {
            connect: connect_options(&client)?,
            client,
            listen: None,
            listen_timeouts: ListenTimeouts::default(),
            mode: ConnectionMode::Direct,
            names: PostgresNames::default(),
            limits: Limits::default(),
            connections: 8,
            sweeps: Sweeps::All,
        })
    }

    /// Uses another schema or table prefix.
    #[must_use]
    pub fn with_names(mut self, names: PostgresNames) -> Self {
        self.names = names;
        self
    }

    /// Sets the size limits of [`PostgresStore::outbox`](super::PostgresStore::outbox).
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// The maximum number of connections for claims and settlements; two more serve everything else.
    #[must_use]
    pub fn with_connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Connects through a pooler in transaction mode, such as PgBouncer with `pool_mode = transaction`. Neither settings nor prepared
    /// statements of the store outlive a transaction there: each statement brings its settings along and is not prepared, which
    /// costs four round trips instead of one. [`PostgresStore::outbox`](super::PostgresStore::outbox) and
    /// [`PostgresStore::transactions`](super::PostgresStore::transactions) do not prepare statements either.
    ///
    /// Two things still need a direct connection: notifications ([`with_listen_url`](Self::with_listen_url); without it, workers
    /// poll) and migrations, whose lock belongs to a session.
    #[must_use]
    pub fn behind_pooler(mut self) -> Self {
        self.mode = ConnectionMode::Pooled;
        // Poolers refuse unknown parameters at the start of a connection.
        self.connect = self.connect.extra_float_digits(None);
        self
    }

    /// Listens for notifications on a direct connection to `url`, when the other connections go through a pooler. Trust, client
    /// certificate and password are the same.
    ///
    /// # Errors
    /// When the URL is invalid, or turns TLS off although certificates are configured.
    pub fn with_listen_url(mut self, url: &str) -> Result<Self, Error> {
        let listen =
            connect_options(&self.client.clone().with_url(url)).map_err(|error| match error.field() {
                "url" => Invalid::new("listen_url", error.problem().clone()),
                _ => error,
            })?;
        self.listen = Some(listen);
        Ok(self)
    }

    /// Shortens the timeouts of the listener, for tests.
    #[doc(hidden)]
    #[must_use]
    pub fn with_keepalive(mut self, probe_after: Duration, expect_within: Duration) -> Self {
        self.listen_timeouts = ListenTimeouts { probe_after, expect_within };
        self
    }

    /// Claims above the low-water mark only, and so misses late commits: the negative control of the tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_sweeps(mut self) -> Self {
        self.sweeps = Sweeps::LowWaterOnly;
        self
    }

    pub(super) fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.client.connect_timeout(),
            request: self.client.request_timeout().unwrap_or(REQUEST_TIMEOUT),
            keepalive: self.client.keepalive(),
        }
    }

    /// Logs connections over a network that do not verify the server.
    pub(super) fn warn_about_exposure(&self) {
        for options in [Some(&self.connect), self.listen.as_ref()].into_iter().flatten() {
            if let Some(danger) = exposure(options) {
                let host = options.get_host();
                tracing::warn!(
                    host,
                    "connection to PostgreSQL at {host:?} is not secure: {danger}; {EXPOSURE_REMEDY}"
                );
            }
        }
    }
}
