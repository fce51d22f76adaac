//! The audit: compares the committed orders with their effects and with the messages that the store still holds.
//!
//! The audit does not trust the counters of the worker. For each committed order, the tables show how often it was handled, and the
//! store shows whether its event still waits or is dead. An order that neither knows was lost; an order that was shipped twice, or
//! shipped while its event is still to be handled, was duplicated.
//!
//! Other processes may work on the same database and move an event between two reads. So an order that seems wrong is read again
//! before it counts.

use super::{
    order::QUEUES,
    shop::{self, Effects, Shop},
};
use postrider::{
    Error, MessageId, QueueName, Reason, State,
    inspect::{Inspect, ListRequest, MessageRow, StateFilter},
};
use std::collections::{BTreeMap, HashMap, HashSet};

/// How often an order that seems wrong is read again.
const RETRIES: usize = 3;
const PAGE: usize = 1_000;

/// The outcomes of the orders of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Account {
    /// Orders that were committed, each with its event.
    pub(super) staged: u64,
    pub(super) done: u64,
    /// By reason.
    pub(super) dead: BTreeMap<&'static str, u64>,
    /// Timers, retries, and events that are not claimed yet.
    pub(super) waiting: u64,
    /// Neither done nor dead nor waiting.
    pub(super) lost: u64,
    /// Effects of transactional handlers beyond the first of each event.
    pub(super) duplicates: u64,
    /// Effects of plain handlers beyond the first; plain handlers run at least once.
    pub(super) redelivered: u64,
    /// Orders that were rolled back, and still had an effect or an event.
    pub(super) invented: u64,
}

/// The state of an event in the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EventState {
    Waiting,
    Dead(Reason),
}

/// One order, as the tables and the store show it.
#[derive(Debug, Clone, Copy)]
struct Evidence {
    state: Option<EventState>,
    effects: Effects,
}

impl Evidence {
    fn seems_wrong(&self) -> bool {
        let Effects { shipped, mailed } = self.effects;
        match self.state {
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

    fn record(&mut self, evidence: &Evidence) {
        let Effects { shipped, mailed } = evidence.effects;
        self.staged += 1;
        match evidence.state {
            Some(EventState::Waiting) => self.waiting += 1,
            Some(EventState::Dead(reason)) => *self.dead.entry(reason.as_str()).or_default() += 1,
            None if shipped + mailed > 0 => self.done += 1,
            None => self.lost += 1,
        }
        // An event that is still in the store should have had no effect yet.
        let expected = u64::from(evidence.state.is_none());
        self.duplicates += shipped.saturating_sub(expected);
        self.redelivered += mailed.saturating_sub(1);
    }
}

/// Accounts for all orders of `run`, and for those that were rolled back.
pub(super) async fn audit<S: Shop>(
    shop: &S,
    run: &str,
    rolled_back: &HashSet<MessageId>,
) -> Result<Account, Error> {
    let states = event_states(shop.store()).await?;
    let mut account = Account::default();
    for (order, effects) in shop::orders(shop, run).await.map_err(other)? {
        let mut evidence = Evidence { state: states.get(&order).copied(), effects };
        for _ in 0..RETRIES {
            if !evidence.seems_wrong() {
                break;
            }
            evidence = read_again(shop, order).await?;
        }
        account.record(&evidence);
    }
    let orphans = shop::orphans(shop).await.map_err(other)?;
    let invented: HashSet<_> =
        orphans.iter().chain(states.keys()).filter(|id| rolled_back.contains(id)).collect();
    account.invented = invented.len() as u64;
    Ok(account)
}

/// The state of every event in the queues of the shop.
async fn event_states(store: &dyn Inspect) -> Result<HashMap<MessageId, EventState>, Error> {
    let mut states = HashMap::new();
    for queue in queues()? {
        for state in [StateFilter::Ready, StateFilter::Scheduled, StateFilter::Dead] {
            let mut request = ListRequest::new(queue.clone(), state).with_limit(PAGE);
            loop {
                let page = store.list(&request).await?;
                states.extend(
                    page.entries.iter().filter_map(|entry| Some((entry.message.id()?, event_state(entry)?))),
                );
                if page.next.is_none() {
                    break;
                }
                request = request.after(page.next);
            }
        }
    }
    Ok(states)
}

async fn read_again<S: Shop>(shop: &S, order: MessageId) -> Result<Evidence, Error> {
    let mut found = None;
    for queue in queues()? {
        found = found.or(shop.store().get(&queue, order).await?);
    }
    let effects = shop::effects(shop, order).await.map_err(other)?;
    Ok(Evidence { state: found.as_ref().and_then(event_state), effects })
}

fn event_state(entry: &MessageRow) -> Option<EventState> {
    match entry.state {
        State::Done => None,
        State::Dead => Some(EventState::Dead(entry.reason.unwrap_or(Reason::Rejected))),
        _ => Some(EventState::Waiting),
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
        TxBackend,
        inspect::{Action, Operate},
        sqlite::Durability,
    };

    fn account(state: Option<EventState>, shipped: u64, mailed: u64) -> Account {
        let mut account = Account::default();
        account.record(&Evidence { state, effects: Effects { shipped, mailed } });
        account
    }

    #[test]
    fn audit_with_each_order_in_one_state_adds_up() {
        for (state, shipped, mailed) in [
            (None, 1, 0),
            (None, 0, 1),
            (Some(EventState::Waiting), 0, 0),
            (Some(EventState::Dead(Reason::Rejected)), 0, 0),
            // Sent, and not settled: the event is redelivered, as a plain handler must expect.
            (Some(EventState::Waiting), 0, 1),
            (None, 0, 2),
        ] {
            let account = account(state, shipped, mailed);
            assert!(account.adds_up(), "{account:?}");
        }
    }

    /// An audit that never finds anything proves nothing.
    #[test]
    fn audit_with_lost_duplicate_or_invented_order_does_not_add_up() {
        let lost = account(None, 0, 0);
        assert_eq!((lost.lost, lost.adds_up()), (1, false));
        let shipped_twice = account(None, 2, 0);
        assert_eq!((shipped_twice.duplicates, shipped_twice.adds_up()), (1, false));
        let shipped_and_waiting = account(Some(EventState::Waiting), 1, 0);
        assert_eq!((shipped_and_waiting.duplicates, shipped_and_waiting.adds_up()), (1, false));
        let shipped_and_dead = account(Some(EventState::Dead(Reason::Rejected)), 1, 0);
        assert_eq!((shipped_and_dead.duplicates, shipped_and_dead.adds_up()), (1, false));
        assert!(!Account { invented: 1, ..Account::default() }.adds_up());
    }

    async fn place_order(shop: &SqliteShop, order: &Order) {
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
    async fn audit_counts_lost_duplicate_and_invented_orders() {
        let folder = tempfile::tempdir().unwrap();
        let shop = SqliteShop::open(&folder.path().join("shop.db"), Durability::Normal).await.unwrap();
        let orders: Vec<_> = (0..4).map(|number| Order::draw(1, number)).collect();
        for order in &orders {
            place_order(&shop, order).await;
        }
        let account = audit(&shop, "run", &HashSet::new()).await.unwrap();
        assert_eq!((account.staged, account.waiting, account.adds_up()), (4, 4, true));

        // The first vanishes, the second was shipped although it still waits, the third was said to be rolled back.
        let queue = orders[0].message().unwrap().queue().clone();
        let gone = shop.store().discard(&queue, &[orders[0].id], &Action::new("test", "to lose it")).await;
        assert_eq!(gone.unwrap().len(), 1);
        ship(&shop, &orders[1]).await;
        let orphan = Order::draw(1, 5);
        ship(&shop, &orphan).await;
        let rolled_back = HashSet::from([orders[2].id, orphan.id]);
        let account = audit(&shop, "run", &rolled_back).await.unwrap();
        let found = (account.lost, account.duplicates, account.invented, account.adds_up());
        assert_eq!(found, (1, 1, 2, false), "{account:?}");
    }
}
