//! What the client says besides its answers.

use rdkafka::{
    ClientContext,
    config::RDKafkaLogLevel,
    error::{KafkaError, RDKafkaErrorCode as Code},
};
use std::sync::Arc;
use tokio::sync::watch;

/// What was heard so far.
#[derive(Debug, Clone, Default)]
pub(super) struct Heard {
    /// How often no server could be reached at all, or none would let it in.
    pub(super) outages: u64,
    /// The last complaint.
    pub(super) complaint: Option<String>,
}

/// Listens to the client.
#[derive(Debug, Clone, Default)]
pub(super) struct Ear(Arc<watch::Sender<Heard>>);

impl Ear {
    pub(super) fn listen(&self) -> watch::Receiver<Heard> {
        self.0.subscribe()
    }

    /// What it complained of last, to stand beside an error.
    pub(super) fn complaint(&self) -> String {
        self.0.borrow().complaint.as_ref().map(|complaint| format!(" ({complaint})")).unwrap_or_default()
    }
}

impl ClientContext for Ear {
    fn log(&self, _: RDKafkaLogLevel, _: &str, _: &str) {
        // What matters comes as an error, or as the answer to a message.
    }

    fn error(&self, error: KafkaError, reason: &str) {
        let code = error.rdkafka_error_code();
        self.0.send_modify(|heard| {
            match code {
                // That all are down says less than why the last one is.
                Some(Code::AllBrokersDown) => heard.outages += 1,
                Some(Code::Authentication | Code::SaslAuthenticationFailed) => {
                    heard.outages += 1;
                    heard.complaint = Some(reason.to_owned());
                }
                _ => heard.complaint = Some(reason.to_owned()),
            }
        });
    }
}
