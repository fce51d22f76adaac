//! State for each host: the concurrency limit, and the URLs that are gone.

use reqwest::Url;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Semaphore;

/// The number of hosts that are remembered before idle ones are dropped.
const MAX_HOSTS: usize = 1_000;
/// The number of gone URLs that are remembered. Further URLs are requested again, and respond with 410 again.
const MAX_GONE: usize = 10_000;

#[derive(Debug)]
pub(super) struct Hosts {
    concurrency: usize,
    permits: Mutex<HashMap<String, Arc<Semaphore>>>,
    gone: Mutex<BTreeSet<String>>,
}

impl Hosts {
    pub(super) fn new(concurrency: usize) -> Self {
        Self { concurrency, permits: Mutex::default(), gone: Mutex::default() }
    }

    /// The permits for requests to `origin`.
    pub(super) fn permits(&self, origin: &str) -> Arc<Semaphore> {
        let mut permits = self.permits.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = permits.get(origin) {
            return Arc::clone(known);
        }
        if permits.len() >= MAX_HOSTS {
            permits.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(self.concurrency));
        permits.insert(origin.to_owned(), Arc::clone(&semaphore));
        semaphore
    }

    pub(super) fn is_gone(&self, url: &Url) -> bool {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).contains(url.as_str())
    }

    pub(super) fn mark_gone(&self, url: &Url) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() < MAX_GONE {
            gone.insert(url.as_str().to_owned());
        }
    }

    pub(super) fn gone(&self) -> Vec<String> {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_to_one_host_share_permits_and_idle_hosts_are_dropped() {
        let hosts = Hosts::new(2);
        let busy = hosts.permits("https://busy.example");
        for number in 0..MAX_HOSTS * 2 {
            hosts.permits(&format!("https://{number}.example"));
        }
        assert!(Arc::ptr_eq(&busy, &hosts.permits("https://busy.example")));
        assert!(hosts.permits.lock().unwrap().len() <= MAX_HOSTS);
    }
}
