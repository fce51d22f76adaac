//! The most common batch: one claim that was delivered, whole or in part.
//!
//! Its rows lie close together in the line, and a short scan of that stretch costs less than a probe for each id. Where every
//! place of the stretch is in the batch, its two ends say it all; where others lie between, each row is looked up in the
//! sorted places (`width_bucket`). The token guards both.

use super::{
    Names,
    connections::Fetch,
    error::store_error,
    names::Sql,
    queues::Known,
    settle::{answer, is_in},
};
use postrider_core::{Error, Lease, LeaseToken, Settle, Settlement};
use sqlx::Row;
use std::{collections::HashSet, sync::OnceLock};

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
    first: i64,
    last: i64,
}

impl Delivered {
    /// The batch, if it is one claim of which nothing is kept, no message is a timer, and the places lie so close together
    /// that the scan is bounded by their number.
    pub(super) fn of(settlements: &[Settle], known: &Known) -> Option<Self> {
        let lease = &settlements.first()?.lease;
        let (name, token) = (lease.queue(), lease.token());
        let queue = known.named(name).filter(|queue| queue.policy.keep_for.is_none())?;
        let place = |settle: &Settle| {
            let lease = &settle.lease;
            let fits = settle.settlement == Settlement::Done
                && lease.token() == token
                && lease.turn().is_none()
                && lease.queue() == name;
            lease.place().filter(|_| fits)
        };
        let mut places = settlements.iter().map(place).collect::<Option<Vec<_>>>()?;
        places.sort_unstable();
        let (first, last) = (*places.first()?, *places.last()?);
        let most = 64 + 4 * i64::try_from(places.len()).ok()?;
        let is_close = last.checked_sub(first)? < most;
        let is_each_once = places.is_sorted_by(|one, next| one < next);
        let number = queue.number;
        (is_close && is_each_once).then_some(Self { token, queue: number, places, first, last })
    }

    fn is_stretch(&self) -> bool {
        usize::try_from(self.last - self.first).is_ok_and(|span| span + 1 == self.places.len())
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
        let Delivered { token, queue, places, first, last } = delivered;
        let sql = if delivered.is_stretch() { self.stretch(names) } else { self.places(names) };
        let query = sql.query().bind(token.as_uuid()).bind(queue);
        let query = if delivered.is_stretch() { query.bind(first).bind(last) } else { query.bind(places) };
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
