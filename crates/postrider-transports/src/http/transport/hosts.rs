//! What is known of the other sides: how many requests each may get at once, and which URLs are gone.

use reqwest::Url;
use std::{
    collections::{BTreeSet, HashMap},
    sync::{Arc, Mutex, PoisonError},
};
use tokio::sync::Semaphore;

/// So many hosts are remembered before idle ones are forgotten.
const REMEMBERED: usize = 1_000;
/// So many URLs that are gone are remembered. What is beyond them is asked again, and is gone again.
const GONE: usize = 10_000;

#[derive(Debug)]
pub(super) struct Hosts {
    at_once: usize,
    turns: Mutex<HashMap<String, Arc<Semaphore>>>,
    gone: Mutex<BTreeSet<String>>,
}

impl Hosts {
    pub(super) fn new(at_once: usize) -> Self {
        Self { at_once, turns: Mutex::default(), gone: Mutex::default() }
    }

    /// Where requests to `origin` wait for their turn.
    pub(super) fn turns(&self, origin: &str) -> Arc<Semaphore> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = turns.get(origin) {
            return Arc::clone(known);
        }
        if turns.len() >= REMEMBERED {
            turns.retain(|_, semaphore| Arc::strong_count(semaphore) > 1);
        }
        let semaphore = Arc::new(Semaphore::new(self.at_once));
        turns.insert(origin.to_owned(), Arc::clone(&semaphore));
        semaphore
    }

    pub(super) fn is_gone(&self, url: &Url) -> bool {
        self.gone.lock().unwrap_or_else(PoisonError::into_inner).contains(url.as_str())
    }

    pub(super) fn went(&self, url: &Url) {
        let mut gone = self.gone.lock().unwrap_or_else(PoisonError::into_inner);
        if gone.len() < GONE {
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
    fn requests_to_one_host_share_their_turns_and_idle_hosts_are_forgotten() {
        let hosts = Hosts::new(2);
        let busy = hosts.turns("https://busy.example");
        for number in 0..REMEMBERED * 2 {
            hosts.turns(&format!("https://{number}.example"));
        }
        assert!(Arc::ptr_eq(&busy, &hosts.turns("https://busy.example")));
        assert!(hosts.turns.lock().unwrap().len() <= REMEMBERED);
    }
}
