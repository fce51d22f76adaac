//! The worker of the shop: one transactional handler, and two plain handlers.

use super::{
    order::{Fault, InvoiceWanted, OrderPlaced, PaymentDue},
    shop::{Shop, mail, ship},
    stats::Stats,
};
use postrider::{Context, Event, Failure, Invalid, Queue, RetryStrategy, Tx, Worker};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Builds the worker, which runs up to `concurrency` handlers at once.
pub(super) fn worker<S: Shop>(shop: &S, stats: &Arc<Stats>, concurrency: usize) -> Result<Worker, Invalid> {
    let handlers = Handlers { shop: shop.clone(), stats: Arc::clone(stats) };
    let (shipping, invoicing, reminding) = (handlers.clone(), handlers.clone(), handlers);
    let queue = |name| Queue::new(name).concurrency(concurrency).retry(retries());
    Worker::builder(shop.store().clone())
        .concurrency(concurrency)
        .queue(queue(OrderPlaced::QUEUE).on_in_transaction(
            shop.transactions(),
            move |event: OrderPlaced, tx: Tx<S::Tx>, context: Context| {
                let handlers = shipping.clone();
                async move { handlers.ship(&event, tx, &context).await }
            },
        ))
        .queue(queue(InvoiceWanted::QUEUE).on(move |event: InvoiceWanted, context: Context| {
            let handlers = invoicing.clone();
            async move { handlers.invoice(&event, &context).await }
        }))
        .queue(queue(PaymentDue::QUEUE).on(move |_: PaymentDue, context: Context| {
            let handlers = reminding.clone();
            async move { handlers.remind(&context).await }
        }))
        .build()
}

/// Short delays, so that a short run shows retries that succeed and retries that are exhausted.
fn retries() -> RetryStrategy {
    RetryStrategy::exponential(Duration::from_millis(100), 2.0).with_max_attempts(3)
}

#[derive(Debug, Clone)]
struct Handlers<S> {
    shop: S,
    stats: Arc<Stats>,
}

impl<S: Shop> Handlers<S> {
    async fn ship(&self, event: &OrderPlaced, mut tx: Tx<S::Tx>, context: &Context) -> Result<(), Failure> {
        let is_first = context.attempt() == 1;
        match event.fault {
            Fault::UnknownCustomer => {
                let text = format!("order {}: there is no {}", event.order, event.customer);
                return Err(Failure::reject(text).named("NoSuchCustomer"));
            }
            Fault::Once | Fault::Always if is_first || event.fault == Fault::Always => {
                return Err(Failure::retry("the carrier does not answer").named("CarrierTimeout"));
            }
            Fault::None | Fault::Once | Fault::Always => {}
        }
        ship(&self.shop, &mut *tx, context.id()).await?;
        self.stats.handled(context.id());
        Ok(())
    }

    async fn invoice(&self, event: &InvoiceWanted, context: &Context) -> Result<(), Failure> {
        sleep(Duration::from_millis(event.work_ms)).await;
        mail(&self.shop, context.id()).await?;
        self.stats.handled(context.id());
        Ok(())
    }

    async fn remind(&self, context: &Context) -> Result<(), Failure> {
        mail(&self.shop, context.id()).await?;
        self.stats.handled(context.id());
        Ok(())
    }
}
