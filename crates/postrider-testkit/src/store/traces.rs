//! Messages carry the trace in which they are staged: with the feature `opentelemetry`, by themselves. Without it, whatever is
//! current, nothing is added; so each case compares with what the core says is current.

use super::helpers::*;
use crate::Fixture;
use opentelemetry::{
    Context, SpanId, TraceFlags, TraceId,
    context::FutureExt,
    trace::{SpanContext, TraceContextExt},
};
use postrider_core::{Claimed, Message, ScheduleName, trace::Trace};
use std::time::SystemTime;

const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Runs `staging` in a trace, and says what the core calls it.
async fn in_trace<T>(trace: u128, staging: impl Future<Output = T>) -> Option<Trace> {
    let state = "rojo=00f067aa0ba902b7".parse().unwrap();
    let span = SpanContext::new(TraceId::from(trace), SpanId::from(17), TraceFlags::NOT_SAMPLED, true, state);
    let run = async {
        staging.await;
        Trace::current()
    };
    run.with_context(Context::new().with_remote_span_context(span)).await
}

fn traces(claimed: &[Claimed]) -> Vec<Option<Trace>> {
    claimed.iter().map(|each| Trace::of_message(&each.message)).collect()
}

/// However they are staged: alone and together, in one queue and in several, with identities, times and timers.
pub async fn whatever_is_staged_in_a_trace_carries_it<F: Fixture>(fixture: F) {
    let current = in_trace(1, async {
        // The first one makes the queue.
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

/// A message that names its trace keeps it, among others that do not.
pub async fn a_message_keeps_a_trace_of_its_own<F: Fixture>(fixture: F) {
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

/// What is staged outside of a trace carries none; what is built inside of one and staged elsewhere does not, either.
pub async fn what_is_staged_in_no_trace_carries_none<F: Fixture>(fixture: F) {
    let mut built: Vec<Message> = Vec::new();
    in_trace(1, async { built.push(message("orders").build().unwrap()) }).await;
    stage(&fixture, &built).await;

    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [None]);
}

/// A timer that is extended takes the trace with what else comes of whoever extended it.
pub async fn an_extended_timer_carries_the_trace_of_the_extension<F: Fixture>(fixture: F) {
    let timer = |wait| message("orders").extending_timer("reminder").due_after(minutes(wait));
    in_trace(1, stage_one(&fixture, timer(1))).await;
    let extended = in_trace(2, stage_again(&fixture, timer(2))).await;

    fixture.advance(minutes(3)).await;
    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [extended]);
}

/// A tick of a schedule is staged by whoever runs the scheduler.
pub async fn a_tick_carries_the_trace_of_the_scheduler<F: Fixture>(fixture: F) {
    let (timetable, nightly) = (fixture.timetable(), ScheduleName::new("nightly").unwrap());
    let at = timetable.read(&nightly).await.unwrap().now + minutes(1);
    let messages = [message("orders").build().unwrap()];
    let current = in_trace(1, timetable.tick(&nightly, at, &messages)).await;

    assert_eq!(traces(&claim_all(&fixture.store(), "orders").await), [current]);
}
