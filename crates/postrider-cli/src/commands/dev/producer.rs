//! Producers: place orders in transactions, each with its event, and roll some back.

use super::{
    order::Order,
    shop::{Shop, write_order},
    stats::Stats,
};
use postrider::TxBackend;
use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// The number of producers.
pub(super) const PRODUCERS: usize = 4;
/// The delay of a producer after an error.
const ERROR_DELAY: Duration = Duration::from_millis(500);

#[derive(Debug, Clone)]
pub(super) struct Producer<S> {
    pub(super) shop: S,
    pub(super) stats: Arc<Stats>,
    pub(super) schedule: Arc<Schedule>,
    pub(super) run: String,
    pub(super) seed: u64,
    pub(super) stop: CancellationToken,
}

/// The number and time of the next order.
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

    /// The number of the next order, and the time to place it.
    fn next(&self) -> (u64, Instant) {
        let number = self.next.fetch_add(1, Relaxed);
        (number, self.began_at + Duration::from_secs_f64(number as f64 / self.rate))
    }
}

impl<S: Shop> Producer<S> {
    /// Places orders until it is stopped; a stop lets the current transaction finish.
    pub(super) async fn run(self) {
        while !self.stop.is_cancelled() {
            let (number, at) = self.schedule.next();
            if self.stop.run_until_cancelled(sleep_until(at)).await.is_none() {
                return;
            }
            let order = Order::draw(self.seed, number);
            if let Err(error) = self.place(&order).await {
                self.stats.forget(order.id);
                tracing::warn!(%error, "order not placed; continuing with the next");
                self.stop.run_until_cancelled(sleep(ERROR_DELAY)).await;
            }
        }
    }

    async fn place(&self, order: &Order) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let transactions = self.shop.transactions();
        let mut tx = transactions.begin().await?;
        write_order(&self.shop, &mut tx, order, &self.run).await?;
        self.shop.stage(&mut tx, order.message()?).await?;
        if order.is_rolled_back {
            transactions.rollback(tx).await?;
            self.stats.rolled_back(order.id);
        } else {
            // Before the commit: the event may be handled before this task continues.
            self.stats.staged(order.id, order.delay());
            transactions.commit(tx).await?;
            self.stats.committed();
        }
        Ok(())
    }
}
