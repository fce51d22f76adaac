//! The link from the span of a delivery to the trace in which its message was staged.
//!
//! A link, and not a parent: a message may wait for days and be tried many times, and whatever handles it decides for itself what
//! is sampled. Where no bridge makes spans of ours known to OpenTelemetry there is nothing to link, so what the handler does
//! goes on in the trace of its message.

use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    context::{FutureExt, WithContext},
    trace::{SpanContext, TraceContextExt},
};
use postrider_core::message::Trail;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Links `span` to where its message comes from, and runs the handler in the context that follows from it.
pub(crate) fn linked<F>(running: F, span: &Span, trail: &Trail) -> WithContext<F> {
    running.with_context(link(span, trail))
}

/// Links `span` to where its message comes from, and answers with the context that follows from it.
pub(crate) fn link(span: &Span, trail: &Trail) -> Context {
    let origin = origin_of(trail);
    // Before the span is started, which its context demands: samplers look at links.
    if let Some(origin) = &origin {
        span.add_link(origin.clone());
    }
    let own = span.context();
    match origin {
        _ if own.span().span_context().is_valid() => own,
        Some(origin) => Context::current().with_remote_span_context(origin),
        None => Context::current(),
    }
}

/// Nothing, when there is none or it cannot be read: a trace is not worth a message.
fn origin_of(trail: &Trail) -> Option<SpanContext> {
    let mut parts = trail.traceparent.as_deref()?.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    let state = trail.tracestate.as_deref().and_then(|state| state.parse().ok()).unwrap_or_default();
    Some(SpanContext::new(trace, span, flags & TraceFlags::SAMPLED, true, state))
        .filter(SpanContext::is_valid)
}
