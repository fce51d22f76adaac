//! Tells an unavailable address from an unavailable destination.
//!
//! A transport reports that an address accepts no message: its exchange, stream, topic or queue is missing, or a permission is. After a
//! deployment that is a fault of the whole destination: no message can be sent, so none of them failed. But a destination may have many
//! addresses, from a template or from several routes, and then one bad address must not stop the others. The address that accepted the
//! last message decides:
//!
//! | other addresses | an unavailable address is |
//! |---|---|
//! | a message of the same batch was accepted | a failed attempt of its messages |
//! | the last accepted message went to another address | the same, until [`FAULTS_TO_OPEN`] messages in a row had an unavailable address |
//! | no message was accepted yet, or the last one went to this address | an outage of the destination |

use super::batcher::PublishResult;
use postrider_core::{MessageId, Outgoing, PublishError};
use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

/// This many different messages in a row without an available address are an outage, although another address accepted messages before.
const FAULTS_TO_OPEN: usize = 10;

#[derive(Debug, Default)]
pub(super) struct AddressHealth(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The address of the last message that was accepted.
    accepted: Option<String>,
    /// The messages since then whose address was unavailable, up to the limit.
    faults: BTreeSet<MessageId>,
}

impl AddressHealth {
    /// Resolves what the unavailable addresses of a batch mean. A failed attempt of a message becomes [`PublishError::Retry`], and an
    /// outage [`PublishError::Unavailable`]. The message of a `probe` keeps its error: it makes room for a message to another address.
    pub(super) fn resolve(&self, batch: &[Outgoing], results: &mut [PublishResult], is_probe: bool) {
        let accepted = results.iter().rposition(Result::is_ok);
        let has_fault = results.iter().any(is_fault);
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outgoing) = accepted.and_then(|index| batch.get(index)) {
            state.faults.clear();
            if state.accepted.as_ref() != Some(&outgoing.destination) {
                state.accepted = Some(outgoing.destination.clone());
            }
        }
        if !has_fault {
            return;
        }
        let faults = || batch.iter().zip(&*results).filter(|(_, result)| is_fault(result));
        for (outgoing, _) in faults() {
            if state.faults.len() < FAULTS_TO_OPEN {
                state.faults.insert(outgoing.id);
            }
        }
        let is_known = |address: &String| state.accepted.as_ref().is_none_or(|accepted| accepted == address);
        let is_outage = accepted.is_none()
            && (state.faults.len() >= FAULTS_TO_OPEN
                || faults().all(|(outgoing, _)| is_known(&outgoing.destination)));
        for result in results.iter_mut().filter(|result| is_fault(result)) {
            let fault = std::mem::replace(result, Err(PublishError::unknown("the result is being resolved")));
            *result = match fault {
                Err(PublishError::AddressUnavailable { source }) if !is_outage => {
                    Err(PublishError::Retry { after: None, source })
                }
                Err(PublishError::AddressUnavailable { source }) if !is_probe => {
                    Err(PublishError::Unavailable { source })
                }
                fault => fault,
            };
        }
    }
}

fn is_fault(result: &PublishResult) -> bool {
    matches!(result, Err(PublishError::AddressUnavailable { .. }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use postrider_core::{Format, Message, Receipt};
    use std::time::SystemTime;

    /// Resolves a batch of messages to these addresses, all of which are unavailable except for `up`, and returns the kinds of the results.
    fn resolve(health: &AddressHealth, addresses: &[&str], is_probe: bool) -> Vec<&'static str> {
        let batch: Vec<Outgoing> = addresses.iter().map(|address| outgoing(address)).collect();
        resolve_batch(health, &batch, is_probe)
    }

    fn resolve_batch(health: &AddressHealth, batch: &[Outgoing], is_probe: bool) -> Vec<&'static str> {
        let result = |outgoing: &Outgoing| match outgoing.destination.as_str() {
            "up" => Ok(Receipt::new()),
            address => {
                Err(PublishError::address_unavailable(format!("{address} is missing")).named("Missing"))
            }
        };
        let mut results: Vec<_> = batch.iter().map(result).collect();
        health.resolve(batch, &mut results, is_probe);
        assert!(
            results.iter().all(|result| result.as_ref().err().is_none_or(|error| error.name() == "Missing"))
        );
        results.iter().map(|result| result.as_ref().map_or_else(PublishError::kind, |_| "accepted")).collect()
    }

    fn outgoing(address: &str) -> Outgoing {
        let message = Message::builder("orders").payload("x").build().unwrap();
        let now = SystemTime::now();
        Outgoing::write(&message, MessageId::at(now), now, "/shop", address.to_owned(), Format::Plain)
            .unwrap()
    }

    const OUTAGE: &str = "DestinationDown";
    const ATTEMPT: &str = "PublishRefused";

    #[test]
    fn missing_address_is_an_outage_while_no_message_was_accepted() {
        let health = AddressHealth::default();
        assert_eq!(resolve(&health, &["a", "b"], false), [OUTAGE, OUTAGE]);
        assert_eq!(resolve(&health, &["a"], true), ["AddressUnavailable"], "a probe");
        assert_eq!(resolve(&health, &["up"], true), ["accepted"]);
        assert_eq!(resolve(&health, &["a"], false), [ATTEMPT]);
    }

    #[test]
    fn missing_address_beside_an_accepted_one_is_a_failed_attempt() {
        let health = AddressHealth::default();
        let many: Vec<_> = ["a"; 50].into_iter().chain(["up"]).collect();
        let results = resolve(&health, &many, false);
        assert!(
            results[..50].iter().all(|kind| *kind == ATTEMPT) && results[50] == "accepted",
            "{results:?}"
        );
    }

    #[test]
    fn address_that_accepted_the_last_message_and_is_missing_now_is_an_outage() {
        let health = AddressHealth::default();
        resolve(&health, &["up"], false);
        health.0.lock().unwrap().accepted = Some("a".to_owned());
        assert_eq!(resolve(&health, &["a"], false), [OUTAGE]);
        assert_eq!(resolve(&health, &["b"], false), [ATTEMPT]);
    }

    #[test]
    fn ten_different_messages_in_a_row_are_an_outage() {
        let health = AddressHealth::default();
        resolve(&health, &["up"], false);
        let one = [outgoing("a")];
        for _ in 0..2 * FAULTS_TO_OPEN {
            assert_eq!(resolve_batch(&health, &one, false), [ATTEMPT], "the same message");
        }
        for _ in 2..FAULTS_TO_OPEN {
            assert_eq!(resolve(&health, &["a"], false), [ATTEMPT]);
        }
        assert_eq!(resolve(&health, &["b"], false), [OUTAGE]);
        assert_eq!(resolve(&health, &["b"], true), ["AddressUnavailable"]);
        resolve(&health, &["up"], true);
        assert_eq!(resolve(&health, &["b"], false), [ATTEMPT]);
    }
}
