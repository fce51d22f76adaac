//! A batch of arrivals in the form in which a database processes it.

use postrider_core::{Admission, Arrival, TenantId};
use uuid::Uuid;

/// The distinct arrivals of a batch, in an order that is the same in every process: of two batches with the same messages one waits
/// for the other, and they cannot deadlock.
#[derive(Debug)]
pub(crate) struct Arrivals<'b> {
    batch: &'b [Arrival],
    /// For each distinct arrival, its first index in the batch.
    indexes: Vec<usize>,
}

impl<'b> Arrivals<'b> {
    pub(crate) fn of(batch: &'b [Arrival]) -> Self {
        let mut indexes: Vec<usize> = (0..batch.len()).collect();
        // A stable sort, so that the first of equal arrivals stays first.
        indexes.sort_by(|one, other| batch[*one].cmp(&batch[*other]));
        indexes.dedup_by(|later, first| batch[*later] == batch[*first]);
        Self { batch, indexes }
    }

    /// The tenant of each arrival, empty for none.
    pub(crate) fn tenants(&self) -> impl Iterator<Item = &'b str> {
        self.indexes.iter().map(|index| self.batch[*index].tenant.as_ref().map_or("", TenantId::as_str))
    }

    pub(crate) fn ids(&self) -> impl Iterator<Item = Uuid> {
        self.indexes.iter().map(|index| self.batch[*index].id.as_uuid())
    }

    /// One admission for each arrival of the batch, from one for each distinct arrival.
    pub(crate) fn in_batch_order(&self, admissions: Vec<Admission>) -> Vec<Admission> {
        let mut in_batch = vec![Admission::Duplicate; self.batch.len()];
        for (index, admission) in self.indexes.iter().zip(admissions) {
            in_batch[*index] = admission;
        }
        in_batch
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
    fn arrivals_are_sorted_for_database_and_admissions_returned_in_batch_order() {
        let batch = [arrival("b", 1), arrival("", 2), arrival("a", 3), arrival("b", 1), arrival("", 1)];
        let mut reversed = batch.clone();
        reversed.reverse();
        for batch in [&batch, &reversed] {
            let arrivals = Arrivals::of(batch);
            assert_eq!(arrivals.tenants().collect::<Vec<_>>(), ["", "", "a", "b"]);
            assert_eq!(arrivals.ids().map(|id| id.as_u128()).collect::<Vec<_>>(), [1, 2, 3, 1]);
        }
        let in_batch = Arrivals::of(&batch).in_batch_order(vec![Duplicate, First, Duplicate, First]);
        assert_eq!(in_batch, [First, First, Duplicate, Duplicate, Duplicate]);
    }
}
