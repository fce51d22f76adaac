//! Orders, their events, and the faults of some.

use postrider::{Event, Invalid, Json, Message, MessageId};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// An order was placed: ship it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OrderPlaced {
    pub(super) order: u64,
    pub(super) customer: String,
    pub(super) fault: Fault,
}

/// A customer wants an invoice, which takes a while to make.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct InvoiceWanted {
    pub(super) order: u64,
    pub(super) work_ms: u64,
}

/// An order may still be unpaid after a while: a timer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct PaymentDue {
    pub(super) order: u64,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "shop_orders";
    type Codec = Json;
}

impl Event for InvoiceWanted {
    const TYPE: &'static str = "invoice.wanted";
    const QUEUE: &'static str = "shop_invoices";
    type Codec = Json;
}

impl Event for PaymentDue {
    const TYPE: &'static str = "payment.due";
    const QUEUE: &'static str = "shop_reminders";
    type Codec = Json;
}

/// All queues of the shop.
pub(super) const QUEUES: [&str; 3] = [OrderPlaced::QUEUE, InvoiceWanted::QUEUE, PaymentDue::QUEUE];

/// The fault when an order is shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Fault {
    None,
    /// The carrier does not respond the first time.
    Once,
    /// The carrier never responds.
    Always,
    /// There is no such customer.
    UnknownCustomer,
}

/// The kind of event that an order stages.
#[derive(Debug, Clone, PartialEq)]
enum OrderKind {
    Ship(Fault),
    /// A bug in the producer: the event cannot be decoded.
    Garbled,
    Invoice {
        work_ms: u64,
    },
    Remind {
        after: Duration,
    },
}

/// One order. Its id is the id of its event.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Order {
    pub(super) id: MessageId,
    number: u64,
    pub(super) customer: String,
    pub(super) total: String,
    /// The producer rolls the transaction back.
    pub(super) is_rolled_back: bool,
    kind: OrderKind,
}

impl Order {
    /// The order with this number, always the same except for its id.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        // An odd factor spreads the numbers, so that neighbouring seeds have nothing in common.
        let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_rolled_back = random.random_bool(0.04);
        let kind = match random.random_range(0..1000) {
            0..20 => OrderKind::Ship(Fault::Once),
            20..22 => OrderKind::Ship(Fault::Always),
            22..27 => OrderKind::Ship(Fault::UnknownCustomer),
            27..30 => OrderKind::Garbled,
            30..50 => OrderKind::Invoice { work_ms: random.random_range(10..100) },
            50..100 => OrderKind::Remind { after: Duration::from_millis(random.random_range(500..3000)) },
            _ => OrderKind::Ship(Fault::None),
        };
        let cents = random.random_range(100..100_000);
        Self {
            id: MessageId::at(SystemTime::now()),
            number,
            customer: format!("customer-{}", random.random_range(1..500)),
            total: format!("{}.{:02} EUR", cents / 100, cents % 100),
            is_rolled_back,
            kind,
        }
    }

    /// The delay until the event is due.
    pub(super) fn delay(&self) -> Duration {
        if let OrderKind::Remind { after } = self.kind { after } else { Duration::ZERO }
    }

    /// The event to stage with it.
    pub(super) fn message(&self) -> Result<Message, Invalid> {
        let order = self.number;
        let message = match &self.kind {
            OrderKind::Ship(fault) => {
                OrderPlaced { order, customer: self.customer.clone(), fault: *fault }.message()
            }
            OrderKind::Garbled => Message::builder(OrderPlaced::QUEUE)
                .event_type(OrderPlaced::TYPE)
                .content_type("application/json")
                .payload(&b"{\"order\":"[..]),
            OrderKind::Invoice { work_ms } => InvoiceWanted { order, work_ms: *work_ms }.message(),
            OrderKind::Remind { after } => {
                PaymentDue { order }.message().timer(format!("unpaid-{}", self.id)).due_after(*after)
            }
        };
        message.id(self.id).build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn same_seed_gives_same_orders() {
        let orders = |seed| {
            let orders = (0..500).map(move |number| Order::draw(seed, number));
            orders
                .map(|order| (order.customer, order.total, order.is_rolled_back, order.kind))
                .collect::<Vec<_>>()
        };
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
    }

    #[test]
    fn orders_cover_every_kind_and_can_be_staged() {
        let orders: Vec<_> = (0..5000).map(|number| Order::draw(1, number)).collect();
        for fault in [Fault::None, Fault::Once, Fault::Always, Fault::UnknownCustomer] {
            assert!(orders.iter().any(|order| order.kind == OrderKind::Ship(fault)), "{fault:?}");
        }
        assert!(orders.iter().any(|order| order.kind == OrderKind::Garbled));
        assert!(orders.iter().any(|order| order.is_rolled_back));
        assert!(orders.iter().any(|order| !order.delay().is_zero()));
        for order in orders {
            assert_eq!(order.message().unwrap().id(), Some(order.id));
        }
    }
}
