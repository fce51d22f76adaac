//! The PostgreSQL store.
//!
//! A message is in exactly one room, and each room is a table that is good at one thing:
//!
//! | table | holds | why apart |
//! |---|---|---|
//! | `ready` | what may run now, leased or not; retries due soon | no index on a column that a claim changes: claims are HOT updates |
//! | `later` | timers, and other retries of unordered queues | millions of future rows never stand in a claim's way |
//! | `lane` | one row per living key of ordered queues | the key is leased, its messages stay where they are |
//! | `dead`, `archive` | what failed for good; what success keeps | paged and pruned by time |
//!
//! A move between rooms is one statement, guarded by the message's id and the claim's token. Claims start above a mark and
//! sweep below it (`horizon.rs`), so that their cost does not depend on how much has passed through. All statements run in
//! autocommit mode: no transaction of ours outlives one round trip, but for those of `lent.rs`.
//!
//! The store opens its own connections, because bounded work depends on their settings: with generic plans and without
//! sequential scans, bitmap scans and sorts, each of our statements has one plan, whatever the statistics say.

mod batch;
mod checkup;
mod claim;
mod clue;
mod connections;
mod delivered;
mod drivers;
mod ear;
mod error;
mod fair;
mod follow;
mod follow_ups;
mod grants;
mod horizon;
mod inbox;
mod inspect;
mod lane_settle;
mod lanes;
mod ledger;
mod lent;
mod makers;
mod mend;
mod names;
mod operate;
mod pauses;
mod pool;
mod prune;
mod queues;
mod receive;
mod record;
mod renew;
mod returned;
mod row;
mod saga_log;
mod schema;
mod selection;
mod settle;
mod stage;
mod statement;
mod timetable;
mod transact;
mod validate;
mod wake;

pub use grants::Role;
pub use inbox::PostgresInbox;
pub use ledger::PostgresLedger;
pub use names::Names;
#[doc(hidden)]
pub use pool::SETTINGS;
pub use pool::guard;
pub use stage::PostgresOutbox;
pub use transact::PostgresTransactions;

use async_trait::async_trait;
use claim::{ClaimSql, Claimer, Sweeps, Want};
use connections::{Connections, Fetch, Route, Unprepared};
use ear::Hearing;
use error::store_error;
use fair::{FairClaimer, FairSql};
use lanes::LaneClaimer;
use lent::Lent;
use postrider_core::{
    ClaimRequest, Claimed, Error, Invalid, Lease, LeaseToken, Limits, Ordering, Outbox, Paused, PruneRequest,
    Pruned, QueueName, Settle, Store, store::check_lease,
};
use queues::{Known, Queue, Queues};
use returned::Returned;
use settle::SettleSql;
use sqlx::{
    PgPool, Postgres,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use std::{
    collections::HashMap,
    hash::Hash,
    str::FromStr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

/// Messages in PostgreSQL 14 or later. Cheap to clone; clones share connections and memory.
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
    pool: PgPool,
    connections: Connections,
    connect: PgConnectOptions,
    /// The way to the server that LISTEN takes, if there is one.
    listen: Option<PgConnectOptions>,
    hearing: Hearing,
    route: Route,
    names: Names,
    limits: Limits,
    queues: Queues,
    claim_sql: Arc<ClaimSql>,
    settle_sql: SettleSql,
    /// What is remembered of each set of queues that is claimed from together.
    claimers: Mutex<HashMap<Vec<QueueName>, Arc<Claimer>>>,
    lane_claimers: Mutex<HashMap<QueueName, Arc<LaneClaimer>>>,
    returned: Arc<Returned>,
    fair_sql: Arc<FairSql>,
    fair_claimers: Mutex<HashMap<QueueName, Arc<FairClaimer>>>,
    sweeps: Sweeps,
}

/// How to open a [`PostgresStore`].
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    connect: PgConnectOptions,
    listen: Option<PgConnectOptions>,
    hearing: Hearing,
    route: Route,
    names: Names,
    limits: Limits,
    connections: u32,
    sweeps: Sweeps,
}

impl PostgresOptions {
    /// Connects to `url` with the default names, with up to eight connections for claims and settlements.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn new(url: &str) -> Result<Self, Error> {
        Ok(Self {
            connect: read_url("url", url)?,
            listen: None,
            hearing: Hearing::default(),
            route: Route::Direct,
            names: Names::default(),
            limits: Limits::default(),
            connections: 8,
            sweeps: Sweeps::All,
        })
    }

    /// Keeps the tables elsewhere.
    #[must_use]
    pub fn with_names(mut self, names: Names) -> Self {
        self.names = names;
        self
    }

    /// Moves the size limits of [`PostgresStore::outbox`].
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Opens up to so many connections for claims and settlements, and two for the rest.
    #[must_use]
    pub fn with_connections(mut self, connections: u32) -> Self {
        self.connections = connections;
        self
    }

    /// Connects through a pooler that lends a session of the server for one transaction at a time, such as PgBouncer with
    /// `pool_mode = transaction`. Nothing of the store outlives a transaction there: each statement brings its settings
    /// along and is not kept prepared, which costs four round trips instead of one. [`PostgresStore::outbox`] and
    /// [`PostgresStore::transactions`] do not keep statements prepared either.
    ///
    /// What a pooler cannot do still needs a direct way: signals ([`with_listen_url`](Self::with_listen_url); without it,
    /// workers poll) and migrations, whose lock belongs to a session.
    #[must_use]
    pub fn behind_pooler(mut self) -> Self {
        self.route = Route::Pooled;
        // Poolers refuse what they do not know at the start of a connection.
        self.connect = self.connect.extra_float_digits(None);
        self
    }

    /// Listens for signals on a connection to `url`: the server itself, where the rest goes through a pooler.
    ///
    /// # Errors
    /// When the URL cannot be read.
    pub fn with_listen_url(mut self, url: &str) -> Result<Self, Error> {
        self.listen = Some(read_url("listen_url", url)?);
        Ok(self)
    }

    /// Notices sooner that nothing is heard: for tests, which have no time.
    #[doc(hidden)]
    #[must_use]
    pub fn with_hearing(mut self, silence: Duration, answers_within: Duration) -> Self {
        self.hearing = Hearing { silence, answers_within };
        self
    }

    /// Claims by the mark alone, and so misses late commits: the negative control of the tests.
    #[doc(hidden)]
    #[must_use]
    pub fn without_sweeps(mut self) -> Self {
        self.sweeps = Sweeps::MarkOnly;
        self
    }
}

/// Its error is without the URL, which may hold a password.
fn read_url(field: &'static str, url: &str) -> Result<PgConnectOptions, Invalid> {
    PgConnectOptions::from_str(url).map_err(|error| {
        Invalid::rule(field, format!("{error}; write it as postgres://user@host:5432/database"))
    })
}

impl PostgresStore {
    /// Connects to `url` with the default options.
    ///
    /// # Errors
    /// When the URL cannot be read, or the server cannot be reached.
    pub async fn connect(url: &str) -> Result<Self, Error> {
        Self::open(PostgresOptions::new(url)?).await
    }

    /// Connects as `options` say.
    ///
    /// # Errors
    /// When the server cannot be reached.
    pub async fn open(options: PostgresOptions) -> Result<Self, Error> {
        let pool = PgPoolOptions::new()
            // Two besides those that claims and settlements keep.
            .max_connections(options.connections + 2)
            .acquire_timeout(Duration::from_secs(10));
        let pool = match options.route {
            Route::Direct => pool.after_connect(|connection, _| Box::pin(pool::settle_in(connection))),
            // Settings would stay in sessions that are lent to others next.
            Route::Pooled => guard(pool),
        };
        let pool = pool
            .connect_with(options.connect.clone().application_name("postrider"))
            .await
            .map_err(store_error)?;
        let listen = options.listen.or_else(|| match options.route {
            Route::Direct => Some(options.connect.clone()),
            Route::Pooled => None,
        });
        let names = options.names;
        Ok(Self {
            inner: Arc::new(Inner {
                connections: Connections::new(pool.clone(), options.connections, options.route),
                pool,
                listen,
                hearing: options.hearing,
                connect: options.connect,
                route: options.route,
                queues: Queues::new(&names),
                claim_sql: Arc::new(ClaimSql::new(&names)),
                settle_sql: SettleSql::default(),
                claimers: Mutex::default(),
                returned: Arc::default(),
                lane_claimers: Mutex::default(),
                fair_sql: Arc::new(FairSql::new(&names)),
                fair_claimers: Mutex::default(),
                limits: options.limits,
                sweeps: options.sweeps,
                names,
            }),
        })
    }

    /// Stages in the tables of this store.
    pub fn outbox(&self) -> PostgresOutbox {
        let outbox = PostgresOutbox::with_limits(self.inner.names.clone(), self.inner.limits);
        if self.inner.route == Route::Pooled { outbox.behind_pooler() } else { outbox }
    }

    /// Admits in the tables of this store.
    pub fn inbox(&self) -> PostgresInbox {
        let inbox = PostgresInbox::new(&self.inner.names);
        if self.inner.route == Route::Pooled { inbox.behind_pooler() } else { inbox }
    }

    /// Transactions of your own pool, which must lead to the same database, in which handlers run and their messages end.
    /// They see the settings of that pool, not those of the store's own connections.
    ///
    /// Set `idle_in_transaction_session_timeout` there: a process that freezes in the middle of a handler holds its message
    /// until the server ends its session, since it might still commit.
    pub fn transactions(&self, pool: PgPool) -> PostgresTransactions {
        PostgresTransactions::new(self.clone(), pool)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.inner.connections.forget();
        self.inner.pool.close().await;
    }

    /// The hot statements, for tests that read their plans.
    #[doc(hidden)]
    pub fn statements(&self) -> Vec<(&'static str, String)> {
        let inner = &self.inner;
        let claims = inner.claim_sql.texts().map(|(name, text)| (name, text.to_owned()));
        let fair = inner.fair_sql.texts().map(|(name, text)| (name, text.to_owned()));
        let settles = inner.settle_sql.texts(&inner.names);
        let bulk = selection::texts(&inner.names);
        claims.into_iter().chain(fair).chain(settles).chain(bulk).collect()
    }

    /// Where the next claim from an unordered queue starts, for tests that read its plan.
    #[doc(hidden)]
    pub async fn mark(&self, queue: &QueueName) -> Result<i64, Error> {
        let queues = self.existing(std::slice::from_ref(queue)).await?;
        Ok(self.claimer(&queues).marks().first().copied().unwrap_or(0))
    }

    /// The same for a queue whose tenants take turns: where new rows begin, and each tenant's mark and whether it waits.
    #[doc(hidden)]
    pub async fn tenant_marks(&self, queue: &QueueName) -> (i64, Vec<(String, i64, bool)>) {
        self.fair_claimer(queue).marks().await
    }

    fn claimer(&self, queues: &[Arc<Queue>]) -> Arc<Claimer> {
        let key: Vec<QueueName> = queues.iter().map(|queue| queue.name.clone()).collect();
        let inner = &self.inner;
        let make = || {
            let returned = Arc::clone(&inner.returned);
            Claimer::new(Arc::clone(&inner.claim_sql), key.len(), inner.sweeps, returned)
        };
        remembered(&self.inner.claimers, key.clone(), make)
    }

    fn lane_claimer(&self, queue: &QueueName) -> Arc<LaneClaimer> {
        remembered(&self.inner.lane_claimers, queue.clone(), || LaneClaimer::new(&self.inner.names))
    }

    fn fair_claimer(&self, queue: &QueueName) -> Arc<FairClaimer> {
        let make = || FairClaimer::new(Arc::clone(&self.inner.fair_sql), self.inner.sweeps);
        remembered(&self.inner.fair_claimers, queue.clone(), make)
    }

    /// Settles in an open transaction, and stages there what is to be staged with it.
    async fn settle_in_transaction(
        &self,
        tx: &mut sqlx::Transaction<'_, Postgres>,
        settlements: &[Settle],
    ) -> Result<Vec<Lease>, Error> {
        // Nothing is asked for again that may be rolled back.
        let lost = match self.inner.route {
            Route::Direct => self.settle_on(&mut **tx, None, settlements).await?,
            Route::Pooled => self.settle_on(Unprepared(tx), None, settlements).await?,
        };
        let messages = Settle::staged_by(settlements, &lost);
        if !messages.is_empty() {
            self.outbox().stage_all(tx, &messages).await?;
        }
        Ok(lost)
    }

    /// Settles what stages something besides, which takes a transaction.
    async fn settle_and_stage(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        let mut lent = Lent::by(&self.inner.pool).await?;
        let mut tx = lent.begin(self.inner.route).await?;
        let lost = self.settle_in_transaction(&mut tx, settlements).await?;
        tx.commit().await.map_err(store_error)?;
        lent.give_back();
        Ok(lost)
    }

    async fn settle_on(
        &self,
        mut on: impl Fetch,
        returned: Option<&Returned>,
        settlements: &[Settle],
    ) -> Result<Vec<Lease>, Error> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        // On the same connection: whoever holds one and waits for another may wait for ever.
        let queues = settlements.iter().map(|settle| settle.lease.queue());
        let known = self.inner.queues.known(&mut on, queues).await?;
        self.settle_known(on, &known, returned, settlements).await
    }

    /// Settles by what is known of the queues.
    async fn settle_known(
        &self,
        on: impl Fetch,
        known: &Known,
        returned: Option<&Returned>,
        settlements: &[Settle],
    ) -> Result<Vec<Lease>, Error> {
        let inner = &self.inner;
        let floor = |queue: &QueueName| self.lane_claimer(queue).settled_floor();
        inner.settle_sql.settle(on, &inner.names, known, floor, returned, settlements).await
    }

    /// The queues among those asked for that exist.
    async fn existing(&self, names: &[QueueName]) -> Result<Vec<Arc<Queue>>, Error> {
        let inner = &self.inner;
        let known = inner.queues.known(&mut &inner.connections, names).await?;
        Ok(names.iter().filter_map(|name| known.named(name)).cloned().collect())
    }
}

fn remembered<K: Eq + Hash, V>(map: &Mutex<HashMap<K, Arc<V>>>, key: K, make: impl FnOnce() -> V) -> Arc<V> {
    let mut map = map.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(map.entry(key).or_insert_with(|| Arc::new(make())))
}

#[async_trait]
impl Store for PostgresStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        request.check()?;
        let connections = &self.inner.connections;
        let mut want =
            Want { limit: request.limit(), lease_for: request.lease_for(), token: LeaseToken::fresh() };
        let mut queues = self.existing(request.queues()).await?;
        queues.retain(|queue| !queue.is_paused);
        let (ordered, unordered): (Vec<_>, Vec<_>) =
            queues.into_iter().partition(|queue| queue.policy.ordering != Ordering::Unordered);
        let (fair, plain): (Vec<_>, Vec<_>) =
            unordered.into_iter().partition(|queue| queue.policy.fair_by_tenant);
        let mut claimed = Vec::new();
        if !plain.is_empty() && want.limit > 0 {
            claimed = self.claimer(&plain).claim(connections, &plain, want).await?;
        }
        for queue in fair {
            want.limit = request.limit() - claimed.len();
            if want.limit == 0 {
                break;
            }
            let weights = request.tenant_weights();
            claimed.extend(self.fair_claimer(&queue.name).claim(connections, &queue, want, weights).await?);
        }
        for queue in ordered {
            want.limit = request.limit() - claimed.len();
            if want.limit == 0 {
                break;
            }
            let (turns, empty) = self.lane_claimer(&queue.name).claim(connections, &queue, want).await?;
            claimed.extend(turns);
            if !empty.is_empty() {
                self.settle(&empty.iter().map(Lease::release).collect::<Vec<_>>()).await?;
            }
        }
        Ok(claimed.into_iter().map(|(_, claimed)| claimed).collect())
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        check_lease(lease_for)?;
        let inner = &self.inner;
        let queues = leases.iter().map(Lease::queue);
        let known = inner.queues.known(&mut &inner.connections, queues).await?;
        renew::renew(&inner.connections, &inner.names, &known, leases, lease_for).await
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        if settlements.iter().any(|settle| !settle.settlement.messages().is_empty()) {
            return self.settle_and_stage(settlements).await;
        }
        self.settle_on(&self.inner.connections, Some(&self.inner.returned), settlements).await
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        prune::prune(&self.inner.connections, &self.inner.names, request).await
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.paused_work().await
    }

    async fn ping(&self) -> Result<(), Error> {
        self.inner.connections.run(sqlx::query("select 1")).await.map(|_| ())
    }
}
