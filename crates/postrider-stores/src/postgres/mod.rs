//! The PostgreSQL store.
//!
//! A message is in exactly one of several tables, each designed for one access pattern:
//!
//! | table | contains | why separate |
//! |---|---|---|
//! | `ready` | messages that may be claimed now, leased or not; retries due soon | no index on a column that a claim changes: claims are HOT updates |
//! | `scheduled` | timers, and other retries of unordered queues | millions of future rows never slow down a claim |
//! | `lane` | one row per key of ordered queues that has messages | the key is leased, its messages stay where they are |
//! | `dead`, `archive` | messages that failed permanently; messages kept after success | paged and pruned by time |
//!
//! A move between tables is one statement, guarded by the message's id and the claim's token. Claims start above a low-water mark and
//! sweep below it (`horizon.rs`), so that their cost does not depend on the number of messages processed before. All statements run
//! in autocommit mode: no transaction of the store outlives one round trip, except those of `transaction_connection.rs`.
//!
//! The store opens its own connections, because bounded cost depends on their settings: with generic plans and without
//! sequential scans, bitmap scans and sorts, each statement has one plan, whatever the statistics say.

#[macro_use]
mod names;

mod applied_migrations;
mod checkup;
mod claim;
mod connect_options;
mod connections;
mod consumer;
mod delivered;
mod drivers;
mod error;
mod fairness;
mod find;
mod follow_up_store;
mod follow_ups;
mod grants;
mod horizon;
mod in_place_retries;
mod inbox;
mod inspect;
mod lane_settle;
mod lanes;
mod ledger;
mod listener;
mod notifier;
mod object_scripts;
mod operate;
mod options;
mod pauses;
mod pool;
mod pooled_connection;
mod prune;
mod queues;
mod renew;
mod repair;
mod row;
mod saga_log;
mod schema;
mod selection;
mod settle;
mod settle_batch;
mod stage;
mod statement;
mod timetable;
mod transaction_connection;
mod transactions;
mod tx_backend;
mod validate;

pub use connect_options::connect_options;
pub use error::tls_failure;
pub use grants::Role;
pub use inbox::PostgresInbox;
pub use ledger::PostgresLedger;
pub use names::PostgresNames;
pub use options::PostgresOptions;
#[doc(hidden)]
pub use pool::SETTINGS;
pub use pool::guard;
pub use stage::PostgresOutbox;
pub use transactions::PostgresTransactions;

use async_trait::async_trait;
use claim::{ClaimSpec, ClaimSql, Claimer, Sweeps};
use connections::{ConnectionMode, Connections, Fetch, UnpreparedConnection};
use error::store_error;
use fairness::{FairClaimer, FairSql};
use in_place_retries::InPlaceRetries;
use lanes::LaneClaimer;
use listener::ListenTimeouts;
use options::Timeouts;
use pooled_connection::connect_within;
use postrider_core::{
    ClaimRequest, ClaimedMessage, ClientOptions, Error, Lease, LeaseSettlement, LeaseToken, Limits, Message,
    Ordering, Outbox, PauseRecord, PruneReport, PruneRequest, QueueName, ScheduleName, Store,
    store::check_lease, timetable::ScheduleReading,
};
use queues::{Queue, QueueCache, QueueMap};
use settle::SettleSql;
use sqlx::{PgPool, Postgres, postgres::PgConnectOptions};
use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use transaction_connection::TransactionConnection;

/// The store in PostgreSQL 14 or later. Cheap to clone; clones share connections and memory.
///
/// ```no_run
/// # async fn run() -> Result<(), postrider_core::Error> {
/// use postrider_core::{ClaimRequest, Store, schema::Schema};
/// use postrider_stores::postgres::PostgresStore;
///
/// let store = PostgresStore::connect("postgres://localhost/shop").await?;
/// store.migrate().await?;
/// for claimed in store.claim(&ClaimRequest::new("orders".try_into()?, 100)).await? {
///     println!("{}", claimed.id());
///     store.settle(&[claimed.lease.done()]).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct PostgresStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    connections: Connections,
    timeouts: Timeouts,
    connect: PgConnectOptions,
    /// The connection options for LISTEN, if it is possible.
    listen: Option<PgConnectOptions>,
    listen_timeouts: ListenTimeouts,
    mode: ConnectionMode,
    names: PostgresNames,
    limits: Limits,
    queues: QueueCache,
    claim_sql: Arc<ClaimSql>,
    settle_sql: SettleSql,
    /// The claimer of each set of queues that are claimed together.
    claimers: Mutex<HashMap<Vec<QueueName>, Arc<Claimer>>>,
    lane_claimers: Mutex<HashMap<QueueName, Arc<LaneClaimer>>>,
    retries: Arc<InPlaceRetries>,
    fair_sql: Arc<FairSql>,
    fair_claimers: Mutex<HashMap<QueueName, Arc<FairClaimer>>>,
    sweeps: Sweeps,
}

impl PostgresStore {
    /// Connects to a URL, or with these options of a client.
    ///
    /// # Errors
    /// When the URL is invalid, a certificate cannot be used, or the server cannot be reached.
    pub async fn connect(client: impl Into<ClientOptions>) -> Result<Self, Error> {
        Self::open(PostgresOptions::new(client)?).await
    }

    /// Connects with `options`. A connection over a network that does not verify the server is a warning in the log.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn open(options: PostgresOptions) -> Result<Self, Error> {
        options.warn_about_exposure();
        let timeouts = options.timeouts();
        // Two more than claims and settlements keep.
        let pool = pool::options(options.mode, timeouts).max_connections(options.connections + 2);
        let connecting = pool.connect_with(options.connect.clone().application_name("postrider"));
        let pool = connect_within(timeouts.connect, connecting).await.map_err(store_error)?;
        let listen = options.listen.or_else(|| match options.mode {
            ConnectionMode::Direct => Some(options.connect.clone()),
            ConnectionMode::Pooled => None,
        });
        let names = options.names;
        Ok(Self {
            inner: Arc::new(Inner {
                connections: Connections::new(pool, options.connections, options.mode, timeouts.request),
                listen,
                listen_timeouts: options.listen_timeouts,
                timeouts,
                connect: options.connect,
                mode: options.mode,
                queues: QueueCache::new(&names),
                claim_sql: Arc::new(ClaimSql::new(&names)),
                settle_sql: SettleSql::default(),
                claimers: Mutex::default(),
                retries: Arc::default(),
                lane_claimers: Mutex::default(),
                fair_sql: Arc::new(FairSql::new(&names)),
                fair_claimers: Mutex::default(),
                limits: options.limits,
                sweeps: options.sweeps,
                names,
            }),
        })
    }

    /// The outbox of this store.
    pub fn outbox(&self) -> PostgresOutbox {
        let outbox = PostgresOutbox::with_limits(self.inner.names.clone(), self.inner.limits);
        if self.inner.mode == ConnectionMode::Pooled { outbox.behind_pooler() } else { outbox }
    }

    /// The inbox of this store.
    pub fn inbox(&self) -> PostgresInbox {
        let inbox = PostgresInbox::new(&self.inner.names);
        if self.inner.mode == ConnectionMode::Pooled { inbox.behind_pooler() } else { inbox }
    }

    /// Transactions of your own pool, which must connect to the same database, in which handlers run and their messages are settled.
    /// They have the settings of that pool, not those of the store's own connections, and must be `READ COMMITTED`, which
    /// [`PostgresTransactions::read_committed`] makes sure of.
    ///
    /// Set `idle_in_transaction_session_timeout` there: a process that freezes in the middle of a handler blocks its message until
    /// the server ends its session, because it might still commit.
    pub fn transactions(&self, pool: PgPool) -> PostgresTransactions {
        PostgresTransactions::new(self.clone(), pool)
    }

    /// Closes the connections, in bounded time: a connection on which the server is silent is closed after this returns.
    pub async fn close(&self) {
        self.inner.connections.close().await;
    }

    /// The hot statements, for tests that read their plans.
    #[doc(hidden)]
    pub fn statements(&self) -> Vec<(&'static str, String)> {
        let inner = &self.inner;
        let claims = inner.claim_sql.texts().map(|(name, text)| (name, text.to_owned()));
        let fair = inner.fair_sql.texts().map(|(name, text)| (name, text.to_owned()));
        let settles = inner.settle_sql.texts(&inner.names);
        let bulk = selection::texts(&inner.names);
        let others = [renew::text(&inner.names), consumer::text(&inner.names)];
        claims.into_iter().chain(fair).chain(settles).chain(bulk).chain(others).collect()
    }

    /// The low-water mark of an unordered queue, for tests that read plans.
    #[doc(hidden)]
    pub async fn low_water_mark(&self, queue: &QueueName) -> Result<i64, Error> {
        let queues = self.existing(std::slice::from_ref(queue)).await?;
        Ok(self.claimer(&queues).low_water_marks().first().copied().unwrap_or(0))
    }

    /// The low-water mark of a fair queue, and those of its tenants with whether a message waits, for tests that read plans.
    #[doc(hidden)]
    pub async fn tenant_low_water_marks(&self, queue: &QueueName) -> (i64, Vec<(String, i64, bool)>) {
        self.fair_claimer(queue).low_water_marks().await
    }

    fn claimer(&self, queues: &[Arc<Queue>]) -> Arc<Claimer> {
        let key: Vec<QueueName> = queues.iter().map(|queue| queue.name.clone()).collect();
        let inner = &self.inner;
        let make = || {
            let retries = Arc::clone(&inner.retries);
            Claimer::new(Arc::clone(&inner.claim_sql), key.len(), inner.sweeps, retries)
        };
        get_or_insert(&self.inner.claimers, key.clone(), make)
    }

    fn lane_claimer(&self, queue: &QueueName) -> Arc<LaneClaimer> {
        get_or_insert(&self.inner.lane_claimers, queue.clone(), || LaneClaimer::new(&self.inner.names))
    }

    fn fair_claimer(&self, queue: &QueueName) -> Arc<FairClaimer> {
        let make = || FairClaimer::new(Arc::clone(&self.inner.fair_sql), self.inner.sweeps);
        get_or_insert(&self.inner.fair_claimers, queue.clone(), make)
    }

    /// Settles in an open transaction, and stages the messages of the settlements there.
    async fn settle_in_transaction(
        &self,
        tx: &mut sqlx::Transaction<'_, Postgres>,
        settlements: &[LeaseSettlement],
    ) -> Result<Vec<Lease>, Error> {
        // No retries in place: the transaction may roll back.
        let lost = match self.inner.mode {
            ConnectionMode::Direct => self.settle_on(&mut **tx, None, settlements).await?,
            ConnectionMode::Pooled => self.settle_on(UnpreparedConnection(tx), None, settlements).await?,
        };
        let messages = LeaseSettlement::staged_by(settlements, &lost);
        if !messages.is_empty() {
            self.outbox().stage_all(tx, &messages).await?;
        }
        Ok(lost)
    }

    /// Settles and stages messages with it, in a transaction.
    async fn settle_and_stage(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        let connections = &self.inner.connections;
        connections
            .within_timeout(async {
                let mut connection = TransactionConnection::acquire(connections).await?;
                let mut tx = connection.begin(self.inner.mode).await?;
                let lost = self.settle_in_transaction(&mut tx, settlements).await?;
                tx.commit().await.map_err(store_error)?;
                connection.release();
                Ok(lost)
            })
            .await
    }

    async fn settle_on(
        &self,
        mut on: impl Fetch,
        retries: Option<&InPlaceRetries>,
        settlements: &[LeaseSettlement],
    ) -> Result<Vec<Lease>, Error> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        // On the same connection: to hold one and wait for another could deadlock.
        let queues = settlements.iter().map(|settle| settle.lease.queue());
        let known = self.inner.queues.known(&mut on, queues).await?;
        self.settle_known(on, &known, retries, settlements).await
    }

    /// Settles with the policies of known queues.
    async fn settle_known(
        &self,
        on: impl Fetch,
        known: &QueueMap,
        retries: Option<&InPlaceRetries>,
        settlements: &[LeaseSettlement],
    ) -> Result<Vec<Lease>, Error> {
        let inner = &self.inner;
        let floor = |queue: &QueueName| self.lane_claimer(queue).settled_floor();
        inner.settle_sql.settle(on, &inner.names, known, floor, retries, settlements).await
    }

    /// Claims from the queues of each kind until the limit is reached. After an error, `claimed` has what was leased before.
    async fn claim_from(
        &self,
        request: &ClaimRequest,
        mut spec: ClaimSpec,
        plain: &[Arc<Queue>],
        fair: &[Arc<Queue>],
        ordered: &[Arc<Queue>],
        claimed: &mut Vec<(i64, ClaimedMessage)>,
    ) -> Result<(), Error> {
        let connections = &self.inner.connections;
        if !plain.is_empty() && spec.limit > 0 {
            claimed.extend(self.claimer(plain).claim(connections, plain, spec).await?);
        }
        for queue in fair {
            spec.limit = request.limit() - claimed.len();
            if spec.limit == 0 {
                break;
            }
            let weights = request.tenant_weights();
            claimed.extend(self.fair_claimer(&queue.name).claim(connections, queue, spec, weights).await?);
        }
        for queue in ordered {
            spec.limit = request.limit() - claimed.len();
            if spec.limit == 0 {
                break;
            }
            let claimer = self.lane_claimer(&queue.name);
            let (turns, empty) = claimer.claim(connections, queue, spec).await?;
            claimed.extend(turns);
            if !empty.is_empty() {
                let released: Vec<_> = empty.iter().map(Lease::release).collect();
                if let Err(error) = self.settle(&released).await {
                    claimer.release_later(empty);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// The queues of `names` that exist.
    async fn existing(&self, names: &[QueueName]) -> Result<Vec<Arc<Queue>>, Error> {
        let inner = &self.inner;
        let known = inner.queues.known(&mut &inner.connections, names).await?;
        Ok(names.iter().filter_map(|name| known.named(name)).cloned().collect())
    }
}

fn get_or_insert<K: Eq + Hash, V>(
    map: &Mutex<HashMap<K, Arc<V>>>,
    key: K,
    make: impl FnOnce() -> V,
) -> Arc<V> {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(map.entry(key).or_insert_with(|| Arc::new(make())))
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        request.check()?;
        let spec =
            ClaimSpec { limit: request.limit(), lease_for: request.lease_for(), token: LeaseToken::fresh() };
        let mut queues = self.existing(request.queues()).await?;
        queues.retain(|queue| !queue.is_paused);
        let (ordered, unordered): (Vec<_>, Vec<_>) =
            queues.into_iter().partition(|queue| queue.policy.ordering != Ordering::Unordered);
        let (fair, plain): (Vec<_>, Vec<_>) =
            unordered.into_iter().partition(|queue| queue.policy.fair_by_tenant);
        let mut claimed = Vec::new();
        let result = self.claim_from(request, spec, &plain, &fair, &ordered, &mut claimed).await;
        // Messages that an earlier statement has leased are delivered; the next claim meets the error again.
        match result {
            Err(error) if claimed.is_empty() => Err(error),
            _ => Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect()),
        }
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        check_lease(lease_for)?;
        let inner = &self.inner;
        let queues = leases.iter().map(Lease::queue);
        let known = inner.queues.known(&mut &inner.connections, queues).await?;
        renew::renew(&inner.connections, &inner.names, &known, leases, lease_for).await
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        let inner = &self.inner;
        let known = inner.queues.known(&mut &inner.connections, [lease.queue()]).await?;
        renew::count_isolated(&inner.connections, &inner.names, &known, lease).await
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        if settlements.iter().any(|settle| !settle.settlement.messages().is_empty()) {
            return self.settle_and_stage(settlements).await;
        }
        self.settle_on(&self.inner.connections, Some(&self.inner.retries), settlements).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        prune::prune(&self.inner.connections, &self.inner.names, request).await
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.paused_work().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.connections.run(sqlx::query("select 1")).await.map(|_| ())
    }

    async fn read_schedule(&self, schedule: &ScheduleName) -> Result<ScheduleReading, Error> {
        Self::read_schedule(self, schedule).await
    }

    async fn tick(
        &self,
        schedule: &ScheduleName,
        at: SystemTime,
        messages: &[Message],
    ) -> Result<bool, Error> {
        Self::tick(self, schedule, at, messages).await
    }
}
