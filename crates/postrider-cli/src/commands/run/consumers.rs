//! A consumer: it stages each received message in a queue of its database, in the transaction that admits the message.
//!
//! A broker that is unavailable when the daemon starts does not delay other components: the consumer retries, and logs it.

use super::{
    component::{Health, PreparedComponent, RunningComponent, StartResult},
    relay::PING_TIMEOUT,
    shared_database::{SharedDatabase, SharedDatabases, Transactions},
};
use crate::{
    config::{ConsumerPlan, ConsumerSection},
    problem::Problem,
    source::{self, Received},
};
use async_trait::async_trait;
use axum::Router;
use postrider::{Consumer, Context, Failure, Invalid, OutboxExt, QueueName, Running, Source, Tx, TxBackend};
use std::{
    fmt,
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{net::TcpListener, task::JoinSet, time::sleep};

/// The longest delay between attempts to check a source.
const MAX_BACKOFF: Duration = Duration::from_secs(10);

/// A consumer whose database is open, and that does not receive yet.
#[derive(Debug)]
pub(super) struct PreparedConsumer {
    file: PathBuf,
    section: ConsumerSection,
    database: Arc<SharedDatabase>,
}

impl PreparedConsumer {
    pub(super) async fn new(
        file: &Path,
        plan: &ConsumerPlan,
        databases: &SharedDatabases,
        migrate: bool,
    ) -> Result<Self, Problem> {
        // Sources connect on first use: this only validates the settings.
        source::build(file, &plan.section)?;
        let database = databases.open(&plan.database, migrate).await?;
        Ok(Self { file: file.to_owned(), section: plan.section.clone(), database })
    }

    async fn run(self: Box<Self>) -> StartResult {
        let Received { source, served } = match source::build(&self.file, &self.section) {
            Ok(built) => built,
            Err(problem) => return Err((self, problem)),
        };
        let mut webhook_server = JoinSet::new();
        if let Some((address, router)) = served
            && let Err(problem) = serve(address, router, &mut webhook_server).await
        {
            return Err((self, problem));
        }
        let section = &self.section;
        let started = match self.database.transactions() {
            Transactions::Sqlite(transactions, _) => {
                build(section, &source, transactions).map(|consumer| consumer.start())
            }
            Transactions::Postgres(transactions, _) => {
                build(section, &source, transactions).map(|consumer| consumer.start())
            }
        };
        match started {
            Ok(running) => {
                let mut checking = JoinSet::new();
                checking.spawn(check_source(section.name.value.clone(), source));
                Ok(Box::new(RunningConsumer { prepared: self, running, checking, webhook_server }))
            }
            Err(invalid) => {
                let what = format!("{}:{}: {invalid}", self.file.display(), section.line.0);
                Err((self, Problem::new(what, "fix this [[consumers]] section")))
            }
        }
    }
}

#[async_trait]
impl PreparedComponent for PreparedConsumer {
    async fn start(self: Box<Self>) -> StartResult {
        self.run().await
    }

    async fn resume(self: Box<Self>) -> StartResult {
        self.run().await
    }

    async fn close(self: Box<Self>) {
        self.database.release().await;
    }
}

async fn serve(address: SocketAddr, router: Router, server: &mut JoinSet<()>) -> Result<(), Problem> {
    let cannot = |error| {
        let what = format!("cannot listen on {address}: {error}");
        Problem::new(what, "set another `listen` address in the consumer's source")
    };
    let listener = TcpListener::bind(address).await.map_err(cannot)?;
    let address = listener.local_addr().map_err(cannot)?;
    tracing::info!(name: "postrider.webhook_listening", "webhook receiver listening on http://{address}");
    server.spawn(async move {
        axum::serve(listener, router).await.ok();
    });
    Ok(())
}

fn build<B: TxBackend>(
    section: &ConsumerSection,
    source: &Arc<dyn Source>,
    transactions: &B,
) -> Result<Consumer<B>, Invalid> {
    let queue = QueueName::new(section.to.as_str())?;
    let outbox = transactions.clone();
    let stage = move |mut tx: Tx<B::Tx>, context: Context| {
        let (outbox, queue) = (outbox.clone(), queue.clone());
        async move {
            outbox.stage(&mut *tx, context.message().redirected(queue)).await?;
            Ok::<(), Failure>(())
        }
    };
    let mut builder =
        Consumer::builder_on(section.name.as_str(), Arc::clone(source), transactions.clone()).on_any(stage);
    if let Some(concurrency) = section.number("concurrency") {
        builder = builder.concurrency(usize::try_from(concurrency).unwrap_or(usize::MAX));
    }
    if let Some(max_deliveries) = section.number("max_deliveries") {
        builder = builder.max_deliveries(max_deliveries);
    }
    if let Some(header) = section.string("deduplicate_by") {
        let header = header.trim_start_matches("header:").to_owned();
        builder = builder.deduplicate_by(move |incoming| incoming.header(&header).map(str::to_owned));
    }
    if let Some(keep) = section.duration("keep_deduplication_records_for") {
        builder = builder.keep_deduplication_records_for(keep);
    }
    if let Some(window) = section.duration("redelivery_window") {
        builder = builder.redelivery_window(window);
    }
    builder.build()
}

/// A consumer that receives, or is about to.
struct RunningConsumer {
    prepared: Box<PreparedConsumer>,
    running: Running,
    /// Checks the source once.
    checking: JoinSet<()>,
    /// The HTTP server of a webhook source.
    webhook_server: JoinSet<()>,
}

/// Logs broker settings that could lose messages before they are staged, as soon as the broker answers.
async fn check_source(consumer: String, source: Arc<dyn Source>) {
    let mut backoff = Duration::from_millis(250);
    let findings = loop {
        match source.check().await {
            Ok(findings) => break findings,
            Err(error) => {
                tracing::debug!(name: "postrider.source_unchecked", consumer, %error, "source of consumer {consumer} not checked: {error}; retrying in {backoff:?}");
                sleep(backoff).await;
                backoff = (backoff * 2).min(MAX_BACKOFF);
            }
        }
    };
    for finding in findings {
        let (code, subject, fix) = (finding.code, finding.subject.as_str(), finding.fix.as_str());
        let severity = finding.severity.to_string();
        tracing::warn!(name: "postrider.finding", consumer, severity, code, subject, fix, "{}", finding.reason);
    }
}

#[async_trait]
impl RunningComponent for RunningConsumer {
    async fn health(&mut self) -> Health {
        if self.webhook_server.try_join_next().is_some() {
            let not_ready_reason = Some("webhook listener stopped");
            return Health { dead_tasks: vec!["webhook listener"], not_ready_reason };
        }
        self.running.ping(PING_TIMEOUT).await.into()
    }

    async fn drain(mut self: Box<Self>, deadline: Duration) -> Box<dyn PreparedComponent> {
        self.checking.shutdown().await;
        let stopped = self.running.stop(deadline).await;
        let (consumer, delivered, clean) =
            (&self.prepared.section.name.value, stopped.report.delivered, stopped.clean);
        tracing::info!(name: "postrider.drained", consumer, delivered, clean, "consumer drained");
        self.webhook_server.shutdown().await;
        self.prepared
    }
}

impl fmt::Debug for RunningConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunningConsumer")
            .field("consumer", &self.prepared.section.name.value)
            .finish_non_exhaustive()
    }
}
