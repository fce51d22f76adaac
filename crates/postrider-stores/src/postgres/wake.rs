//! Waking workers that sleep.
//!
//! A signal inside the producer's transaction takes a lock across the whole cluster until the commit is durable, so it is
//! given only while somebody sleeps: a row in `sleeper`, read by the staging statement itself. The row lapses by the
//! database's clock, so a worker that died asleep stops costing. LISTEN has a connection of its own, outside of the pool.

use super::{PostgresStore, ear::PostgresEar};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    wake::{Ear, Sleeper, Wake},
};
use std::time::Duration;

#[async_trait]
impl Wake for PostgresStore {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        let sql = self.inner.names.sql(
            "insert into {sleeper} (queue, worker, until) \
             select {queue_id}(q.name), $2, clock_timestamp() + $3::float8 * interval '1 s' \
             from (select distinct u.name from unnest($1::text[]) u(name)) q \
             on conflict (queue, worker) do update set until = excluded.until",
        );
        let query = sql
            .query()
            .bind(sleeper.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
            .bind(sleeper.worker)
            .bind(lasting.as_secs_f64());
        self.inner.connections.run(query).await.map(|_| ())
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        let sql = self.inner.names.sql(
            "delete from {sleeper} s where s.worker = $2 and s.queue = any(array( \
             select q.id from unnest($1::text[]) u(name), lateral (select id from {queue} where name = u.name) q))",
        );
        let query = sql
            .query()
            .bind(sleeper.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
            .bind(sleeper.worker);
        self.inner.connections.run(query).await.map(|_| ())
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        Ok(Box::new(PostgresEar::open(self.clone(), queues).await?))
    }
}
