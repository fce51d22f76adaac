//! A complete service: HTTP with axum, business data and messages in PostgreSQL with sqlx, a worker for handlers, a relay to other
//! services, and a graceful shutdown.
//!
//! ```sh
//! createdb shop
//! DATABASE_URL=postgres://localhost/shop cargo run -p postrider --features http --example axum_postgres
//! curl -X POST localhost:8080/orders -H 'content-type: application/json' -d '{"customer": "ann", "total_cents": 4200}'
//! ```
//!
//! With `WEBHOOK_URL` and `WEBHOOK_SECRET` the relay posts each order as a signed webhook; otherwise it prints JSON lines.

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use postrider::{
    Context, Destination, Event, Failure, OnFailure, OutboxExt, Queue, QueuePolicy, Relay, RetryStrategy,
    Route, Worker,
    postgres::PostgresStore,
    schema::Schema,
    transports::{
        http::{HttpOptions, HttpTransport, signature::Secret},
        stdout::LineTransport,
    },
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use std::{error::Error, time::Duration};
use tokio::net::TcpListener;

/// Handled in this service: the confirmation mail.
#[derive(Event, Serialize, Deserialize)]
#[event(type = "order.placed", queue = "confirmations")]
struct OrderPlaced {
    order: i64,
    #[event(key)]
    customer: String,
}

/// Sent to other services, in order per customer.
#[derive(Event, Serialize, Deserialize)]
#[event(type = "shop.order.placed", queue = "orders")]
struct OrderPublished {
    order: i64,
    #[event(key)]
    customer: String,
    total_cents: i64,
}

#[derive(Deserialize)]
struct NewOrder {
    customer: String,
    total_cents: i64,
}

#[derive(Clone)]
struct App {
    pool: PgPool,
    store: PostgresStore,
}

/// Inserts the order and stages both messages in one transaction.
async fn place_order(
    State(App { pool, store }): State<App>,
    Json(NewOrder { customer, total_cents }): Json<NewOrder>,
) -> Result<(StatusCode, String), (StatusCode, String)> {
    let failed = |error: &dyn Error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string());
    let mut tx = pool.begin().await.map_err(|error| failed(&error))?;
    let (order,): (i64,) =
        sqlx::query_as("insert into orders (customer, total_cents) values ($1, $2) returning id")
            .bind(&customer)
            .bind(total_cents)
            .fetch_one(&mut *tx)
            .await
            .map_err(|error| failed(&error))?;
    let outbox = store.outbox();
    let placed = OrderPlaced { order, customer: customer.clone() };
    outbox.stage(&mut tx, &placed).await.map_err(|error| failed(&error))?;
    let published = OrderPublished { order, customer, total_cents };
    outbox.stage(&mut tx, &published).await.map_err(|error| failed(&error))?;
    tx.commit().await.map_err(|error| failed(&error))?;
    Ok((StatusCode::CREATED, order.to_string()))
}

/// A handler: an error is retried with backoff, a rejection is a dead letter.
async fn send_confirmation(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    if event.customer.is_empty() {
        return Err(Failure::reject("no customer"));
    }
    eprintln!("mail to {}: order {} (attempt {})", event.customer, event.order, context.attempt());
    Ok(())
}

/// The destination of the relay.
fn destination() -> Result<Destination, Box<dyn Error>> {
    let Ok(url) = std::env::var("WEBHOOK_URL") else {
        return Ok(Destination::new("subscribers", LineTransport::stdout()));
    };
    let secret = Secret::parse(&std::env::var("WEBHOOK_SECRET")?)?;
    let webhooks = HttpTransport::new(HttpOptions::below(&url)?.with_secret(secret))?;
    Ok(Destination::new("subscribers", webhooks).timeout(Duration::from_secs(10)))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let url = std::env::var("DATABASE_URL")?;
    let pool = PgPool::connect(&url).await?;
    sqlx::query(
        "create table if not exists orders (
           id bigint generated always as identity primary key, customer text not null, total_cents bigint not null)",
    )
    .execute(&pool)
    .await?;
    let store = PostgresStore::connect(&url).await?;
    store.migrate().await?;

    let confirmations = Queue::new("confirmations")
        .on(send_confirmation)
        .concurrency(20)
        .timeout(Duration::from_secs(10))
        .retry(RetryStrategy::exponential(Duration::from_secs(1), 2.0).with_max_attempts(8));
    let worker = Worker::builder(store.clone()).queue(confirmations).build()?;
    let relay = Relay::builder(store.clone(), "/shop")
        .destination(destination()?)
        .route(Route::new("orders").to("subscribers", "{type}").policy(QueuePolicy::by_key(OnFailure::Block)))
        .build()?;
    relay.declare().await?; // the queue is ordered by key
    let (working, relaying) = (worker.start(), relay.start());

    let app = Router::new()
        .route("/orders", post(place_order))
        .route("/health", get(|| async { "ok" }))
        .with_state(App { pool: pool.clone(), store: store.clone() });
    let listener =
        TcpListener::bind(std::env::var("LISTEN").unwrap_or_else(|_| "127.0.0.1:8080".to_owned())).await?;
    eprintln!("listening on http://{}", listener.local_addr()?);
    axum::serve(listener, app).with_graceful_shutdown(stop_signal()).await?;

    // Messages in flight are settled before the process ends.
    let drain_timeout = Duration::from_secs(20);
    let (worker, relay) = tokio::join!(working.stop(drain_timeout), relaying.stop(drain_timeout));
    eprintln!("stopped, clean: {}", worker.clean && relay.clean);
    store.close().await;
    pool.close().await;
    Ok(())
}

/// Completes on Ctrl-C or SIGTERM.
async fn stop_signal() {
    #[cfg(unix)]
    {
        use tokio::signal::unix::{SignalKind, signal};
        if let Ok(mut terminate) = signal(SignalKind::terminate()) {
            tokio::select! { _ = terminate.recv() => {}, _ = tokio::signal::ctrl_c() => {} }
            return;
        }
    }
    let _ = tokio::signal::ctrl_c().await;
}
