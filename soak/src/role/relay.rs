//! Publishes messages to the stream of the broker.

use super::{DRAIN_TIMEOUT, LEASE, ProcessArgs, SUBJECT, retry};
use crate::{database::Database, task::Work};
use anyhow::Result;
use postrider_engine::{Destination, Relay, Route, Stopped};
use postrider_transports::nats::NatsTransport;
use std::time::Duration;

/// An outage of the broker is over within a second.
const LONGEST_BACKOFF: Duration = Duration::from_millis(500);

pub(super) async fn run(database: &Database, args: &ProcessArgs) -> Result<Stopped> {
    let destination = Destination::new("broker", NatsTransport::connect(args.broker.as_str())?)
        .circuit_backoff(Duration::from_millis(50), LONGEST_BACKOFF);
    let route = Route::new(Work::Relayed.queue())
        .to("broker", SUBJECT)
        .lease_for(LEASE)
        .retry(retry())
        .without_max_deliveries();
    let relay = Relay::builder(database.store.clone(), "/soak").destination(destination).route(route);
    Ok(relay.build()?.run_until_signal(DRAIN_TIMEOUT).await?)
}
