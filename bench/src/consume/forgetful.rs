//! Transactions in which nothing is marked as received.

use postrider_core::{
    Admission, Arrival, ConsumerName, Error, Inbox, Parked, Receive, Settle, transact::Transact,
};

/// Takes every message for a new one, and never looks whether a handler has swallowed an error.
#[derive(Debug, Clone)]
pub(super) struct Forgetful<R>(pub(super) R);

impl<R: Receive> Transact for Forgetful<R> {
    type Tx = R::Tx;

    async fn begin(&self) -> Result<R::Tx, Error> {
        self.0.begin().await
    }

    async fn settle_in(&self, tx: &mut R::Tx, settle: &Settle) -> Result<bool, Error> {
        self.0.settle_in(tx, settle).await
    }

    async fn commit(&self, tx: R::Tx) -> Result<(), Error> {
        self.0.commit(tx).await
    }

    async fn rollback(&self, tx: R::Tx) -> Result<(), Error> {
        self.0.rollback(tx).await
    }
}

impl<R: Receive> Inbox<R::Tx> for Forgetful<R> {
    async fn admit_all(
        &self,
        _: &mut R::Tx,
        _: &ConsumerName,
        arrivals: &[Arrival],
    ) -> Result<Vec<Admission>, Error> {
        Ok(vec![Admission::First; arrivals.len()])
    }
}

impl<R: Receive> Receive for Forgetful<R> {
    type Store = R::Store;

    fn store(&self) -> R::Store {
        self.0.store()
    }

    async fn park_all(&self, tx: &mut R::Tx, parked: &[Parked]) -> Result<(), Error> {
        self.0.park_all(tx, parked).await
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
