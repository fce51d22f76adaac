//! Sends straight to a destination of `postrider.toml`, through its transport, as the daemon does.

use super::Args;
use crate::{
    config::{Flags, TypePattern},
    exit::Exit,
    problem::Problem,
    transport,
};
use postrider::{Format, Outgoing, PublishError, Template, Transport, inspect::MessageRow};
use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How often a message is attempted that the destination refuses temporarily, and the delay between attempts when the destination
/// names none.
const MAX_ATTEMPTS: u32 = 5;
const RETRY_DELAY: Duration = Duration::from_secs(1);
/// How long to wait for the result of a batch.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Destination {
    name: String,
    transport: Arc<dyn Transport>,
    source: Arc<str>,
    address: Template,
    format: Format,
    /// The event types that the route sends to this destination.
    types: Option<Vec<TypePattern>>,
}

impl Destination {
    /// Reads the file and builds the transport, without connecting.
    pub(super) fn open(args: &Args, name: &str) -> Result<Self, Problem> {
        let flags = Flags::of_file(args.config.clone());
        let file = flags.file();
        let config = flags.read().map_err(|problems| {
            problems.into_iter().next().unwrap_or_else(|| {
                Problem::new(
                    format!("{}: cannot be read", file.display()),
                    "check the file: postrider config check",
                )
            })
        })?;
        let Some(section) = config.destinations.get(name) else {
            let known: Vec<_> = config.destinations.keys().map(String::as_str).collect();
            return Err(Problem::new(
                format!("{}: no destination {name}", file.display()),
                format!("give --to one of these: {}", known.join(", ")),
            )
            .with_exit(Exit::Usage));
        };
        let route = config.routes.iter().filter(|route| *route.queue == args.queue.as_str());
        let mut targets = route.flat_map(|route| route.to.iter().map(move |to| (to, route.format())));
        let target = targets.find(|(to, _)| *to.destination == name);
        let address = match (&args.address, &target) {
            (Some(address), _) => address.clone(),
            (None, Some((to, _))) => template(&file, &to.address)?,
            (None, None) => {
                return Err(Problem::new(
                    format!("{}: no route sends queue {} to {name}", file.display(), args.queue),
                    "give an address with --address, such as orders.{type}",
                )
                .with_exit(Exit::Usage));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            transport: transport::build(&file, name, section)?,
            source: config.source.as_str().into(),
            address,
            format: target.map_or(Format::Binary, |(_, format)| format),
            types: target.and_then(|(to, _)| to.types.clone()),
        })
    }

    /// Sends the messages in order, until the destination has accepted all of them. `None` when it was stopped midway.
    pub(super) async fn send(
        &self,
        entries: &[MessageRow],
        stop: &CancellationToken,
    ) -> Result<Option<u64>, Problem> {
        let mut outgoing = VecDeque::new();
        for entry in entries.iter().filter(|entry| self.accepts(entry)) {
            outgoing.push_back(self.outgoing(entry)?);
        }
        let sent = outgoing.len() as u64;
        let batch_size = self.transport.capacity().batch.max(1);
        let mut attempts = 0;
        while !outgoing.is_empty() {
            let batch: Vec<_> = outgoing.iter().take(batch_size).cloned().collect();
            let publish = tokio::time::timeout(PUBLISH_TIMEOUT, self.transport.publish(&batch));
            let Some(results) = stop.run_until_cancelled(publish).await else { return Ok(None) };
            // Only the messages that were accepted before the first failure are done, so that the order is kept.
            let mut delay = None;
            match results {
                Ok(results) => {
                    for result in results {
                        match result {
                            Ok(_) if delay.is_none() => drop(outgoing.pop_front()),
                            Ok(_) => {}
                            Err(error) => {
                                delay = delay.or(Some(self.retry_delay(&error)?));
                            }
                        }
                    }
                }
                Err(_) => delay = Some(RETRY_DELAY),
            }
            let Some(delay) = delay else {
                attempts = 0;
                continue;
            };
            attempts += 1;
            if attempts >= MAX_ATTEMPTS {
                return Err(Problem::new(
                    format!("destination {} is unavailable", self.name),
                    "bring the destination up, and continue the replay",
                ));
            }
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(sent))
    }

    /// Whether the route sends messages of this type to the destination.
    fn accepts(&self, entry: &MessageRow) -> bool {
        self.types.as_ref().is_none_or(|types| types.iter().any(|wanted| wanted.takes(&entry.message)))
    }

    fn outgoing(&self, entry: &MessageRow) -> Result<Outgoing, Problem> {
        let message = &entry.message;
        let outgoing = match message.id() {
            Some(id) => self.address.render(message).and_then(|address| {
                Outgoing::write(message, id, entry.staged_at, Arc::clone(&self.source), address, self.format)
            }),
            None => {
                return Err(Problem::new("a kept message has no id", "exclude it with --since or --until"));
            }
        };
        outgoing.map_err(|invalid| {
            let id = message.id().map(|id| id.to_string()).unwrap_or_default();
            Problem::new(
                format!("message {id} cannot be sent to {}: {invalid}", self.name),
                "exclude it with --type or --key, or give another --address",
            )
        })
    }

    /// The delay before the next attempt, or a problem when the destination rejects the message permanently.
    fn retry_delay(&self, error: &PublishError) -> Result<Duration, Problem> {
        match error {
            PublishError::Reject { .. } => Err(Problem::new(
                format!("destination {}: {error}", self.name),
                "the destination rejects it permanently: exclude it with --type or --key, or fix the destination",
            )),
            PublishError::Retry { after: Some(after), .. } => Ok(*after),
            _ => Ok(RETRY_DELAY),
        }
    }

    pub(super) async fn close(&self) {
        self.transport.close().await;
    }
}

fn template(file: &Path, address: &str) -> Result<Template, Problem> {
    Template::parse(address).map_err(|error| {
        Problem::new(
            format!("{}: {address:?}: {error}", file.display()),
            "check the file: postrider config check",
        )
    })
}
