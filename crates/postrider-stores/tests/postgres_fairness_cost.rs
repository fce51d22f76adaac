//! The cost of a claim from a fair queue: bounded by its limit and by the number of waiting tenants, whatever the backlog of a noisy
//! tenant, the dead entries at its start, and the statistics.

#![cfg(feature = "postgres")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "support/plan.rs"]
mod plan;
#[path = "support/postgres.rs"]
mod support;

use plan::{Plan, assert_hot, connect, explain};
use postrider_core::{
    ClaimRequest, ClaimedMessage, LeaseToken, Message, Outbox, QueueName, QueuePolicy, Store, schema::Schema,
};
use postrider_testkit::Fixture;
use sqlx::{AssertSqlSafe, Executor, PgConnection};
use support::PostgresFixture;

const LIMIT: usize = 100;
/// The number of new rows that a survey reads for this limit.
const WINDOW: usize = 1_000 + 2 * LIMIT;
const QUIET: usize = 20;

fn queue() -> QueueName {
    QueueName::new("orders").unwrap()
}

async fn fair_fixture() -> PostgresFixture {
    let fixture = PostgresFixture::new().await;
    fixture.store.declare(&queue(), &QueuePolicy::default().fair_by_tenant()).await.unwrap();
    fixture
}

/// A noisy tenant's backlog, and behind it a few messages of quiet tenants, with autovacuum disabled.
async fn fill(fixture: &PostgresFixture, noisy: usize, each_quiet: usize) {
    fixture.run("alter table postrider.ready set (autovacuum_enabled = false)").await;
    let rows = |tenant: &str, count: usize| {
        format!(
            "insert into postrider.ready (queue, message_id, payload, tenant, fair) \
             select (select id from postrider.queue), gen_random_uuid(), 'x', {tenant}, true from generate_series(1, {count}) n;"
        )
    };
    let quiet = format!("'quiet-' || n % {QUIET}");
    let sql = rows("'noisy'", noisy) + &rows(&quiet, each_quiet * QUIET);
    fixture.app.execute(AssertSqlSafe(sql)).await.unwrap();
}

/// A tenant, its low-water mark, and whether it has messages waiting.
type Known = (String, i64, bool);

fn array(values: impl Iterator<Item = String>) -> String {
    format!("'{{{}}}'", values.collect::<Vec<_>>().join(","))
}

fn tenants(lines: &[Known]) -> String {
    array(lines.iter().map(|(tenant, ..)| format!("\"{tenant}\"")))
}

fn marks(lines: &[Known]) -> String {
    array(lines.iter().map(|(_, mark, _)| mark.to_string()))
}

/// The types and arguments of a survey that probes every known tenant and every gap.
fn survey_of(start: i64, known: &[Known]) -> (&'static str, String) {
    let (known, starts) = (tenants(known), marks(known));
    (
        "smallint, integer, bigint, text[], bigint[], integer, text[], bigint[], boolean, boolean",
        format!("1, {LIMIT}, {start}, '{{}}', '{{}}', {WINDOW}, {known}, {starts}, true, true"),
    )
}

/// The plans of the next claim's statements.
async fn explain_claim(
    connection: &mut PgConnection,
    fixture: &PostgresFixture,
) -> [(&'static str, Plan); 2] {
    let statement =
        |name: &str| fixture.store.statements().into_iter().find(|(each, _)| *each == name).unwrap().1;
    let (start, lines) = fixture.store.tenant_low_water_marks(&queue()).await;
    let (types, arguments) = survey_of(start, &lines);
    let survey = explain(connection, &statement("survey"), types, &arguments).await;

    let waiting: Vec<_> = lines.into_iter().filter(|(.., waits)| *waits).collect();
    let shares = array(waiting.iter().map(|_| (LIMIT / waiting.len()).max(1).to_string()));
    let token = LeaseToken::fresh().as_uuid();
    let take = format!("'{token}', 60, 1, {}, {}, {shares}", tenants(&waiting), marks(&waiting));
    let types = "uuid, float8, smallint, text[], bigint[], bigint[]";
    [("survey", survey), ("take turns", explain(connection, &statement("take turns"), types, &take).await)]
}

async fn claim_and_settle(fixture: &PostgresFixture, limit: usize) -> Vec<ClaimedMessage> {
    let claimed = fixture.store.claim(&ClaimRequest::new(queue(), limit)).await.unwrap();
    let done: Vec<_> = claimed.iter().map(|claimed| claimed.lease.done()).collect();
    assert_eq!(fixture.store.settle(&done).await.unwrap(), []);
    claimed
}

/// No statement reads much more than it did with a short backlog of the noisy tenant.
fn assert_as_usual(plans: &[(&str, Plan)], usual: &[f64], when: &str) {
    for ((name, plan), usual) in plans.iter().zip(usual) {
        plan.assert_bounded(&format!("{name}, {when}"), 3.0 * WINDOW as f64);
        assert!(plan.buffers <= 3.0 * usual, "{name}, {when}: {} buffers, {usual} as usual", plan.buffers);
    }
}

#[tokio::test]
async fn claim_cost_is_independent_of_noisy_tenants_backlog() {
    let mut usual = Vec::new();
    for noisy in [3 * WINDOW, 500_000] {
        let fixture = fair_fixture().await;
        fill(&fixture, noisy, 10).await;
        let claimed = fixture.store.claim(&ClaimRequest::new(queue(), LIMIT)).await.unwrap();
        let quiet = claimed.iter().filter(|each| each.message.tenant().unwrap().as_str() != "noisy").count();
        assert!(quiet > LIMIT * 9 / 10, "the others have their turns: {quiet}");
        let mut connection = connect(fixture.database.url()).await;
        let plans = explain_claim(&mut connection, &fixture).await;
        if usual.is_empty() {
            usual = plans.iter().map(|(_, plan)| plan.buffers).collect();
        }
        assert_as_usual(&plans, &usual, &format!("{noisy} rows"));
    }
}

/// Tenants come and go, and vacuum cannot remove the dead entries that they leave behind.
#[tokio::test]
async fn claim_cost_is_constant_while_snapshot_is_held() {
    let fixture = fair_fixture().await;
    let mut holder = fixture.app.begin().await.unwrap();
    holder.execute("set transaction isolation level repeatable read").await.unwrap();
    holder.execute("select 1 from postrider.queue").await.unwrap();
    fill(&fixture, 30_000, 0).await;
    let mut connection = connect(fixture.database.url()).await;
    let mut usual = Vec::new();
    for round in 0..80 {
        let mut tx = fixture.begin().await;
        let batch: Vec<_> = (0..900)
            .map(|n| {
                Message::builder("orders").tenant(format!("quiet-{}", n % QUIET)).json(&n).build().unwrap()
            })
            .chain([Message::builder("orders").tenant(format!("newcomer-{round}")).build().unwrap()])
            .collect();
        fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
        fixture.commit(tx).await;
        let claimed = claim_and_settle(&fixture, 1_000).await;
        let quiet = claimed.iter().filter(|each| each.message.tenant().unwrap().as_str() != "noisy").count();
        assert_eq!((claimed.len(), quiet), (1_000, 901), "round {round}");
        if round == 1 || round % 20 == 19 {
            let plans = explain_claim(&mut connection, &fixture).await;
            if usual.is_empty() {
                usual = plans.iter().map(|(_, plan)| plan.buffers).collect();
            }
            assert_as_usual(&plans, &usual, &format!("round {round}"));
        }
    }
    // The control: a search for tenants without knowing any walks over all dead entries.
    let survey = fixture.store.statements().into_iter().find(|(name, _)| *name == "survey").unwrap().1;
    let (types, arguments) = survey_of(i64::MAX, &[]);
    let blind = explain(&mut connection, &survey, types, &arguments).await;
    assert!(blind.buffers > 10.0 * usual[0], "{} buffers, {} as usual", blind.buffers, usual[0]);
    holder.rollback().await.unwrap();
}

/// The statistics of an outbox are taken when it is empty, or nearly so, or not at all: its normal state.
#[tokio::test]
async fn plans_stay_bounded_whatever_the_statistics() {
    let mut usual = Vec::new();
    for rows_when_analyzed in [None, Some(0), Some(30)] {
        let fixture = fair_fixture().await;
        if let Some(rows) = rows_when_analyzed {
            fill(&fixture, rows, 1).await;
            fixture.run("analyze postrider.ready").await;
            fixture.run("analyze postrider.scheduled").await;
        }
        fill(&fixture, 200_000, 10).await;
        claim_and_settle(&fixture, LIMIT).await;
        let mut connection = connect(fixture.database.url()).await;
        let plans = explain_claim(&mut connection, &fixture).await;
        if usual.is_empty() {
            usual = plans.iter().map(|(_, plan)| plan.buffers).collect();
        }
        assert_as_usual(&plans, &usual, &format!("{rows_when_analyzed:?}"));
    }
}

/// A claim changes no column of the index by tenant.
#[tokio::test]
async fn claims_are_hot_updates() {
    let fixture = fair_fixture().await;
    let batch: Vec<_> = (0..20_000)
        .map(|n| Message::builder("orders").tenant(format!("tenant-{}", n % 50)).json(&n).build().unwrap())
        .collect();
    let mut tx = fixture.begin().await;
    fixture.outbox().stage_all(&mut tx, &batch).await.unwrap();
    fixture.commit(tx).await;
    let mut left = batch.len();
    while left > 0 {
        left -= claim_and_settle(&fixture, 1_000).await.len();
    }
    fixture.store.close().await;
    assert_hot(&fixture.app, 20_000).await;
}
