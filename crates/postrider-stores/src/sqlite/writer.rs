//! The one connection that writes, and how it waits for its turn.
//!
//! SQLite has one writer at a time, whatever the number of connections and processes. So a store has one writing connection,
//! handed on in the order asked for, and every write is a short `BEGIN IMMEDIATE … COMMIT`: the lock is taken first, so that
//! nothing inside can find it taken. Only the `BEGIN` waits for others; it tries again, with pauses that differ between
//! processes, until the patience is used up.
//!
//! A [`Write`] takes the connection along. Committing puts it back; anything else (an error, a cancelled future) drops
//! it, and SQLite rolls back what it had begun. The next write opens another: that costs a millisecond, and there is no state to
//! get wrong.

use super::{
    drivers::{Driver, Failed},
    error::{is_busy, open_error, store_error},
    moment::Micros,
    names::Names,
    options::SqliteOptions,
    statement::Statement,
};
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

/// The longest pause between two tries.
const LONGEST_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug)]
pub(super) struct Writer {
    options: SqliteOptions,
    connect: SqliteConnectOptions,
    slot: Arc<Mutex<Option<SqliteConnection>>>,
}

/// A write in progress: it has the lock. Dropped before [`commit`](Self::commit), it never happened.
pub(super) struct Write {
    pub(super) connection: SqliteConnection,
    /// The store's time at which the write began.
    pub(super) now: Micros,
    slot: OwnedMutexGuard<Option<SqliteConnection>>,
}

impl Writer {
    pub(super) fn new(options: SqliteOptions) -> Self {
        Self { connect: options.writing(), options, slot: Arc::default() }
    }

    /// Opens the connection, so that what is wrong with the file is known at once.
    pub(super) async fn open(&self) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.patience;
        let connection = self.connect_by(self.connect.clone(), deadline).await?;
        *self.slot.lock().await = Some(connection);
        Ok(())
    }

    /// Begins a write, as soon as everybody before it is done.
    pub(super) async fn begin(&self, names: &Names) -> Result<Write, Error> {
        Ok(self.begin_with(names, "", |statement| statement).await?.0)
    }

    /// The same, and runs `first` at once. Answers with what it returns. Each text that the driver runs goes to another thread and
    /// back, which costs more than most statements: this is one text.
    pub(super) async fn begin_with(
        &self,
        names: &Names,
        first: &str,
        bind: impl Fn(Statement<'static>) -> Statement<'static>,
    ) -> Result<(Write, Vec<SqliteRow>), Error> {
        let deadline = Instant::now() + self.options.patience;
        let waiting = timeout_at(deadline, Arc::clone(&self.slot).lock_owned());
        let mut slot = waiting.await.map_err(|_| {
            Error::Unavailable("another write of this process takes longer than the patience".into())
        })?;
        let mut connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect_by(self.connect.clone(), deadline).await?,
        };
        let mut pauses = Pauses::until(deadline);
        // The time is read when the lock is there. A lock that is not has stopped everything after it.
        let text = format!("begin immediate; select {{now}}; {first}");
        loop {
            match connection.rows(bind(names.statement(&text))).await {
                Ok(mut rows) if !rows.is_empty() => {
                    let now = rows.remove(0).try_get(0).map_err(store_error)?;
                    return Ok((Write { connection, now, slot }, rows));
                }
                Ok(_) => return Err(store_error(sqlx::Error::RowNotFound)),
                Err(failed) => pauses.after(failed).await?,
            }
        }
    }

    /// Opens a connection of its own, for what does not go through [`begin`](Self::begin). It waits for locks by itself.
    pub(super) async fn connect(&self) -> Result<SqliteConnection, Error> {
        let patience = self.options.patience;
        self.connect_by(self.connect.clone().busy_timeout(patience), Instant::now() + patience).await
    }

    /// Opens the file. While another process opens it for the first time, it may be locked.
    async fn connect_by(
        &self,
        options: SqliteConnectOptions,
        deadline: Instant,
    ) -> Result<SqliteConnection, Error> {
        let mut pauses = Pauses::until(deadline);
        loop {
            match options.connect().await {
                Ok(connection) => return Ok(connection),
                Err(error) if is_busy(&error) && pauses.pause().await => {}
                Err(error) => return Err(open_error(self.options.path(), error)),
            }
        }
    }

    /// Closes the connection, once nobody writes.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.slot.lock().await.take() {
            // What was committed is in the file already; the rest is tidying up.
            let _ = connection.close().await;
        }
    }
}

impl Write {
    /// Takes it all back, and goes on with the connection.
    pub(super) async fn undo(mut self) -> Result<(), Error> {
        Executor::execute(&mut self.connection, "rollback").await.map_err(store_error)?;
        *self.slot = Some(self.connection);
        Ok(())
    }

    /// Makes it happen.
    pub(super) async fn commit(mut self) -> Result<(), Error> {
        Executor::execute(&mut self.connection, "commit").await.map_err(store_error)?;
        *self.slot = Some(self.connection);
        Ok(())
    }
}

/// Pauses that grow, up to a deadline. Their lengths differ between processes, so that two do not go on meeting.
pub(super) struct Pauses {
    deadline: Instant,
    next: Duration,
}

impl Pauses {
    fn until(deadline: Instant) -> Self {
        Self { deadline, next: Duration::from_millis(1) }
    }

    pub(super) fn lasting(patience: Duration) -> Self {
        Self::until(Instant::now() + patience)
    }

    /// Pauses after what failed, so that it can be tried again.
    ///
    /// # Errors
    /// With its error, when waiting does not help or there is no time left.
    pub(super) async fn after(&mut self, failed: Failed) -> Result<(), Error> {
        if failed.is_busy && self.pause().await { Ok(()) } else { Err(failed.error) }
    }

    /// Answers `false` when there is no time left.
    pub(super) async fn pause(&mut self) -> bool {
        if Instant::now() >= self.deadline {
            return false;
        }
        // A fresh v4 UUID is the randomness at hand.
        let share = f64::from(uuid::Uuid::new_v4().as_fields().0) / f64::from(u32::MAX);
        sleep(self.next.mul_f64(0.5 + 0.5 * share)).await;
        self.next = (self.next * 2).min(LONGEST_PAUSE);
        true
    }
}
