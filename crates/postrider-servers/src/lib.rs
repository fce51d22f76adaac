//! Private servers for tests: each in a folder of its own, on free ports of the loopback interface, stopped by process id,
//! and gone when the program that started it is, however that ended.
//!
//! A [`Recipe`] says what one kind of server needs; [`Server`] does with it what is the same for all: choose ports, start,
//! wait until the server answers in its own protocol and says that it is ours, stop, kill, start again. `cargo xtask`
//! starts the servers that all tests share; the test kit starts those that a test wants to break.
//!
//! Everything here blocks. The programs are started by one thread that lives as long as this process, so callers may come from
//! whatever thread they like.

mod account;
mod folder;
mod guard;
mod home;
mod http;
mod kafka;
mod kind;
mod moto;
mod nats;
mod ports;
mod postgres;
pub mod process;
mod rabbitmq;
mod recipe;
mod redis;
mod server;
mod starter;

pub use account::Account;
pub use folder::{Afterwards, Folder};
pub use guard::Guard;
pub use home::Home;
pub use kafka::Kafka;
pub use kind::Kind;
pub use moto::Moto;
pub use nats::Nats;
pub use ports::free_ports;
pub use postgres::{Durability, Postgres};
pub use rabbitmq::RabbitMq;
pub use recipe::Recipe;
pub use redis::Redis;
pub use server::Server;
