//! The most common batch of settlements: one claim whose messages were delivered, all of them or some.
//!
//! The messages were claimed together, so their positions are close together, and a store can find them by ranges of positions.

use postrider_core::{LeaseSettlement, LeaseToken, QueueName, Settlement};
use std::ops::RangeInclusive;

/// Messages of one claim that were delivered.
#[derive(Debug)]
pub(crate) struct DeliveredClaim<'s> {
    pub(crate) queue: &'s QueueName,
    pub(crate) token: LeaseToken,
    /// Sorted and distinct, at least one.
    pub(crate) positions: Vec<i64>,
}

impl<'s> DeliveredClaim<'s> {
    /// The batch, if it settles one claim as delivered and each of its leases has a position.
    pub(crate) fn of(settlements: &'s [LeaseSettlement]) -> Option<Self> {
        let lease = &settlements.first()?.lease;
        let (queue, token) = (lease.queue(), lease.token());
        let position = |settle: &LeaseSettlement| {
            let lease = &settle.lease;
            let fits = settle.settlement == Settlement::Done
                && lease.token() == token
                && lease.turn().is_none()
                && lease.queue() == queue;
            lease.position().filter(|_| fits)
        };
        let mut positions = settlements.iter().map(position).collect::<Option<Vec<_>>>()?;
        positions.sort_unstable();
        let is_distinct = positions.is_sorted_by(|one, next| one < next);
        is_distinct.then_some(Self { queue, token, positions })
    }

    /// The ranges of consecutive positions.
    pub(crate) fn ranges(&self) -> Vec<RangeInclusive<i64>> {
        let parts = self.positions.chunk_by(|one, next| one.checked_add(1) == Some(*next));
        parts.filter_map(|part| Some(*part.first()?..=*part.last()?)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Lease, MessageId};
    use uuid::Uuid;

    fn lease(token: LeaseToken, position: i64) -> Lease {
        let id = MessageId::from_uuid(Uuid::now_v7());
        Lease::new(QueueName::new("orders").unwrap(), id, token).at_position(position)
    }

    #[test]
    fn ranges_of_unsorted_positions_are_sorted_and_merged() {
        let token = LeaseToken::fresh();
        let batch: Vec<_> = [9, 3, 2, 4, 7].map(|position| lease(token, position).done()).into();
        assert_eq!(DeliveredClaim::of(&batch).unwrap().ranges(), [2..=4, 7..=7, 9..=9]);
    }

    #[test]
    fn batch_of_other_settlements_is_not_a_delivered_claim() {
        let token = LeaseToken::fresh();
        let first = || lease(token, 1).done();
        assert!(DeliveredClaim::of(&[first()]).is_some());
        assert!(DeliveredClaim::of(&[]).is_none());
        assert!(DeliveredClaim::of(&[first(), first()]).is_none(), "the same lease twice");
        assert!(DeliveredClaim::of(&[first(), lease(LeaseToken::fresh(), 2).done()]).is_none(), "two claims");
        assert!(DeliveredClaim::of(&[first(), lease(token, 2).release()]).is_none(), "not delivered");
        let elsewhere =
            Lease::new(QueueName::new("elsewhere").unwrap(), MessageId::from_uuid(Uuid::now_v7()), token);
        assert!(
            DeliveredClaim::of(&[first(), elsewhere.clone().at_position(2).done()]).is_none(),
            "two queues"
        );
        assert!(DeliveredClaim::of(&[elsewhere.done()]).is_none(), "a lease without a position");
    }
}
