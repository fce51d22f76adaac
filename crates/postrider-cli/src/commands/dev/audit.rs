//! The audit: what was committed, compared with what was done about it and with what the store still holds.
//!
//! Nothing here goes by what the worker says. For each order that the shop has committed, the tables tell how often it was
//! handled, and the store tells whether its event still waits or is dead. An order of which neither knows anything was
//! lost; one that was shipped twice, or shipped and is still to be handled, was doubled.
//!
//! Other processes may work on the same database and move an event between two looks. So what seems wrong is looked at
//! again before it counts.

use super::{
    order::QUEUES,
    shop::{self, Effects, Shop},
};
use postrider::{
    Error, MessageId, QueueName, Reason, State,
    inspect::{Entry, Inspect, ListRequest, Room},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often something that seems wrong is looked at again.
const LOOKS: usize = 3;
const PAGE: usize = 1_000;

/// What became of the orders of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Orders that were committed, each with its event.
    pub(super) staged: u64,
    pub(super) done: u64,
    /// By reason.
    pub(super) dead: BTreeMap<&'static str, u64>,
    /// Timers, retries, and what nobody has begun.
    pub(super) waiting: u64,
    /// Neither done nor dead nor waiting.
    pub(super) lost: u64,
    /// Effects of transactional handlers beyond the first of each event.
    pub(super) duplicates: u64,
    /// Effects of plain handlers beyond the first, which happen at least once and say so.
    pub(super) redelivered: u64,
    /// Orders that were rolled back, and yet something came of them.
    pub(super) invented: u64,
}

/// Where the store has an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Waiting,
    Dead(Reason),
}

/// One order, as the tables and the store show it.
#[derive(Debug, Clone, Copy)]
struct Sight {
    place: Option<Place>,
    effects: Effects,
}

impl Sight {
    fn seems_wrong(&self) -> bool {
        let Effects { shipped, mailed } = self.effects;
        match self.place {
            Some(_) => shipped > 0,
            None => shipped > 1 || shipped + mailed == 0,
        }
    }
}

impl Account {
    pub(super) fn dead(&self) -> u64 {
        self.dead.values().sum()
    }

    /// Whether everything is accounted for, once.
    pub(super) fn adds_up(&self) -> bool {
        self.staged == self.done + self.dead() + self.waiting
            && self.lost + self.duplicates + self.invented == 0
    }

    fn enter(&mut self, sight: &Sight) {
        let Effects { shipped, mailed } = sight.effects;
        self.staged += 1;
        match sight.place {
            Some(Place::Waiting) => self.waiting += 1,
            Some(Place::Dead(reason)) => *self.dead.entry(reason.as_str()).or_default() += 1,
            None if shipped + mailed > 0 => self.done += 1,
            None => self.lost += 1,
        }
        // What is still in the store should have had no effect yet.
        let rightly = u64::from(sight.place.is_none());
        self.duplicates += shipped.saturating_sub(rightly);
        self.redelivered += mailed.saturating_sub(1);
    }
}

/// Accounts for all orders of `run`, and for those that were rolled back.
pub(super) async fn audit<S: Shop>(
    shop: &S,
    run: &str,
    abandoned: &HashSet<MessageId>,
) -> Result<Account, Error> {
    let places = places(shop.store()).await?;
    let mut account = Account::default();
    for (order, effects) in shop::orders(shop, run).await.map_err(other)? {
        let mut sight = Sight { place: places.get(&order).copied(), effects };
        for _ in 0..LOOKS {
            if !sight.seems_wrong() {
                break;
            }
            sight = look(shop, order).await?;
        }
        account.enter(&sight);
    }
    let ghosts = shop::ghosts(shop).await.map_err(other)?;
    let invented: HashSet<_> =
        ghosts.iter().chain(places.keys()).filter(|id| abandoned.contains(id)).collect();
    account.invented = invented.len() as u64;
    Ok(account)
}

/// Everything that the store holds of the shop's queues.
async fn places(store: &dyn Inspect) -> Result<HashMap<MessageId, Place>, Error> {
    let mut places = HashMap::new();
    for queue in queues()? {
        for room in [Room::Ready, Room::Later, Room::Dead] {
            let mut request = ListRequest::new(queue.clone(), room).with_limit(PAGE);
            loop {
                let page = store.list(&request).await?;
                places.extend(
                    page.entries.iter().filter_map(|entry| Some((entry.message.id()?, place(entry)?))),
                );
                if page.next.is_none() {
                    break;
                }
                request = request.after(page.next);
            }
        }
    }
    Ok(places)
}

async fn look<S: Shop>(shop: &S, order: MessageId) -> Result<Sight, Error> {
    let mut found = None;
    for queue in queues()? {
        found = found.or(shop.store().get(&queue, order).await?);
    }
    let effects = shop::effects(shop, order).await.map_err(other)?;
    Ok(Sight { place: found.as_ref().and_then(place), effects })
}

fn place(entry: &Entry) -> Option<Place> {
    match entry.state {
        State::Done => None,
        State::Dead => Some(Place::Dead(entry.reason.unwrap_or(Reason::Rejected))),
        _ => Some(Place::Waiting),
    }
}

fn queues() -> Result<Vec<QueueName>, Error> {
    Ok(QUEUES.into_iter().map(QueueName::new).collect::<Result<_, _>>()?)
}

fn other(error: sqlx::Error) -> Error {
    Error::Other(Box::new(error))
}

#[cfg(test)]
mod tests {
    use super::{
        super::{order::Order, sqlite::SqliteShop},
        *,
    };
    use postrider::{
        inspect::{Action, Operate},
        sqlite::Durability,
        transact::Transact,
    };

    fn account(place: Option<Place>, shipped: u64, mailed: u64) -> Account {
        let mut account = Account::default();
        account.enter(&Sight { place, effects: Effects { shipped, mailed } });
        account
    }

    #[test]
    fn what_is_in_one_place_adds_up() {
        for (place, shipped, mailed) in [
            (None, 1, 0),
            (None, 0, 1),
            (Some(Place::Waiting), 0, 0),
            (Some(Place::Dead(Reason::Rejected)), 0, 0),
            // Sent, and not settled: it comes again, as a plain handler must expect.
            (Some(Place::Waiting), 0, 1),
            (None, 0, 2),
        ] {
            let account = account(place, shipped, mailed);
            assert!(account.adds_up(), "{account:?}");
        }
    }

    /// An audit that never finds anything proves nothing.
    #[test]
    fn what_is_lost_or_doubled_or_invented_does_not_add_up() {
        let lost = account(None, 0, 0);
        assert_eq!((lost.lost, lost.adds_up()), (1, false));
        let shipped_twice = account(None, 2, 0);
        assert_eq!((shipped_twice.duplicates, shipped_twice.adds_up()), (1, false));
        let shipped_and_waiting = account(Some(Place::Waiting), 1, 0);
        assert_eq!((shipped_and_waiting.duplicates, shipped_and_waiting.adds_up()), (1, false));
        let shipped_and_dead = account(Some(Place::Dead(Reason::Rejected)), 1, 0);
        assert_eq!((shipped_and_dead.duplicates, shipped_and_dead.adds_up()), (1, false));
        assert!(!Account { invented: 1, ..Account::default() }.adds_up());
    }

    async fn place(shop: &SqliteShop, order: &Order) {
        let mut tx = shop.transactions().begin().await.unwrap();
        shop::write_order(shop, &mut tx, order, "run").await.unwrap();
        shop.stage(&mut tx, order.message().unwrap()).await.unwrap();
        shop.transactions().commit(tx).await.unwrap();
    }

    async fn ship(shop: &SqliteShop, order: &Order) {
        let mut tx = shop.transactions().begin().await.unwrap();
        shop::ship(shop, &mut tx, order.id).await.unwrap();
        shop.transactions().commit(tx).await.unwrap();
    }

    #[tokio::test]
    async fn the_tables_and_the_store_give_away_what_went_wrong() {
        let folder = tempfile::tempdir().unwrap();
        let shop = SqliteShop::open(&folder.path().join("shop.db"), Durability::Normal).await.unwrap();
        let orders: Vec<_> = (0..4).map(|number| Order::draw(1, number)).collect();
        for order in &orders {
            place(&shop, order).await;
        }
        let account = audit(&shop, "run", &HashSet::new()).await.unwrap();
        assert_eq!((account.staged, account.waiting, account.adds_up()), (4, 4, true));

        // The first vanishes, the second was shipped although it still waits, the third was said to be rolled back.
        let queue = orders[0].message().unwrap().queue().clone();
        let gone = shop.store().discard(&queue, &[orders[0].id], &Action::new("test", "to lose it")).await;
        assert_eq!(gone.unwrap().len(), 1);
        ship(&shop, &orders[1]).await;
        let ghost = Order::draw(1, 5);
        ship(&shop, &ghost).await;
        let abandoned = HashSet::from([orders[2].id, ghost.id]);
        let account = audit(&shop, "run", &abandoned).await.unwrap();
        let found = (account.lost, account.duplicates, account.invented, account.adds_up());
        assert_eq!(found, (1, 1, 2, false), "{account:?}");
    }
}
