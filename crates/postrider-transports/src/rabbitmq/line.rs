//! The connection to the broker, and channels on it that confirm.
//!
//! One batch has a channel at a time, and has it for itself: what comes back on it belongs to that batch and to no other. A channel
//! goes back to the shelf only when every answer of its batch was read. A call that is dropped before takes its channel along, and
//! its connection is not used again: nobody knows what is still under way there.

use super::broker::Broker;
use lapin::{Channel, Connection, options::ConfirmSelectOptions};
use std::{
    error::Error as StdError,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::time::timeout;

/// More than these are not kept open while nobody needs them.
const SHELF: usize = 16;

/// There is no connection, for this reason.
#[derive(Debug)]
pub(super) struct NoLine(String);

/// Connects when it is needed, and again when a connection has ended.
pub(super) struct Lines {
    broker: Broker,
    connect_within: Duration,
    current: Mutex<Option<Arc<Line>>>,
    /// One connects, the others wait for that.
    connecting: tokio::sync::Mutex<()>,
}

/// A connection.
pub(super) struct Line {
    connection: Connection,
    shelf: Mutex<Vec<Channel>>,
}

/// A channel that one batch has for itself.
pub(super) struct Loan<'a> {
    lines: &'a Lines,
    line: Arc<Line>,
    pub(super) channel: Channel,
    is_over: bool,
}

impl Lines {
    pub(super) fn new(broker: Broker, connect_within: Duration) -> Self {
        Self { broker, connect_within, current: Mutex::default(), connecting: tokio::sync::Mutex::default() }
    }

    /// The connection that works, or a new one.
    pub(super) async fn line(&self) -> Result<Arc<Line>, NoLine> {
        if let Some(line) = self.working() {
            return Ok(line);
        }
        let _turn = self.connecting.lock().await;
        if let Some(line) = self.working() {
            return Ok(line);
        }
        let connection = match timeout(self.connect_within, self.broker.connect()).await {
            Ok(connected) => connected.map_err(|error| self.cannot_connect(&error))?,
            Err(_) => return Err(self.cannot_connect(&format!("no answer in {:?}", self.connect_within))),
        };
        let line = Arc::new(Line { connection, shelf: Mutex::default() });
        *lock(&self.current) = Some(Arc::clone(&line));
        Ok(line)
    }

    /// A channel with confirms, for one batch.
    pub(super) async fn lend(&self, line: &Arc<Line>) -> Result<Loan<'_>, NoLine> {
        let shelved = lock(&line.shelf).pop().filter(|channel| channel.status().connected());
        let channel = match shelved {
            Some(channel) => channel,
            None => match timeout(self.connect_within, line.open()).await {
                Ok(opened) => opened.map_err(|error| {
                    self.retire(line);
                    self.cannot_connect(&error)
                })?,
                Err(_) => {
                    self.retire(line);
                    return Err(self.cannot_connect(&format!("no channel in {:?}", self.connect_within)));
                }
            },
        };
        Ok(Loan { lines: self, line: Arc::clone(line), channel, is_over: false })
    }

    /// Closes, properly where that is possible within the time for connecting.
    pub(super) async fn close(&self) {
        let last = lock(&self.current).take();
        if let Some(line) = last {
            timeout(self.connect_within, line.connection.close(200, "closed".into())).await.ok();
        }
    }

    fn working(&self) -> Option<Arc<Line>> {
        lock(&self.current).clone().filter(|line| line.connection.status().connected())
    }

    /// The next call gets another one. Those who have it finish with it.
    pub(super) fn retire(&self, line: &Arc<Line>) {
        let mut current = lock(&self.current);
        if current.as_ref().is_some_and(|current| Arc::ptr_eq(current, line)) {
            *current = None;
        }
    }

    /// Names the server, and no password.
    fn cannot_connect(&self, why: &dyn fmt::Display) -> NoLine {
        let uri = &self.broker.uri;
        let authority = &uri.authority;
        NoLine(format!(
            "no connection to RabbitMQ at {}:{} (user {}, virtual host {}): {why}",
            authority.host, authority.port, authority.userinfo.username, uri.vhost
        ))
    }
}

impl Line {
    /// A new channel, with confirms.
    async fn open(&self) -> lapin::Result<Channel> {
        let channel = self.connection.create_channel().await?;
        channel.confirm_select(ConfirmSelectOptions::default()).await?;
        Ok(channel)
    }

    /// A new channel, for questions.
    pub(super) async fn ask(&self) -> lapin::Result<Channel> {
        self.connection.create_channel().await
    }

    /// Whether the broker asks everybody to stop publishing, for want of memory or disk.
    pub(super) fn is_blocked(&self) -> bool {
        self.connection.status().blocked()
    }

    /// The most bytes in one frame.
    pub(super) fn frame_bytes(&self) -> usize {
        usize::try_from(self.connection.configuration().frame_max()).unwrap_or(usize::MAX)
    }
}

impl Loan<'_> {
    /// Every answer was read. The channel is for the next batch, if the broker has not closed it.
    pub(super) fn give_back(mut self) {
        self.is_over = true;
        let mut shelf = lock(&self.line.shelf);
        if self.channel.status().connected() && shelf.len() < SHELF {
            shelf.push(self.channel.clone());
        }
    }
}

impl Drop for Loan<'_> {
    fn drop(&mut self) {
        // While publishing is blocked a new connection would be let in with one message, against the broker's wish.
        if !self.is_over && !self.line.is_blocked() {
            self.lines.retire(&self.line);
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl fmt::Display for NoLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl StdError for NoLine {}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Line").finish_non_exhaustive()
    }
}

impl fmt::Debug for Lines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let authority = &self.broker.uri.authority;
        f.debug_struct("Lines")
            .field("host", &authority.host)
            .field("port", &authority.port)
            .finish_non_exhaustive()
    }
}
