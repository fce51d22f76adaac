//! The most common batch of settlements: one claim that was delivered, whole or in part.
//!
//! Its messages were claimed together, so they lie close together in the line, and a store can find them by a stretch of it.

use postrider_core::{LeaseToken, QueueName, Settle, Settlement};
use std::ops::RangeInclusive;

/// One claim that was delivered.
#[derive(Debug)]
pub(crate) struct OneClaim<'s> {
    pub(crate) queue: &'s QueueName,
    pub(crate) token: LeaseToken,
    /// Sorted, each once. There is at least one.
    pub(crate) places: Vec<i64>,
}

impl<'s> OneClaim<'s> {
    /// The batch, if it is of this kind and each of its leases knows its place.
    pub(crate) fn of(settlements: &'s [Settle]) -> Option<Self> {
        let lease = &settlements.first()?.lease;
        let (queue, token) = (lease.queue(), lease.token());
        let place = |settle: &Settle| {
            let lease = &settle.lease;
            let fits = settle.settlement == Settlement::Done
                && lease.token() == token
                && lease.turn().is_none()
                && lease.queue() == queue;
            lease.place().filter(|_| fits)
        };
        let mut places = settlements.iter().map(place).collect::<Option<Vec<_>>>()?;
        places.sort_unstable();
        let is_each_once = places.is_sorted_by(|one, next| one < next);
        is_each_once.then_some(Self { queue, token, places })
    }

    /// The stretches of the line of which every place is in the batch.
    pub(crate) fn stretches(&self) -> Vec<RangeInclusive<i64>> {
        let parts = self.places.chunk_by(|one, next| one.checked_add(1) == Some(*next));
        parts.filter_map(|part| Some(*part.first()?..=*part.last()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, MessageId};
    use uuid::Uuid;

    fn lease(token: LeaseToken, place: i64) -> Lease {
        let id = MessageId::from_uuid(Uuid::now_v7());
        Lease::new(QueueName::new("orders").unwrap(), id, token).at_place(place)
    }

    #[test]
    fn places_make_stretches_whatever_their_order() {
        let token = LeaseToken::fresh();
        let batch: Vec<_> = [9, 3, 2, 4, 7].map(|place| lease(token, place).done()).into();
        assert_eq!(OneClaim::of(&batch).unwrap().stretches(), [2..=4, 7..=7, 9..=9]);
    }

    #[test]
    fn anything_else_is_no_delivered_claim() {
        let token = LeaseToken::fresh();
        let first = || lease(token, 1).done();
        assert!(OneClaim::of(&[first()]).is_some());
        assert!(OneClaim::of(&[]).is_none());
        assert!(OneClaim::of(&[first(), first()]).is_none(), "twice the same");
        assert!(OneClaim::of(&[first(), lease(LeaseToken::fresh(), 2).done()]).is_none(), "two claims");
        assert!(OneClaim::of(&[first(), lease(token, 2).release()]).is_none(), "not delivered");
        let elsewhere =
            Lease::new(QueueName::new("elsewhere").unwrap(), MessageId::from_uuid(Uuid::now_v7()), token);
        assert!(OneClaim::of(&[first(), elsewhere.clone().at_place(2).done()]).is_none(), "two queues");
        assert!(OneClaim::of(&[elsewhere.done()]).is_none(), "a place that is not known");
    }
}
