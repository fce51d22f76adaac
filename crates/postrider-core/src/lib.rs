//! What a Postrider message is and the rules it lives by.
//!
//! This crate has no I/O, no runtime and no clock of its own: where a rule needs the time, it is passed in.
//! It holds the [`Message`] and the names around it, the ways a delivery can end ([`Settlement`]), the retry
//! strategies, the pure life cycle ([`state::next`]), the hybrid logical clock, and the seams ([`store`]) that
//! stores implement and the engine holds.
//!
//! Users add the crate `postrider`, which re-exports all of this.

pub mod audit;
pub mod checkup;
pub mod cloudevents;
pub mod codec;
pub mod event;
pub mod finding;
pub mod follow_up;
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
pub mod outbox;
pub mod outgoing;
pub mod pause;
pub mod policy;
pub mod receive;
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
pub mod transact;
pub mod transport;
pub mod wake;
pub mod weights;

pub use audit::{Audit, AuditError, AuditEvent, AuditKind, AuditSink, Recorded};
pub use checkup::{Checkup, CheckupRequest};
pub use codec::{Codec, CodecError, Json, Raw};
pub use event::{Event, IntoMessage};
pub use finding::{Finding, Severity};
pub use follow_up::{Follow, FollowUp, FollowUpExt, FollowUps, Reference};
pub use headers::Headers;
pub use hlc::Hlc;
pub use id::{LeaseToken, MessageId};
pub use inbox::{Admission, Arrival, Inbox, InboxExt};
pub use incoming::{Incoming, Letter};
pub use invalid::{Invalid, Problem};
pub use lease::{Claimed, Lease, Settle};
pub use limits::Limits;
pub use message::{Due, Message, MessageBuilder, OnConflict, Timer};
pub use name::{
    ConsumerName, DestinationName, EventType, OrderingKey, QueueName, ResolverName, ScheduleName, SubjectId,
    TenantId, TimerName,
};
pub use outbox::{Outbox, OutboxExt};
pub use outgoing::{Format, Outgoing};
pub use pause::{Pausable, Paused};
pub use policy::{OnFailure, Ordering, QueuePolicy};
pub use receive::{Parked, Receive};
pub use retry::RetryStrategy;
pub use settlement::{Reason, Settlement};
pub use source::{Abilities, Answer, Lane, Parcel, Redelivers, Source, SourceError, Ticket};
pub use staged::{Fate, Staged};
pub use state::State;
pub use store::{ClaimRequest, Error, PruneRequest, Pruned, Store};
pub use template::Template;
pub use text::Text;
pub use transport::{Capacity, PublishError, Receipt, Transport};
pub use weights::TenantWeights;
