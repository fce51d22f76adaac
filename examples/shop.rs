//! A shop on one SQLite file: orders and their events commit together, some are rolled back, some fail, and in the end every
//! committed event is accounted for. Nothing to install, nothing to configure: `cargo run --example shop`.

use postrider::{
    ClaimRequest, Event, Json, OutboxExt, QueueName, Reason, Store, inspect::Inspect, schema::Schema,
    sqlite::SqliteStore,
};
use sqlx::SqlitePool;
use std::{error::Error, io::Write, time::Duration};

const ORDERS: i64 = 1_000;

#[derive(serde::Serialize, serde::Deserialize)]
struct OrderPlaced {
    order: i64,
}

impl Event for OrderPlaced {
    const TYPE: &'static str = "order.placed";
    const QUEUE: &'static str = "orders";
    type Codec = Json;
}

/// Runs the shop in `folder`; the story goes to `out`, progress to `progress`.
pub(crate) async fn run(
    folder: &std::path::Path,
    out: &mut (impl Write + Send),
    progress: &mut (impl Write + Send),
) -> Result<(), Box<dyn Error>> {
    let path = folder.join("shop.db");
    let store = SqliteStore::open(&path).await?;
    store.migrate().await?;
    let shop = SqlitePool::connect(&format!("sqlite://{}", path.display())).await?;
    sqlx::query("create table orders (id integer primary key)").execute(&shop).await?;

    // Every tenth customer changes their mind: the order goes, and its event with it.
    for order in 1..=ORDERS {
        let mut tx = shop.begin().await?;
        sqlx::query("insert into orders (id) values (?)").bind(order).execute(&mut *tx).await?;
        store.outbox().stage(&mut tx, &OrderPlaced { order }).await?;
        if order % 10 == 0 {
            tx.rollback().await?;
        } else {
            tx.commit().await?;
        }
        tell(progress, "placing orders", order, ORDERS)?;
    }
    let (placed,): (i64,) = sqlx::query_as("select count(*) from orders").fetch_one(&shop).await?;
    writeln!(out, "{ORDERS} orders were begun, {placed} committed")?;

    // Every seventh order fails once, every hundredth (and first) for good.
    let request = ClaimRequest::new(QueueName::new("orders")?, 100);
    let (mut done, mut retried, mut dead) = (0, 0, 0);
    while done + dead < placed {
        let claimed = store.claim(&request).await?;
        let mut settlements = Vec::with_capacity(claimed.len());
        for claimed in &claimed {
            let event: OrderPlaced = serde_json::from_slice(claimed.message.payload())?;
            settlements.push(if event.order % 100 == 1 {
                dead += 1;
                claimed.lease.dead(Reason::Rejected, "NoSuchCustomer")
            } else if event.order % 7 == 0 && claimed.attempts == 0 {
                retried += 1;
                claimed.lease.retry(Duration::from_millis(1), "Timeout")
            } else {
                done += 1;
                claimed.lease.done()
            });
        }
        store.settle(&settlements).await?;
        tell(progress, "delivering", done + dead, placed)?;
    }
    writeln!(out, "{retried} failed once and were tried again")?;
    writeln!(out, "{done} delivered + {dead} dead letters = {} events", done + dead)?;
    let counts = store.counts().await?.into_values().next().unwrap_or_default();
    writeln!(
        out,
        "left in the queue: {}",
        counts.pending.at_least + counts.leased.at_least + counts.waiting.at_least
    )?;
    Ok(())
}

fn tell(progress: &mut impl Write, what: &str, so_far: i64, of: i64) -> std::io::Result<()> {
    if so_far % 50 == 0 || so_far == of {
        let bar = usize::try_from(so_far * 30 / of.max(1)).unwrap_or(0);
        write!(progress, "\r{what:>14} [{:30}] {so_far}/{of}", "#".repeat(bar))?;
        if so_far == of {
            writeln!(progress)?;
        }
        progress.flush()?;
    }
    Ok(())
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    run(folder.path(), &mut std::io::stdout(), &mut std::io::stderr()).await
}
