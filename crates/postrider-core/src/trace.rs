//! The trace in which messages are staged.
//!
//! With the feature `opentelemetry`, a message that names no trace of its own takes the one of the code that stages it: of
//! OpenTelemetry's current context, or else of the current `tracing` span, if the application bridges those with
//! `tracing-opentelemetry`. It travels as W3C text, so that the handler's span can be linked to it in any process. Without the feature
//! no trace is read or added.
//!
//! It is taken when a message is staged, and not when it is built: a message may be built anywhere, and staged more than once.
#![cfg_attr(
    feature = "opentelemetry",
    doc = r#"
```
use opentelemetry::{Context, SpanId, TraceFlags, TraceId};
use opentelemetry::trace::{SpanContext, TraceContextExt, TraceState};
use postrider_core::trace::Trace;

assert!(Trace::current().is_none());

let span = SpanContext::new(
    TraceId::from(0x4bf92f3577b34da6a3ce929d0e0e4736),
    SpanId::from(0x00f067aa0ba902b7),
    TraceFlags::SAMPLED,
    false,
    TraceState::default(),
);
let _current = Context::new().with_remote_span_context(span).attach();
let trace = Trace::current().expect("there is one");
assert_eq!(trace.traceparent, "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
```
"#
)]

use crate::{Message, message::Trail};
use std::borrow::Cow;

/// A W3C trace context.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The trace, the span, and whether it is sampled.
    pub traceparent: String,
    /// Vendor-specific `tracestate`.
    pub tracestate: Option<String>,
}

impl Trace {
    /// The current trace context; always `None` without the feature `opentelemetry`.
    #[cfg(not(feature = "opentelemetry"))]
    pub fn current() -> Option<Self> {
        None
    }

    /// The current trace context, if any. An unsampled trace counts, too: its continuation must know that it is unsampled.
    #[cfg(feature = "opentelemetry")]
    pub fn current() -> Option<Self> {
        use opentelemetry::{Context, trace::TraceContextExt};
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        // The bridge makes the context of the span that is entered the current one, so this is the innermost of both, unless
        // the bridge is configured not to: then only the span has the context.
        let attached = Context::map_current(|context| Self::of(context.span().span_context()));
        attached.or_else(|| Self::of(tracing::Span::current().context().span().span_context()))
    }

    #[cfg(feature = "opentelemetry")]
    fn of(span: &opentelemetry::trace::SpanContext) -> Option<Self> {
        use crate::message::is_tracestate;

        // Unknown flags are not passed on.
        let flags = u8::from(span.is_sampled());
        span.is_valid().then(|| Self {
            traceparent: format!("00-{:032x}-{:016x}-{flags:02x}", span.trace_id(), span.span_id()),
            tracestate: Some(bounded(span.trace_state().header())).filter(|state| is_tracestate(state)),
        })
    }

    /// The trace context of a message, if it has one.
    pub fn of_message(message: &Message) -> Option<Self> {
        let Trail { traceparent, tracestate, .. } = message.trail();
        Some(Self { traceparent: traceparent.clone()?, tracestate: tracestate.clone() })
    }
}

/// As many entries as fit: the oldest, which are the last, are dropped.
#[cfg(feature = "opentelemetry")]
fn bounded(mut state: String) -> String {
    while state.len() > crate::limits::TRACESTATE_BYTES {
        state.truncate(state.rfind(',').unwrap_or(0));
    }
    state
}

/// Adds the current trace context to messages without one. For implementations of [`Outbox`](crate::Outbox): call it once per call,
/// before the messages are written. Payloads are shared, not copied, and without a current trace nothing is copied at all.
pub fn stamped(messages: &[Message]) -> Cow<'_, [Message]> {
    let Some(current) = Trace::current() else { return Cow::Borrowed(messages) };
    if messages.iter().all(|message| message.trail.traceparent.is_some()) {
        return Cow::Borrowed(messages);
    }
    let mut stamped = messages.to_vec();
    for message in stamped.iter_mut().filter(|message| message.trail.traceparent.is_none()) {
        message.trail.traceparent = Some(current.traceparent.clone());
        message.trail.tracestate.clone_from(&current.tracestate);
    }
    Cow::Owned(stamped)
}
