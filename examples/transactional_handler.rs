//! A handler in a transaction, on one SQLite file: what it writes, what it stages in turn and the end of its message commit
//! together. So its effect happens exactly once, whatever fails on the way.

use postrider::{
    Context, Event, Failure, Json, OutboxExt, Queue, Tx, Worker, schema::Schema, sqlite::SqliteStore,
};
use sqlx::{Sqlite, SqlitePool, Transaction};
use std::{error::Error, io::Write, path::Path, time::Duration};

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: i64,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

#[derive(serde::Serialize, serde::Deserialize)]
struct ParcelPacked {
    order: i64,
}

impl Event for ParcelPacked {
    const TYPE: &'static str = "parcel.packed";
    const QUEUE: &'static str = "parcels";
    type Codec = Json;
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
        // Everything above is undone with it.
        return Err(Failure::retry_after(Duration::ZERO, "no tape left").named("NoTape"));
    }
    Ok(())
}

/// Runs the example in `folder`, and writes what happens to `out`.
pub(crate) async fn run(folder: &Path, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
    let path = folder.join("packing.db");
    let store = SqliteStore::open(&path).await?;
    store.migrate().await?;
    let pool = SqlitePool::connect(&format!("sqlite://{}", path.display())).await?;
    // Two parcels of one order would not be refused: nothing but the transaction keeps them apart.
    sqlx::query("create table parcels (content integer)").execute(&pool).await?;

    let mut tx = pool.begin().await?;
    for order in [1, 2, 3] {
        store.outbox().stage(&mut tx, &OrderPlaced { order }).await?;
    }
    tx.commit().await?;

    let orders = Queue::new("orders").on_in_transaction(&store.transactions(pool.clone()), pack);
    let packing = Worker::builder(store.clone()).queue(orders).share(store.clone()).build()?;
    let tally = packing.run_until_idle().await?;
    writeln!(out, "{} orders packed, {} failure", tally.delivered, tally.retried)?;

    let parcels: Vec<(i64,)> =
        sqlx::query_as("select content from parcels order by 1").fetch_all(&pool).await?;
    let parcels: Vec<_> = parcels.iter().map(|(content,)| content).collect();
    writeln!(out, "parcels: {parcels:?}")?;

    // What was staged in those transactions is there, once each, and knows what caused it.
    let sent = Queue::new("parcels").on(|_: ParcelPacked, context: Context| async move {
        let trail = context.message().trail();
        trail.causation_id.as_ref().map(|_| ()).ok_or("nothing caused it")
    });
    let tally = Worker::builder(store).queue(sent).build()?.run_until_idle().await?;
    writeln!(out, "{} parcels sent", tally.delivered)?;
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    run(folder.path(), &mut std::io::stdout()).await
}
