//! Assertions on what a store holds.

#![expect(clippy::panic, reason = "an assertion fails by panicking")]

use crate::{shown, store::is_of};
use postrider_core::{
    Codec, Event, Message, QueueName, Reason,
    inspect::{Entry, Inspect, ListRequest, Room},
};
use std::{fmt::Display, future::Future, panic::Location};

/// Assertions on what a store holds, for every store: the [`TestStore`](crate::TestStore), and the one in your own test database.
///
/// A message is *staged* from the commit until it is delivered or dead: what waits for its time counts, what was delivered
/// does not. Assertions see what is committed, as every other connection does. One that fails panics, shows what
/// is there instead, and says where it was called.
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
    /// Every message that is neither delivered nor dead, queue by queue: what may run first, then what waits for its time.
    ///
    /// # Panics
    /// When the store cannot be read.
    #[track_caller]
    fn waiting(&self) -> impl Future<Output = Vec<Entry>> + Send {
        entries(self, &[Room::Ready, Room::Later], Location::caller())
    }

    /// Every dead letter, queue by queue, oldest first.
    ///
    /// # Panics
    /// When the store cannot be read.
    #[track_caller]
    fn dead_letters(&self) -> impl Future<Output = Vec<Entry>> + Send {
        entries(self, &[Room::Dead], Location::caller())
    }

    /// The staged events of one type.
    ///
    /// # Panics
    /// When one of them cannot be read.
    #[track_caller]
    fn staged<E: Event>(&self) -> impl Future<Output = Vec<E>> + Send {
        let at = Location::caller();
        async move { Holdings::of(self, at).await.staged() }
    }

    /// Exactly so many events of this type are staged. Answers with them.
    ///
    /// # Panics
    /// When it is not so.
    #[track_caller]
    fn assert_staged<E: Event>(&self, times: usize) -> impl Future<Output = Vec<E>> + Send {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            let found: Vec<E> = held.staged();
            if found.len() != times {
                held.fail(format_args!("expected {times} staged {}, found {}", E::TYPE, found.len()));
            }
            found
        }
    }

    /// No event of this type is staged.
    ///
    /// # Panics
    /// When one is.
    #[track_caller]
    fn assert_not_staged<E: Event>(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            let found = held.staged.iter().filter(|entry| is_of::<E>(&entry.message)).count();
            if found > 0 {
                held.fail(format_args!("expected no staged {}, found {found}", E::TYPE));
            }
        }
    }

    /// At least one event of this type is staged for which `is_meant` holds. Answers with the first.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    fn assert_staged_where<E: Event, F>(&self, is_meant: F) -> impl Future<Output = E> + Send
    where
        F: Fn(&E) -> bool + Send,
    {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            let all: Vec<E> = held.staged();
            let among = all.len();
            all.into_iter().find(is_meant).unwrap_or_else(|| {
                held.fail(format_args!(
                    "expected a staged {} for which the condition holds, but it holds for none of {among}",
                    E::TYPE
                ))
            })
        }
    }

    /// Exactly these types are staged and nothing else, in any order; a type that is staged twice is named twice.
    ///
    /// # Panics
    /// When something is missing, or there is something else.
    #[track_caller]
    fn assert_only_staged(&self, types: &[&str]) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        let mut missing: Vec<String> = types.iter().map(|of| (*of).to_owned()).collect();
        async move {
            let held = Holdings::of(self, at).await;
            let mut surplus = Vec::new();
            for entry in &held.staged {
                let found = type_of(&entry.message);
                match missing.iter().position(|wanted| *wanted == found) {
                    Some(index) => drop(missing.remove(index)),
                    None => surplus.push(found),
                }
            }
            if !missing.is_empty() || !surplus.is_empty() {
                let list =
                    |names: &[String]| if names.is_empty() { "nothing".to_owned() } else { names.join(", ") };
                held.fail(format_args!(
                    "expected other messages: missing {}; not expected {}",
                    list(&missing),
                    list(&surplus)
                ));
            }
        }
    }

    /// Exactly so many messages are staged in this queue, whatever their types.
    ///
    /// # Panics
    /// When it is not so.
    #[track_caller]
    fn assert_staged_in(&self, queue: &str, times: usize) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        let queue = queue.to_owned();
        async move {
            let held = Holdings::of(self, at).await;
            let found = held.staged.iter().filter(|entry| entry.message.queue().as_str() == queue).count();
            if found != times {
                held.fail(format_args!("expected {times} staged in queue {queue}, found {found}"));
            }
        }
    }

    /// At least one event of this type is a dead letter for this reason. Answers with the first: its error, its counters and its
    /// message, which may be unreadable.
    ///
    /// # Panics
    /// When there is none.
    #[track_caller]
    fn assert_dead<E: Event>(&self, reason: Reason) -> impl Future<Output = Entry> + Send {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            let is_meant = |entry: &&Entry| entry.reason == Some(reason) && is_of::<E>(&entry.message);
            match held.dead.iter().find(is_meant) {
                Some(entry) => entry.clone(),
                None => held.fail(format_args!("expected a dead letter {} ({reason})", E::TYPE)),
            }
        }
    }

    /// There is no dead letter.
    ///
    /// # Panics
    /// When there is one.
    #[track_caller]
    fn assert_none_dead(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            if !held.dead.is_empty() {
                held.fail(format_args!("expected no dead letters, found {}", held.dead.len()));
            }
        }
    }

    /// Everything that was ever staged was delivered: nothing waits, nothing is in anybody's hands, nothing is dead.
    ///
    /// # Panics
    /// When something is left.
    #[track_caller]
    fn assert_empty(&self) -> impl Future<Output = ()> + Send {
        let at = Location::caller();
        async move {
            let held = Holdings::of(self, at).await;
            if !held.staged.is_empty() || !held.dead.is_empty() {
                let counted = |count| if count == 1 { "1 is".to_owned() } else { format!("{count} are") };
                let (staged, dead) = (counted(held.staged.len()), counted(held.dead.len()));
                held.fail(format_args!("expected an empty store, but {staged} staged and {dead} dead"));
            }
        }
    }
}

impl<I: Inspect + ?Sized> Assert for I {}

/// What a store holds, and who asked.
struct Holdings {
    staged: Vec<Entry>,
    dead: Vec<Entry>,
    at: &'static Location<'static>,
}

impl Holdings {
    async fn of(store: &(impl Inspect + ?Sized), at: &'static Location<'static>) -> Self {
        let staged = entries(store, &[Room::Ready, Room::Later], at).await;
        let dead = entries(store, &[Room::Dead], at).await;
        Self { staged, dead, at }
    }

    fn staged<E: Event>(&self) -> Vec<E> {
        let of_type = self.staged.iter().filter(|entry| is_of::<E>(&entry.message));
        let read = |entry: &Entry| {
            E::Codec::decode(entry.message.payload()).unwrap_or_else(|error| {
                self.fail(format_args!("a staged {} is not what its type says: {error}", E::TYPE))
            })
        };
        of_type.map(read).collect()
    }

    fn fail(&self, what: impl Display) -> ! {
        let staged = shown::list("staged", &self.staged);
        let dead = shown::list("dead letters", &self.dead);
        panic!("{what}\n  at {}\n{staged}{dead}", self.at);
    }
}

fn type_of(message: &Message) -> String {
    message.event_type().map_or_else(|| "(no type)".to_owned(), ToString::to_string)
}

async fn entries(
    store: &(impl Inspect + ?Sized),
    rooms: &[Room],
    at: &'static Location<'static>,
) -> Vec<Entry> {
    let fail = |error| -> ! { panic!("the store cannot be read: {error}\n  at {at}") };
    let mut found = Vec::new();
    let queues: Vec<QueueName> = match store.counts().await {
        Ok(counts) => counts.into_keys().collect(),
        Err(error) => fail(error),
    };
    for queue in queues {
        for room in rooms {
            let mut request = ListRequest::new(queue.clone(), *room).with_limit(1_000);
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
