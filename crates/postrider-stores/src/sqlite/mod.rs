//! The SQLite store: everything in one file, beside the application's own tables, and nothing to install.
//!
//! **The rooms** are those of every store: a message is in exactly one of `ready` (may run now, leased or not), `later` (a timer
//! or a retry that waits), `dead` and `archive`, and each is a table. On a queue ordered by key, `lane` holds one row per living
//! key, and the key is leased, not its messages.
//!
//! **One writer.** SQLite lets one transaction write at a time, in whatever process. That makes much of a queue simple: places are
//! drawn in the order of commits, so a claim that starts at the head of its index misses nothing; nothing can change between what
//! a transaction reads and what it writes; there is nothing to lock but the file. It also means that every write must be short, and
//! that an idle worker must not write at all. So each call of the store is one `BEGIN IMMEDIATE … COMMIT` (`writer.rs`), a claim looks
//! before it asks for the lock (`claim.rs`), and looking goes through connections of its own, which in write-ahead mode wait
//! for nobody.
//!
//! **Who is authoritative.** The file. This process keeps nothing in memory but open connections, and whose turn it is among the
//! tenants of a queue (`turns.rs`), which is a hint: policies are read in each transaction, and so is the time, which is SQLite's
//! own, once for each transaction.
//!
//! **On failure.** A lock that somebody else holds is waited for, for half a minute. A call that fails, or whose future is
//! dropped, has changed nothing: its connection is closed, and SQLite rolls back. A full disk or a read-only file is told in words.
//!
//! **Why it is not simpler.** One table with a due time and a lease in each row would need an index that holds what is leased and
//! what lies ahead, and every claim would walk over both.

mod checkup;
mod claim;
mod clue;
mod delivered;
mod docket;
mod drivers;
mod each;
mod endings;
mod erase;
mod error;
mod evict;
mod fair;
mod follow;
mod front;
mod inbox;
mod inspect;
mod lanes;
mod leases;
mod ledger;
mod mend;
mod moment;
mod names;
mod operate;
mod options;
mod page;
mod pauses;
mod prune;
mod queues;
mod receive;
mod record;
mod row;
mod rows;
mod saga_log;
mod schema;
mod selection;
mod settle;
mod stage;
mod statement;
mod timers;
mod timetable;
mod transact;
mod validate;
mod wake;
mod writer;

pub use checkup::SqliteFile;
pub use inbox::SqliteInbox;
pub use ledger::SqliteLedger;
pub use names::Names;
pub use options::{Durability, SqliteOptions};
pub use stage::SqliteOutbox;
pub use transact::SqliteTransactions;

use crate::turns::Turns;
use async_trait::async_trait;
use error::{open_error, store_error};
use postrider_core::{
    ClaimRequest, Claimed, Error, Lease, Paused, PruneRequest, Pruned, Settle, Store, inspect::Room,
    store::check_lease,
};
use sqlx::{Connection, SqliteConnection, SqlitePool, sqlite::SqlitePoolOptions};
use std::{
    collections::HashMap,
    path::PathBuf,
    sync::{Arc, Mutex},
    time::Duration,
};
use writer::Writer;

/// Messages in a file of SQLite. Cheap to clone; clones share connections. Any number of processes may open the same file.
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
    names: Names,
    options: SqliteOptions,
    /// Whose turn it is in each queue that is fair to its tenants.
    turns: Mutex<HashMap<i64, Turns>>,
}

impl SqliteStore {
    /// Opens the file at `path`, which is made when it is missing, with the default options.
    ///
    /// # Errors
    /// When the file cannot be opened or made, or is no database.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        Self::open_with(SqliteOptions::new(path)).await
    }

    /// Opens a file as `options` say.
    ///
    /// # Errors
    /// When the file cannot be opened or made, or is no database.
    pub async fn open_with(options: SqliteOptions) -> Result<Self, Error> {
        let writer = Writer::new(options.clone());
        // Makes the file and turns write-ahead logging on, which the readers rely on.
        writer.open().await?;
        let readers = SqlitePoolOptions::new()
            .max_connections(options.readers)
            .acquire_timeout(options.patience)
            .test_before_acquire(false)
            .connect_with(options.reading())
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

    /// Stages in the tables of this store.
    pub fn outbox(&self) -> SqliteOutbox {
        SqliteOutbox::with_limits(self.inner.names.clone(), self.inner.options.limits)
    }

    /// Admits in the tables of this store.
    pub fn inbox(&self) -> SqliteInbox {
        SqliteInbox::new(self.inner.names.clone())
    }

    /// The ledger in the tables of this store.
    pub fn ledger(&self) -> SqliteLedger {
        SqliteLedger::new(self.clone())
    }

    /// Gives the room of what was removed back to the file system. The file is written anew: that needs as much room again while it lasts,
    /// and whoever writes waits for it.
    ///
    /// # Errors
    /// When somebody else writes, or there is no room.
    pub async fn vacuum(&self) -> Result<(), Error> {
        let mut connection =
            SqliteConnection::connect_with(&self.inner.options.writing()).await.map_err(store_error)?;
        let vacuumed = sqlx::query("vacuum").execute(&mut connection).await.map_err(store_error);
        connection.close().await.ok();
        vacuumed.map(|_| ())
    }

    /// The statements of the hot paths, for tests that read their plans.
    #[doc(hidden)]
    pub fn statements(&self) -> Vec<(&'static str, String)> {
        let templates = [
            ("look", claim::LOOK.to_owned()),
            ("what has come due", claim::COME.to_owned()),
            ("promote", claim::promote_template()),
            ("free messages", claim::FREE.to_owned()),
            ("lease the front", front::template()),
            ("lease what is free", claim::lease_free_template()),
            ("lease what has lapsed", claim::lease_lapsed_template()),
            ("tenants", fair::TENANTS.to_owned()),
            ("a tenant's line", fair::LINE.to_owned()),
            ("lapsed messages of tenants", fair::LAPSED.to_owned()),
            ("strays", fair::STRAYS.to_owned()),
            ("delete what was delivered", delivered::DELETE.to_owned()),
            ("runnable lanes", lanes::RUNNABLE.to_owned()),
            ("heads of lanes", lanes::HEADS.to_owned()),
            ("lease lanes", lanes::LEASE.to_owned()),
            ("fetch messages", claim::fetch_template()),
            ("open lanes", lanes::OPEN.to_owned()),
            ("close lanes", lanes::CLOSE.to_owned()),
            ("free lanes", endings::FREE_LANES.to_owned()),
            ("leases", leases::STANDS.to_owned()),
            ("renew lanes", leases::RENEW_LANES.to_owned()),
            ("delete", endings::DELETE.to_owned()),
            ("release", endings::RELEASE.to_owned()),
            ("end a timer", endings::END_TIMER.to_owned()),
            ("fail", endings::FAIL.to_owned()),
            ("archive", endings::archive_template()),
            ("bury", endings::bury_template()),
            ("wait", endings::wait_template()),
            ("stage at once", stage::at_once("orders", &[], &[]).0),
            ("signal", stage::SIGNAL.to_owned()),
            ("known identities", stage::KNOWN.to_owned()),
            ("admit", inbox::ADMIT.to_owned()),
            ("prune the archive", prune::ARCHIVED.to_owned()),
            ("prune dead letters", prune::DEAD.to_owned()),
            ("find the next consumer of the inbox", prune::NEXT_CONSUMER.to_owned()),
            ("prune the inbox", prune::MARKS.to_owned()),
            ("page of what is ready", page::page_template(Room::Ready)),
            ("page of what waits", page::page_template(Room::Later)),
            ("page of dead letters", page::page_template(Room::Dead)),
            ("next dead letters", selection::pick_template(Room::Dead)),
            ("next of what is kept", selection::pick_template(Room::Archive)),
            ("what is left of a group", follow::LEFT.to_owned()),
            ("forget in the archive", follow::forget_template("{archive}")),
            ("forget in a dead letter", follow::forget_template("{dead}")),
            ("put off", follow::PUT_OFF.to_owned()),
            ("counts of follow-ups", docket::counts_template()),
            ("follow-ups given up", docket::abandoned_template()),
            ("follow-ups put off", docket::scheduled_template()),
            ("messages about a subject", erase::about_template()),
            ("before an event", ledger::BEFORE.to_owned()),
            ("links of a subject", ledger::OF_SUBJECT.to_owned()),
            ("links since", ledger::SINCE.to_owned()),
            ("links", ledger::LINKS.to_owned()),
        ];
        templates.map(|(name, template)| (name, self.inner.names.render(&template))).into()
    }

    /// Transactions of your own pool, which must lead to the same file, in which handlers run and their messages end. One
    /// runs at a time, since SQLite has one writer: keep such handlers short.
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
    async fn claim(&self, request: &ClaimRequest) -> Result<Vec<Claimed>, Error> {
        request.check()?;
        let inner = &self.inner;
        if request.limit() == 0
            || !claim::is_anything_due(&inner.readers, &inner.names, request.queues()).await?
        {
            return Ok(Vec::new());
        }
        let (mut write, mut claimed) = front::claim(&inner.writer, &inner.names, request).await?;
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
        let lost = leases::renew(&mut write, &self.inner.names, leases, lease_for).await?;
        write.commit().await?;
        Ok(lost)
    }

    async fn settle(&self, settlements: &[Settle]) -> Result<Vec<Lease>, Error> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let inner = &self.inner;
        if delivered::settle(&inner.writer, &inner.names, settlements).await? {
            return Ok(Vec::new());
        }
        let mut write = inner.writer.begin(&inner.names).await?;
        let lost = settle::settle(&mut write.connection, &inner.names, settlements, write.now).await?;
        let messages = Settle::staged_by(settlements, &lost);
        if !messages.is_empty() {
            self.outbox().stage_on(&mut write.connection, &messages).await?;
        }
        write.commit().await?;
        Ok(lost)
    }

    async fn prune(&self, request: &PruneRequest) -> Result<Pruned, Error> {
        let mut write = self.inner.writer.begin(&self.inner.names).await?;
        let pruned = prune::prune(&mut write, &self.inner.names, request).await?;
        write.commit().await?;
        Ok(pruned)
    }

    async fn paused(&self) -> Result<Vec<Paused>, Error> {
        self.paused_work().await
    }

    async fn ping(&self) -> Result<(), Error> {
        let answer = sqlx::query("select 1").fetch_one(&self.inner.readers).await;
        answer.map(|_| ()).map_err(store_error)
    }
}
