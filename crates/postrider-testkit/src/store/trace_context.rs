//! Messages carry the trace in which they are staged, automatically with the feature `opentelemetry`. Without the feature, nothing
//! is added; so each case compares with the current trace that the core reports.

use super::helpers::*;
use crate::Fixture;
use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    context::FutureExt,
    trace::{SpanContext, TraceContextExt},
};
use postrider_core::{ClaimedMessage, Message, ScheduleName, trace::Trace};
use std::time::SystemTime;

const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Runs `staging` in a trace, and returns that trace as the core reports it.
async fn in_trace<T>(trace: u128, staging: impl Future<Output = T>) -> Option<Trace> {
    let state = "rojo=00f067aa0ba902b7".parse().unwrap();
    let span = SpanContext::new(TraceId::from(trace), SpanId::from(17), TraceFlags::NOT_SAMPLED, true, state);
    let run = async {
        staging.await;
        Trace::current()
    };
    run.with_context(Context::new().with_remote_span_context(span)).await
}

fn traces(claimed: &[ClaimedMessage]) -> Vec<Option<Trace>> {
    claimed.iter().map(|each| Trace::of_message(&each.message)).collect()
}

/// However messages are staged: alone and together, in one queue and in several, with identities, times and timers.
pub async fn a_message_staged_in_a_trace_carries_it<F: Fixture>(fixture: F) {
    let current = in_trace(1, async {
        // The first one creates the queue.
        stage_one(&fixture, message("orders")).await;
        stage_one(&fixture, message("orders")).await;
        stage(&fixture, &numbered("orders", 100)).await;
        let kinds = [
            message("orders").header("region", "eu-west"),
            message("letters"),
            message("orders").id(fresh_id()),
            message("orders").due_at(SystemTime::UNIX_EPOCH),
            message("orders").timer("reminder"),
        ];
        stage(&fixture, &kinds.map(|kind| kind.build().unwrap())).await;
    })
    .await;

    let store = fixture.store();
    let orders = claim_all(&store, "orders").await;
    assert_eq!(traces(&orders), vec![current.clone(); 106]);
    assert_eq!(traces(&claim_all(&store, "letters").await), [current]);
}

/// A message with an explicit trace keeps it, next to others without one.
pub async fn an_explicit_trace_is_kept<F: Fixture>(fixture: F) {
    let own = message("orders").traceparent(OWN).build().unwrap();
    let current = in_trace(1, async {
        stage(&fixture, &[message("orders").build().unwrap(), own.clone()]).await;
        stage(&fixture, &[own]).await;
    })
    .await;

    let own = Some(Trace { traceparent: OWN.to_owned(), tracestate: None });
    let orders = claim_all(&fixture.store(), "orders").await;
    assert_eq!(traces(&orders), [current, own.clone(), own]);
}

/// A message staged outside a trace carries none, even if it was built inside one.
pub async fn a_message_staged_outside_a_trace_carries_none<F: Fixture>(fixture: F) {
    let mut built: Vec<Message> = Vec::new();
    in_trace(1, async { built.push(message("orders").build().unwrap()) }).await;
    stage(&fixture, &built).await;

    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [None]);
}

/// An extended timer takes the trace of the extension, together with its payload.
pub async fn an_extended_timer_carries_the_trace_of_the_extension<F: Fixture>(fixture: F) {
    let timer = |wait| message("orders").extending_timer("reminder").due_after(minutes(wait));
    in_trace(1, stage_one(&fixture, timer(1))).await;
    let extended = in_trace(2, stage_again(&fixture, timer(2))).await;

    fixture.advance(minutes(3)).await;
    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [extended]);
}

/// A tick of a schedule carries the trace of the scheduler.
pub async fn a_tick_carries_the_trace_of_the_scheduler<F: Fixture>(fixture: F) {
    let (timetable, nightly) = (fixture.timetable(), ScheduleName::new("nightly").unwrap());
    let at = timetable.read_schedule(&nightly).await.unwrap().now + minutes(1);
    let messages = [message("orders").build().unwrap()];
    let current = in_trace(1, timetable.tick(&nightly, at, &messages)).await;

    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [current]);
}
