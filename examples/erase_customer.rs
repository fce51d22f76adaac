//! Follow-ups: a customer is erased in the shop's own database, and then, for certain, at three services that are not ours.
//!
//! The services are played by this program, and fail as services do: one is down for a while, one has never heard of the customer, and one
//! must keep its documents a little longer.

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
    saga::{Backoff, Call, Completed, Resolved, Resolver},
    schema::Schema,
    sqlite::SqliteStore,
};
use sqlx::{Sqlite, SqlitePool, Transaction};
use std::{
    collections::BTreeMap,
    error::Error,
    future::IntoFuture,
    io::{self, Write},
    path::Path,
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

    async fn resolve(&self, call: &Call) -> Result<Resolved, Failure> {
        let request = self.http.delete(format!("{}/{}", self.url, call.reference().value()));
        // The same at every attempt: by it the service knows a call that was made before.
        let answer = request.header("idempotency-key", call.idempotency_key().to_string()).send().await?;
        match answer.status().as_u16() {
            200..300 => Ok(Resolved::Done),
            404 | 410 => Ok(Resolved::AlreadyGone),
            409 => {
                let seconds = answer.headers().get(RETRY_AFTER).ok_or("it does not say until when")?;
                let retained = Duration::from_secs(seconds.to_str()?.parse()?);
                Ok(Resolved::NotBefore(SystemTime::now() + retained))
            }
            400 | 401 | 403 => Err(Failure::reject("it will never do that for us").named("Refused")),
            status => Err(Failure::retry(format!("status {status}")).named("BadStatus")),
        }
    }
}

/// Runs the example in `folder`, and writes what happens to `out`.
pub(crate) async fn run(folder: &Path, out: &mut (impl Write + Send)) -> Result<(), Box<dyn Error>> {
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

    // The customer is gone and the calls are recorded, or neither is so.
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
    writeln!(out, "customer 17 is gone here, and 3 calls follow")?;

    let (told, mut ends) = mpsc::unbounded_channel();
    let given_up = told.clone();
    let mut services = Services::default();
    let runner = SagaRunner::builder(store.transactions(pool.clone()))
        .resolver(services.start("payments", payments).await?)
        .resolver(services.start("mail", mail).await?)
        .resolver(services.start("archive", archive).await?)
        // In your program: the default, which waits for 30 seconds, and twice as long each time.
        .backoff(Backoff::new(Duration::from_millis(50), Duration::from_secs(1), Duration::from_secs(300))?)
        // In the transaction in which the last call ends.
        .on_complete(|mut tx: Tx<Transaction<'static, Sqlite>>, completed: Completed| async move {
            let insert = sqlx::query("insert into erasures values (?)").bind(completed.subject.to_string());
            insert.execute(&mut **tx).await?;
            Ok(())
        })
        .complete_to("erased")
        // In your program: wake somebody. Here nobody would wait for the rest.
        .on_abandoned(move |_| _ = given_up.send(()))
        .build()?;
    runner.declare(&store).await?;

    // Whoever waits for the end is told by a message, like everybody else.
    let erased = Queue::new("erased").on_json(move |_: serde_json::Value, _: Context| {
        let told = told.clone();
        async move { told.send(()).map_err(Failure::retry) }
    });
    let letters = Worker::builder(store.clone()).queue(erased).build()?.start();
    let calling = runner.start(); // or `run_until_signal`; or `run_once`, from cron
    ends.recv().await.ok_or("the worker has ended")?;
    calling.shutdown(Duration::from_secs(10)).await;
    letters.shutdown(Duration::from_secs(10)).await;

    for (service, calls) in &services.calls {
        let calls = calls.lock().unwrap_or_else(PoisonError::into_inner);
        writeln!(out, "calls to {service}: {}, keys: {}", calls.values().sum::<u32>(), calls.len())?;
    }
    let counts = runner.status_counts().await?;
    let counts: Vec<_> = counts.iter().map(|(status, count)| format!("{count} {status}")).collect();
    writeln!(out, "{}", counts.join(", "))?;
    let completed: Vec<(String,)> = sqlx::query_as("select subject from erasures").fetch_all(&pool).await?;
    writeln!(
        out,
        "erased everywhere: {}",
        completed.iter().map(|(subject,)| &**subject).collect::<String>()
    )?;

    // What the queues still hold: a mail that waits for the birthday, and the follow-ups that are kept after success.
    let customer = SubjectId::new("customer-17")?;
    let gone = runner
        .erase_subject(None, &customer, &Action::new("privacy desk", "asked for by the customer"))
        .await?;
    writeln!(
        out,
        "removed from the queues: {} waiting, {} kept; {} left",
        gone.waiting, gone.archived, gone.follow_ups
    )?;

    // What remains is the ledger. The services were called side by side, so only the order at each of them is certain.
    let ledger = store.ledger();
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for recorded in ledger.read(&customer).await? {
        let by = recorded.event.resolver.map_or("all".to_owned(), |resolver| resolver.to_string());
        lines.entry(by).or_default().push(format!("{:?}", recorded.event.kind).to_lowercase());
    }
    for (by, kinds) in lines {
        writeln!(out, "ledger, {by}: {}", kinds.join(", "))?;
    }
    // Write the head down elsewhere: then nobody can write the whole ledger anew.
    let head = audit::verify(&ledger, None).await?;
    writeln!(out, "{} events, and nobody has been at them", head.position)?;
    Ok(())
}

/// Down for the first two calls.
fn payments(call: u32) -> Response {
    if call < 3 { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }.into_response()
}

/// Never heard of.
fn mail(_: u32) -> Response {
    StatusCode::NOT_FOUND.into_response()
}

/// Must keep it for a second.
fn archive(call: u32) -> Response {
    if call == 1 {
        return (StatusCode::CONFLICT, [(RETRY_AFTER, "1")]).into_response();
    }
    StatusCode::NO_CONTENT.into_response()
}

/// How often a service was called under each key.
type Calls = Arc<Mutex<BTreeMap<String, u32>>>;

/// The services, which end with it.
#[derive(Default)]
struct Services {
    servers: JoinSet<io::Result<()>>,
    calls: Vec<(&'static str, Calls)>,
}

impl Services {
    /// Starts a service that answers the n-th call under a key so.
    async fn start(
        &mut self,
        name: &'static str,
        answer: fn(u32) -> Response,
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
            answer(*call)
        };
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let router = Router::new().route("/{customer}", delete(erase));
        self.servers.spawn(axum::serve(listener, router).into_future());
        // This build of the client brings no cryptography of its own. If there is some already, that will do.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(30)).build()?;
        Ok(Eraser { name, url, http })
    }
}

#[allow(dead_code, reason = "the tests call `run`")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let folder = tempfile::tempdir()?;
    run(folder.path(), &mut io::stdout()).await
}
