//! Staging through each driver, compared with that driver's own bulk insert: the same rows into the same columns, a notification
//! only for idle workers, and on PostgreSQL ids in the order of xids, by the table's default.

mod diesel_async;
mod sea_orm;
mod sea_orm_sqlite;
mod tokio_postgres;

use crate::{
    postgres::{Ours, Reference},
    scenario::Store,
    side::{Producer, Side},
};
use anyhow::Result;
use async_trait::async_trait;

/// A driver that stages in one of the stores.
pub(crate) struct Driver {
    pub(crate) store: Store,
    pub(crate) name: &'static str,
    /// Ours, and the driver's own bulk insert.
    pub(crate) sides: fn() -> Vec<Box<dyn Side>>,
}

/// Every driver. The stores themselves use sqlx, so their sides cover it.
pub(crate) const DRIVERS: [Driver; 5] = [
    Driver { store: Store::Postgres, name: "sqlx", sides: || vec![Box::new(Ours), Box::new(Reference)] },
    Driver {
        store: Store::Postgres,
        name: "tokio-postgres",
        sides: || vec![Box::new(Adapter(tokio_postgres::Ours)), Box::new(Adapter(tokio_postgres::Hand))],
    },
    Driver {
        store: Store::Postgres,
        name: "diesel-async",
        sides: || vec![Box::new(Adapter(diesel_async::Ours)), Box::new(Adapter(diesel_async::Hand))],
    },
    Driver {
        store: Store::Postgres,
        name: "sea-orm",
        sides: || vec![Box::new(Adapter(sea_orm::Ours)), Box::new(Adapter(sea_orm::Hand))],
    },
    Driver {
        store: Store::Sqlite,
        name: "sea-orm-sqlite",
        sides: || vec![Box::new(Adapter(sea_orm_sqlite::Ours)), Box::new(Adapter(sea_orm_sqlite::Hand))],
    },
];

/// An adapter that stages in the tables of another side.
#[async_trait]
trait Stages: Send + Sync {
    /// The side whose tables it stages in.
    fn tables(&self) -> Box<dyn Side>;

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>>;
}

struct Adapter<S>(S);

#[async_trait]
impl<S: Stages> Side for Adapter<S> {
    fn name(&self) -> &'static str {
        self.0.tables().name()
    }

    fn table(&self) -> &'static str {
        self.0.tables().table()
    }

    async fn create(&self, url: &str) -> Result<()> {
        self.0.tables().create(url).await
    }

    async fn producer(&self, url: &str) -> Result<Box<dyn Producer>> {
        self.0.producer(url).await
    }
}
