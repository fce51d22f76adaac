//! What happens to whom when follow-ups are carried out under fire: resolvers that go by the key of the call, and a ledger that drops out.

use async_trait::async_trait;
use postrider_core::{AuditError, AuditEvent, AuditRecord, AuditSink, Error, SubjectId};
use postrider_engine::{
    Failure,
    saga::{Resolution, Resolver, ResolverCall},
};
use postrider_stores::postgres::PostgresLedger;
use sqlx::PgPool;
use std::time::{Duration, SystemTime};
use tokio::time::sleep;
use uuid::Uuid;

pub(crate) const RESOLVERS: [&str; 4] = ["payments", "mailer", "search", "warehouse"];
pub(crate) const OPERATION: &str = "erase";
/// In payloads and in what errors say: nothing of it may be left in the end.
pub(crate) const CANARY: &str = "canary-4711";
pub(crate) const LEASE: Duration = Duration::from_secs(2);
pub(crate) const TIMEOUT: Duration = Duration::from_millis(500);

/// The application's tables. Nothing in them forbids what must not happen.
pub(crate) const TABLES: &str = "create unlogged table effect (runner bigint not null, key uuid not null, attempt int not null, \
      at timestamptz not null default clock_timestamp()); \
    create index on effect (runner); \
    create unlogged table mishap (sort text not null, kind text not null); \
    create table farewell (subject text not null); \
    create table over (at timestamptz not null default clock_timestamp())";

/// The outcome of a call, whichever runner makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Prompt,
    AlreadyGone,
    Slow(Duration),
    /// Fails this many attempts.
    Failing(u32),
    /// Takes longer than it may, once.
    Endless,
    /// Panics, once.
    Panicking,
    Refusing,
}

impl Part {
    /// The part of the call with this key. Keys are random, so they are dice.
    pub(crate) fn of(key: Uuid) -> Self {
        let (dice, more) = (key.as_u128() % 1_000, (key.as_u128() / 1_000) % 1_000);
        match dice {
            0..30 => Self::Refusing,
            30..50 => Self::Panicking,
            50..54 => Self::Endless,
            54..200 => Self::Failing(1 + (more % 3) as u32),
            200..300 => Self::Slow(Duration::from_millis(5 + more as u64 % 40)),
            300..400 => Self::AlreadyGone,
            _ => Self::Prompt,
        }
    }

    /// Whether this attempt fails for now.
    pub(crate) fn fails(self, attempt: u32) -> bool {
        match self {
            Self::Failing(attempts) => attempt <= attempts,
            Self::Endless | Self::Panicking => attempt == 1,
            Self::Prompt | Self::AlreadyGone | Self::Slow(_) | Self::Refusing => false,
        }
    }
}

/// Writes down that it was called, and goes by its part.
#[derive(Debug)]
pub(crate) struct Scripted {
    pub(crate) name: &'static str,
    pub(crate) runner: i64,
    pub(crate) app: PgPool,
}

#[async_trait]
impl Resolver for Scripted {
    fn name(&self) -> &str {
        self.name
    }

    fn operations(&self) -> &[&str] {
        &[OPERATION]
    }

    async fn resolve(&self, call: &ResolverCall) -> Result<Resolution, Failure> {
        let key = call.idempotency_key().as_uuid();
        effect(&self.app, self.runner, key, call.attempt()).await?;
        let part = Part::of(key);
        if !part.fails(call.attempt()) {
            return match part {
                Part::Refusing => Err(Failure::reject(CANARY).named("Refused")),
                Part::AlreadyGone => Ok(Resolution::AlreadyGone),
                Part::Slow(takes) => {
                    sleep(takes).await;
                    Ok(Resolution::Done)
                }
                _ => Ok(Resolution::Done),
            };
        }
        match part {
            Part::Endless => std::future::pending().await,
            Part::Panicking => std::panic::resume_unwind(Box::new(CANARY)),
            _ => Err(Failure::retry(CANARY)),
        }
    }
}

/// The effect of a call, committed by itself.
pub(crate) async fn effect(app: &PgPool, runner: i64, key: Uuid, attempt: u32) -> Result<(), sqlx::Error> {
    let insert = sqlx::query("insert into effect (runner, key, attempt) values ($1, $2, $3)");
    insert.bind(runner).bind(key).bind(attempt.cast_signed()).execute(app).await.map(drop)
}

/// The network between a runner and the ledger.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Network {
    Good,
    Bad,
}

/// The store's ledger behind a network.
#[derive(Debug)]
pub(crate) struct RemoteLedger {
    pub(crate) network: Network,
    pub(crate) ledger: PostgresLedger,
    pub(crate) app: PgPool,
}

impl RemoteLedger {
    async fn record_mishap(&self, sort: &str, events: &[AuditEvent]) {
        for event in events {
            let kind = serde_json::to_value(event.kind).unwrap();
            let insert = sqlx::query("insert into mishap (sort, kind) values ($1, $2)");
            insert.bind(sort).bind(kind.as_str()).execute(&self.app).await.unwrap();
        }
    }
}

/// For some follow-ups, appending the outcome of the first two attempts takes longer than the lease. So the second attempt is in flight when
/// the first settles too late, with a stale token.
fn is_delayed(event: &AuditEvent) -> bool {
    let key = event.follow_up.map_or(0, |id| id.as_uuid().as_u128());
    event.attempt.is_some_and(|attempt| attempt <= 2) && (key / 1_000_000) % 1_000 < 8
}

fn away() -> AuditError {
    Error::Unavailable(CANARY.into()).into()
}

#[async_trait]
impl AuditSink for RemoteLedger {
    async fn append(&self, events: &[AuditEvent]) -> Result<(), AuditError> {
        let (dice, hang) = (rand::random_range(0..1_000), LEASE.mul_f64(rand::random_range(1.1..2.0)));
        match dice {
            _ if self.network == Network::Good => {}
            0..10 => {
                self.record_mishap("away", events).await;
                return Err(away());
            }
            10..20 => {
                self.ledger.append(events).await?;
                self.record_mishap("reply lost", events).await;
                return Err(away());
            }
            _ if dice == 20 || events.iter().any(is_delayed) => {
                self.record_mishap("hung", events).await;
                sleep(hang).await;
            }
            _ => {}
        }
        self.ledger.append(events).await
    }

    async fn read(&self, subject: &SubjectId) -> Result<Vec<AuditRecord>, AuditError> {
        self.ledger.read(subject).await
    }

    async fn read_since(&self, at: SystemTime, limit: usize) -> Result<Vec<AuditRecord>, AuditError> {
        self.ledger.read_since(at, limit).await
    }
}
