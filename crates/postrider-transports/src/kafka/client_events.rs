//! The error callback of librdkafka: outages and errors that belong to no single request.

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::sync::Arc;
use tokio::sync::watch;

/// The errors that a client has reported so far.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientStatus {
    /// How many times no broker was reachable at all, or none accepted the credentials.
    pub(super) outages: u64,
    pub(super) last_error: Option<String>,
}

/// Receives the callbacks of a client. Clones share one status.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientEvents(Arc<watch::Sender<ClientStatus>>);

impl ClientEvents {
    pub(super) fn subscribe(&self) -> watch::Receiver<ClientStatus> {
        self.0.subscribe()
    }

    /// Whether the last error belongs to TLS: librdkafka's texts differ, and all of them say so in capitals.
    pub(super) fn is_tls_failure(&self) -> bool {
        self.0.borrow().last_error.as_ref().is_some_and(|error| error.contains("SSL"))
    }

    /// The last error in parentheses, to be appended to another message; empty if there was none.
    pub(super) fn last_error_suffix(&self) -> String {
        self.0.borrow().last_error.as_ref().map(|error| format!(" ({error})")).unwrap_or_default()
    }
}

impl ClientContext for ClientEvents {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {
        // Everything that matters arrives as an error, or as the delivery report of a message.
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        self.0.send_modify(|status| {
            match code {
                // "All brokers are down" explains less than the reason why the last one is.
                Some(Code::AllBrokersDown) => status.outages += 1,
                Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
                    status.outages += 1;
                    status.last_error = Some(reason.to_owned());
                }
                _ => status.last_error = Some(reason.to_owned()),
            }
        });
    }
}
