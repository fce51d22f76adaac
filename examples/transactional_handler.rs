//! A handler in a transaction, on one SQLite file: what it writes, what it stages in turn and the end of its message commit
//! together. So its effect happens exactly once, whatever fails on the way.

use postrider::{Context, Event, Failure, OutboxExt, Queue, Tx, Worker, schema::Schema, sqlite::SqliteStore};
use sqlx::{Sqlite, SqlitePool, Transaction};
use std::{error::Error, time::Duration};

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "order.placed", queue = "orders")]
struct OrderPlaced {
    order: i64,
}

#[derive(Event, serde::Serialize, serde::Deserialize)]
#[event(type = "parcel.packed", queue = "parcels")]
struct ParcelPacked {
    order: i64,
}

async fn pack(
    event: OrderPlaced,
    mut tx: Tx<Transaction<'static, Sqlite>>,
    context: Context,
) -> Result<(), Failure> {
    let order = event.order;
    sqlx::query("insert into parcels (content) values (?)").bind(order).execute(&mut **tx).await?;
    let outbox = context.shared::<SqliteStore>()?.outbox();
    outbox.stage(&mut *tx, context.follow(ParcelPacked { order }.message())).await?;
    if order == 2 && context.attempt() == 1 {
        // Rolls back everything above.
        return Err(Failure::retry_after(Duration::ZERO, "no tape left").named("NoTape"));
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let path = folder.join("packing.db");
    let store = SqliteStore::open(&path).await?;
    store.migrate().await?;
    let pool = SqlitePool::connect(&format!("sqlite://{}", path.display())).await?;
    // The table allows two parcels of one order: only the transaction prevents them.
    sqlx::query("create table parcels (content integer)").execute(&pool).await?;

    let mut tx = pool.begin().await?;
    for order in [1, 2, 3] {
        store.outbox().stage(&mut tx, &OrderPlaced { order }).await?;
    }
    tx.commit().await?;

    let orders = Queue::new("orders").on_in_transaction(&store.transactions(pool.clone()), pack);
    let packing = Worker::builder(store.clone()).queue(orders).share(store.clone()).build()?;
    let report = packing.run_until_idle().await?;
    println!("{} orders packed, {} failure", report.delivered, report.retried);

    let parcels: Vec<(i64,)> =
        sqlx::query_as("select content from parcels order by 1").fetch_all(&pool).await?;
    let parcels: Vec<_> = parcels.iter().map(|(content,)| content).collect();
    println!("parcels: {parcels:?}");

    // The messages staged in those transactions exist once each, and carry the id of the message that caused them.
    let sent = Queue::new("parcels").on(|_: ParcelPacked, context: Context| async move {
        let trail = context.message().trail();
        trail.causation_id.as_ref().map(|_| ()).ok_or("no causation id")
    });
    let report = Worker::builder(store).queue(sent).build()?.run_until_idle().await?;
    println!("{} parcels sent", report.delivered);
    Ok(())
}
