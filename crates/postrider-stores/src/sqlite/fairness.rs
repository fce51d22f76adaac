//! Fairness between the tenants of a queue: its claimable messages are shared out among the tenants.
//!
//! One index has the free messages by tenant and position. So one probe for each tenant finds all tenants with waiting messages,
//! however many messages they have, and a tenant's share is the beginning of its part of the index. Messages with an expired lease
//! are read from their own index and come first. Messages staged by a program that did not know the policy yet are not in the index
//! by tenant: they are claimed when the others have nothing left.

use super::{
    SqliteNames, error::store_error, row::sql_limit, statement::Statement, statement_batch::query_each,
    timestamp::Micros,
};
use crate::turns::Turns;
use postrider_core::{ClaimRequest, Error};
use sqlx::{Row, SqliteConnection, sqlite::SqliteRow};
use std::collections::{BTreeMap, BTreeSet};

/// A message whose tenant has the turn.
pub(super) struct TenantPick {
    /// The first message in turn gets the position of the oldest of them, and so on: that keeps the order of turns among the
    /// candidates of other queues.
    pub(super) since: i64,
    pub(super) position: i64,
    pub(super) tenant: String,
}

/// The tenants of free messages. Each takes one probe: the first name after the last one.
pub(super) const TENANTS: &str = "with recursive t(tenant) as ( \
      select (select coalesce(r.tenant, '') from {ready} r indexed by {ready_tenant} \
        where r.queue = ?1 and r.token is null and r.fair = 1 order by coalesce(r.tenant, '') limit 1) \
      union all select (select coalesce(r.tenant, '') from {ready} r indexed by {ready_tenant} \
        where r.queue = ?1 and r.token is null and r.fair = 1 and coalesce(r.tenant, '') > t.tenant \
        order by coalesce(r.tenant, '') limit 1) from t where t.tenant is not null) \
    select t.tenant from t where t.tenant is not null";

/// The next free messages of a tenant.
pub(super) const TENANT_MESSAGES: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_tenant} \
    where queue = ? and token is null and fair = 1 and coalesce(tenant, '') = ? and id > ? order by id limit ?";

pub(super) const EXPIRED: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_leased} \
    where queue = ?1 and token is not null and lease_until <= ?2 order by lease_until, id limit ?3";

/// Free messages that are not in the index by tenant.
pub(super) const NOT_BY_TENANT: &str = "select id, coalesce(tenant, '') from {ready} indexed by {ready_free} \
    where queue = ?1 and token is null and fair = 0 order by id limit ?2";

/// How far the messages of a tenant were read.
#[derive(Default)]
struct TenantCursor {
    expired: BTreeSet<i64>,
    /// The position of the last free message that was picked.
    after: i64,
}

pub(super) async fn picks(
    connection: &mut SqliteConnection,
    names: &SqliteNames,
    queue: i64,
    request: &ClaimRequest,
    turns: &Turns,
    now: Micros,
) -> Result<Vec<TenantPick>, Error> {
    let limit = request.limit();
    let mut cursors: BTreeMap<String, TenantCursor> = BTreeMap::new();
    let sql = names.sql(&sql!(EXPIRED));
    let expired = sql.query().bind(queue).bind(now).bind(sql_limit(limit)).fetch_all(&mut *connection).await;
    for (position, tenant) in positions_and_tenants(&expired.map_err(store_error)?)? {
        cursors.entry(tenant).or_default().expired.insert(position);
    }
    let sql = names.sql(&sql!(TENANTS));
    for row in sql.query().bind(queue).fetch_all(&mut *connection).await.map_err(store_error)? {
        cursors.entry(row.try_get(0).map_err(store_error)?).or_default();
    }

    // This is only a plan: turns are charged for the messages that are claimed.
    let mut turns = turns.clone();
    let mut round = turns.round(request.tenant_weights(), cursors.keys().cloned(), limit);
    loop {
        let shares = round.shares();
        if shares.is_empty() {
            break;
        }
        let requested: Vec<_> = shares
            .into_iter()
            .map(|(tenant, share)| {
                let after = cursors.get(&tenant).map_or(0, |cursor| cursor.after);
                (tenant, after, share)
            })
            .collect();
        let bind = |cursor: Statement<'static>, (tenant, after, share): &(String, i64, usize)| {
            cursor.bind(queue).bind(tenant.clone()).bind(*after).bind(sql_limit(*share))
        };
        let mut free: BTreeMap<String, Vec<i64>> = BTreeMap::new();
        for (position, tenant) in positions_and_tenants(
            &query_each(connection, names, &sql!(TENANT_MESSAGES), &requested, bind).await?,
        )? {
            free.entry(tenant).or_default().push(position);
        }
        for (tenant, _, share) in requested {
            let cursor = cursors.entry(tenant.clone()).or_default();
            let mut found: Vec<i64> = free.remove(&tenant).unwrap_or_default();
            found.extend(&cursor.expired);
            found.sort_unstable();
            found.truncate(share);
            for position in &found {
                if !cursor.expired.remove(position) {
                    cursor.after = *position;
                }
            }
            round.found(&tenant, share, found.into_iter().map(|position| (position, tenant.clone())));
        }
    }
    let mut picked = round.finish();
    if picked.len() < limit {
        // All tenants are exhausted, so few rows are left to pass over.
        let sql = names.sql(&sql!(NOT_BY_TENANT));
        let others =
            sql.query().bind(queue).bind(sql_limit(limit - picked.len())).fetch_all(connection).await;
        picked.extend(positions_and_tenants(&others.map_err(store_error)?)?);
    }
    let mut since: Vec<i64> = picked.iter().map(|(position, _)| *position).collect();
    since.sort_unstable();
    let pick = |(since, (position, tenant))| TenantPick { since, position, tenant };
    Ok(since.into_iter().zip(picked).map(pick).collect())
}

/// Positions, each with its tenant.
fn positions_and_tenants(rows: &[SqliteRow]) -> Result<Vec<(i64, String)>, Error> {
    let read = |row: &SqliteRow| Ok((row.try_get(0)?, row.try_get(1)?));
    rows.iter().map(read).collect::<Result<_, _>>().map_err(store_error)
}
