//! A session with a broker: one connection at a time, opened on first use, replaced after an error, and closed once.
//!
//! Every source and every transport with a connection has the same needs. Concurrent callers share one attempt to connect. A connection
//! that failed one call is suspect: the next call opens a new one, while calls in flight finish on the old one. An error of the old
//! connection may arrive after the new one is in use; connections are numbered, so that this error does not suspect the new one.
//!
//! Every future may be dropped at any await: a caller that is dropped while it opens a connection makes room for the next caller.

use postrider_core::{PublishError, SourceError};
use std::{
    fmt,
    ops::Deref,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{sync::watch, time::timeout};

/// A connection, from connect to loss. It never recovers: a lost or suspect connection is replaced by a new one.
pub(crate) trait ReusableConnection {
    /// Whether new calls may start on this connection, as far as the connection knows.
    fn is_usable(&self) -> bool {
        true
    }

    /// The session has replaced this connection, or is about to.
    fn abandon(&self) {}
}

/// An error that a session itself returns.
pub(crate) trait SessionError {
    /// The session is closed.
    fn closed() -> Self;

    /// No connection was opened in time.
    fn timed_out(within: Duration) -> Self;
}

/// Holds the current connection, and opens a new one when there is none or the last one is unusable.
pub(crate) struct Session<C> {
    state: Mutex<State<C>>,
    /// One caller opens a connection, the others wait for it.
    opening: tokio::sync::Mutex<()>,
    open_timeout: Duration,
    is_closed: watch::Sender<bool>,
}

struct State<C> {
    current: Option<Generation<C>>,
    /// The number of connections opened so far.
    opened: u64,
}

/// One connection of a session, with its number.
pub(crate) struct Generation<C> {
    number: u64,
    connection: Arc<C>,
}

impl<C: ReusableConnection> Session<C> {
    /// A session that gives up opening a connection after `open_timeout`.
    pub(crate) fn new(open_timeout: Duration) -> Self {
        Self {
            state: Mutex::new(State { current: None, opened: 0 }),
            opening: tokio::sync::Mutex::default(),
            open_timeout,
            is_closed: watch::Sender::new(false),
        }
    }

    /// The current connection, if it is usable. Opens none.
    pub(crate) fn current(&self) -> Option<Generation<C>> {
        self.lock().current.clone().filter(|current| current.is_usable())
    }

    /// The current connection, or a new one that `open` returns.
    pub(crate) async fn connection<E: SessionError>(
        &self,
        open: impl Future<Output = Result<C, E>>,
    ) -> Result<Generation<C>, E> {
        if let Some(current) = self.current() {
            return Ok(current);
        }
        self.unless_closed(async {
            let _opening = self.opening.lock().await;
            if let Some(current) = self.current() {
                return Ok(current);
            }
            let opened = timeout(self.open_timeout, open).await;
            Ok(self.replace(opened.map_err(|_| E::timed_out(self.open_timeout))??))
        })
        .await
    }

    /// The result of a call; an error as soon as the session is closed.
    pub(crate) async fn unless_closed<T, E: SessionError>(
        &self,
        call: impl Future<Output = Result<T, E>>,
    ) -> Result<T, E> {
        let mut is_closed = self.is_closed.subscribe();
        tokio::select! {
            biased;
            _ = is_closed.wait_for(|is_closed| *is_closed) => Err(E::closed()),
            result = call => result,
        }
    }

    /// No new call starts on this connection. Calls in flight finish on it. A newer connection is not affected.
    pub(crate) fn suspect(&self, suspect: &Generation<C>) {
        suspect.abandon();
        let mut state = self.lock();
        if state.current.as_ref().is_some_and(|current| current.number == suspect.number) {
            state.current = None;
        }
    }

    /// Suspects the connection when the guard is dropped, unless the call was complete: after a call that was dropped while it waits for
    /// replies, the connection may be dead without an error.
    pub(crate) fn suspect_unless_complete<'a>(
        &'a self,
        connection: &'a Generation<C>,
    ) -> SuspectGuard<'a, C> {
        SuspectGuard { session: self, connection, is_complete: false }
    }

    pub(crate) fn is_closed(&self) -> bool {
        *self.is_closed.borrow()
    }

    /// Refuses new calls, ends the attempt to connect, and returns the last connection, which the caller closes. The second call returns
    /// none.
    pub(crate) async fn close(&self) -> Option<Generation<C>> {
        self.is_closed.send_replace(true);
        // A caller that is opening a connection gives up; one that is not polled any more is not waited for.
        timeout(self.open_timeout, self.opening.lock()).await.ok();
        self.lock().current.take()
    }

    fn replace(&self, connection: C) -> Generation<C> {
        let mut state = self.lock();
        state.opened += 1;
        let opened = Generation { number: state.opened, connection: Arc::new(connection) };
        state.current = Some(opened.clone());
        opened
    }

    fn lock(&self) -> MutexGuard<'_, State<C>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Generation<C> {
    /// The connection, if no call uses it any more.
    pub(crate) fn into_inner(self) -> Option<C> {
        Arc::into_inner(self.connection)
    }
}

impl<C> Clone for Generation<C> {
    fn clone(&self) -> Self {
        Self { number: self.number, connection: Arc::clone(&self.connection) }
    }
}

impl<C> Deref for Generation<C> {
    type Target = Arc<C>;

    fn deref(&self) -> &Arc<C> {
        &self.connection
    }
}

impl<C> fmt::Debug for Generation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Generation").field(&self.number).finish()
    }
}

/// See [`Session::suspect_unless_complete`].
pub(crate) struct SuspectGuard<'a, C: ReusableConnection> {
    session: &'a Session<C>,
    connection: &'a Generation<C>,
    /// Every reply of the call was read, and none of them makes the connection suspect.
    pub(crate) is_complete: bool,
}

impl<C: ReusableConnection> Drop for SuspectGuard<'_, C> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.session.suspect(self.connection);
        }
    }
}

impl SessionError for PublishError {
    fn closed() -> Self {
        Self::unavailable("the transport is closed")
    }

    fn timed_out(within: Duration) -> Self {
        Self::unavailable(format!("no connection within {within:?}"))
    }
}

impl SessionError for SourceError {
    fn closed() -> Self {
        Self::unavailable("the source is closed")
    }

    fn timed_out(within: Duration) -> Self {
        Self::unavailable(format!("no connection within {within:?}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        future::pending,
        pin::pin,
        sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
        task::{Context, Poll, Waker},
    };
    use tokio::{sync::Notify, time::Instant};

    const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

    /// Opens connections, each with the number of connections before it.
    #[derive(Default)]
    struct FakeConnector {
        opened: AtomicUsize,
        /// Opening waits for it.
        may_open: Option<Notify>,
    }

    struct FakeConnection {
        number: usize,
        is_lost: AtomicBool,
        is_abandoned: AtomicBool,
    }

    impl ReusableConnection for FakeConnection {
        fn is_usable(&self) -> bool {
            !self.is_lost.load(SeqCst)
        }

        fn abandon(&self) {
            self.is_abandoned.store(true, SeqCst);
        }
    }

    impl FakeConnector {
        async fn open(&self) -> Result<FakeConnection, SourceError> {
            if let Some(may_open) = &self.may_open {
                may_open.notified().await;
            }
            let number = self.opened.fetch_add(1, SeqCst);
            Ok(FakeConnection { number, is_lost: AtomicBool::default(), is_abandoned: AtomicBool::default() })
        }
    }

    fn session() -> Session<FakeConnection> {
        Session::new(OPEN_TIMEOUT)
    }

    /// Polls once.
    fn poll<F: Future>(future: std::pin::Pin<&mut F>) -> Poll<F::Output> {
        future.poll(&mut Context::from_waker(Waker::noop()))
    }

    fn text<T>(result: Result<T, SourceError>) -> String {
        result.map(|_| ()).unwrap_err().to_string()
    }

    #[tokio::test]
    async fn concurrent_callers_share_one_connection() {
        let connector = FakeConnector { may_open: Some(Notify::new()), ..FakeConnector::default() };
        let session = session();
        let (mut first, mut second) =
            (pin!(session.connection(connector.open())), pin!(session.connection(connector.open())));
        assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
        connector.may_open.as_ref().unwrap().notify_one();
        assert_eq!((first.await.unwrap().number, second.await.unwrap().number), (1, 1));
        assert_eq!(connector.opened.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn suspect_and_lost_connections_are_replaced() {
        let (connector, session) = (FakeConnector::default(), session());
        let first = session.connection(connector.open()).await.unwrap();
        session.suspect(&first);
        assert!(first.is_abandoned.load(SeqCst) && session.current().is_none());
        let second = session.connection(connector.open()).await.unwrap();
        second.is_lost.store(true, SeqCst);
        assert!(session.current().is_none());
        let third = session.connection(connector.open()).await.unwrap();
        assert_eq!((first.connection.number, second.connection.number, third.connection.number), (0, 1, 2));
    }

    #[tokio::test]
    async fn error_of_an_old_connection_does_not_suspect_the_new_one() {
        let (connector, session) = (FakeConnector::default(), session());
        let first = session.connection(connector.open()).await.unwrap();
        let late = session.suspect_unless_complete(&first);
        session.suspect(&first);
        let second = session.connection(connector.open()).await.unwrap();
        drop(late);
        session.suspect(&first);
        assert!(!second.is_abandoned.load(SeqCst));
        assert_eq!(session.current().unwrap().number, second.number);
    }

    #[tokio::test]
    async fn only_an_incomplete_call_suspects_its_connection() {
        let (connector, session) = (FakeConnector::default(), session());
        let connection = session.connection(connector.open()).await.unwrap();
        session.suspect_unless_complete(&connection).is_complete = true;
        assert!(session.current().is_some());
        drop(session.suspect_unless_complete(&connection));
        assert!(session.current().is_none());
    }

    #[tokio::test]
    async fn dropped_caller_lets_the_next_one_connect() {
        let connector = FakeConnector::default();
        let session = session();
        {
            let mut dropped = pin!(session.connection(pending::<Result<_, SourceError>>()));
            assert!(poll(dropped.as_mut()).is_pending());
        }
        assert_eq!(session.connection(connector.open()).await.unwrap().number, 1);
    }

    #[tokio::test(start_paused = true)]
    async fn opening_that_takes_too_long_fails_and_the_next_call_connects() {
        let (connector, session, begun) = (FakeConnector::default(), session(), Instant::now());
        let timed_out = session.connection(pending::<Result<_, SourceError>>()).await;
        assert_eq!(begun.elapsed(), OPEN_TIMEOUT);
        assert!(text(timed_out).contains("no connection within 10s"));
        assert!(session.connection(connector.open()).await.is_ok());
    }

    #[tokio::test]
    async fn failure_to_open_is_returned_and_the_next_call_connects() {
        let (connector, session) = (FakeConnector::default(), session());
        let refused = session.connection(async { Err(SourceError::unavailable("refused")) }).await;
        assert!(text(refused).contains("refused"));
        assert!(session.connection(connector.open()).await.is_ok());
    }

    #[tokio::test]
    async fn close_refuses_calls_and_returns_the_connection_once() {
        let (connector, session) = (FakeConnector::default(), session());
        let number = session.connection(connector.open()).await.unwrap().number;
        assert_eq!(session.close().await.unwrap().number, number);
        assert!(session.is_closed() && session.close().await.is_none());
        assert!(text(session.connection(connector.open()).await).contains("the source is closed"));
        assert_eq!(connector.opened.load(SeqCst), 1);
    }

    #[tokio::test]
    async fn close_ends_waiting_calls() {
        let session = session();
        let mut opening = pin!(session.connection(pending::<Result<_, SourceError>>()));
        let mut receiving = pin!(session.unless_closed(pending::<Result<(), SourceError>>()));
        assert!(poll(opening.as_mut()).is_pending() && poll(receiving.as_mut()).is_pending());
        let (opening, receiving, last) = tokio::join!(opening, receiving, session.close());
        assert!(text(opening).contains("the source is closed"));
        assert!(text(receiving).contains("the source is closed"));
        assert!(last.is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn close_does_not_wait_for_a_caller_that_is_not_polled() {
        let session = session();
        let mut abandoned = pin!(session.connection(pending::<Result<_, SourceError>>()));
        assert!(poll(abandoned.as_mut()).is_pending());
        assert!(session.close().await.is_none());
        assert!(text(abandoned.await).contains("the source is closed"));
    }
}
