//! Waking workers that sleep.
//!
//! A signal inside the producer's transaction takes a lock across the whole cluster until the commit is durable, so it is
//! given only while somebody sleeps: a row in `sleeper`, read by the staging statement itself. The row lapses by the
//! database's clock, so a worker that died asleep stops costing. LISTEN has a connection of its own, outside of the pool.

use super::{PostgresStore, error::store_error};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    wake::{Ear, Sleeper, Wake},
};
use sqlx::postgres::{PgListener, PgPoolOptions};
use std::time::Duration;

#[async_trait]
impl Wake for PostgresStore {
    async fn lie_down(&self, sleeper: &Sleeper, lasting: Duration) -> Result<(), Error> {
        self.inner
            .names
            .sql(
                "insert into {sleeper} (queue, worker, until) \
                 select {queue_id}(q.name), $2, clock_timestamp() + $3::float8 * interval '1 s' \
                 from (select distinct u.name from unnest($1::text[]) u(name)) q \
                 on conflict (queue, worker) do update set until = excluded.until",
            )
            .query()
            .bind(sleeper.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
            .bind(sleeper.worker)
            .bind(lasting.as_secs_f64())
            .execute(&self.inner.pool)
            .await
            .map(|_| ())
            .map_err(store_error)
    }

    async fn rise(&self, sleeper: &Sleeper) -> Result<(), Error> {
        self.inner
            .names
            .sql(
                "delete from {sleeper} s where s.worker = $2 and s.queue = any(array( \
                 select q.id from unnest($1::text[]) u(name), lateral (select id from {queue} where name = u.name) q))",
            )
            .query()
            .bind(sleeper.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
            .bind(sleeper.worker)
            .execute(&self.inner.pool)
            .await
            .map(|_| ())
            .map_err(store_error)
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Ear>, Error> {
        // A pool of one, so that the listener reconnects by itself and takes nothing from the claims.
        let pool = PgPoolOptions::new()
            .max_connections(1)
            .connect_with(self.inner.connect.clone().application_name("postrider listener"))
            .await
            .map_err(store_error)?;
        let mut listener = PgListener::connect_with(&pool).await.map_err(store_error)?;
        listener.listen(&self.inner.names.channel()).await.map_err(store_error)?;
        Ok(Box::new(PostgresEar { listener, queues: queues.to_vec() }))
    }
}

#[derive(Debug)]
struct PostgresEar {
    listener: PgListener,
    queues: Vec<QueueName>,
}

#[async_trait]
impl Ear for PostgresEar {
    async fn wait(&mut self) -> Result<QueueName, Error> {
        loop {
            let notification = self.listener.recv().await.map_err(store_error)?;
            if let Some(queue) = self.queues.iter().find(|queue| queue.as_str() == notification.payload()) {
                return Ok(queue.clone());
            }
        }
    }
}
