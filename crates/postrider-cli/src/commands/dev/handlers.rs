//! The worker of the shop: one transactional handler, and two plain ones.

use super::{
    ledger::Ledger,
    order::{InvoiceWanted, OrderPlaced, PaymentDue, Trouble},
    shop::{Shop, mail, ship},
};
use postrider::{Context, Event, Failure, Invalid, Queue, RetryStrategy, Tx, Worker};
use std::{sync::Arc, time::Duration};
use tokio::time::sleep;

/// Makes the worker, which runs up to `concurrency` handlers at once.
pub(super) fn worker<S: Shop>(shop: &S, ledger: &Arc<Ledger>, concurrency: usize) -> Result<Worker, Invalid> {
    let counter = Counter { shop: shop.clone(), ledger: Arc::clone(ledger) };
    let (shipping, invoicing, reminding) = (counter.clone(), counter.clone(), counter);
    let queue = |name| Queue::new(name).concurrency(concurrency).retry(retries());
    Worker::builder(shop.store().clone())
        .concurrency(concurrency)
        .queue(queue(OrderPlaced::QUEUE).on_in_transaction(
            shop.transactions(),
            move |event: OrderPlaced, tx: Tx<S::Tx>, context: Context| {
                let counter = shipping.clone();
                async move { counter.ship(&event, tx, &context).await }
            },
        ))
        .queue(queue(InvoiceWanted::QUEUE).on(move |event: InvoiceWanted, context: Context| {
            let counter = invoicing.clone();
            async move { counter.invoice(&event, &context).await }
        }))
        .queue(queue(PaymentDue::QUEUE).on(move |_: PaymentDue, context: Context| {
            let counter = reminding.clone();
            async move { counter.remind(&context).await }
        }))
        .build()
}

/// Quick, so that a short run sees retries succeed and others given up.
fn retries() -> RetryStrategy {
    RetryStrategy::exponential(Duration::from_millis(100), 2.0).with_max_attempts(3)
}

#[derive(Debug, Clone)]
struct Counter<S> {
    shop: S,
    ledger: Arc<Ledger>,
}

impl<S: Shop> Counter<S> {
    async fn ship(&self, event: &OrderPlaced, mut tx: Tx<S::Tx>, context: &Context) -> Result<(), Failure> {
        let is_first = context.attempt() == 1;
        match event.trouble {
            Trouble::Stranger => {
                let text = format!("order {}: there is no {}", event.order, event.customer);
                return Err(Failure::reject(text).named("NoSuchCustomer"));
            }
            Trouble::Once | Trouble::Always if is_first || event.trouble == Trouble::Always => {
                return Err(Failure::retry("the carrier does not answer").named("CarrierTimeout"));
            }
            Trouble::None | Trouble::Once | Trouble::Always => {}
        }
        ship(&self.shop, &mut *tx, context.id()).await?;
        self.ledger.handled(context.id());
        Ok(())
    }

    async fn invoice(&self, event: &InvoiceWanted, context: &Context) -> Result<(), Failure> {
        sleep(Duration::from_millis(event.work_ms)).await;
        mail(&self.shop, context.id()).await?;
        self.ledger.handled(context.id());
        Ok(())
    }

    async fn remind(&self, context: &Context) -> Result<(), Failure> {
        mail(&self.shop, context.id()).await?;
        self.ledger.handled(context.id());
        Ok(())
    }
}
