//! What a queue whose tenants take turns offers: its free messages, shared out among those they belong to.
//!
//! What is free stands in one index by tenant and place, so the tenants that have something waiting are found by as many probes
//! as there are of them, however long their lines are, and a tenant's share is the beginning of its line. What has lapsed is
//! read from its own index and stands before it. What was staged by a program that did not know of turns yet is in neither
//! line: it comes when the others have nothing left.

use super::{Names, each::each, error::store_error, moment::Micros, row::limit, statement::Statement};
use crate::turns::Turns;
use postrider_core::{ClaimRequest, Error};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::collections::{BTreeMap, BTreeSet};

/// A message whose tenant has a turn.
pub(super) struct Pick {
    /// The first in turn stands where the oldest of them does, and so on: that keeps the order of turns among the offers of
    /// other queues.
    pub(super) since: i64,
    pub(super) place: i64,
    pub(super) tenant: String,
}

/// The tenants of free messages. Each is one step to the first that comes after the last.
pub(super) const TENANTS: &str = "with recursive t(tenant) as ( \
      select (select coalesce(r.tenant, '') from {ready} r indexed by {ready_tenant} \
        where r.queue = ?1 and r.token is null and r.fair = 1 order by coalesce(r.tenant, '') limit 1) \
      union all select (select coalesce(r.tenant, '') from {ready} r indexed by {ready_tenant} \
        where r.queue = ?1 and r.token is null and r.fair = 1 and coalesce(r.tenant, '') > t.tenant \
        order by coalesce(r.tenant, '') limit 1) from t where t.tenant is not null) \
    select t.tenant from t where t.tenant is not null";

/// The beginning of a tenant's line.
pub(super) const LINE: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_tenant} \
    where queue = ? and token is null and fair = 1 and coalesce(tenant, '') = ? and id > ? order by id limit ?";

pub(super) const LAPSED: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_leased} \
    where queue = ?1 and token is not null and lease_until <= ?2 order by lease_until, id limit ?3";

/// What stands in no tenant's line.
pub(super) const STRAYS: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_free} \
    where queue = ?1 and token is null and fair = 0 order by id limit ?2";

/// A tenant's line, as far as it was read.
#[derive(Default)]
struct Line {
    lapsed: BTreeSet<i64>,
    /// The last free message that was picked.
    after: i64,
}

pub(super) async fn picks(
    connection: &mut SqliteConnection,
    names: &Names,
    queue: i64,
    request: &ClaimRequest,
    turns: &Turns,
    now: Micros,
) -> Result<Vec<Pick>, Error> {
    let most = request.limit();
    let mut lines: BTreeMap<String, Line> = BTreeMap::new();
    let sql = names.sql(LAPSED);
    let lapsed = sql.query().bind(queue).bind(now).bind(limit(most)).fetch_all(&mut *connection).await;
    for (place, tenant) in placed(&lapsed.map_err(store_error)?)? {
        lines.entry(tenant).or_default().lapsed.insert(place);
    }
    let sql = names.sql(TENANTS);
    for row in sql.query().bind(queue).fetch_all(&mut *connection).await.map_err(store_error)? {
        lines.entry(row.try_get(0).map_err(store_error)?).or_default();
    }

    // Only a plan: what of it is claimed is counted then.
    let mut turns = turns.clone();
    let mut round = turns.round(request.tenant_weights(), lines.keys().cloned(), most);
    loop {
        let shares = round.shares();
        if shares.is_empty() {
            break;
        }
        let asked: Vec<_> = shares
            .into_iter()
            .map(|(tenant, share)| {
                let after = lines.get(&tenant).map_or(0, |line| line.after);
                (tenant, after, share)
            })
            .collect();
        let bind = |line: Statement<'static>, (tenant, after, share): &(String, i64, usize)| {
            line.bind(queue).bind(tenant.clone()).bind(*after).bind(limit(*share))
        };
        let mut free: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (place, tenant) in placed(&each(connection, names, LINE, &asked, bind).await?)? {
            free.entry(tenant).or_default().push(place);
        }
        for (tenant, _, share) in asked {
            let line = lines.entry(tenant.clone()).or_default();
            let mut found: Vec<i64> = free.remove(&tenant).unwrap_or_default();
            found.extend(&line.lapsed);
            found.sort_unstable();
            found.truncate(share);
            for place in &found {
                if !line.lapsed.remove(place) {
                    line.after = *place;
                }
            }
            round.found(&tenant, share, found.into_iter().map(|place| (place, tenant.clone())));
        }
    }
    let mut picked = round.finish();
    if picked.len() < most {
        // Every line has come to its end, so that there is little to walk over.
        let sql = names.sql(STRAYS);
        let strays = sql.query().bind(queue).bind(limit(most - picked.len())).fetch_all(connection).await;
        picked.extend(placed(&strays.map_err(store_error)?)?);
    }
    let mut since: Vec<i64> = picked.iter().map(|(place, _)| *place).collect();
    since.sort_unstable();
    let pick = |(since, (place, tenant))| Pick { since, place, tenant };
    Ok(since.into_iter().zip(picked).map(pick).collect())
}

/// Places, each with its tenant.
fn placed(rows: &[SqliteRow]) -> Result<Vec<(i64, String)>, Error> {
    let read = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(store_error)
}
