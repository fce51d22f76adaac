//! Notifications for idle workers, across processes.
//!
//! A file cannot send a notification, and no program can watch another one's connection commit. So notifications are part of the
//! data: staging increments a number in the queue's row (`signals`), in the caller's transaction, and only while a worker of that
//! queue is idle. A rollback undoes the increment; a commit is counted once, however many messages it staged. `listener.rs` reads
//! the numbers.

use super::{SqliteStore, error::store_error, listener::SqliteListener, row::json, timestamp::after};
use async_trait::async_trait;
use postrider_core::{
    Error, QueueName,
    notifier::{IdleWorker, Listener, Notifier},
};
use std::time::Duration;

#[async_trait]
impl Notifier for SqliteStore {
    async fn register_idle(&self, idle: &IdleWorker, lasting: Duration) -> Result<(), Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let expired = names.sql(&sql!("delete from {idle} where until <= ?1"));
        expired.query().bind(write.now).execute(&mut write.connection).await.map_err(store_error)?;
        let sql = names.sql(&sql!(
            "insert into {idle} (queue, worker, until) select distinct j.value, ?2, ?3 from json_each(?1) j \
             where true on conflict (queue, worker) do update set until = excluded.until"
        ));
        let queues = json(idle.queues.iter().map(QueueName::as_str));
        let query = sql.query().bind(queues).bind(idle.worker).bind(after(write.now, lasting));
        query.execute(&mut write.connection).await.map_err(store_error)?;
        write.commit().await
    }

    async fn deregister_idle(&self, idle: &IdleWorker) -> Result<(), Error> {
        let names = &self.inner.names;
        let mut write = self.inner.writer.begin(names).await?;
        let sql = names.sql(&sql!(
            "delete from {idle} where (queue, worker) in (select j.value, ?2 from json_each(?1) j)"
        ));
        let queues = json(idle.queues.iter().map(QueueName::as_str));
        sql.query()
            .bind(queues)
            .bind(idle.worker)
            .execute(&mut write.connection)
            .await
            .map_err(store_error)?;
        write.commit().await
    }

    async fn listen(&self, queues: &[QueueName]) -> Result<Box<dyn Listener>, Error> {
        Ok(Box::new(SqliteListener::connect(self, queues).await?))
    }
}
