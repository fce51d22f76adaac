//! Messages, names, settlements, retry strategies, the saga state machine, and the traits that stores and transports implement.
//!
//! This crate has no I/O, no runtime and no clock: time is passed in where a rule needs it.
//!
//! Users add the crate `postrider`, which re-exports all of this.

pub mod audit;
pub mod backend;
pub mod checkup;
pub mod client;
pub mod cloudevents;
pub mod codec;
pub mod event;
pub mod finding;
pub mod follow_up;
mod forward;
pub mod headers;
pub mod hlc;
pub mod id;
pub mod inbox;
pub mod incoming;
pub mod inspect;
pub mod invalid;
pub mod lease;
pub mod limits;
pub mod message;
pub mod name;
pub mod notifier;
pub mod outbox;
pub mod outgoing;
pub mod pause;
pub mod policy;
pub mod retry;
pub mod saga;
pub mod schema;
pub mod settlement;
pub mod source;
pub mod staged;
pub mod state;
pub mod store;
pub mod template;
pub mod text;
pub mod timetable;
pub mod trace;
pub mod transport;
pub mod tx_backend;
pub mod weights;

pub use audit::{AuditError, AuditEvent, AuditKind, AuditRecord, AuditSink};
pub use backend::Backend;
pub use checkup::CheckupRequest;
pub use client::{ClientCertificate, ClientOptions, Credentials, Pem, Trust};
pub use codec::{Codec, CodecError, Json, Raw};
pub use event::{Event, IntoMessage};
pub use finding::{Finding, Severity};
pub use follow_up::{FollowUp, FollowUpExt, Reference};
pub use headers::Headers;
pub use hlc::Hlc;
pub use id::{LeaseToken, MessageId};
pub use inbox::{Admission, Arrival, Inbox, InboxExt};
pub use incoming::{DecodedMessage, Incoming};
pub use invalid::{Invalid, Problem};
pub use lease::{ClaimedMessage, Lease, LeaseSettlement};
pub use limits::Limits;
pub use message::{Due, Message, MessageBuilder, OnConflict, Timer};
pub use name::{
    ConsumerName, DestinationName, EventType, OrderingKey, QueueName, ResolverName, ScheduleName, SubjectId,
    TenantId, TimerName,
};
pub use outbox::{Outbox, OutboxExt};
pub use outgoing::{Format, Outgoing};
pub use pause::{Pausable, PauseRecord};
pub use policy::{OnFailure, Ordering, QueuePolicy};
pub use retry::RetryStrategy;
pub use settlement::{Reason, Settlement};
pub use source::{
    Ack, AckHandle, Capabilities, LaneId, ReceivedMessage, RedeliveryWindow, Source, SourceError,
};
pub use staged::{StageOutcome, StageReport};
pub use state::State;
pub use store::{ClaimRequest, Error, PruneReport, PruneRequest, Store};
pub use template::Template;
pub use text::Text;
pub use transport::{Capacity, PublishError, Receipt, Transport};
pub use tx_backend::{DeadLetter, TxBackend};
pub use weights::TenantWeights;

/// For wrappers of traits: see [`forward_backend!`].
#[doc(hidden)]
pub use async_trait::async_trait;

/// The traits of a backend, so that their methods can be called.
pub mod prelude {
    pub use crate::{
        Store as _, TxBackend as _,
        inspect::{Inspect as _, Operate as _},
        notifier::Notifier as _,
        schema::Schema as _,
    };
}

/// The cause of an error, without the type of a driver or client.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;
