//! Fault injection for follow-ups: two runners in processes of their own, which are killed a hundred times; resolvers that fail, are slow,
//! panic and reject; and a ledger on a bad network. `support/saga_script.rs` has the script, `support/saga_evidence.rs` checks the result.
//!
//! One runner works all the time and renews its leases. The other runs batches, and renews nothing: when the ledger hangs, its lease
//! expires, and it settles too late. A late settlement must change nothing.
//!
//! The seed is printed; `POSTRIDER_SEED` repeats its choices, but not their timing.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/saga_evidence.rs"]
mod evidence;
#[path = "support/saga_script.rs"]
mod script;

use evidence::{Evidence, StagedCall, Violation};
use postrider_core::{
    AuditEvent, AuditKind, AuditSink, ClaimRequest, FollowUp, FollowUpExt as _, MessageId, Reference, Store,
    SubjectId,
    audit::verify,
    follow_up::{FollowUpStatus, QUEUE},
    schema::Schema,
};
use postrider_engine::{
    Tx,
    saga::{Completion, SagaBackoff, SagaRunner},
};
use postrider_stores::postgres::{PostgresOptions, PostgresStore, PostgresTransactions};
use postrider_testkit::{
    postgres::TestDatabase,
    process::{Process, argument},
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use script::{CANARY, LEASE, Network, OPERATION, Part, RESOLVERS, RemoteLedger, Scripted, TABLES, TIMEOUT};
use sqlx::{AssertSqlSafe, Executor, PgPool, Postgres, Row, Transaction, postgres::PgPoolOptions};
use std::{collections::BTreeSet, env, time::Duration};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

const SUBJECTS: usize = 5_000;
const KILLS: usize = 100;
/// One in this many kills hits the runner of batches, so that it lives long enough to settle too late.
const KILLS_OF_BATCHES: u32 = 12;
/// Without progress for this long, the run is stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// Every follow-up ends in the right state, is audited before it ends, and every subject completes once, despite kills and late runners.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_killed_runners_leave_every_follow_up_audited_and_finished() {
    let began = Instant::now();
    let seed =
        env::var("POSTRIDER_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or_else(rand::random);
    println!("POSTRIDER_SEED={seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let fixture = FaultFixture::new().await;
    let subjects: Vec<[Uuid; 4]> =
        (0..SUBJECTS).map(|_| std::array::from_fn(|_| Uuid::from_u128(random.random()))).collect();
    let staged = fixture.stage(&subjects).await;

    let mut started = 0;
    let mut start = |slot: usize| {
        started += 1;
        let body = ["a_runner_at_work", "a_runner_of_batches"][slot];
        Some((started, Process::start(body, &format!("{started}\n{}", fixture.database.url()))))
    };
    let mut runners = [start(0), start(1)];
    for kill in 0..KILLS {
        let share = staged.len() * 9 / 10 / KILLS;
        let slot = usize::from(random.random_ratio(1, KILLS_OF_BATCHES));
        let wanted = kill * share + random.random_range(0..share);
        let (number, mut victim) = runners[slot].take().unwrap();
        fixture.until_audited(wanted, number).await;
        assert!(victim.ended().is_none(), "a runner ended by itself; its output is above");
        victim.kill();
        runners[slot] = start(slot);
    }
    fixture.until_ended().await;
    sqlx::query("insert into over default values").execute(&fixture.app).await.unwrap();
    for (number, mut runner) in runners.into_iter().flatten() {
        let ended = runner.ends_within(PATIENCE).await;
        assert!(ended.is_some_and(|ended| ended.success()), "runner {number} did not stop cleanly");
    }

    let evidence = Evidence::read(&mut fixture.app.acquire().await.unwrap()).await;
    assert_eq!(evidence.check(&staged), BTreeSet::new());
    let head = verify(&fixture.store.ledger(), None).await.unwrap();
    let counts = evidence.counts();
    let mishaps = fixture.mishaps().await;
    println!(
        "{KILLS} kills, {} follow-ups, {counts:?}, {} events, {mishaps:?}, {:.1?}",
        staged.len(),
        head.position,
        began.elapsed()
    );
    let refused = staged.keys().filter(|key| Part::of(**key) == Part::Refusing).count();
    assert_eq!((counts.abandoned, counts.succeeded), (refused, staged.len() - refused));
    assert!(counts.completed > SUBJECTS / 2, "hardly anybody completed");
    // Enough faults have occurred.
    assert!(
        counts.repeated > 0 && counts.expired > 0 && counts.audited_again > 0,
        "no runner died in the middle"
    );
    // Whether a runner settles too late is a matter of milliseconds, so none need have; the suite's `lease_fencing` has both cases.
    for sort in ["away", "reply lost"] {
        for kind in ["succeeded", "completed"] {
            let struck = mishaps.iter().any(|(one, other, _)| (one.as_str(), other.as_str()) == (sort, kind));
            assert!(struck, "no event {kind} met the ledger when it was: {sort}");
        }
    }
    assert!(mishaps.iter().any(|(sort, ..)| sort == "hung"), "the ledger never hung");
    assert!(counts.completed_again > 0, "no completion was reported and rolled back");
}

/// Not a test of its own: the body of a runner that works until every follow-up has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_runner_at_work() {
    let Some((runner, app)) = in_the_other_process().await else { return };
    let running = runner.start();
    while !is_over(&app).await {
        sleep(Duration::from_millis(50)).await;
    }
    assert!(running.stop(PATIENCE).await.clean);
}

/// Not a test of its own: the body of a runner that runs one batch after the other until every follow-up has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "the body of a child process"]
async fn a_runner_of_batches() {
    let Some((runner, app)) = in_the_other_process().await else { return };
    while !is_over(&app).await {
        if runner.run_batch().await.unwrap().claimed == 0 {
            sleep(Duration::from_millis(50)).await;
        }
    }
}

type Runner = SagaRunner<PostgresTransactions>;

async fn in_the_other_process() -> Option<(Runner, PgPool)> {
    let arguments = argument()?;
    let (number, url) = arguments.split_once('\n').unwrap();
    let options = PostgresOptions::new(url).unwrap().with_connections(4);
    let (store, app) = (PostgresStore::open(options).await.unwrap(), pool(url).await);
    Some((runner(&store, &app, number.parse().unwrap(), Network::Bad), app))
}

async fn is_over(app: &PgPool) -> bool {
    sqlx::query("select from over").fetch_optional(app).await.unwrap().is_some()
}

async fn pool(url: &str) -> PgPool {
    PgPoolOptions::new().max_connections(6).connect(url).await.unwrap()
}

fn runner(store: &PostgresStore, app: &PgPool, number: i64, network: Network) -> Runner {
    let backoff = SagaBackoff::new(Duration::from_millis(50), Duration::from_millis(400), LEASE).unwrap();
    let ledger = RemoteLedger { network, ledger: store.ledger(), app: app.clone() };
    let mut builder = SagaRunner::builder(store.transactions(app.clone()).read_committed())
        .audit(ledger)
        .retry(backoff)
        .timeout(TIMEOUT)
        .concurrency(25)
        // Attempts that a crash interrupted count.
        .max_attempts(KILLS as u32)
        .complete_to("completed")
        .on_complete(|mut tx: Tx<Transaction<'static, Postgres>>, completed: Completion| async move {
            let farewell = sqlx::query("insert into farewell (subject) values ($1)");
            farewell.bind(completed.subject.as_str()).execute(&mut **tx).await?;
            Ok(())
        });
    for name in RESOLVERS {
        builder = builder.resolver(Scripted { name, runner: number, app: app.clone() });
    }
    builder.build().unwrap()
}

/// A database with the store's tables and those of the application.
struct FaultFixture {
    store: PostgresStore,
    app: PgPool,
    /// This store processes nothing; only the runners that are killed do.
    runner: Runner,
    database: TestDatabase,
}

impl FaultFixture {
    async fn new() -> Self {
        let database = TestDatabase::empty().await;
        let store = PostgresStore::connect(database.url()).await.unwrap();
        store.migrate().await.unwrap();
        let app = pool(database.url()).await;
        app.execute(TABLES).await.unwrap();
        let runner = runner(&store, &app, 0, Network::Good);
        runner.declare().await.unwrap();
        Self { store, app, runner, database }
    }

    /// Four follow-ups of each subject, some with a payload.
    async fn stage(&self, subjects: &[[Uuid; 4]]) -> StagedCall {
        let mut staged = StagedCall::new();
        for subjects in subjects.chunks(50) {
            let mut tx = self.app.begin().await.unwrap();
            let mut follow_ups = Vec::new();
            for keys in subjects {
                let subject = format!("customer-{}", keys[0]);
                for (key, resolver) in keys.iter().zip(RESOLVERS) {
                    staged.insert(*key, subject.clone());
                    let reference = Reference::new("customer", "there");
                    let follow_up = FollowUp::new(&subject, resolver, OPERATION, reference).unwrap();
                    let follow_up = follow_up.with_id(MessageId::from_uuid(*key));
                    follow_ups.push(match resolver {
                        "mailer" => follow_up.with_json(CANARY).unwrap(),
                        _ => follow_up,
                    });
                }
            }
            self.store.outbox().follow_up(&mut tx, follow_ups).await.unwrap();
            tx.commit().await.unwrap();
        }
        staged
    }

    /// Waits until the ledger has `events` events and a runner has made its first call. Panics when there is no progress.
    async fn until_audited(&self, wanted: usize, runner: i64) {
        let look =
            "select h.position, exists (select from effect where runner = $1) from postrider.ledger_head h";
        let (mut last, mut since) = (-1, Instant::now());
        loop {
            let row = sqlx::query(look).bind(runner).fetch_one(&self.app).await.unwrap();
            let (events, is_at_work): (i64, bool) = (row.get(0), row.get(1));
            if is_at_work && events >= wanted as i64 {
                return;
            }
            if events > last {
                (last, since) = (events, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "{events} events, and no more: {wanted} are wanted");
            sleep(Duration::from_millis(5)).await;
        }
    }

    async fn until_ended(&self) {
        let (mut last, mut since) = (u64::MAX, Instant::now());
        loop {
            let counts = self.runner.status_counts().await.unwrap();
            let is_open = |status: &FollowUpStatus| {
                !matches!(status, FollowUpStatus::Succeeded | FollowUpStatus::Abandoned)
            };
            let open = counts.iter().filter(|(status, _)| is_open(status)).map(|(_, count)| count).sum();
            if open == 0 {
                return;
            }
            if open < last {
                (last, since) = (open, Instant::now());
            }
            assert!(since.elapsed() < PATIENCE, "{counts:?}, and no further");
            sleep(Duration::from_millis(100)).await;
        }
    }

    /// The failures of the ledger, by kind, with the events that were appended then.
    async fn mishaps(&self) -> Vec<(String, String, i64)> {
        sqlx::query_as("select sort, kind, count(*) from mishap group by sort, kind order by sort, kind")
            .fetch_all(&self.app)
            .await
            .unwrap()
    }
}

/// A key of this part.
fn key_of(is_wanted: impl Fn(Part) -> bool) -> Uuid {
    std::iter::repeat_with(Uuid::new_v4).find(|key| is_wanted(Part::of(*key))).unwrap()
}

/// Negative controls: the evidence check finds every violation.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_check_finds_every_kind_of_broken_runner() {
    let fixture = FaultFixture::new().await;
    let [prompt, failing, refusing] = [
        key_of(|part| part == Part::Prompt),
        key_of(|part| part == Part::Failing(2)),
        key_of(|part| part == Part::Refusing),
    ];
    let fine = || key_of(|part| part == Part::Prompt);
    let staged =
        fixture.stage(&[[prompt, failing, fine(), fine()], [fine(), fine(), refusing, fine()]]).await;
    let running = fixture.runner.start();
    fixture.until_ended().await;
    assert!(running.stop(PATIENCE).await.clean);
    let mut connection = fixture.app.acquire().await.unwrap();
    assert_eq!(Evidence::read(&mut connection).await.check(&staged), BTreeSet::new());
    drop(connection);

    let (done, blocked) = (&staged[&prompt], &staged[&refusing]);
    let event = |kind: &str, key: Uuid, attempt: u32| {
        let id = Uuid::new_v4();
        format!(
            r#"select postrider.append_ledger(array['{{"id":"{id}","kind":"{kind}","subject":"{}","follow_up":"{key}","attempt":{attempt}}}'])"#,
            staged[&key]
        )
    };
    let moved = "id, staged_at, due_at, message_id, attempts, deliveries, queue, ordered, payload, event_type, subject, headers";
    let plants = [
        (Violation::NotWhatWasStaged, format!("delete from postrider.archive where message_id = '{prompt}'")),
        (
            Violation::NotWhatWasStaged,
            format!(
                "update postrider.archive set message_id = gen_random_uuid() where message_id = '{prompt}'"
            ),
        ),
        (
            Violation::InTwoTables,
            format!(
                "insert into postrider.dead ({moved}, reason) select {moved}, 'rejected' from postrider.archive where message_id = '{prompt}'"
            ),
        ),
        (
            Violation::Unended,
            format!(
                "insert into postrider.ready ({moved}) select {moved} from postrider.archive where message_id = '{prompt}'"
            ),
        ),
        (
            Violation::WrongEnding,
            format!(
                "with gone as (delete from postrider.dead where message_id = '{refusing}' returning *) \
                 insert into postrider.archive ({moved}, expires_at) select {moved}, now() from gone"
            ),
        ),
        (
            Violation::NotAudited,
            format!("update postrider.archive set archived_at = staged_at where message_id = '{prompt}'"),
        ),
        (Violation::AuditedTwice, event("succeeded", prompt, 1)),
        (Violation::WrongEvent, event("succeeded", prompt, 2)),
        (Violation::WrongEvent, event("succeeded", failing, 1)),
        (Violation::WrongEvent, event("succeeded", refusing, 1)),
        (Violation::CalledTwice, format!("insert into effect values (0, '{prompt}', 1)")),
        (Violation::Miscounted, format!("insert into effect values (0, '{prompt}', 2)")),
        (
            Violation::Miscounted,
            format!("update postrider.archive set attempts = deliveries where message_id = '{failing}'"),
        ),
        (Violation::Uncompleted, format!("delete from farewell where subject = '{done}'")),
        (Violation::Uncompleted, format!("delete from postrider.ready where subject = '{done}'")),
        (Violation::CompletedTwice, format!("insert into farewell values ('{done}')")),
        (Violation::WronglyCompleted, format!("insert into farewell values ('{blocked}')")),
        (Violation::WronglyCompleted, event("completed", refusing, 1)),
        (
            Violation::PayloadKept,
            format!("update postrider.archive set payload = '{CANARY}' where message_id = '{prompt}'"),
        ),
        (
            Violation::PayloadKept,
            format!(
                "update postrider.dead set last_error = 'because of {CANARY}' where message_id = '{refusing}'"
            ),
        ),
        (Violation::PayloadKept, event(&format!("succeeded\",\"error\":\"{CANARY}"), prompt, 2)),
    ];
    for (complaint, plant) in plants {
        let mut tx = fixture.app.begin().await.unwrap();
        tx.execute(AssertSqlSafe(plant.clone())).await.unwrap();
        let found = Evidence::read(&mut tx).await.check(&staged);
        assert!(found.iter().any(|(what, _)| *what == complaint), "{plant}: {found:?}");
        tx.rollback().await.unwrap();
    }
}

/// The check finds a late runner that settles a follow-up by its id alone, without the token of its claim.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn evidence_check_finds_settlement_without_token() {
    let fixture = FaultFixture::new().await;
    let keys = std::array::from_fn(|_| key_of(|part| part == Part::Prompt));
    let staged = fixture.stage(&[keys]).await;
    let claim = ClaimRequest::new(QUEUE.parse().unwrap(), 1).with_lease_for(LEASE);
    let stale = fixture.store.claim(&claim).await.unwrap().remove(0);
    let key = stale.id().as_uuid();
    script::effect(&fixture.app, 1, key, 1).await.unwrap();
    let expire_lease = "update postrider.ready set lease_until = clock_timestamp() where message_id = $1";
    sqlx::query(expire_lease).bind(key).execute(&fixture.app).await.unwrap();
    let all = ClaimRequest::new(QUEUE.parse().unwrap(), 10).with_lease_for(LEASE);
    let fresh = fixture.store.claim(&all).await.unwrap();
    let fresh = fresh.iter().find(|claimed| claimed.id() == stale.id()).unwrap();
    script::effect(&fixture.app, 2, key, 2).await.unwrap();

    // Its call succeeded, and it appends to the ledger before it settles: only the token is missing.
    let succeeded = AuditEvent {
        subject: Some(SubjectId::new(staged[&key].as_str()).unwrap()),
        follow_up: Some(stale.id()),
        attempt: Some(stale.deliveries),
        ..AuditEvent::new(AuditKind::Succeeded)
    };
    fixture.store.ledger().append(&[succeeded]).await.unwrap();
    assert_eq!(
        fixture.store.settle(&[stale.lease.done()]).await.unwrap().len(),
        1,
        "with it, nothing happens"
    );
    let columns = "id, staged_at, due_at, message_id, attempts, deliveries, queue, ordered, payload, event_type, subject, headers";
    let without_token = format!(
        "with done as (delete from postrider.ready where message_id = '{key}' returning *) \
         insert into postrider.archive ({columns}, expires_at) select {columns}, now() + interval '1 day' from done"
    );
    fixture.app.execute(AssertSqlSafe(without_token)).await.unwrap();
    assert_eq!(fixture.store.settle(&[fresh.lease.done()]).await.unwrap().len(), 1, "it was taken away");
    let found = Evidence::read(&mut fixture.app.acquire().await.unwrap()).await.check(&staged);
    assert!(found.contains(&(Violation::NotAudited, key.to_string())), "{found:?}");
}
