//! Publishes a batch to a service: resolves destinations, splits the batch into requests, and returns one result for each message.

use super::{
    AwsOptions, BatchEntry, BatchResult, FailureKind, ServiceError, batch, client,
    failed_groups::FailedGroups, wire,
};
use async_trait::async_trait;
use aws_config::SdkConfig;
use futures_util::future::join_all;
use postrider_core::{Invalid, Outgoing, PublishError, Receipt};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Mutex, PoisonError},
};
use tokio::sync::{OnceCell, RwLock, RwLockReadGuard, Semaphore};

/// The most requests in flight, over all calls.
const MAX_REQUESTS: usize = 32;

pub(crate) type PublishResult = Result<Receipt, PublishError>;

/// SQS or SNS.
#[async_trait]
pub(crate) trait Service: Send + Sync + 'static {
    /// The size limit in bytes of a message, and of a request.
    const BYTES: usize;

    fn new(config: &SdkConfig) -> Self;

    /// Resolves a destination to the address of requests: the URL of a queue, the ARN of a topic.
    async fn resolve(&self, destination: &str) -> Result<String, ServiceError>;

    /// Sends the entries under the ids `0`, `1`, … in one request. An error applies to all of them.
    async fn send(&self, address: &str, entries: &[&BatchEntry]) -> Result<BatchResult, ServiceError>;

    /// The command that creates a missing queue or topic.
    fn create_command(destination: &str) -> String;
}

/// Publishes to a service. The client is created with the first message.
pub(crate) struct Publisher<S> {
    options: AwsOptions,
    /// `None` when closed. Calls hold the read lock; closing takes the write lock, and so waits for all calls.
    service: RwLock<Option<OnceCell<S>>>,
    /// The resolved addresses, by destination.
    addresses: Mutex<BTreeMap<String, String>>,
    permits: Semaphore,
}

impl<S: Service> Publisher<S> {
    pub(crate) fn new(options: AwsOptions) -> Result<Self, Invalid> {
        options.check()?;
        let service = RwLock::new(Some(OnceCell::new()));
        Ok(Self { options, service, addresses: Mutex::default(), permits: Semaphore::new(MAX_REQUESTS) })
    }

    pub(crate) async fn publish(&self, batch: &[Outgoing]) -> Vec<PublishResult> {
        if batch.is_empty() {
            return Vec::new();
        }
        let service = match self.service().await {
            Ok(service) => service,
            Err(error) => return batch.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let mut destinations: BTreeMap<&str, Vec<(usize, &Outgoing)>> = BTreeMap::new();
        for (index, outgoing) in batch.iter().enumerate() {
            destinations.entry(&outgoing.destination).or_default().push((index, outgoing));
        }
        let sending = destinations
            .into_iter()
            .map(|(destination, messages)| self.send_to(&service, destination, messages));
        let mut results: Vec<Result<(), ServiceError>> = vec![Err(no_result()); batch.len()];
        for (index, result) in join_all(sending).await.into_iter().flatten() {
            results[index] = result;
        }
        results.into_iter().map(|result| result.map(|()| Receipt::new()).map_err(Into::into)).collect()
    }

    /// The service, created by the first call.
    pub(crate) async fn service(&self) -> Result<RwLockReadGuard<'_, S>, ServiceError> {
        let service = self.service.read().await;
        let Some(cell) = service.as_ref() else {
            return Err(ServiceError::unavailable("the transport is closed".to_owned()));
        };
        let set_up = async || Ok::<S, ServiceError>(S::new(&client::configure(&self.options).await?));
        cell.get_or_try_init(set_up).await?;
        RwLockReadGuard::try_map(service, |service| service.as_ref()?.get()).map_err(|_| no_result())
    }

    /// Refuses new calls, and waits for those that run.
    pub(crate) async fn close(&self) {
        self.service.write().await.take();
    }

    async fn send_to(
        &self,
        service: &S,
        destination: &str,
        messages: Vec<(usize, &Outgoing)>,
    ) -> Vec<(usize, Result<(), ServiceError>)> {
        let is_fifo = destination.ends_with(".fifo");
        let address = match self.address(service, destination).await {
            Ok(address) => address,
            Err(error) => {
                return messages.into_iter().map(|(index, _)| (index, Err(error.clone()))).collect();
            }
        };
        let mut results = Vec::with_capacity(messages.len());
        let (mut failed_groups, mut entries) = (FailedGroups::default(), Vec::with_capacity(messages.len()));
        for (index, outgoing) in messages {
            let group = is_fifo.then(|| wire::group(outgoing));
            if let Some(error) = failed_groups.error_behind(group.as_deref()) {
                results.push((index, Err(error)));
                continue;
            }
            match BatchEntry::write(outgoing, group.clone(), S::BYTES) {
                Ok(entry) => entries.push((index, entry)),
                Err(wrong) => {
                    let error = ServiceError::new(FailureKind::Reject, wrong);
                    failed_groups.insert(group.as_deref(), &error);
                    results.push((index, Err(error)));
                }
            }
        }
        // Messages in front of one that cannot be encoded are sent all the same.
        let mut failed_groups = FailedGroups::default();
        for mut round in batch::rounds(&entries, S::BYTES) {
            for request in &mut round {
                request.retain(|at| {
                    let (index, entry) = &entries[*at];
                    let error = failed_groups.error_behind(entry.group.as_deref());
                    let is_blocked = error.is_some();
                    results.extend(error.map(|error| (*index, Err(error))));
                    !is_blocked
                });
            }
            let sending = round.into_iter().filter(|request| !request.is_empty()).map(async |request| {
                let of_request: Vec<&BatchEntry> = request.iter().map(|at| &entries[*at].1).collect();
                let results = self.send(service, destination, &address, &of_request).await;
                request.into_iter().zip(results).collect::<Vec<_>>()
            });
            for (at, result) in join_all(sending).await.into_iter().flatten() {
                let (index, entry) = &entries[at];
                if let Err(error) = &result {
                    failed_groups.insert(entry.group.as_deref(), error);
                }
                results.push((*index, result));
            }
        }
        results
    }

    /// One result for each entry. If one entry makes the service reject the whole request without naming it, sends them one by one.
    async fn send(
        &self,
        service: &S,
        destination: &str,
        address: &str,
        entries: &[&BatchEntry],
    ) -> Vec<Result<(), ServiceError>> {
        match self.request(service, destination, address, entries).await {
            Err(error) if error.kind == FailureKind::Reject && entries.len() > 1 => {
                let singles = entries.iter().map(async |entry| {
                    let listed = self.request(service, destination, address, &[entry]).await?;
                    listed.results(1).pop().unwrap_or_else(|| Err(no_result()))
                });
                join_all(singles).await
            }
            Err(error) => vec![Err(error); entries.len()],
            Ok(listed) => listed.results(entries.len()),
        }
    }

    async fn request(
        &self,
        service: &S,
        destination: &str,
        address: &str,
        entries: &[&BatchEntry],
    ) -> Result<BatchResult, ServiceError> {
        let _permit = self.permits.acquire().await;
        let sent = service.send(address, entries).await;
        sent.map_err(|error| self.missing(destination, error))
    }

    async fn address(&self, service: &S, destination: &str) -> Result<String, ServiceError> {
        if let Some(address) = self.addresses().get(destination) {
            return Ok(address.clone());
        }
        let found = service.resolve(destination).await;
        let address = found.map_err(|error| self.missing(destination, lookup_error(error)))?;
        self.addresses().insert(destination.to_owned(), address.clone());
        Ok(address)
    }

    /// Forgets the address of a missing destination, so that the next call resolves it again, and adds the command that creates it.
    fn missing(&self, destination: &str, mut error: ServiceError) -> ServiceError {
        if error.kind == FailureKind::Missing {
            self.addresses().remove(destination);
            error.reason = format!(
                "{destination} does not exist ({}); create it: {}",
                error.reason,
                S::create_command(destination)
            );
        }
        error
    }

    fn addresses(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lookup that failed has sent nothing: its outcome is never unknown.
fn lookup_error(error: ServiceError) -> ServiceError {
    match error.kind {
        FailureKind::Unknown => ServiceError::new(FailureKind::Retry(None), error.reason),
        _ => error,
    }
}

fn no_result() -> ServiceError {
    ServiceError::new(FailureKind::Unknown, "the service returned no result for this message".to_owned())
}

impl<S> fmt::Debug for Publisher<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.options.fmt(f)
    }
}
