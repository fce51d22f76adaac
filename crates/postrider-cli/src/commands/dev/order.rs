//! Orders, the events that go with them, and what goes wrong with some.

use postrider::{Event, Invalid, Json, Message, MessageId};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::{Deserialize, Serialize};
use std::time::{Duration, SystemTime};

/// An order was placed: ship it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct OrderPlaced {
    pub(super) order: u64,
    pub(super) customer: String,
    pub(super) trouble: Trouble,
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

/// What goes wrong when an order is shipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Trouble {
    None,
    /// The carrier does not answer the first time.
    Once,
    /// The carrier never answers.
    Always,
    /// There is no such customer.
    Stranger,
}

/// What an order sets going.
#[derive(Debug, Clone, PartialEq)]
enum Course {
    Ship(Trouble),
    /// A bug in the producer: nobody can read the event.
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
    /// The customer changes their mind before the transaction commits.
    pub(super) is_abandoned: bool,
    course: Course,
}

impl Order {
    /// The order of this number, always the same but for its id.
    pub(super) fn draw(seed: u64, number: u64) -> Self {
        // An odd factor keeps numbers apart, so that neighbouring seeds have nothing in common.
        let mut random = StdRng::seed_from_u64(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let is_abandoned = random.random_bool(0.04);
        let course = match random.random_range(0..1000) {
            0..20 => Course::Ship(Trouble::Once),
            20..22 => Course::Ship(Trouble::Always),
            22..27 => Course::Ship(Trouble::Stranger),
            27..30 => Course::Garbled,
            30..50 => Course::Invoice { work_ms: random.random_range(10..100) },
            50..100 => Course::Remind { after: Duration::from_millis(random.random_range(500..3000)) },
            _ => Course::Ship(Trouble::None),
        };
        let cents = random.random_range(100..100_000);
        Self {
            id: MessageId::at(SystemTime::now()),
            number,
            customer: format!("customer-{}", random.random_range(1..500)),
            total: format!("{}.{:02} EUR", cents / 100, cents % 100),
            is_abandoned,
            course,
        }
    }

    /// How long its event waits before anybody may handle it.
    pub(super) fn waits_for(&self) -> Duration {
        if let Course::Remind { after } = self.course { after } else { Duration::ZERO }
    }

    /// The event to stage with it.
    pub(super) fn message(&self) -> Result<Message, Invalid> {
        let order = self.number;
        let message = match &self.course {
            Course::Ship(trouble) => {
                OrderPlaced { order, customer: self.customer.clone(), trouble: *trouble }.message()
            }
            Course::Garbled => Message::builder(OrderPlaced::QUEUE)
                .event_type(OrderPlaced::TYPE)
                .content_type("application/json")
                .payload(&b"{\"order\":"[..]),
            Course::Invoice { work_ms } => InvoiceWanted { order, work_ms: *work_ms }.message(),
            Course::Remind { after } => {
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
    fn a_seed_gives_the_same_orders_again() {
        let orders = |seed| {
            let orders = (0..500).map(move |number| Order::draw(seed, number));
            orders
                .map(|order| (order.customer, order.total, order.is_abandoned, order.course))
                .collect::<Vec<_>>()
        };
        assert_eq!(orders(7), orders(7));
        assert_ne!(orders(7), orders(8));
    }

    #[test]
    fn everything_that_can_happen_does_and_can_be_staged() {
        let orders: Vec<_> = (0..5000).map(|number| Order::draw(1, number)).collect();
        for trouble in [Trouble::None, Trouble::Once, Trouble::Always, Trouble::Stranger] {
            assert!(orders.iter().any(|order| order.course == Course::Ship(trouble)), "{trouble:?}");
        }
        assert!(orders.iter().any(|order| order.course == Course::Garbled));
        assert!(orders.iter().any(|order| order.is_abandoned));
        assert!(orders.iter().any(|order| !order.waits_for().is_zero()));
        for order in orders {
            assert_eq!(order.message().unwrap().id(), Some(order.id));
        }
    }
}
