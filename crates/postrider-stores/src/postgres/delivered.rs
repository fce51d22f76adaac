//! Settling one claim whose messages were delivered: a short scan of their positions costs less than a probe for each id.
//!
//! When every position of a range is in the batch, its two ends describe it; when others lie between, each row is looked up in the
//! sorted positions (`width_bucket`). The token guards both.

use super::{
    PostgresNames,
    connections::Fetch,
    error::store_error,
    names::Sql,
    queues::QueueMap,
    settle::{fetch_row, is_in},
};
use crate::delivered_claim::DeliveredClaim;
use postrider_core::{Error, Lease, LeaseSettlement, LeaseToken};
use sqlx::Row;
use std::{collections::HashSet, ops::RangeInclusive, sync::OnceLock};

/// The statements, each rendered when first needed.
#[derive(Debug, Default)]
pub(super) struct DeliveredSql {
    range: OnceLock<Sql>,
    positions: OnceLock<Sql>,
}

const RANGE: &str = "with done as (delete from {ready} r where r.queue = $2::smallint \
      and r.id between $3::bigint and $4::bigint and r.token = $1::uuid returning r.id) \
    select case when (select count(*) from done) = $4::bigint - $3::bigint + 1 then null \
      else array(select generate_series($3::bigint, $4::bigint) except select id from done) end";

const POSITIONS: &str = "with done as (delete from {ready} r where r.queue = $2::smallint \
      and r.id between ($3::bigint[])[1] and ($3::bigint[])[cardinality($3::bigint[])] and r.token = $1::uuid \
      and ($3::bigint[])[width_bucket(r.id, $3::bigint[])] = r.id returning r.id) \
    select case when (select count(*) from done) = cardinality($3::bigint[]) then null \
      else array(select unnest($3::bigint[]) except select id from done) end";

/// A batch of delivered messages of one claim.
#[derive(Debug)]
pub(super) struct DeliveredBatch {
    token: LeaseToken,
    queue: i16,
    /// Sorted and distinct.
    positions: Vec<i64>,
    /// The whole batch, if its positions are consecutive.
    range: Option<RangeInclusive<i64>>,
}

impl DeliveredBatch {
    /// The batch, if it is one claim of a queue without an archive and its positions are so close together that their number
    /// bounds the scan. Timers have no position, so there is none among them.
    pub(super) fn of(settlements: &[LeaseSettlement], known: &QueueMap) -> Option<Self> {
        let claim = DeliveredClaim::of(settlements)?;
        let queue = known.named(claim.queue).filter(|queue| queue.policy.keep_for.is_none())?;
        let span = claim.positions.last()?.checked_sub(*claim.positions.first()?)?;
        let is_close = span < 64 + 4 * i64::try_from(claim.positions.len()).ok()?;
        let mut ranges = claim.ranges();
        let range = if ranges.len() == 1 { ranges.pop() } else { None };
        is_close.then_some(Self {
            token: claim.token,
            queue: queue.number,
            positions: claim.positions,
            range,
        })
    }
}

impl DeliveredSql {
    /// Settles the batch and returns the lost leases.
    pub(super) async fn settle(
        &self,
        on: &mut impl Fetch,
        names: &PostgresNames,
        delivered: &DeliveredBatch,
        settlements: &[LeaseSettlement],
    ) -> Result<Vec<Lease>, Error> {
        let DeliveredBatch { token, queue, positions, range } = delivered;
        let sql = if range.is_some() { self.range(names) } else { self.positions(names) };
        let query = sql.query().bind(token.as_uuid()).bind(queue);
        let query = match range {
            Some(range) => query.bind(range.start()).bind(range.end()),
            None => query.bind(positions),
        };
        let missing: Option<Vec<i64>> = fetch_row(on, query).await?.try_get(0).map_err(store_error)?;
        let Some(missing) = missing else { return Ok(Vec::new()) };
        let missing: HashSet<i64> = missing.into_iter().collect();
        let lost = settlements.iter().filter(|settle| is_in(settle.lease.position(), &missing));
        Ok(lost.map(|settle| settle.lease.clone()).collect())
    }

    fn range(&self, names: &PostgresNames) -> &Sql {
        self.range.get_or_init(|| names.sql(&sql!(RANGE)))
    }

    fn positions(&self, names: &PostgresNames) -> &Sql {
        self.positions.get_or_init(|| names.sql(&sql!(POSITIONS)))
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self, names: &PostgresNames) -> [(&'static str, String); 2] {
        [
            ("settle a range", self.range(names).as_str().to_owned()),
            ("settle positions", self.positions(names).as_str().to_owned()),
        ]
    }
}
