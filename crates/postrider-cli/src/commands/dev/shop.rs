//! The tables of the shop, beside those of the store.
//!
//! The audit reads them: `shop_order` has a row for each committed order, the others have a row for each effect of an order. Their
//! rows are not unique, so that a duplicate shows.

use super::order::Order;
use postrider::{Backend, Error, Message, MessageId, TxBackend};
use std::future::Future;

/// Statements that create the tables. They are the same for every database.
pub(super) const TABLES: [&str; 6] = [
    "create table if not exists shop_order (id text primary key, run text not null, customer text not null, total text not null)",
    "create index if not exists shop_order_run on shop_order (run)",
    "create table if not exists shop_shipment (order_id text not null)",
    "create index if not exists shop_shipment_order on shop_shipment (order_id)",
    "create table if not exists shop_mail (order_id text not null)",
    "create index if not exists shop_mail_order on shop_mail (order_id)",
];

const BY_RUN: &str = "select o.id, (select count(*) from shop_shipment s where s.order_id = o.id), \
    (select count(*) from shop_mail m where m.order_id = o.id) from shop_order o where o.run = $1";

/// For an order that exists or not.
const BY_ID: &str = "select $1, (select count(*) from shop_shipment s where s.order_id = $1), \
    (select count(*) from shop_mail m where m.order_id = $1)";

const ORPHANS: &str = "select s.order_id, count(*), count(*) from shop_shipment s left join shop_order o on o.id = s.order_id \
    where o.id is null and s.order_id <> $1 group by s.order_id \
    union all select m.order_id, count(*), count(*) from shop_mail m left join shop_order o on o.id = m.order_id \
    where o.id is null and m.order_id <> $1 group by m.order_id";

/// A database with the tables of the shop. Databases differ only in how a statement is run.
pub(super) trait Shop: Clone + Send + Sync + 'static {
    type Tx: Send + 'static;
    type Transactions: TxBackend<Tx = Self::Tx>;
    type Store: Backend + Clone;

    fn store(&self) -> &Self::Store;

    fn transactions(&self) -> &Self::Transactions;

    /// Stages a message in a transaction.
    fn stage(&self, tx: &mut Self::Tx, message: Message) -> impl Future<Output = Result<(), Error>> + Send;

    /// Runs a statement in a transaction.
    fn write(
        &self,
        tx: &mut Self::Tx,
        sql: &'static str,
        values: &[&str],
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Runs a statement outside a transaction.
    fn write_alone(
        &self,
        sql: &'static str,
        value: String,
    ) -> impl Future<Output = Result<(), sqlx::Error>> + Send;

    /// Reads rows of one text and two numbers.
    fn read(
        &self,
        sql: &'static str,
        value: String,
    ) -> impl Future<Output = Result<Vec<(String, i64, i64)>, sqlx::Error>> + Send;

    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// The effects of an order in the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Effects {
    /// Rows of the transactional handler.
    pub(super) shipped: u64,
    /// Rows of the plain handlers.
    pub(super) mailed: u64,
}

/// Inserts an order, in the transaction that stages its event.
pub(super) async fn write_order<S: Shop>(
    shop: &S,
    tx: &mut S::Tx,
    order: &Order,
    run: &str,
) -> Result<(), sqlx::Error> {
    let sql = "insert into shop_order (id, run, customer, total) values ($1, $2, $3, $4)";
    shop.write(tx, sql, &[&order.id.to_string(), run, &order.customer, &order.total]).await
}

/// Ships an order, in the transaction that settles its event.
pub(super) async fn ship<S: Shop>(shop: &S, tx: &mut S::Tx, order: MessageId) -> Result<(), sqlx::Error> {
    shop.write(tx, "insert into shop_shipment (order_id) values ($1)", &[&order.to_string()]).await
}

/// Sends a mail, outside of any transaction.
pub(super) async fn mail<S: Shop>(shop: &S, order: MessageId) -> Result<(), sqlx::Error> {
    shop.write_alone("insert into shop_mail (order_id) values ($1)", order.to_string()).await
}

/// Every committed order of a run, with its effects.
pub(super) async fn orders<S: Shop>(shop: &S, run: &str) -> Result<Vec<(MessageId, Effects)>, sqlx::Error> {
    shop.read(BY_RUN, run.to_owned()).await?.into_iter().map(read_effects).collect()
}

/// The effects of one order, committed or not.
pub(super) async fn effects<S: Shop>(shop: &S, order: MessageId) -> Result<Effects, sqlx::Error> {
    let rows = shop.read(BY_ID, order.to_string()).await?;
    let row = rows.into_iter().map(read_effects).next().transpose()?;
    Ok(row.map(|(_, effects)| effects).unwrap_or_default())
}

fn read_effects((id, shipped, mailed): (String, i64, i64)) -> Result<(MessageId, Effects), sqlx::Error> {
    let id = id.parse().map_err(|error| sqlx::Error::Decode(Box::new(error)))?;
    let count = |rows: i64| u64::try_from(rows).unwrap_or(0);
    Ok((id, Effects { shipped: count(shipped), mailed: count(mailed) }))
}

/// Ids with effects but without a committed order.
pub(super) async fn orphans<S: Shop>(shop: &S) -> Result<Vec<MessageId>, sqlx::Error> {
    let rows = shop.read(ORPHANS, String::new()).await?;
    rows.into_iter().map(|row| read_effects(row).map(|(id, _)| id)).collect()
}
