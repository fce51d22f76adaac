//! SeaORM on PostgreSQL: ours, and SeaORM's insert of many models.

use super::Stages;
use crate::{
    postgres::{self, QUEUE},
    side::{EVENT_TYPE, PAYLOAD, Producer, Side, batch},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_core::Outbox;
use postrider_stores::postgres::PostgresOutbox;
use sea_orm::{
    ActiveValue::{NotSet, Set},
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DatabaseTransaction, DbBackend,
    EntityTrait, Statement, TransactionOptions, TransactionTrait,
};
use uuid::Uuid;

mod ready {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(schema_name = "hand", table_name = "ready")]
    pub(super) struct Model {
        #[sea_orm(primary_key, auto_increment = false)]
        pub(super) queue: i16,
        #[sea_orm(primary_key)]
        pub(super) id: i64,
        pub(super) message_id: Uuid,
        pub(super) payload: Vec<u8>,
        pub(super) event_type: Option<String>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub(super) enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

const SIGNAL: &str = "select pg_notify('hand', s.queue::text) from hand.idle s \
    where s.queue = $1 and s.until > clock_timestamp()";

pub(crate) struct Ours;

pub(crate) struct Hand;

#[async_trait]
impl Stages for Ours {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Ours)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        let (database, outbox) = (connect(url).await?, PostgresOutbox::default());
        Ok(Box::new(OurProducer { database, begin: TransactionOptions::default(), outbox }))
    }
}

#[async_trait]
impl Stages for Hand {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(postgres::Reference)
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(HandProducer { database: connect(url).await? }))
    }
}

/// A pool of one connection. Otherwise with SeaORM's defaults.
async fn connect(url: &str) -> Result<DatabaseConnection> {
    let mut options = ConnectOptions::new(url);
    options.max_connections(1).sqlx_logging(false);
    Ok(Database::connect(options).await?)
}

pub(super) struct OurProducer<O> {
    pub(super) database: DatabaseConnection,
    pub(super) begin: TransactionOptions,
    pub(super) outbox: O,
}

#[async_trait]
impl<O: Outbox<DatabaseTransaction> + Send + Sync> Producer for OurProducer<O> {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let batch = batch(messages)?;
        let mut tx = self.database.begin_with_options(self.begin).await?;
        let staged = self.outbox.stage_all(&mut tx, &batch).await?;
        tx.commit().await?;
        ensure!(staged.new_messages() == messages, "staged {} of {messages}", staged.new_messages());
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close().await?)
    }
}

struct HandProducer {
    database: DatabaseConnection,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let model = |_| ready::ActiveModel {
            queue: Set(QUEUE),
            id: NotSet,
            message_id: Set(Uuid::now_v7()),
            payload: Set(PAYLOAD.to_vec()),
            event_type: Set(Some(EVENT_TYPE.to_owned())),
        };
        let models: Vec<_> = (0..messages).map(model).collect();
        let tx = self.database.begin().await?;
        let inserted = ready::Entity::insert_many(models).exec_without_returning(&tx).await?;
        let signal = Statement::from_sql_and_values(DbBackend::Postgres, SIGNAL, [QUEUE.into()]);
        tx.execute_raw(signal).await?;
        tx.commit().await?;
        ensure!(inserted == u64::try_from(messages)?, "staged {inserted} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close().await?)
    }
}
