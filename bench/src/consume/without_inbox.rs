//! Transactions without deduplication records.

use postrider_core::{
    Admission, Arrival, ConsumerName, ConsumerStore, DeadLetter, Error, Inbox, LeaseSettlement,
    transactions::Transactions,
};

/// Treats every message as new, and does not check whether a handler has ignored an error.
#[derive(Debug, Clone)]
pub(super) struct WithoutInbox<R>(pub(super) R);

impl<R: ConsumerStore> Transactions for WithoutInbox<R> {
    type Tx = R::Tx;

    async fn begin(&self) -> Result<R::Tx, Error> {
        self.0.begin().await
    }

    async fn settle_in(&self, tx: &mut R::Tx, settle: &LeaseSettlement) -> Result<bool, Error> {
        self.0.settle_in(tx, settle).await
    }

    async fn commit(&self, tx: R::Tx) -> Result<(), Error> {
        self.0.commit(tx).await
    }

    async fn rollback(&self, tx: R::Tx) -> Result<(), Error> {
        self.0.rollback(tx).await
    }
}

impl<R: ConsumerStore> Inbox<R::Tx> for WithoutInbox<R> {
    async fn admit_all(
        &self,
        _: &mut R::Tx,
        _: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        Ok(vec![Admission::First; arrivals.len()])
    }
}

impl<R: ConsumerStore> ConsumerStore for WithoutInbox<R> {
    type Store = R::Store;

    fn store(&self) -> R::Store {
        self.0.store()
    }

    async fn dead_letter_all(&self, tx: &mut R::Tx, parked: &[DeadLetter]) -> Result<(), Error> {
        self.0.dead_letter_all(tx, parked).await
    }

    async fn count_all(
        &self,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
        by: i32,
    ) -> Result<Vec<u32>, Error> {
        self.0.count_all(consumer, arrivals, by).await
    }

    async fn uncount_all(
        &self,
        tx: &mut R::Tx,
        consumer: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<(), Error> {
        self.0.uncount_all(tx, consumer, arrivals).await
    }

    async fn verify(&self, _: &mut R::Tx) -> Result<(), Error> {
        Ok(())
    }
}
