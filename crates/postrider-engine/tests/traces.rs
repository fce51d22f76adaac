//! Traces as a trace viewer shows them: producers and consumers, linked.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]
#![cfg(feature = "opentelemetry")]

use opentelemetry::{
    Context as OtelContext, TraceFlags,
    context::FutureExt,
    trace::{Span, SpanContext, SpanId, TraceContextExt, TraceId, Tracer, TracerProvider},
};
use opentelemetry_sdk::trace::{InMemorySpanExporter, Sampler, SdkTracer, SdkTracerProvider, SpanData};
use postrider_core::{
    ClaimRequest, Event, Json, Message, MessageBuilder, Outbox, OutboxExt, Store, message::Trail,
    schema::Schema,
};
use postrider_engine::{Context, Failure, Queue, Tx, Worker};
use postrider_stores::{memory::MemoryStore, sqlite::SqliteStore};
use sqlx::{Sqlite, SqlitePool, Transaction, sqlite::SqliteConnectOptions};
use std::sync::{Arc, Mutex};
use tracing::{Instrument, info_span, subscriber::DefaultGuard};
use tracing_subscriber::{layer::SubscriberExt, registry};

const OWN: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The tracing setup of an application, on this thread while the value lives: for tests with a single-threaded runtime.
struct Traces {
    exported: InMemorySpanExporter,
    tracer: SdkTracer,
    _provider: SdkTracerProvider,
    _guard: Option<DefaultGuard>,
}

impl Traces {
    fn sampled_by(sampler: Sampler) -> Self {
        let exported = InMemorySpanExporter::default();
        let provider =
            SdkTracerProvider::builder().with_sampler(sampler).with_simple_exporter(exported.clone()).build();
        Self { exported, tracer: provider.tracer("shop"), _provider: provider, _guard: None }
    }

    /// OpenTelemetry alone, without the bridge from `tracing`.
    fn alone() -> Self {
        Self::sampled_by(Sampler::AlwaysOn)
    }

    fn bridged(mut self, activates: bool) -> Self {
        let bridge = tracing_opentelemetry::layer()
            .with_tracer(self.tracer.clone())
            .with_context_activation(activates);
        self._guard = Some(tracing::subscriber::set_default(registry().with(bridge)));
        self
    }

    /// The finished spans of that name, in the order in which they ended.
    fn spans(&self, name: &str) -> Vec<SpanData> {
        let spans = self.exported.get_finished_spans().unwrap();
        spans.into_iter().filter(|span| span.name == name).collect()
    }

    fn span(&self, name: &str) -> SpanData {
        let mut spans = self.spans(name);
        assert_eq!(spans.len(), 1, "one span is called {name}");
        spans.remove(0)
    }
}

fn order() -> MessageBuilder {
    Message::builder("orders").json(&17)
}

async fn stage(store: &MemoryStore, message: MessageBuilder) {
    let mut tx = store.begin();
    store.stage(&mut tx, message).await.unwrap();
    tx.commit();
}

/// Handles all messages of the queue, and returns the trail of each.
async fn handle(store: &MemoryStore) -> Vec<Trail> {
    let trails = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&trails);
    let queue = Queue::new("orders").on_any(move |context: Context| {
        seen.lock().unwrap().push(context.message().trail().clone());
        async { Ok::<(), Failure>(()) }
    });
    Worker::builder(store.clone()).queue(queue).build().unwrap().run_until_idle().await.unwrap();
    std::mem::take(&mut trails.lock().unwrap())
}

fn written(span: &SpanContext) -> String {
    format!("00-{}-{}-{:02x}", span.trace_id(), span.span_id(), span.trace_flags())
}

/// Asserts that the span is linked to the remote `origin` and to nothing else, and starts a trace of its own.
fn assert_linked(span: &SpanData, origin: &SpanContext) {
    let links: Vec<_> = span.links.iter().map(|link| &link.span_context).collect();
    assert_eq!(links.len(), 1);
    assert_eq!((links[0].trace_id(), links[0].span_id()), (origin.trace_id(), origin.span_id()));
    assert_eq!(links[0].trace_flags(), origin.trace_flags());
    assert_eq!(links[0].trace_state(), origin.trace_state());
    assert!(links[0].is_remote());
    assert_eq!(span.parent_span_id, SpanId::INVALID);
    assert_ne!(span.span_context.trace_id(), origin.trace_id());
}

#[tokio::test]
async fn handler_span_links_to_the_tracing_span_that_staged_its_message() {
    for activates in [true, false] {
        let traces = Traces::alone().bridged(activates);
        let store = MemoryStore::new();
        stage(&store, order()).instrument(info_span!("checkout")).await;
        let trails = handle(&store).await;

        let checkout = traces.span("checkout").span_context;
        assert_eq!(trails[0].traceparent, Some(written(&checkout)));
        assert_linked(&traces.span("postrider.handle"), &checkout);
    }
}

#[tokio::test]
async fn handler_span_links_to_the_opentelemetry_span_that_staged_its_message() {
    for activates in [true, false] {
        let traces = Traces::alone().bridged(activates);
        let store = MemoryStore::new();
        let checkout = OtelContext::new().with_span(traces.tracer.start("checkout"));
        // Inside a `tracing` span: the innermost span counts.
        stage(&store, order()).with_context(checkout.clone()).instrument(info_span!("request")).await;
        handle(&store).await;

        assert_linked(&traces.span("postrider.handle"), checkout.span().span_context());
    }
}

/// A batch in which one message has a `traceparent` of its own.
#[tokio::test]
async fn message_with_its_own_traceparent_keeps_it() {
    let traces = Traces::alone().bridged(true);
    let store = MemoryStore::new();
    let messages = [order(), order().traceparent(OWN), order()].map(|message| message.build().unwrap());
    let mut tx = store.begin();
    store.stage_all(&mut tx, &messages).instrument(info_span!("checkout")).await.unwrap();
    tx.commit();
    let trails = handle(&store).await;

    let checkout = traces.span("checkout").span_context;
    let expected = [written(&checkout), OWN.to_owned(), written(&checkout)];
    let carried: Vec<_> = trails.iter().filter_map(|trail| trail.traceparent.clone()).collect();
    assert_eq!(carried, expected);
    let handled = traces.spans("postrider.handle");
    let linked: Vec<_> = handled.iter().flat_map(|span| &span.links.links).collect();
    assert_eq!(linked.iter().map(|link| written(&link.span_context)).collect::<Vec<_>>(), expected);
    assert_eq!(messages[0].trail().traceparent, None, "staging does not change the given message");
}

/// A message that was staged outside any trace, and one with an invalid span context.
#[tokio::test]
async fn staging_outside_a_trace_adds_no_trace() {
    let traces = Traces::alone().bridged(true);
    let store = MemoryStore::new();
    stage(&store, order()).await;
    let invalid = OtelContext::new().with_remote_span_context(SpanContext::empty_context());
    stage(&store, order()).with_context(invalid).await;
    let trails = handle(&store).await;

    assert_eq!(trails, [Trail::default(), Trail::default()]);
    for span in traces.spans("postrider.handle") {
        assert_eq!(span.links.iter().count(), 0);
    }
}

#[tokio::test]
async fn unsampled_trace_is_propagated_as_unsampled() {
    let traces = Traces::sampled_by(Sampler::AlwaysOff).bridged(true);
    let store = MemoryStore::new();
    let span = info_span!("checkout");
    stage(&store, order()).instrument(span.clone()).await;
    drop(traces);

    let traces = Traces::alone().bridged(true);
    let trails = handle(&store).await;
    let traceparent = trails[0].traceparent.clone().unwrap();
    assert!(traceparent.ends_with("-00"), "{traceparent}");
    let link = traces.span("postrider.handle").links.iter().next().unwrap().span_context.clone();
    assert_eq!(written(&link), traceparent);
}

fn remote(state: &str) -> SpanContext {
    let (trace, span) = (TraceId::from(17), SpanId::from(4));
    SpanContext::new(trace, span, TraceFlags::SAMPLED, true, state.parse().unwrap())
}

#[tokio::test]
async fn tracestate_is_propagated_up_to_its_limit() {
    let traces = Traces::alone().bridged(true);
    let store = MemoryStore::new();
    let small = remote("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7");
    stage(&store, order()).with_context(OtelContext::new().with_remote_span_context(small.clone())).await;
    let trails = handle(&store).await;
    assert_eq!(trails[0].tracestate.as_deref(), Some("congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"));
    assert_linked(&traces.span("postrider.handle"), &small);

    let entry = |name: &str| format!("{name}={}", "x".repeat(198));
    let large = remote(&["a", "b", "c"].map(entry).join(","));
    stage(&store, order()).with_context(OtelContext::new().with_remote_span_context(large)).await;
    let trails = handle(&store).await;
    assert_eq!(trails[0].tracestate, Some(["a", "b"].map(entry).join(",")));
}

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: u64,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

/// In a transaction of the database, with and without `Context::follow`.
#[tokio::test]
async fn message_staged_by_a_handler_is_linked_to_the_handler_span() {
    let traces = Traces::alone().bridged(true);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("shop.db");
    let store = SqliteStore::open(&path).await.unwrap();
    store.migrate().await.unwrap();
    let pool = SqlitePool::connect_with(SqliteConnectOptions::new().filename(&path)).await.unwrap();
    let outbox = store.outbox();
    let checkout = async {
        let mut tx = pool.begin_with("begin immediate").await.unwrap();
        outbox.stage(&mut tx, &OrderPlaced { order: 17 }).await.unwrap();
        tx.commit().await.unwrap();
    };
    checkout.instrument(info_span!("checkout")).await;

    let stages = outbox.clone();
    let ship = move |_: OrderPlaced, mut tx: Tx<Transaction<'static, Sqlite>>, context: Context| {
        let stages = stages.clone();
        async move {
            stages.stage(&mut *tx, Message::builder("letters").json("staged")).await?;
            let timer = Message::builder("letters").timer("reminder").json("followed");
            stages.stage(&mut *tx, context.follow(timer)).await?;
            Ok::<(), Failure>(())
        }
    };
    let orders = Queue::new("orders").on_in_transaction(&store.transactions(pool.clone()), ship);
    Worker::builder(store.clone()).queue(orders).build().unwrap().run_until_idle().await.unwrap();

    // The driver's thread keeps a reference to the span in which it was called, and drops it some time later.
    for name in ["postrider.handle", "checkout"] {
        while traces.spans(name).is_empty() {
            tokio::task::yield_now().await;
        }
    }
    let shipped = traces.span("postrider.handle");
    assert_linked(&shipped, &traces.span("checkout").span_context);
    let letters = store.claim(&ClaimRequest::new("letters".try_into().unwrap(), 10)).await.unwrap();
    let shipped = Some(written(&shipped.span_context));
    let origins: Vec<_> = letters.iter().map(|letter| letter.message.trail().traceparent.clone()).collect();
    assert_eq!(origins, [shipped.clone(), shipped]);
}

/// Without the bridge there is no span of ours. The handler then continues the trace that staged its message.
#[tokio::test]
async fn without_the_bridge_a_handler_runs_in_the_trace_that_staged_its_message() {
    let traces = Traces::alone();
    let store = MemoryStore::new();
    let checkout = OtelContext::new().with_span(traces.tracer.start("checkout"));
    stage(&store, order()).with_context(checkout.clone()).await;
    stage(&store, order()).await;
    let (outbox, tracer) = (store.clone(), traces.tracer.clone());
    let queue = Queue::new("orders").concurrency(1).on_any(move |context: Context| {
        let (outbox, tracer) = (outbox.clone(), tracer.clone());
        async move {
            tokio::task::yield_now().await;
            tracer.start("ship").end();
            stage(&outbox, context.follow(Message::builder("letters"))).await;
            Ok::<(), Failure>(())
        }
    });
    Worker::builder(store.clone()).queue(queue).build().unwrap().run_until_idle().await.unwrap();

    let origin = checkout.span().span_context().clone();
    let shipped = traces.spans("ship");
    assert_eq!(shipped[0].parent_span_id, origin.span_id());
    assert_eq!(shipped[1].parent_span_id, SpanId::INVALID, "the other message was staged outside any trace");
    let letters = store.claim(&ClaimRequest::new("letters".try_into().unwrap(), 10)).await.unwrap();
    let origins: Vec<_> = letters.iter().map(|letter| letter.message.trail().traceparent.clone()).collect();
    assert_eq!(origins, [Some(written(&origin)), None]);
}
