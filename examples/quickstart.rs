//! The code of the README: an order and two messages in one transaction, a worker and a relay, on SQLite.

use postrider::{
    Context, Destination, Event, Failure, OutboxExt, Queue, Relay, Route, Worker, schema::Schema,
    sqlite::SqliteStore, transports::stdout::LineTransport,
};
use serde::{Deserialize, Serialize};

#[derive(Event, Serialize, Deserialize)]
#[event(type = "order.placed", queue = "orders")]
struct OrderPlaced {
    #[event(key)]
    order: i64,
}

#[derive(Event, Serialize, Deserialize)]
#[event(type = "shipment.requested", queue = "shipments")]
struct ShipmentRequested {
    order: i64,
}

async fn send_confirmation(event: OrderPlaced, context: Context) -> Result<(), Failure> {
    println!("confirming order {}, attempt {}", event.order, context.attempt());
    Ok(()) // any error: retried with backoff; `Failure::reject`: a dead letter
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = SqliteStore::open("shop.db").await?; // or PostgresStore::connect("postgres://localhost/shop")
    store.migrate().await?;
    let pool = sqlx::SqlitePool::connect("sqlite://shop.db").await?;
    sqlx::query("create table if not exists orders (id integer primary key)").execute(&pool).await?;

    // The order and both messages commit together, or not at all.
    let mut tx = pool.begin().await?;
    sqlx::query("insert or ignore into orders values (17)").execute(&mut *tx).await?;
    store.outbox().stage(&mut tx, &OrderPlaced { order: 17 }).await?;
    store.outbox().stage(&mut tx, &ShipmentRequested { order: 17 }).await?;
    tx.commit().await?;

    // A worker runs your handlers.
    let worker = Worker::builder(store.clone()).queue(Queue::new("orders").on(send_confirmation)).build()?;
    worker.run_until_idle().await?; // in a service: worker.run_until_signal(drain_timeout)

    // A relay publishes: here as JSON lines to standard output.
    let relay = Relay::builder(store, "/shop")
        .destination(Destination::new("warehouse", LineTransport::stdout()))
        .route(Route::new("shipments").to("warehouse", "{type}"))
        .build()?;
    relay.run_until_idle().await?;
    Ok(())
}
