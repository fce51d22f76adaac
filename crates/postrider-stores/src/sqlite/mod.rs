//! The SQLite store: everything is in one file, next to the application's own tables, and there is nothing to install.
//!
//! **The tables** are those of every store: a message is in exactly one of `ready` (may run now, leased or not), `scheduled` (a timer
//! or a retry that is not due yet), `dead` and `archive`. On a queue ordered by key, `lane` has one row for each key with messages in
//! `ready`, and the key is leased, not its messages.
//!
//! **One writer.** SQLite lets one transaction write at a time, across all processes. That makes much of a queue simple: positions are
//! drawn in the order of commits, so a claim that starts at the head of its index misses nothing; nothing can change between the
//! reads and the writes of a transaction; there is nothing to lock but the file. It also means that every write must be short, and
//! that an idle worker must not write at all. So each call of the store is one `BEGIN IMMEDIATE … COMMIT` (`writer.rs`), a claim reads
//! before it takes the lock (`claim.rs`), and reads go through connections of their own, which never wait in write-ahead mode.
//!
//! **The source of truth** is the file. This process keeps nothing in memory but open connections and the turns of the tenants of
//! each fair queue (`turns.rs`), which are a hint: every transaction reads the policies and the time, which is SQLite's own.
//!
//! **On failure.** A call waits up to half a minute for a lock that another writer holds. A call that fails, or whose future is
//! dropped, has changed nothing: its connection is closed, and SQLite rolls back. The errors for a full disk and a read-only file say
//! what to do.
//!
//! **Why it is not simpler.** One table with a due time and a lease in each row would need an index that contains leased and
//! scheduled messages, and every claim would pass over both.

#[macro_use]
mod names;

mod applied_migrations;
mod bulk_insert;
mod checkup;
mod claim;
mod consumer;
mod delivered;
mod drivers;
mod erase;
mod error;
mod fairness;
mod fast_claim;
mod find;
mod follow_up_store;
mod follow_ups;
mod inbox;
mod inspect;
mod lanes;
mod ledger;
mod list;
mod listener;
mod notifier;
mod operate;
mod options;
mod pauses;
mod prune;
mod queues;
mod removal;
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
mod statement_batch;
mod timers;
mod timestamp;
mod timetable;
mod transactions;
mod tx_backend;
mod validate;
mod writer;

pub use checkup::SqliteFile;
pub use inbox::SqliteInbox;
pub use ledger::SqliteLedger;
pub use names::SqliteNames;
pub use options::{Durability, SqliteOptions};
pub use stage::SqliteOutbox;
pub use transactions::SqliteTransactions;

use crate::turns::Turns;
use async_trait::async_trait;
use error::{open_error, store_error};
use postrider_core::{
    ClaimRequest, ClaimedMessage, Error, Lease, LeaseSettlement, Message, PauseRecord, PruneReport,
    PruneRequest, ScheduleName, Store, inspect::StateFilter, store::check_lease, timetable::ScheduleReading,
};
use sqlx::{Connection, SqliteConnection, SqlitePool, sqlite::SqlitePoolOptions};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};
use writer::Writer;

/// A store in an SQLite file. Cheap to clone; clones share connections. Any number of processes may open the same file.
///
/// ```no_run
/// # async fn run() -> Result<(), postrider_core::Error> {
/// use postrider_core::{ClaimRequest, Store, schema::Schema};
/// use postrider_stores::sqlite::SqliteStore;
///
/// let store = SqliteStore::open("shop.db").await?;
/// store.migrate().await?;
/// for claimed in store.claim(&ClaimRequest::new("orders".try_into()?, 100)).await? {
///     println!("{}", claimed.id());
///     store.settle(&[claimed.lease.done()]).await?;
/// }
/// # Ok(()) }
/// ```
#[derive(Debug, Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    writer: Writer,
    readers: SqlitePool,
    names: SqliteNames,
    options: SqliteOptions,
    /// The turns of the tenants of each fair queue, by the queue's number.
    turns: Mutex<HashMap<i64, Turns>>,
}

impl SqliteStore {
    /// Opens the file at `path` with the default options, and creates it if it is missing.
    ///
    /// # Errors
    /// The file cannot be opened or created, or is not a database.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_with(SqliteOptions::new(path)).await
    }

    /// Opens a file with these options.
    ///
    /// # Errors
    /// The file cannot be opened or created, or is not a database.
    pub async fn open_with(options: SqliteOptions) -> Result<Self, Error> {
        let writer = Writer::new(options.clone());
        // Creates the file and enables write-ahead logging, which the readers rely on.
        writer.open().await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers)
            .acquire_timeout(options.busy_timeout)
            .test_before_acquire(false)
            .connect_with(options.reader_options())
            .await
            .map_err(|error| open_error(options.path(), error))?;
        Ok(Self {
            inner: Arc::new(Inner {
                writer,
                readers,
                names: options.names.clone(),
                options,
                turns: Mutex::default(),
            }),
        })
    }

    /// The outbox of this store.
    pub fn outbox(&self) -> SqliteOutbox {
        SqliteOutbox::with_limits(self.inner.names.clone(), self.inner.options.limits)
    }

    /// The inbox of this store.
    pub fn inbox(&self) -> SqliteInbox {
        SqliteInbox::new(self.inner.names.clone())
    }

    /// The audit ledger of this store.
    pub fn ledger(&self) -> SqliteLedger {
        SqliteLedger::new(self.clone())
    }

    /// Returns the space of deleted rows to the file system (`VACUUM`). SQLite rewrites the file, which temporarily needs as much free
    /// space again and blocks all writers.
    ///
    /// # Errors
    /// Another transaction holds the write lock, or the disk is full.
    pub async fn vacuum(&self) -> Result<(), Error> {
        let mut connection = SqliteConnection::connect_with(&self.inner.options.writer_options())
            .await
            .map_err(store_error)?;
        let vacuumed = sqlx::query("vacuum").execute(&mut connection).await.map_err(store_error);
        connection.close().await.ok();
        vacuumed.map(|_| ())
    }

    /// The statements of the hot paths, for tests of their query plans.
    #[doc(hidden)]
    pub fn statements(&self) -> Vec<(&'static str, String)> {
        let templates = [
            ("is anything due", sql!(claim::IS_ANYTHING_DUE)),
            ("due messages", sql!(claim::DUE)),
            ("promote", claim::promote_template()),
            ("free and expired messages", sql!(claim::FREE_OR_EXPIRED)),
            ("fast claim", fast_claim::template()),
            ("lease free messages", claim::lease_free_template()),
            ("lease by position", claim::lease_by_position_template()),
            ("tenants", sql!(fairness::TENANTS)),
            ("messages of a tenant", sql!(fairness::TENANT_MESSAGES)),
            ("expired messages of tenants", sql!(fairness::EXPIRED)),
            ("messages not indexed by tenant", sql!(fairness::NOT_BY_TENANT)),
            ("delete delivered messages", sql!(delivered::DELETE)),
            ("runnable lanes", sql!(lanes::RUNNABLE)),
            ("heads of lanes", sql!(lanes::HEADS)),
            ("lease lanes", sql!(lanes::LEASE)),
            ("fetch messages", claim::fetch_template()),
            ("open lanes", sql!(lanes::OPEN)),
            ("close lanes", sql!(lanes::CLOSE)),
            ("free lanes", sql!(settle_batch::FREE_LANES)),
            ("leases", sql!(renew::LEASED_ROWS)),
            ("renew lanes", sql!(renew::RENEW_LANES)),
            ("delete", sql!(settle_batch::DELETE)),
            ("release", sql!(settle_batch::RELEASE)),
            ("end a timer", sql!(settle_batch::END_TIMER)),
            ("fail", sql!(settle_batch::FAIL)),
            ("archive", settle_batch::archive_template()),
            ("dead-letter", settle_batch::dead_letter_template()),
            ("schedule", settle_batch::schedule_template()),
            ("stage in one statement", stage::stage_statement("orders", &[], &[]).0),
            ("signal", sql!(stage::SIGNAL)),
            ("known ids", sql!(stage::KNOWN_IDS)),
            ("admit", sql!(inbox::ADMIT)),
            ("prune the archive", sql!(prune::ARCHIVED)),
            ("prune dead letters", sql!(prune::DEAD)),
            ("find the next consumer of the inbox", sql!(prune::NEXT_CONSUMER)),
            ("prune the inbox", sql!(prune::DEDUPLICATION_RECORDS)),
            ("page of ready messages", list::page_template(StateFilter::Ready)),
            ("page of scheduled messages", list::page_template(StateFilter::Scheduled)),
            ("page of dead letters", list::page_template(StateFilter::Dead)),
            ("next dead letters", selection::pick_template(StateFilter::Dead)),
            ("next archived messages", selection::pick_template(StateFilter::Done)),
            ("group is open", sql!(follow_up_store::GROUP_IS_OPEN)),
            (
                "clear the payload of an archived message",
                sql!(follow_up_store::FORGET, table = sql!("{archive}")),
            ),
            ("clear the payload of a dead letter", sql!(follow_up_store::FORGET, table = sql!("{dead}"))),
            ("reschedule", sql!(follow_up_store::RESCHEDULE)),
            ("counts of follow-ups", follow_ups::counts_template()),
            ("abandoned follow-ups", follow_ups::abandoned_template()),
            ("scheduled follow-ups", follow_ups::scheduled_template()),
            ("messages about a subject", erase::by_subject_template()),
            ("head before an append", sql!(ledger::BEFORE)),
            ("links of a subject", sql!(ledger::OF_SUBJECT)),
            ("links since", sql!(ledger::SINCE)),
            ("links", sql!(ledger::LINKS)),
        ];
        templates.map(|(name, template)| (name, self.inner.names.render(template.as_str()))).into()
    }

    /// Transactions of your own pool, which must connect to the same file: handlers run and their messages are settled in them. One
    /// runs at a time, because SQLite has one writer: keep such handlers short.
    pub fn transactions(&self, pool: SqlitePool) -> SqliteTransactions {
        SqliteTransactions::new(self.clone(), pool)
    }

    /// Closes the connections.
    pub async fn close(&self) {
        self.inner.readers.close().await;
        self.inner.writer.close().await;
    }
}

#[async_trait]
impl Store for SqliteStore {
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<ClaimedMessage>, Error> {
        request.check()?;
        let inner = &self.inner;
        if request.limit() == 0
            || !claim::is_anything_due(&inner.readers, &inner.names, request.queues()).await?
        {
            return Ok(Vec::new());
        }
        let (mut write, mut claimed) = fast_claim::claim(&inner.writer, &inner.names, request).await?;
        if claimed.is_empty() {
            claimed = claim::claim(&mut write, &inner.names, request, &inner.turns).await?;
        }
        write.commit().await?;
        Ok(claimed)
    }

    async fn renew(&self, leases: &[Lease], lease_for: Duration) -> Result<Vec<Lease>, Error> {
        check_lease(lease_for)?;
        if leases.is_empty() {
            return Ok(Vec::new());
        }
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let lost = renew::renew(&mut write, &self.inner.names, leases, lease_for).await?;
        write.commit().await?;
        Ok(lost)
    }

    async fn settle(&self, settlements: &[LeaseSettlement]) -> Result<Vec<Lease>, Error> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &self.inner;
        if delivered::settle(&inner.writer, &inner.names, settlements).await? {
            return Ok(Vec::new());
        }
        let mut write = inner.writer.begin(&inner.names).await?;
        let lost = settle::settle(&mut write.connection, &inner.names, settlements, write.now).await?;
        let messages = LeaseSettlement::staged_by(settlements, &lost);
        if !messages.is_empty() {
            self.outbox().stage_on(&mut write.connection, &messages).await?;
        }
        write.commit().await?;
        Ok(lost)
    }

    async fn count_isolated(&self, lease: &Lease) -> Result<bool, Error> {
        let inner = &self.inner;
        let mut write = inner.writer.begin(&inner.names).await?;
        let is_held = renew::count_isolated(&mut write, &inner.names, lease).await?;
        write.commit().await?;
        Ok(is_held)
    }

    async fn prune(&self, request: &PruneRequest) -> Result<PruneReport, Error> {
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let pruned = prune::prune(&mut write, &self.inner.names, request).await?;
        write.commit().await?;
        Ok(pruned)
    }

    async fn paused(&self) -> Result<Vec<PauseRecord>, Error> {
        self.paused_work().await
    }

    async fn ping(&self) -> Result<(), Error> {
        let row = sqlx::query("select 1").fetch_one(&self.inner.readers).await;
        row.map(|_| ()).map_err(store_error)
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
