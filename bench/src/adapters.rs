//! Staging through each driver, beside that driver's own way to insert many rows: the same rows into the same columns, a
//! signal only for sleepers, and on PostgreSQL ids in the order of xids, which the table's default sees to.

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
    /// Ours, and the driver's own way.
    pub(crate) sides: fn() -> Vec<Box<dyn Side>>,
}

/// Every driver. The stores themselves use sqlx, so their sides serve for it.
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

/// A way to stage in the tables of another side.
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
