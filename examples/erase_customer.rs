//! Follow-ups: a customer is erased in the shop's own database and then, reliably, at three external services.
//!
//! This program simulates the services and their failures: one is unavailable for a while, one does not know the customer, and one must
//! keep its documents a little longer.

use axum::{
    Router,
    http::{HeaderMap, StatusCode, header::RETRY_AFTER},
    response::{IntoResponse, Response},
    routing::delete,
};
use postrider::{
    AuditSink, Context, Failure, FollowUp, FollowUpExt, Message, OutboxExt, Queue, Reference, SagaRunner,
    SubjectId, Tx, Worker, audit,
    inspect::Action,
    saga::{Completion, Resolution, Resolver, ResolverCall, SagaBackoff},
    schema::Schema,
    sqlite::SqliteStore,
};
use sqlx::{Sqlite, SqlitePool, Transaction};
use std::{
    collections::BTreeMap,
    error::Error,
    future::IntoFuture,
    io,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

/// Erases customers at a service that takes `DELETE <url>/<customer>`.
struct Eraser {
    name: &'static str,
    url: String,
    http: reqwest::Client,
}

#[async_trait::async_trait]
impl Resolver for Eraser {
    fn name(&self) -> &str {
        self.name
    }

    fn operations(&self) -> &[&str] {
        &["erase"]
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        let request = self.http.delete(format!("{}/{}", self.url, call.reference().value()));
        // The same at every attempt, so that the service recognises a repeated call.
        let response = request.header("idempotency-key", call.idempotency_key().to_string()).send().await?;
        match response.status().as_u16() {
            200..300 => Ok(Resolution::Done),
            404 | 410 => Ok(Resolution::AlreadyGone),
            409 => {
                let seconds = response.headers().get(RETRY_AFTER).ok_or("no retry-after header")?;
                let retained = Duration::from_secs(seconds.to_str()?.parse()?);
                Ok(Resolution::NotBefore(SystemTime::now() + retained))
            }
            400 | 401 | 403 => Err(Failure::reject("permanently rejected").named("Rejected")),
            status => Err(Failure::retry(format!("status {status}")).named("BadStatus")),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let path = folder.join("shop.db");
    let store = SqliteStore::open(&path).await?;
    store.migrate().await?;
    let pool = SqlitePool::connect(&format!("sqlite://{}", path.display())).await?;
    sqlx::query("create table customers (id integer primary key, name text)").execute(&pool).await?;
    sqlx::query("create table erasures (subject text primary key)").execute(&pool).await?;
    sqlx::query("insert into customers values (17, 'Ann')").execute(&pool).await?;
    let mut tx = pool.begin().await?;
    let birthday = Message::builder("mails").subject("customer-17").json("Happy birthday, Ann!");
    store.outbox().stage(&mut tx, birthday.due_after(Duration::from_secs(24 * 3600))).await?;
    tx.commit().await?;

    // The deletion and the follow-ups commit together, or not at all.
    let mut tx = pool.begin().await?;
    sqlx::query("delete from customers where id = 17").execute(&mut *tx).await?;
    let erase = |resolver, reference| FollowUp::new("customer-17", resolver, "erase", reference);
    let calls = [
        erase("payments", Reference::new("customer", "cus_NffrFeUfNV2Hib"))?,
        erase("mail", Reference::new("contact", "c-99"))?,
        erase("archive", Reference::new("folder", "17").with("region", "eu"))?,
    ];
    store.outbox().follow_up(&mut tx, calls).await?;
    tx.commit().await?;
    println!("customer 17 is deleted here, and 3 calls are staged");

    let (done, mut ended) = mpsc::unbounded_channel();
    let abandoned = done.clone();
    let mut services = Services::default();
    let runner = SagaRunner::builder(store.transactions(pool.clone()))
        .resolver(services.start("payments", payments).await?)
        .resolver(services.start("mail", mail).await?)
        .resolver(services.start("archive", archive).await?)
        // In production: the default, 30 seconds and twice as long each time.
        .retry(SagaBackoff::new(Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(300))?)
        // Runs in the transaction in which the last call succeeds.
        .on_complete(|mut tx: Tx<Transaction<'static, Sqlite>>, completed: Completion| async move {
            let insert = sqlx::query("insert into erasures values (?)").bind(completed.subject.to_string());
            insert.execute(&mut **tx).await?;
            Ok(())
        })
        .complete_to("erased")
        // In production: alert an operator.
        .on_abandoned(move |_| _ = abandoned.send(()))
        .build()?;
    runner.declare().await?;

    // A message announces the completion.
    let erased = Queue::new("erased").on_json(move |_: serde_json::Value, _: Context| {
        let done = done.clone();
        async move { done.send(()).map_err(Failure::retry) }
    });
    let working = Worker::builder(store.clone()).queue(erased).build()?.start();
    let calling = runner.start(); // or `run_until_signal`; or `run_until_idle`, from cron
    ended.recv().await.ok_or("the worker has ended")?;
    calling.stop(Duration::from_secs(10)).await;
    working.stop(Duration::from_secs(10)).await;

    for (service, calls) in &services.calls {
        let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        println!("calls to {service}: {}, keys: {}", calls.values().sum::<u32>(), calls.len());
    }
    let counts = runner.status_counts().await?;
    let counts: Vec<_> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    println!("{}", counts.join(", "));
    let completed: Vec<(String,)> = sqlx::query_as("select subject from erasures").fetch_all(&pool).await?;
    println!("erased everywhere: {}", completed.iter().map(|(subject,)| &**subject).collect::<String>());

    // The queues still have a scheduled birthday mail and the succeeded follow-ups.
    let customer = SubjectId::new("customer-17")?;
    let erased = runner
        .erase_subject(None, &customer, &Action::new("privacy desk", "asked for by the customer"))
        .await?;
    println!(
        "erased from the queues: {} scheduled, {} delivered; {} left",
        erased.waiting, erased.archived, erased.follow_ups
    );

    // The ledger remains. The services are called concurrently, so only the order at each of them is certain.
    let ledger = store.ledger();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for recorded in ledger.read(&customer).await? {
        let by = recorded.event.resolver.map_or("all".to_owned(), |resolver| resolver.to_string());
        lines.entry(by).or_default().push(format!("{:?}", recorded.event.kind).to_lowercase());
    }
    for (by, kinds) in lines {
        println!("ledger, {by}: {}", kinds.join(", "));
    }
    // Store the head elsewhere: it reveals a ledger that was rewritten completely.
    let head = audit::verify(&ledger, None).await?;
    println!("ledger verified: {} events", head.position);
    Ok(())
}

/// Unavailable for the first two calls.
fn payments(call: u32) -> Response {
    if call < 3 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }.into_response()
}

/// Does not know the customer.
fn mail(_: u32) -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// Must keep the documents for a second.
fn archive(call: u32) -> Response {
    if call == 1 {
        return (StatusCode::CONFLICT, [(RETRY_AFTER, "1")]).into_response();
    }
    StatusCode::NO_CONTENT.into_response()
}

/// The number of calls for each idempotency key.
type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

/// The simulated services.
#[derive(Default)]
struct Services {
    servers: JoinSet<io::Result<()>>,
    calls: Vec<(&'static str, Calls)>,
}

impl Services {
    /// Starts a service with a reply to the n-th call of a key.
    async fn start(
        &mut self,
        name: &'static str,
        reply: fn(u32) -> Response,
    ) -> Result<Eraser, Box<dyn Error>> {
        let calls = Calls::default();
        self.calls.push((name, Arc::clone(&calls)));
        let erase = move |headers: HeaderMap| async move {
            let Some(key) = headers.get("idempotency-key").and_then(|key| key.to_str().ok()) else {
                return StatusCode::BAD_REQUEST.into_response();
            };
            let mut calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
            let call = calls.entry(key.to_owned()).or_default();
            *call += 1;
            reply(*call)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/{customer}", delete(erase));
        self.servers.spawn(axum::serve(listener, router).into_future());
        // The client uses the provider of the process; an installed one is fine.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        Ok(Eraser { name, url, http })
    }
}
