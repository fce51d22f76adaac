//! The programs of each server: where they are, and how they are installed.

mod moto;
mod nats;
mod packaged;
mod rabbitmq;
mod redis;
mod tansu;

use std::path::PathBuf;

use anyhow::{Context, Result};
use postrider_servers::Kind;

use crate::packages::OnMissing;
use packaged::Packaged;

/// The server's program, if it comes from a Debian package.
fn packaged(kind: Kind) -> Option<Packaged> {
    match kind {
        Kind::RabbitMq => Some(rabbitmq::PACKAGED),
        Kind::Nats => Some(nats::PACKAGED),
        Kind::Redis => Some(redis::PACKAGED),
        // PostgreSQL has versions; moto and Tansu come from other registries.
        Kind::Postgres | Kind::Kafka | Kind::Sqs => None,
    }
}

/// The missing Debian package of a server. PostgreSQL is installed separately.
pub(crate) fn missing_package(kind: Kind) -> Option<&'static str> {
    match (kind, packaged(kind)) {
        (_, Some(packaged)) => packaged.folder().is_none().then_some(packaged.package),
        (Kind::Sqs, None) => moto::missing_package(),
        (_, None) => None,
    }
}

/// The folder of a server's programs, after its packages are installed. PostgreSQL's folder depends on its version.
pub(crate) fn programs(kind: Kind, missing: OnMissing) -> Result<PathBuf> {
    match packaged(kind) {
        Some(packaged) => packaged.folder().with_context(|| {
            format!("package {} is installed, but `{}` was not found", packaged.package, packaged.program)
        }),
        None if kind == Kind::Kafka => tansu::programs(missing).context("cannot provide Tansu"),
        None => moto::programs(missing).context("cannot provide moto"),
    }
}
