//! The trace in which messages are staged.
//!
//! With the feature `opentelemetry`, a message that names no trace of its own takes the one of the code that stages it: of
//! OpenTelemetry's current context, or else of the current `tracing` span, if the application bridges those with
//! `tracing-opentelemetry`. It travels as W3C text, so that the handler's span can be linked to it, in whatever process that is.
//! Without the feature nothing is looked at, and nothing is added.
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

/// A place in a trace, as W3C Trace Context writes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace {
    /// The trace, the span, and whether it is sampled.
    pub traceparent: String,
    /// What tracing systems add to it.
    pub tracestate: Option<String>,
}

impl Trace {
    /// Where the running code is; `None` when it is in no trace, and always without the feature `opentelemetry`.
    #[cfg(not(feature = "opentelemetry"))]
    pub fn current() -> Option<Self> {
        None
    }

    /// Where the running code is; `None` when it is in no trace. One that is not sampled is a trace, too: whoever continues it
    /// must know.
    #[cfg(feature = "opentelemetry")]
    pub fn current() -> Option<Self> {
        use opentelemetry::{Context, trace::TraceContextExt};
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        // The bridge makes the context of the span that is entered the current one, so this is the innermost of both, unless
        // the bridge was told not to: then the context is with the span alone.
        let attached = Context::map_current(|context| Self::of(context.span().span_context()));
        attached.or_else(|| Self::of(tracing::Span::current().context().span().span_context()))
    }

    #[cfg(feature = "opentelemetry")]
    fn of(span: &opentelemetry::trace::SpanContext) -> Option<Self> {
        use crate::message::is_tracestate;

        // Other flags are for whoever knows what they say.
        let flags = u8::from(span.is_sampled());
        span.is_valid().then(|| Self {
            traceparent: format!("00-{:032x}-{:016x}-{flags:02x}", span.trace_id(), span.span_id()),
            tracestate: Some(bounded(span.trace_state().header())).filter(|state| is_tracestate(state)),
        })
    }

    /// Where a message comes from, if it says so.
    pub fn of_message(message: &Message) -> Option<Self> {
        let Trail { traceparent, tracestate, .. } = message.trail();
        Some(Self { traceparent: traceparent.clone()?, tracestate: tracestate.clone() })
    }
}

/// As many entries as may travel: the oldest, which are the last, are left out.
#[cfg(feature = "opentelemetry")]
fn bounded(mut state: String) -> String {
    while state.len() > crate::limits::TRACESTATE_BYTES {
        state.truncate(state.rfind(',').unwrap_or(0));
    }
    state
}

/// The messages as they are staged: those without a trace of their own get the current one. For whoever implements
/// [`Outbox`](crate::Outbox): call it once for each call, before the messages are written. Payloads are shared, not copied, and
/// without a current trace nothing is.
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
