//! The deliveries of a channel that are in flight: received and not yet acked.

use lapin::types::DeliveryTag;
use postrider_core::Ack;
use std::collections::BTreeSet;

/// The unacked delivery tags of a channel. Tags are numbers in the order of delivery.
#[derive(Debug, Default)]
pub(super) struct InFlight(BTreeSet<DeliveryTag>);

/// An acknowledgement, as it is sent to the broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AckFrame {
    /// `basic.ack` of one delivery.
    Ack(DeliveryTag),
    /// `basic.ack` of this delivery and all unacked ones before it (`multiple`).
    AckUpTo(DeliveryTag),
    /// `basic.nack` with `requeue`: back into the queue.
    Requeue(DeliveryTag),
    /// `basic.nack` without `requeue`: to the dead-letter exchange, or dropped.
    Reject(DeliveryTag),
}

impl InFlight {
    pub(super) fn add(&mut self, tag: DeliveryTag) {
        self.0.insert(tag);
    }

    pub(super) fn contains(&self, tag: DeliveryTag) -> bool {
        self.0.contains(&tag)
    }

    /// Removes the given deliveries. Returns for each whether it was in flight, and the frames to send, in this order. An ack of a tag
    /// that is not in flight would make the broker close the channel, with every delivery in flight on it.
    ///
    /// Acks are combined into one frame up to the first delivery that is still in flight.
    pub(super) fn ack(&mut self, acks: &[(DeliveryTag, Ack)]) -> (Vec<bool>, Vec<AckFrame>) {
        let (mut frames, mut acked) = (Vec::new(), BTreeSet::new());
        let mut remove = |(tag, ack): &(DeliveryTag, Ack)| {
            let was_in_flight = self.0.remove(tag);
            match ack {
                _ if !was_in_flight => {}
                Ack::Ack => drop(acked.insert(*tag)),
                Ack::Nack { .. } => frames.push(AckFrame::Requeue(*tag)),
                Ack::Reject => frames.push(AckFrame::Reject(*tag)),
            }
            was_in_flight
        };
        let removed = acks.iter().map(&mut remove).collect();
        // Nacks precede the combined ack, so that it does not include them.
        let behind = self.0.first().map_or_else(BTreeSet::new, |open| acked.split_off(open));
        match (acked.len(), acked.last()) {
            (1, Some(only)) => frames.push(AckFrame::Ack(*only)),
            (_, Some(last)) => frames.push(AckFrame::AckUpTo(*last)),
            (_, None) => {}
        }
        frames.extend(behind.into_iter().map(AckFrame::Ack));
        (removed, frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_flight(tags: impl IntoIterator<Item = DeliveryTag>) -> InFlight {
        InFlight(tags.into_iter().collect())
    }

    fn acks(tags: impl IntoIterator<Item = DeliveryTag>) -> Vec<(DeliveryTag, Ack)> {
        tags.into_iter().map(|tag| (tag, Ack::Ack)).collect()
    }

    #[test]
    fn acks_from_the_first_delivery_on_are_combined() {
        let mut in_flight = in_flight(1..=5);
        assert_eq!(in_flight.ack(&acks([2, 1, 3])), (vec![true; 3], vec![AckFrame::AckUpTo(3)]));
        assert_eq!(in_flight.ack(&acks([5, 4])), (vec![true; 2], vec![AckFrame::AckUpTo(5)]));
    }

    #[test]
    fn combined_ack_excludes_deliveries_in_flight() {
        let mut in_flight = in_flight(1..=6);
        let (_, frames) = in_flight.ack(&acks([1, 2, 4, 6]));
        assert_eq!(frames, [AckFrame::AckUpTo(2), AckFrame::Ack(4), AckFrame::Ack(6)]);
        assert_eq!(in_flight.ack(&acks([3])).1, [AckFrame::Ack(3)]);
        assert!(in_flight.contains(5) && !in_flight.contains(3));
    }

    #[test]
    fn nacks_precede_the_combined_ack() {
        let mut in_flight = in_flight(1..=4);
        let acks = [(1, Ack::Ack), (2, Ack::REDELIVER_NOW), (3, Ack::Reject), (4, Ack::Ack)];
        assert_eq!(in_flight.ack(&acks).1, [AckFrame::Requeue(2), AckFrame::Reject(3), AckFrame::AckUpTo(4)]);
    }

    #[test]
    fn second_ack_of_a_delivery_sends_nothing() {
        let mut in_flight = in_flight(1..=2);
        assert_eq!(
            in_flight.ack(&[(1, Ack::Ack), (1, Ack::REDELIVER_NOW)]),
            (vec![true, false], vec![AckFrame::Ack(1)])
        );
        assert_eq!(in_flight.ack(&acks([1])), (vec![false], vec![]));
    }
}
