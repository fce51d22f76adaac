//! Private database and broker processes for tests. Each has its own folder, listens on free ports of the loopback interface, is
//! stopped by process id, and ends when the program that started it ends, for whatever reason.
//!
//! A [`ServerSpec`] describes how to run one kind of server; [`Server`] does what is the same for all kinds: choose ports, start,
//! wait until the server replies in its own protocol and identifies itself as ours, stop, crash, restart. `cargo xtask` starts
//! the servers that all tests share; the test kit starts those that a test stops or crashes.
//!
//! Every call blocks. One thread that lives as long as this process starts all programs, so callers may use any thread.

mod account;
mod http;
mod kafka;
mod kind;
mod moto;
mod nats;
mod ports;
mod postgres;
pub mod process;
mod process_guard;
mod rabbitmq;
mod redis;
mod server;
mod server_dir;
mod spawner;
mod spec;
mod temp_folder;

pub use account::Account;
pub use kafka::Kafka;
pub use kind::Kind;
pub use moto::Moto;
pub use nats::Nats;
pub use ports::free_ports;
pub use postgres::{Durability, Postgres};
pub use process_guard::ProcessGuard;
pub use rabbitmq::RabbitMq;
pub use redis::Redis;
pub use server::Server;
pub use server_dir::ServerDir;
pub use spec::ServerSpec;
pub use temp_folder::{Cleanup, TempFolder};
