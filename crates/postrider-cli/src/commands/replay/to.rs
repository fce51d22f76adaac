//! Straight to a destination of `postrider.toml`, through its transport, as the daemon would send it.

use super::Args;
use crate::{
    config::{Flags, TypePattern},
    exit::Exit,
    problem::Problem,
    transport,
};
use postrider::{Format, Outgoing, PublishError, Template, Transport, inspect::Entry};
use std::{collections::VecDeque, path::Path, sync::Arc, time::Duration};
use tokio_util::sync::CancellationToken;

/// How often a message that is refused for now is tried before it gives up, and how long it waits unless it is told.
const TRIES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(1);
/// A batch without an answer for so long is unanswered.
const PATIENCE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(super) struct Place {
    name: String,
    transport: Arc<dyn Transport>,
    source: Arc<str>,
    address: Template,
    format: Format,
    /// Only these go there by the route.
    types: Option<Vec<TypePattern>>,
}

impl Place {
    /// Reads the file and makes the transport; nobody is connected to yet.
    pub(super) fn open(args: &Args, name: &str) -> Result<Self, Problem> {
        let flags = Flags::of_file(args.config.clone());
        let file = flags.file();
        let config = flags.read().map_err(|problems| {
            problems.into_iter().next().unwrap_or_else(|| {
                Problem::new(
                    format!("{}: it cannot be read", file.display()),
                    "check it: postrider config check",
                )
            })
        })?;
        let Some(section) = config.destinations.get(name) else {
            let known: Vec<_> = config.destinations.keys().map(String::as_str).collect();
            return Err(Problem::new(
                format!("{}: there is no destination {name}", file.display()),
                format!("name one of these with --to: {}", known.join(", ")),
            )
            .ending(Exit::Misused));
        };
        let route = config.routes.iter().filter(|route| *route.queue == args.queue.as_str());
        let mut ways = route.flat_map(|route| route.to.iter().map(move |to| (to, route.format.value)));
        let way = ways.find(|(to, _)| *to.destination == name);
        let address = match (&args.address, &way) {
            (Some(address), _) => address.clone(),
            (None, Some((to, _))) => template(&file, &to.address)?,
            (None, None) => {
                return Err(Problem::new(
                    format!("{}: no route takes {} to {name}", file.display(), args.queue),
                    "say where with --address, such as orders.{type}",
                )
                .ending(Exit::Misused));
            }
        };
        Ok(Self {
            name: name.to_owned(),
            transport: transport::build(&file, name, section)?,
            source: config.source.value.as_str().into(),
            address,
            format: way.map_or(Format::Binary, |(_, format)| format),
            types: way.and_then(|(to, _)| Some(to.types.as_ref()?.value.clone())),
        })
    }

    /// Sends them in their order, until the other side has all of them. `None` when it was stopped on the way.
    pub(super) async fn send(
        &self,
        entries: &[Entry],
        stop: &CancellationToken,
    ) -> Result<Option<u64>, Problem> {
        let mut outgoing = VecDeque::new();
        for entry in entries.iter().filter(|entry| self.takes(entry)) {
            outgoing.push_back(self.written(entry)?);
        }
        let sent = outgoing.len() as u64;
        let most = self.transport.capacity().batch.max(1);
        let mut tries = 0;
        while !outgoing.is_empty() {
            let batch: Vec<_> = outgoing.iter().take(most).cloned().collect();
            let publishing = tokio::time::timeout(PATIENCE, self.transport.publish(&batch));
            let Some(answers) = stop.run_until_cancelled(publishing).await else { return Ok(None) };
            // What was taken before the first that was not is done with: the order is kept.
            let mut pause = None;
            match answers {
                Ok(answers) => {
                    for answer in answers {
                        match answer {
                            Ok(_) if pause.is_none() => drop(outgoing.pop_front()),
                            Ok(_) => {}
                            Err(error) => {
                                pause = pause.or(Some(self.pause(&error)?));
                            }
                        }
                    }
                }
                Err(_) => pause = Some(PAUSE),
            }
            let Some(pause) = pause else {
                tries = 0;
                continue;
            };
            tries += 1;
            if tries >= TRIES {
                return Err(Problem::new(
                    format!("destination {} takes nothing now", self.name),
                    "see to it, and go on then",
                ));
            }
            if stop.run_until_cancelled(tokio::time::sleep(pause)).await.is_none() {
                return Ok(None);
            }
        }
        Ok(Some(sent))
    }

    /// Whether the route would have sent it there, too.
    fn takes(&self, entry: &Entry) -> bool {
        self.types.as_ref().is_none_or(|types| types.iter().any(|wanted| wanted.takes(&entry.message)))
    }

    fn written(&self, entry: &Entry) -> Result<Outgoing, Problem> {
        let message = &entry.message;
        let written = match message.id() {
            Some(id) => self.address.render(message).and_then(|address| {
                Outgoing::write(message, id, entry.staged_at, Arc::clone(&self.source), address, self.format)
            }),
            None => {
                return Err(Problem::new("a kept message has no id", "leave it out with --since or --until"));
            }
        };
        written.map_err(|invalid| {
            let id = message.id().map(|id| id.to_string()).unwrap_or_default();
            Problem::new(
                format!("message {id} cannot be sent to {}: {invalid}", self.name),
                "leave it out with --type or --key, or give another --address",
            )
        })
    }

    /// How long to wait before it is tried again, or that it is of no use.
    fn pause(&self, error: &PublishError) -> Result<Duration, Problem> {
        match error {
            PublishError::Reject { .. } => Err(Problem::new(
                format!("destination {}: {error}", self.name),
                "it will never be taken: leave it out with --type or --key, or mend the destination",
            )),
            PublishError::Retry { after: Some(after), .. } => Ok(*after),
            _ => Ok(PAUSE),
        }
    }

    pub(super) async fn close(&self) {
        self.transport.close().await;
    }
}

fn template(file: &Path, address: &str) -> Result<Template, Problem> {
    Template::parse(address).map_err(|error| {
        Problem::new(format!("{}: {address:?}: {error}", file.display()), "check it: postrider config check")
    })
}
