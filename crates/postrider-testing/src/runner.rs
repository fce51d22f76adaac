//! The runners that a test can run through virtual time.

use crate::TestStore;
use postrider_core::{Error, TxBackend};
use postrider_engine::{Consumer, Relay, Report, SagaRunner, Worker, consumer::StartError};
use std::future::Future;

/// A runner for [`TestStore::run_until_idle`] and [`TestStore::run_until_settled`]: a worker, a relay, a consumer or a saga runner.
pub trait TestRunner: Sync {
    /// Injects the planned faults of the store into deliveries, where the runner supports that.
    fn inject_faults(&self, _: &TestStore) {}

    /// Runs until nothing is due.
    ///
    /// # Errors
    /// When the store fails.
    fn run_until_idle(&self) -> impl Future<Output = Result<Report, Error>> + Send;
}

impl TestRunner for Worker {
    fn inject_faults(&self, store: &TestStore) {
        store.inject_faults(self);
    }

    async fn run_until_idle(&self) -> Result<Report, Error> {
        Self::run_until_idle(self).await
    }
}

impl TestRunner for Relay {
    async fn run_until_idle(&self) -> Result<Report, Error> {
        Self::run_until_idle(self).await
    }
}

impl<S: TxBackend> TestRunner for SagaRunner<S> {
    async fn run_until_idle(&self) -> Result<Report, Error> {
        Self::run_until_idle(self).await
    }
}

impl<R: TxBackend> TestRunner for Consumer<R> {
    async fn run_until_idle(&self) -> Result<Report, Error> {
        Self::run_until_idle(self).await.map_err(|error: StartError| Error::Other(error.into()))
    }
}
