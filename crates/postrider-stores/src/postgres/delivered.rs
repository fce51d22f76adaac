//! Settling one claim that was delivered: a short scan of the line costs less than a probe for each id.
//!
//! Where every place of the stretch is in the batch, its two ends say it all; where others lie between, each row is looked up
//! in the sorted places (`width_bucket`). The token guards both.

use super::{
    Names,
    connections::Fetch,
    error::store_error,
    names::Sql,
    queues::Known,
    settle::{answer, is_in},
};
use crate::one_claim::OneClaim;
use postrider_core::{Error, Lease, LeaseToken, Settle};
use sqlx::Row;
use std::{collections::HashSet, ops::RangeInclusive, sync::OnceLock};

/// The statements, each made when first needed.
#[derive(Debug, Default)]
pub(super) struct DeliveredSql {
    stretch: OnceLock<Sql>,
    places: OnceLock<Sql>,
}

const STRETCH: &str = "with done as (delete from {ready} r where r.queue = $2::smallint \
      and r.id between $3::bigint and $4::bigint and r.token = $1::uuid returning r.id) \
    select case when (select count(*) from done) = $4::bigint - $3::bigint + 1 then null \
      else array(select generate_series($3::bigint, $4::bigint) except select id from done) end";

const PLACES: &str = "with done as (delete from {ready} r where r.queue = $2::smallint \
      and r.id between ($3::bigint[])[1] and ($3::bigint[])[cardinality($3::bigint[])] and r.token = $1::uuid \
      and ($3::bigint[])[width_bucket(r.id, $3::bigint[])] = r.id returning r.id) \
    select case when (select count(*) from done) = cardinality($3::bigint[]) then null \
      else array(select unnest($3::bigint[]) except select id from done) end";

/// A batch of this kind.
#[derive(Debug)]
pub(super) struct Delivered {
    token: LeaseToken,
    queue: i16,
    /// Sorted, each once.
    places: Vec<i64>,
    /// The whole batch, if it is one.
    stretch: Option<RangeInclusive<i64>>,
}

impl Delivered {
    /// The batch, if it is one claim of which nothing is kept and whose places lie so close together that the scan is
    /// bounded by their number. Timers have no place, so there is none among them.
    pub(super) fn of(settlements: &[Settle], known: &Known) -> Option<Self> {
        let claim = OneClaim::of(settlements)?;
        let queue = known.named(claim.queue).filter(|queue| queue.policy.keep_for.is_none())?;
        let span = claim.places.last()?.checked_sub(*claim.places.first()?)?;
        let is_close = span < 64 + 4 * i64::try_from(claim.places.len()).ok()?;
        let mut stretches = claim.stretches();
        let stretch = if stretches.len() == 1 { stretches.pop() } else { None };
        is_close.then_some(Self { token: claim.token, queue: queue.number, places: claim.places, stretch })
    }
}

impl DeliveredSql {
    /// Settles the batch and answers with what was lost.
    pub(super) async fn settle(
        &self,
        on: &mut impl Fetch,
        names: &Names,
        delivered: &Delivered,
        settlements: &[Settle],
    ) -> Result<Vec<Lease>, Error> {
        let Delivered { token, queue, places, stretch } = delivered;
        let sql = if stretch.is_some() { self.stretch(names) } else { self.places(names) };
        let query = sql.query().bind(token.as_uuid()).bind(queue);
        let query = match stretch {
            Some(stretch) => query.bind(stretch.start()).bind(stretch.end()),
            None => query.bind(places),
        };
        let gone: Option<Vec<i64>> = answer(on, query).await?.try_get(0).map_err(store_error)?;
        let Some(gone) = gone else { return Ok(Vec::new()) };
        let gone: HashSet<i64> = gone.into_iter().collect();
        let lost = settlements.iter().filter(|settle| is_in(settle.lease.place(), &gone));
        Ok(lost.map(|settle| settle.lease.clone()).collect())
    }

    fn stretch(&self, names: &Names) -> &Sql {
        self.stretch.get_or_init(|| names.sql(STRETCH))
    }

    fn places(&self, names: &Names) -> &Sql {
        self.places.get_or_init(|| names.sql(PLACES))
    }

    /// The statements, for tests that read their plans.
    pub(super) fn texts(&self, names: &Names) -> [(&'static str, String); 2] {
        [
            ("settle a stretch", self.stretch(names).as_str().to_owned()),
            ("settle places", self.places(names).as_str().to_owned()),
        ]
    }
}
