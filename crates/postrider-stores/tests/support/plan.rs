//! Reading the plan that a statement executed: `EXPLAIN (ANALYZE, BUFFERS)`.

use postrider_stores::postgres::SETTINGS;
use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, PgPool, Row};

/// A connection with the settings of the store's connections.
pub(crate) async fn connect(url: &str) -> PgConnection {
    let mut connection = PgConnection::connect(url).await.unwrap();
    connection.execute(SETTINGS).await.unwrap();
    connection
}

/// One node of the plan.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) kind: String,
    pub(crate) relation: String,
    /// The number of rows read in all loops, including those that its filter removed.
    pub(crate) rows: f64,
}

/// The executed plan of a statement.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) nodes: Vec<Node>,
    pub(crate) buffers: f64,
}

/// Runs `sql` as a prepared statement with a generic plan, in a transaction that is rolled back.
pub(crate) async fn explain(connection: &mut PgConnection, sql: &str, types: &str, arguments: &str) -> Plan {
    let run = async |connection: &mut PgConnection, sql: String| {
        connection.execute(AssertSqlSafe(sql)).await.unwrap()
    };
    run(connection, "begin".to_owned()).await;
    run(connection, format!("prepare it ({types}) as {sql}")).await;
    let explain = format!("explain (analyze, buffers, format json) execute it ({arguments})");
    let row = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_one(&mut *connection).await.unwrap();
    let json: Value = serde_json::from_str(row.try_get_unchecked::<&str, _>(0).unwrap()).unwrap();
    run(connection, "deallocate it; rollback".to_owned()).await;
    let top = &json[0]["Plan"];
    let mut nodes = Vec::new();
    collect(top, &mut nodes);
    let blocks = |name: &str| top[name].as_f64().unwrap_or(0.0);
    Plan { nodes, buffers: blocks("Shared Hit Blocks") + blocks("Shared Read Blocks") }
}

fn collect(plan: &Value, nodes: &mut Vec<Node>) {
    let number = |name: &str| plan[name].as_f64().unwrap_or(0.0);
    let removed: f64 = plan
        .as_object()
        .unwrap()
        .iter()
        .filter(|(name, _)| name.starts_with("Rows Removed"))
        .filter_map(|(_, value)| value.as_f64())
        .sum();
    nodes.push(Node {
        kind: plan["Node Type"].as_str().unwrap_or("").to_owned(),
        relation: plan["Relation Name"].as_str().unwrap_or("").to_owned(),
        rows: (number("Actual Rows") + removed) * number("Actual Loops"),
    });
    for child in plan["Plans"].as_array().into_iter().flatten() {
        collect(child, nodes);
    }
}

impl Plan {
    /// Asserts that no node scans a table of the store sequentially or reads more than `most` rows: neither a scan of a whole queue nor a
    /// quadratic join.
    pub(crate) fn assert_bounded(&self, what: &str, most: f64) {
        for node in &self.nodes {
            let table =
                ["ready", "scheduled", "dead", "archive", "lane", "timer"].contains(&node.relation.as_str());
            assert!(!(table && node.kind == "Seq Scan"), "{what}: sequential scan of {}", node.relation);
            assert!(node.rows <= most, "{what}: {node:?} read more than {most} rows\n{:#?}", self.nodes);
        }
    }
}

/// Asserts that of at least `least` updates of `ready` nearly all were HOT.
pub(crate) async fn assert_hot(app: &PgPool, least: i64) {
    // A backend reports its statistics when it ends at the latest; poll until it has.
    let (updates, hot) = loop {
        let row = sqlx::query(
            "select n_tup_upd, n_tup_hot_upd from pg_stat_user_tables where relname = 'ready' and schemaname = 'postrider'",
        );
        let row = row.fetch_one(app).await.unwrap();
        let (updates, hot): (i64, i64) = (row.get(0), row.get(1));
        if updates >= least {
            break (updates, hot);
        }
        tokio::task::yield_now().await;
    };
    assert!(hot * 100 >= updates * 95, "{hot} of {updates} updates were HOT");
}
