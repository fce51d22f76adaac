//! The link from the span of a delivery to the trace in which its message was staged.
//!
//! A link, and not a parent: a message may wait for days and be attempted many times, and the handling process decides for
//! itself what is sampled. Without a bridge between `tracing` and OpenTelemetry there is no span to link, so the handler
//! continues the trace of its message.

use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    context::{FutureExt, WithContext},
    trace::{SpanContext, TraceContextExt},
};
use postrider_core::message::Trail;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

/// Links `span` to the trace of its message, and runs the handler in the resulting context.
pub(crate) fn run_linked<F>(running: F, span: &Span, trail: &Trail) -> WithContext<F> {
    running.with_context(link(span, trail))
}

/// Links `span` to the trace of its message, and returns the resulting context.
pub(crate) fn link(span: &Span, trail: &Trail) -> Context {
    let origin = parse_origin(trail);
    // Before the span is started, as its context demands: samplers look at links.
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

/// `None` when there is no trace or it cannot be parsed: a trace is not worth a message.
fn parse_origin(trail: &Trail) -> Option<SpanContext> {
    let mut parts = trail.traceparent.as_deref()?.split('-').skip(1);
    let trace = TraceId::from_hex(parts.next()?).ok()?;
    let span = SpanId::from_hex(parts.next()?).ok()?;
    let flags = TraceFlags::new(u8::from_str_radix(parts.next()?, 16).ok()?);
    let state = trail.tracestate.as_deref().and_then(|state| state.parse().ok()).unwrap_or_default();
    Some(SpanContext::new(trace, span, flags & TraceFlags::SAMPLED, true, state))
        .filter(SpanContext::is_valid)
}
