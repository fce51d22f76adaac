//! Assertions on the messages of a store.

#![expect(clippy::panic, reason = "an assertion fails by panicking")]

use crate::{format, store::is_event};
use postrider_core::{
    Codec, Event, Message, QueueName, Reason,
    inspect::{Inspect, ListRequest, MessageRow, StateFilter},
};
use std::{fmt::Display, future::Future, panic::Location};

/// Assertions on the messages of a store: the [`TestStore`](crate::TestStore), or the store in your own test database.
///
/// A message is *staged* from the commit until it is delivered or dead; scheduled and leased messages count, delivered ones do
/// not. Assertions see committed messages only, as another connection does. An assertion that fails panics, prints the messages
/// of the store, and names the line that called it.
///
/// ```should_panic
/// # use postrider_core::{Event, Json, OutboxExt};
/// # use postrider_testing::{Assert, TestStore};
/// # #[derive(Debug, serde::Serialize, serde::Deserialize)]
/// # struct OrderPlaced { order: u64 }
/// # impl Event for OrderPlaced {
/// #     const TYPE: &'static str = "order.placed";
/// #     const QUEUE: &'static str = "orders";
/// #     type Codec = Json;
/// # }
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let store = TestStore::new();
/// let mut tx = store.begin();
/// store.stage(&mut tx, &OrderPlaced { order: 17 }).await?;
/// tx.commit();
///
/// store.assert_staged_where(|event: &OrderPlaced| event.order == 17).await;
/// store.assert_empty().await; // panics:
/// // expected an empty store, but 1 is staged and 0 are dead
/// //   at tests/orders.rs:12:7
/// // staged:
/// //   orders: order.placed {"order":17}
/// // dead letters: nothing
/// # Ok(())
/// # }
/// ```
pub trait Assert: Inspect {
    /// Every message that is neither delivered nor dead, by queue: first pending and leased messages, then scheduled ones.
    ///
    /// # Panics
    /// When the store cannot be read.
    #[track_caller]
    fn waiting(&self) -> impl Future<Output = Vec<MessageRow>> + Send {
        entries(self, &[StateFilter::Ready, StateFilter::Scheduled], Location::caller())
    }

    /// Every dead letter, by queue, oldest first.
    ///
    /// # Panics
    /// When the store cannot be read.
    #[track_caller]
    fn dead_letters(&self) -> impl Future<Output = Vec<MessageRow>> + Send {
        entries(self, &[StateFilter::Dead], Location::caller())
    }

    /// The staged events of one type, decoded.
    ///
    /// # Panics
    /// When one of them cannot be decoded.
    #[track_caller]
    fn staged<E: Event>(&self) -> impl Future<Output = Vec<E>> + Send {
        let at = Location::caller();
        async move { StoreSnapshot::of(self, at).await.staged() }
    }

    /// Asserts that exactly `times` events of this type are staged, and returns them.
    ///
    /// # Panics
    /// When the number differs, or an event cannot be decoded.
    #[track_caller]
    fn assert_staged<E: Event>(&self, times: usize) -> impl Future<Output = Vec<E>> + Send {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let found: Vec<E> = snapshot.staged();
            if found.len() != times {
                snapshot.fail(format_args!("expected {times} staged {}, found {}", E::TYPE, found.len()));
            }
            found
        }
    }

    /// Asserts that no event of this type is staged.
    ///
    /// # Panics
    /// When one is.
    #[track_caller]
    fn assert_not_staged<E: Event>(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let found = snapshot.staged.iter().filter(|entry| is_event::<E>(&entry.message)).count();
            if found > 0 {
                snapshot.fail(format_args!("expected no staged {}, found {found}", E::TYPE));
            }
        }
    }

    /// Asserts that `matches` is true for at least one staged event of this type, and returns the first one.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    fn assert_staged_where<E: Event, F>(&self, matches: F) -> impl Future<Output = E> + Send
    where
        F: Fn(&E) -> bool + Send,
    {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let all: Vec<E> = snapshot.staged();
            let among = all.len();
            all.into_iter().find(matches).unwrap_or_else(|| {
                snapshot.fail(format_args!(
                    "expected a staged {} that matches, but none of {among} does",
                    E::TYPE
                ))
            })
        }
    }

    /// Asserts that messages of exactly these event types are staged, in any order; list a type twice if it is staged twice. The
    /// type of a message without one is `(no type)`.
    ///
    /// # Panics
    /// When a message is missing or unexpected.
    #[track_caller]
    fn assert_only_staged(&self, types: &[&str]) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        let mut missing: Vec<String> = types.iter().map(|of| (*of).to_owned()).collect();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let mut surplus = Vec::new();
            for entry in &snapshot.staged {
                let found = type_of(&entry.message);
                match missing.iter().position(|wanted| *wanted == found) {
                    Some(index) => drop(missing.remove(index)),
                    None => surplus.push(found),
                }
            }
            if !missing.is_empty() || !surplus.is_empty() {
                let list =
                    |names: &[String]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                snapshot.fail(format_args!(
                    "expected other messages: missing {}; unexpected {}",
                    list(&missing),
                    list(&surplus)
                ));
            }
        }
    }

    /// Asserts that exactly `times` messages of any type are staged in this queue.
    ///
    /// # Panics
    /// When the number differs.
    #[track_caller]
    fn assert_staged_in(&self, queue: &str, times: usize) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        let queue = queue.to_owned();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let found =
                snapshot.staged.iter().filter(|entry| entry.message.queue().as_str() == queue).count();
            if found != times {
                snapshot.fail(format_args!("expected {times} staged in queue {queue}, found {found}"));
            }
        }
    }

    /// Asserts that at least one event of this type is a dead letter with this reason, and returns the first: its error, its
    /// counters, and its message, which may not be decodable.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    fn assert_dead<E: Event>(&self, reason: Reason) -> impl Future<Output = MessageRow> + Send {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            let matches = |entry: &&MessageRow| entry.reason == Some(reason) && is_event::<E>(&entry.message);
            match snapshot.dead.iter().find(matches) {
                Some(entry) => entry.clone(),
                None => snapshot.fail(format_args!("expected a dead letter {} ({reason})", E::TYPE)),
            }
        }
    }

    /// Asserts that there is no dead letter.
    ///
    /// # Panics
    /// When there is one.
    #[track_caller]
    fn assert_none_dead(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            if !snapshot.dead.is_empty() {
                snapshot.fail(format_args!("expected no dead letters, found {}", snapshot.dead.len()));
            }
        }
    }

    /// Asserts that every staged message was delivered: none is pending, leased, scheduled or dead.
    ///
    /// # Panics
    /// When a message is left.
    #[track_caller]
    fn assert_empty(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let snapshot = StoreSnapshot::of(self, at).await;
            if !snapshot.staged.is_empty() || !snapshot.dead.is_empty() {
                let counted = |count| if count == 1 { "1 is".to_owned() } else { format!("{count} are") };
                let (staged, dead) = (counted(snapshot.staged.len()), counted(snapshot.dead.len()));
                snapshot.fail(format_args!("expected an empty store, but {staged} staged and {dead} dead"));
            }
        }
    }
}

impl<I: Inspect + ?Sized> Assert for I {}

/// The messages of a store, and the line that asserts on them.
struct StoreSnapshot {
    staged: Vec<MessageRow>,
    dead: Vec<MessageRow>,
    at: &'static Location<'static>,
}

impl StoreSnapshot {
    async fn of(store: &(impl Inspect + ?Sized), at: &'static Location<'static>) -> Self {
        let staged = entries(store, &[StateFilter::Ready, StateFilter::Scheduled], at).await;
        let dead = entries(store, &[StateFilter::Dead], at).await;
        Self { staged, dead, at }
    }

    fn staged<E: Event>(&self) -> Vec<E> {
        let of_type = self.staged.iter().filter(|entry| is_event::<E>(&entry.message));
        let read = |entry: &MessageRow| {
            E::Codec::decode(entry.message.payload()).unwrap_or_else(|error| {
                self.fail(format_args!("a staged {} cannot be decoded as its type: {error}", E::TYPE))
            })
        };
        of_type.map(read).collect()
    }

    fn fail(&self, reason: impl Display) -> ! {
        let staged = format::list("staged", &self.staged);
        let dead = format::list("dead letters", &self.dead);
        panic!("{reason}\n  at {}\n{staged}{dead}", self.at);
    }
}

fn type_of(message: &Message) -> String {
    message.event_type().map_or_else(|| "(no type)".to_owned(), ToString::to_string)
}

async fn entries(
    store: &(impl Inspect + ?Sized),
    filters: &[StateFilter],
    at: &'static Location<'static>,
) -> Vec<MessageRow> {
    let fail = |error| -> ! { panic!("cannot read the store: {error}\n  at {at}") };
    let mut found = Vec::new();
    let queues: Vec<QueueName> = match store.counts().await {
        Ok(counts) => counts.into_keys().collect(),
        Err(error) => fail(error),
    };
    for queue in queues {
        for filter in filters {
            let mut request = ListRequest::new(queue.clone(), *filter).with_limit(1_000);
            loop {
                let page = match store.list(&request).await {
                    Ok(page) => page,
                    Err(error) => fail(error),
                };
                found.extend(page.entries);
                if page.next.is_none() {
                    break;
                }
                request = request.after(page.next);
            }
        }
    }
    found
}
