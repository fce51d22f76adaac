//! SeaORM on SQLite: ours, and SeaORM's insert of many models.

use super::{Stages, sea_orm::OurProducer};
use crate::{
    side::{EVENT_TYPE, PAYLOAD, Producer, Side},
    sqlite::{self, QUEUE, SIGNAL, writing},
};
use anyhow::{Result, ensure};
use async_trait::async_trait;
use postrider_stores::sqlite::SqliteOutbox;
use sea_orm::{
    ActiveValue::{NotSet, Set},
    ConnectOptions, ConnectionTrait, Database, DatabaseConnection, DbBackend, EntityTrait,
    SqliteTransactionMode, Statement, TransactionOptions, TransactionTrait,
};
use sqlx::ConnectOptions as _;
use uuid::Uuid;

mod ready {
    use sea_orm::entity::prelude::*;

    #[derive(Clone, Debug, PartialEq, DeriveEntityModel)]
    #[sea_orm(table_name = "hand_ready")]
    pub(super) struct Model {
        #[sea_orm(primary_key)]
        pub(super) id: i64,
        pub(super) queue: i64,
        pub(super) message_id: Uuid,
        pub(super) event_type: Option<String>,
        pub(super) payload: Vec<u8>,
    }

    #[derive(Copy, Clone, Debug, EnumIter, DeriveRelation)]
    pub(super) enum Relation {}

    impl ActiveModelBehavior for ActiveModel {}
}

pub(crate) struct Ours;

pub(crate) struct Hand;

#[async_trait]
impl Stages for Ours {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(sqlite::Ours)
    }

    async fn producer(&self, path: &str) -> Result<Box<dyn Producer>> {
        let (database, outbox) = (connect(path).await?, SqliteOutbox::default());
        Ok(Box::new(OurProducer { database, begin: immediate(), outbox }))
    }
}

#[async_trait]
impl Stages for Hand {
    fn tables(&self) -> Box<dyn Side> {
        Box::new(sqlite::Reference)
    }

    async fn producer(&self, path: &str) -> Result<Box<dyn Producer>> {
        Ok(Box::new(HandProducer { database: connect(path).await? }))
    }
}

/// A pool of one connection, with the durability of the other sides. Otherwise with SeaORM's defaults.
async fn connect(path: &str) -> Result<DatabaseConnection> {
    let mut options = ConnectOptions::new(format!("sqlite:{path}"));
    let path = path.to_owned();
    options.max_connections(1).map_sqlx_sqlite_opts(move |_| writing(&path).disable_statement_logging());
    Ok(Database::connect(options).await?)
}

fn immediate() -> TransactionOptions {
    TransactionOptions {
        sqlite_transaction_mode: Some(SqliteTransactionMode::Immediate),
        ..TransactionOptions::default()
    }
}

struct HandProducer {
    database: DatabaseConnection,
}

#[async_trait]
impl Producer for HandProducer {
    async fn stage(&mut self, messages: usize) -> Result<()> {
        let model = |_| ready::ActiveModel {
            id: NotSet,
            queue: Set(QUEUE),
            message_id: Set(Uuid::now_v7()),
            event_type: Set(Some(EVENT_TYPE.to_owned())),
            payload: Set(PAYLOAD.to_vec()),
        };
        let models: Vec<_> = (0..messages).map(model).collect();
        let tx = self.database.begin_with_options(immediate()).await?;
        let inserted = ready::Entity::insert_many(models).exec_without_returning(&tx).await?;
        tx.execute_raw(Statement::from_sql_and_values(DbBackend::Sqlite, SIGNAL, [QUEUE.into()])).await?;
        tx.commit().await?;
        ensure!(inserted == u64::try_from(messages)?, "staged {inserted} of {messages}");
        Ok(())
    }

    async fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.close().await?)
    }
}
