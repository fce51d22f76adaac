//! A consumer: what it receives is staged in a queue of its database, in the transaction in which it is admitted.
//!
//! A broker that is away when the daemon starts keeps nobody else from working: the consumer tries again, and says so.

use super::{
    carrying::PATIENCE,
    opening::open,
    pool::Pool,
    unit::{Pulse, Rested, Working},
};
use crate::{
    config::{ConsumerPlan, ConsumerSection},
    opened::{Kind, Opened},
    problem::Problem,
    source::{self, Received},
};
use async_trait::async_trait;
use axum::Router;
use postrider::{
    Consumer, Context, Failure, Invalid, Outbox, OutboxExt, QueueName, Receive, Source, Tx,
    consumer::Consuming, sqlite::SqliteOutbox,
};
use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, sync::Mutex, task::JoinSet, time::sleep};

/// Between attempts to begin, at the most.
const PAUSE: Duration = Duration::from_secs(10);

/// Everything is there that the plan needs, and nothing is received yet.
#[derive(Debug)]
pub(super) struct Prepared {
    file: PathBuf,
    section: ConsumerSection,
    opened: Opened,
    pool: Pool,
}

impl Prepared {
    pub(super) async fn new(file: &Path, plan: &ConsumerPlan, migrate: bool) -> Result<Self, Problem> {
        // Sources connect when they are asked for something: this only finds what makes no sense.
        source::build(file, &plan.section)?;
        let opened = open(&plan.database, migrate).await?;
        let pool = Pool::new(plan.database.database(), plan.section.concurrency.value.saturating_add(1));
        Ok(Self { file: file.to_owned(), section: plan.section.clone(), opened, pool })
    }

    async fn begin(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        let Received { source, served } = match source::build(&self.file, &self.section) {
            Ok(received) => received,
            Err(problem) => return Err((self, problem)),
        };
        let mut serving = JoinSet::new();
        if let Some((address, router)) = served
            && let Err(problem) = serve(address, router, &mut serving).await
        {
            return Err((self, problem));
        }
        let section = &self.section;
        let built = match (self.opened.kind(), &self.pool) {
            (Kind::Sqlite(store), Pool::Sqlite(pool)) => {
                let transactions = store.transactions(pool.clone());
                built(section, &source, transactions, SqliteOutbox::default()).map(Consumers::Sqlite)
            }
            (Kind::Postgres(store), Pool::Postgres(pool)) => {
                let transactions = store.transactions(pool.clone());
                built(section, &source, transactions, store.outbox()).map(Consumers::Postgres)
            }
            _ => Err(Invalid::rule("database", "is of another kind than its pool")),
        };
        match built {
            Ok(consumers) => Ok(match consumers {
                Consumers::Sqlite(consumer) => AtWork::start(self, consumer, source, serving),
                Consumers::Postgres(consumer) => AtWork::start(self, consumer, source, serving),
            }),
            Err(invalid) => {
                let what = format!("{}:{}: {invalid}", self.file.display(), section.line.0);
                Err((self, Problem::new(what, "change what stands below this [[consumers]]")))
            }
        }
    }
}

/// A consumer, by the kind of its database.
enum Consumers {
    Sqlite(Consumer<postrider::sqlite::SqliteTransactions>),
    Postgres(Consumer<postrider::postgres::PostgresTransactions>),
}

#[async_trait]
impl Rested for Prepared {
    async fn start(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        self.begin().await
    }

    async fn resume(self: Box<Self>) -> Result<Box<dyn Working>, (Box<dyn Rested>, Problem)> {
        self.begin().await
    }

    async fn close(self: Box<Self>) {
        self.pool.close().await;
        self.opened.close().await;
    }
}

async fn serve(address: SocketAddr, router: Router, serving: &mut JoinSet<()>) -> Result<(), Problem> {
    let cannot = |error| {
        let what = format!("{address} cannot be listened at: {error}");
        Problem::new(what, "give another address as the `listen` of the consumer's source")
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    tracing::info!(name: "postrider.receiving", "receiving webhooks at http://{address}");
    serving.spawn(async move {
        axum::serve(listener, router).await.ok();
    });
    Ok(())
}

fn built<R: Receive, O: Outbox<R::Tx> + Clone + Send + Sync + 'static>(
    section: &ConsumerSection,
    source: &Arc<dyn Source>,
    transactions: R,
    outbox: O,
) -> Result<Consumer<R>, Invalid> {
    let queue = QueueName::new(section.to.as_str())?;
    let stage = move |mut tx: Tx<R::Tx>, context: Context| {
        let (outbox, queue) = (outbox.clone(), queue.clone());
        async move {
            outbox.stage(&mut *tx, context.message().redirected(queue)).await?;
            Ok::<(), Failure>(())
        }
    };
    let concurrency = usize::try_from(section.concurrency.value).unwrap_or(usize::MAX);
    let mut builder = Consumer::builder_on(section.name.as_str(), Arc::clone(source), transactions)
        .on_any(stage)
        .concurrency(concurrency);
    if let Some(most) = &section.max_deliveries {
        builder = builder.max_deliveries(most.value);
    }
    if let Some(keep) = &section.keep_marks_for {
        builder = builder.keep_marks_for(keep.value);
    }
    if let Some(longest) = &section.redelivered_within {
        builder = builder.redelivered_within(longest.value);
    }
    builder.build()
}

/// A consumer at work, or about to.
struct AtWork<R: Receive> {
    prepared: Box<Prepared>,
    source: Arc<dyn Source>,
    running: Arc<Mutex<Option<Consuming<R>>>>,
    /// Begins, and tries again where the broker is away.
    beginning: JoinSet<()>,
    /// Takes in what is posted.
    serving: JoinSet<()>,
}

impl<R: Receive> AtWork<R> {
    fn start(
        prepared: Box<Prepared>,
        consumer: Consumer<R>,
        source: Arc<dyn Source>,
        serving: JoinSet<()>,
    ) -> Box<dyn Working> {
        let running = Arc::new(Mutex::new(None));
        let mut beginning = JoinSet::new();
        let name = prepared.section.name.value.clone();
        beginning.spawn(begin(name, consumer, Arc::clone(&source), Arc::clone(&running)));
        Box::new(Self { prepared, source, running, beginning, serving })
    }
}

async fn begin<R: Receive>(
    name: String,
    consumer: Consumer<R>,
    source: Arc<dyn Source>,
    running: Arc<Mutex<Option<Consuming<R>>>>,
) {
    let mut pause = Duration::from_millis(250);
    loop {
        match consumer.start().await {
            Ok(consuming) => {
                *running.lock().await = Some(consuming);
                break;
            }
            Err(error) => {
                tracing::warn!(name: "postrider.not_receiving", consumer = name, %error, "nothing is received yet");
                sleep(pause).await;
                pause = (pause * 2).min(PAUSE);
            }
        }
    }
    tracing::info!(name: "postrider.receives", consumer = name, kind = source.kind(), origin = source.origin(), "receiving");
    // What would lose messages before they are staged is told once.
    match source.check().await {
        Ok(findings) => {
            for finding in findings {
                let (code, subject, fix) = (finding.code, finding.subject.as_str(), finding.fix.as_str());
                let severity = finding.severity.to_string();
                tracing::warn!(name: "postrider.finding", consumer = name, severity, code, subject, fix, "{}", finding.reason);
            }
        }
        Err(error) => {
            tracing::warn!(name: "postrider.unchecked", consumer = name, %error, "its source cannot be checked");
        }
    }
}

#[async_trait]
impl<R: Receive> Working for AtWork<R> {
    async fn ping(&mut self) -> Pulse {
        if self.serving.try_join_next().is_some() {
            return Pulse { dead: vec!["listener"], hindrance: Some("it does not listen any more") };
        }
        match &mut *self.running.lock().await {
            Some(consuming) => consuming.ping(PATIENCE).await.into(),
            None => Pulse { dead: Vec::new(), hindrance: Some("its source does not answer") },
        }
    }

    async fn drain(mut self: Box<Self>, deadline: Duration) -> Box<dyn Rested> {
        self.beginning.shutdown().await;
        let consumer = &self.prepared.section.name.value;
        match self.running.lock().await.take() {
            Some(consuming) => {
                let drained = consuming.shutdown(deadline).await;
                let (processed, is_clean) = (drained.consumed.processed, drained.is_clean);
                tracing::info!(name: "postrider.drained", consumer, processed, is_clean, "drained");
            }
            None => self.source.close().await,
        }
        self.serving.shutdown().await;
        self.prepared
    }
}

impl<R: Receive> fmt::Debug for AtWork<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AtWork").field("consumer", &self.prepared.section.name.value).finish_non_exhaustive()
    }
}
