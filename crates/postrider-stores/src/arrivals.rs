//! A batch of arrivals as a database is given it.

use postrider_core::{Admission, Arrival, TenantId};
use uuid::Uuid;

/// Each arrival of a batch once, in an order that is the same for everybody: of two batches with the same messages one waits for the
/// other, and never both.
#[derive(Debug)]
pub(crate) struct Arrivals<'b> {
    batch: &'b [Arrival],
    /// Where each of them is in the batch for the first time.
    places: Vec<usize>,
}

impl<'b> Arrivals<'b> {
    pub(crate) fn of(batch: &'b [Arrival]) -> Self {
        let mut places: Vec<usize> = (0..batch.len()).collect();
        // The sort is stable, so the first of equals stays the first.
        places.sort_by(|one, other| batch[*one].cmp(&batch[*other]));
        places.dedup_by(|later, first| batch[*later] == batch[*first]);
        Self { batch, places }
    }

    /// The tenant of each, which is empty where there is none.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &'b str> {
        self.places.iter().map(|place| self.batch[*place].tenant.as_ref().map_or("", TenantId::as_str))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Uuid> {
        self.places.iter().map(|place| self.batch[*place].id.as_uuid())
    }

    /// One answer for each message of the batch, from one for each arrival.
    pub(crate) fn in_order(&self, admissions: Vec<Admission>) -> Vec<Admission> {
        let mut answers = vec![Admission::Duplicate; self.batch.len()];
        for (place, admission) in self.places.iter().zip(admissions) {
            answers[*place] = admission;
        }
        answers
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Admission::{Duplicate, First};
    use postrider_core::MessageId;

    fn arrival(tenant: &str, number: u128) -> Arrival {
        let arrival = Arrival::new(MessageId::from_uuid(Uuid::from_u128(number)));
        if tenant.is_empty() { arrival } else { arrival.of_tenant(tenant.parse().unwrap()) }
    }

    #[test]
    fn whatever_the_order_of_a_batch_it_is_sent_in_one_order_and_answered_in_its_own() {
        let batch = [arrival("b", 1), arrival("", 2), arrival("a", 3), arrival("b", 1), arrival("", 1)];
        let mut reversed = batch.clone();
        reversed.reverse();
        for batch in [&batch, &reversed] {
            let arrivals = Arrivals::of(batch);
            assert_eq!(arrivals.tenants().collect::<Vec<_>>(), ["", "", "a", "b"]);
            assert_eq!(arrivals.ids().map(|id| id.as_u128()).collect::<Vec<_>>(), [1, 2, 3, 1]);
        }
        let answers = Arrivals::of(&batch).in_order(vec![Duplicate, First, Duplicate, First]);
        assert_eq!(answers, [First, First, Duplicate, Duplicate, Duplicate]);
    }
}
