//! Where the programs of each server come from.

mod moto;
mod nats;
mod packaged;
mod rabbitmq;
mod redis;
mod tansu;

use std::path::PathBuf;

use anyhow::{Context, Result};
use postrider_servers::Kind;

use crate::packages::Missing;
use packaged::Packaged;

/// The server's program, where a Debian package brings it.
fn packaged(kind: Kind) -> Option<Packaged> {
    match kind {
        Kind::RabbitMq => Some(rabbitmq::PACKAGED),
        Kind::Nats => Some(nats::PACKAGED),
        Kind::Redis => Some(redis::PACKAGED),
        // PostgreSQL has versions; moto and Tansu come from other registries.
        Kind::Postgres | Kind::Kafka | Kind::Sqs => None,
    }
}

/// The package that a server lacks here. PostgreSQL installs its own.
pub(crate) fn missing_package(kind: Kind) -> Option<&'static str> {
    match (kind, packaged(kind)) {
        (_, Some(packaged)) => packaged.folder().is_none().then_some(packaged.package),
        (Kind::Sqs, None) => moto::missing_package(),
        (_, None) => None,
    }
}

/// The folder of a server's programs, once its packages are there. PostgreSQL's depends on the version.
pub(crate) fn programs(kind: Kind, missing: Missing) -> Result<PathBuf> {
    match packaged(kind) {
        Some(packaged) => packaged.folder().with_context(|| {
            format!("{} is installed, yet there is no `{}`", packaged.package, packaged.program)
        }),
        None if kind == Kind::Kafka => tansu::programs(missing).context("no Tansu"),
        None => moto::programs(missing).context("no moto"),
    }
}
