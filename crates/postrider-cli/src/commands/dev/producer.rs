//! Producers: they place orders in transactions, each with its event, and abandon some.

use super::{
    ledger::Ledger,
    order::Order,
    shop::{Shop, write_order},
};
use postrider::transact::Transact;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// How many producers share the work.
pub(super) const PRODUCERS: usize = 4;
/// How long a producer leaves the database alone after an error.
const PAUSE: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(super) struct Producer<S> {
    pub(super) shop: S,
    pub(super) ledger: Arc<Ledger>,
    pub(super) schedule: Arc<Schedule>,
    pub(super) run: String,
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
}

/// When which order is placed.
#[derive(Debug)]
pub(super) struct Schedule {
    began_at: Instant,
    rate: f64,
    next: AtomicU64,
}

impl Schedule {
    pub(super) fn new(rate: f64) -> Self {
        Self { began_at: Instant::now(), rate, next: AtomicU64::new(0) }
    }

    /// The next order's number, and when it is placed.
    fn next(&self) -> (u64, Instant) {
        let number = self.next.fetch_add(1, Relaxed);
        (number, self.began_at + Duration::from_secs_f64(number as f64 / self.rate))
    }
}

impl<S: Shop> Producer<S> {
    /// Places orders until it is stopped, and never leaves one half placed.
    pub(super) async fn run(self) {
        while !self.stop.is_cancelled() {
            let (number, at) = self.schedule.next();
            if self.stop.run_until_cancelled(sleep_until(at)).await.is_none() {
                return;
            }
            let order = Order::draw(self.seed, number);
            if let Err(error) = self.place(&order).await {
                self.ledger.forget(order.id);
                tracing::warn!(%error, "an order could not be placed; going on");
                self.stop.run_until_cancelled(sleep(PAUSE)).await;
            }
        }
    }

    async fn place(&self, order: &Order) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let transactions = self.shop.transactions();
        let mut tx = transactions.begin().await?;
        write_order(&self.shop, &mut tx, order, &self.run).await?;
        self.shop.stage(&mut tx, order.message()?).await?;
        if order.is_abandoned {
            transactions.rollback(tx).await?;
            self.ledger.abandoned(order.id);
        } else {
            // Before the commit: it may be handled before this task goes on.
            self.ledger.staged(order.id, order.waits_for());
            transactions.commit(tx).await?;
            self.ledger.committed();
        }
        Ok(())
    }
}
