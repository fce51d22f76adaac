//! The writing connection of a store, and how it waits for the write lock.
//!
//! SQLite has one writer at a time, whatever the number of connections and processes. So a store has one writing connection,
//! used in the order of requests, and every write is a short `BEGIN IMMEDIATE … COMMIT`: the lock is taken first, so that no
//! statement inside can find it taken. Only the `BEGIN` waits for other processes; it is retried with a randomized backoff until the
//! busy timeout has passed.
//!
//! A [`Write`] owns the connection. A commit returns it to the writer; in all other cases (an error, a cancelled future) it is dropped,
//! and SQLite rolls the transaction back. The next write opens a new connection: that costs a millisecond, and there is no state to
//! get wrong.

use super::{
    drivers::{Driver, DriverError},
    error::{is_busy, open_error, store_error},
    names::SqliteNames,
    options::SqliteOptions,
    statement::Statement,
    timestamp::Micros,
};
use crate::template::Template;
use postrider_core::Error;
use sqlx::{
    ConnectOptions, Connection, Executor, Row, SqliteConnection,
    sqlite::{SqliteConnectOptions, SqliteRow},
};
use std::{sync::Arc, time::Duration};
use tokio::{
    sync::{Mutex, OwnedMutexGuard},
    time::{Instant, sleep, timeout_at},
};

/// The longest pause between two attempts.
const MAX_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Writer {
    options: SqliteOptions,
    connect: SqliteConnectOptions,
    slot: Arc<Mutex<Option<SqliteConnection>>>,
}

/// A write in progress: it holds the write lock. If it is dropped before [`commit`](Self::commit), SQLite rolls it back.
pub(super) struct Write {
    pub(super) connection: SqliteConnection,
    /// The store's time when the write began.
    pub(super) now: Micros,
    slot: OwnedMutexGuard<Option<SqliteConnection>>,
}

impl Writer {
    pub(super) fn new(options: SqliteOptions) -> Self {
        Self { connect: options.writer_options(), options, slot: Arc::default() }
    }

    /// Opens the connection, so that problems with the file are reported immediately.
    pub(super) async fn open(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.busy_timeout;
        let connection = self.connect_until(self.connect.clone(), deadline).await?;
        *self.slot.lock().await = Some(connection);
        Ok(())
    }

    /// Begins a write, after the earlier ones have ended.
    pub(super) async fn begin(&self, names: &SqliteNames) -> Result<Write, Error> {
        Ok(self.begin_with(names, &sql!(""), |statement| statement).await?.0)
    }

    /// Begins a write, runs `first` in the same text, and returns its rows. Each text that the driver runs goes to another thread and
    /// back, which costs more than most statements.
    pub(super) async fn begin_with(
        &self,
        names: &SqliteNames,
        first: &Template,
        bind: impl Fn(Statement<'static>) -> Statement<'static>,
    ) -> Result<(Write, Vec<SqliteRow>), Error> {
        let deadline = Instant::now() + self.options.busy_timeout;
        let waiting = timeout_at(deadline, Arc::clone(&self.slot).lock_owned());
        let mut slot = waiting.await.map_err(|_| {
            Error::Unavailable(
                "another write of this process takes longer than the busy timeout: try again, or raise it"
                    .into(),
            )
        })?;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect_until(self.connect.clone(), deadline).await?,
        };
        let mut backoff = LockBackoff::until(deadline);
        // The time is read under the lock. Without the lock, the error of `begin` stops the statements after it.
        let text = sql!("begin immediate; select {now}; {first}", first);
        loop {
            match connection.rows(bind(names.statement(&text))).await {
                Ok(mut rows) if !rows.is_empty() => {
                    let now = rows.remove(0).try_get(0).map_err(store_error)?;
                    return Ok((Write { connection, now, slot }, rows));
                }
                Ok(_) => return Err(store_error(sqlx::Error::RowNotFound)),
                Err(failed) => backoff.wait_after(failed).await?,
            }
        }
    }

    /// Opens a separate connection, for writes that do not go through [`begin`](Self::begin). The driver waits for locks.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, Error> {
        let busy_timeout = self.options.busy_timeout;
        self.connect_until(self.connect.clone().busy_timeout(busy_timeout), Instant::now() + busy_timeout)
            .await
    }

    /// Opens the file. It may be locked while another process opens it for the first time.
    async fn connect_until(
        &self,
        options: SqliteConnectOptions,
        deadline: Instant,
    ) -> Result<SqliteConnection, Error> {
        let mut backoff = LockBackoff::until(deadline);
        loop {
            match options.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) if is_busy(&error) && backoff.wait().await => {}
                Err(error) => return Err(open_error(self.options.path(), error)),
            }
        }
    }

    /// Closes the connection after the current write.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.slot.lock().await.take() {
            // All commits are in the file already; closing only cleans up.
            let _ = connection.close().await;
        }
    }
}

impl Write {
    /// Rolls the write back and returns the connection to the writer.
    pub(super) async fn rollback(mut self) -> Result<(), Error> {
        Executor::execute(&mut self.connection, "rollback").await.map_err(store_error)?;
        *self.slot = Some(self.connection);
        Ok(())
    }

    /// Commits the write and returns the connection to the writer.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        Executor::execute(&mut self.connection, "commit").await.map_err(store_error)?;
        *self.slot = Some(self.connection);
        Ok(())
    }
}

/// An exponential backoff with jitter, up to a deadline: two processes do not retry in step.
pub(super) struct LockBackoff {
    deadline: Instant,
    next: Duration,
}

impl LockBackoff {
    fn until(deadline: Instant) -> Self {
        Self { deadline, next: Duration::from_millis(1) }
    }

    pub(super) fn for_duration(busy_timeout: Duration) -> Self {
        Self::until(Instant::now() + busy_timeout)
    }

    /// Waits after an error, so that the statement can be retried.
    ///
    /// # Errors
    /// The same error, if waiting does not help or the deadline has passed.
    pub(super) async fn wait_after(&mut self, failed: DriverError) -> Result<(), Error> {
        if failed.is_busy && self.wait().await { Ok(()) } else { Err(failed.error) }
    }

    /// Waits for the next pause. Returns `false` if the deadline has passed.
    pub(super) async fn wait(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        // A v4 UUID provides the randomness.
        let share = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        sleep(self.next.mul_f64(0.5 + 0.5 * share)).await;
        self.next = (self.next * 2).min(MAX_PAUSE);
        true
    }
}
