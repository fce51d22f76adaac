//! Notifications for idle workers.
//!
//! NOTIFY inside the producer's transaction takes a cluster-wide lock until the commit is durable, so producers notify only while a
//! worker is idle: a row in `idle`, read by the staging statement itself. The row expires by the database's clock, so a worker
//! that died while idle stops costing. LISTEN has a connection of its own, outside of the pool.

use super::{PostgresStore, listener::PostgresListener};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    notifier::{IdleWorker, Listener, Notifier},
};
use std::time::Duration;

#[async_trait]
impl Notifier for PostgresStore {
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error> {
        let sql = self.inner.names.sql(&sql!(
            "insert into {idle} (queue, worker, until) \
             select {queue_id}(q.name), $2, clock_timestamp() + $3::float8 * interval '1 s' \
             from (select distinct u.name from unnest($1::text[]) u(name)) q \
             on conflict (queue, worker) do update set until = excluded.until"
        ));
        let query = sql
            .query()
            .bind(idle.queues.iter().map(QueueName::as_str).collect::<Vec<_>>())
            .bind(idle.worker)
            .bind(lasting.as_secs_f64());
        self.inner.connections.run(query).await.map(|_| ())
    }

    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error> {
        let sql = self.inner.names.sql(&sql!("delete from {idle} s where s.worker = $2 and s.queue = any(array( \
             select q.id from unnest($1::text[]) u(name), lateral (select id from {queue} where name = u.name) q))"));
        let query =
            sql.query().bind(idle.queues.iter().map(QueueName::as_str).collect::<Vec<_>>()).bind(idle.worker);
        self.inner.connections.run(query).await.map(|_| ())
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(PostgresListener::open(self.clone(), queues).await?))
    }
}
