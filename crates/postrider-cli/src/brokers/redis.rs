//! Redis Streams.

use crate::config::Place;
use postrider::{
    Invalid,
    transports::redis::{RedisSource, RedisTransport},
};
use std::time::Duration;

/// Replicas that do not have a message after so long may not have it at all.
const REPLICATED_WITHIN: Duration = Duration::from_secs(2);

pub(crate) fn transport(place: &Place) -> Result<RedisTransport, Invalid> {
    let mut builder = RedisTransport::builder(place.url()?);
    if let Some(file) = place.text("ca_file") {
        builder = builder.with_root_certificates(file);
    }
    if let Some(replicas) = place.number("replicas") {
        builder = builder.with_replicas(replicas, REPLICATED_WITHIN);
    }
    if place.flag("must_exist") {
        builder = builder.must_exist();
    }
    builder.build()
}

pub(crate) fn source(place: &Place) -> Result<RedisSource, Invalid> {
    let mut builder = RedisSource::builder(place.url()?, place.needed("stream")?);
    if let Some(file) = place.text("ca_file") {
        builder = builder.with_root_certificates(file);
    }
    if let Some(group) = place.text("group") {
        builder = builder.with_group(group);
    }
    if place.flag("create_group") {
        builder = builder.create_group();
    }
    builder.build()
}
