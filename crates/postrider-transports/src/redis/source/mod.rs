//! A consumer of Redis Streams, as one of a group.
//!
//! Redis remembers of every entry who got it and when, until it is acknowledged. That is the promise: what nobody acknowledges within the
//! [hold](RedisSourceBuilder::with_hold) is claimed by a consumer that lives, and whatever dies in between, the entry stays pending.
//!
//! - **Done** is `XACK`. It counts whoever has the entry by now: its effect is there.
//! - **Refuse** is `XACK`, with an `XADD` elsewhere in one step if that is [asked for](RedisSourceBuilder::with_refused_to).
//! - **Again** gives the entry an age at which it will be claimable after the delay, in the name of nobody who reads. That holds on the server: if
//!   this process dies, another one claims it at its time. Redis knows no age below zero, so the hold is the longest delay.
//! - **Extending** makes the entry young again.
//!
//! The last three happen only if the delivery is still ours, which a script compares on the server in the same step.
//!
//! A consumer that is closed hands back what it has and removes its name. `XGROUP DELCONSUMER` forgets what is pending under a name, so it is
//! only ever done to names that have nothing.

mod builder;
mod check;
mod group;
mod place;
mod rounds;
mod script;

pub use builder::RedisSourceBuilder;

use super::{entry, link::RedisLink, server::Server};
use crate::line::{Doubt, Line, Link};
use async_trait::async_trait;
use group::Group;
use place::Place;
use postrider_core::{
    Abilities, Answer, Finding, Invalid, Parcel, PublishError, Redelivers, Source, SourceError, Ticket,
};
use redis::{Pipeline, Value};
use rounds::{Found, Rounds, Turn};
use script::Step;
use std::{collections::VecDeque, fmt, sync::Arc};
use tokio::{
    sync::{Mutex, watch},
    task::JoinHandle,
};

/// More in one call cost as much as two.
const ANSWERS: usize = 1_000;

/// Receives from a Redis stream, as one of a consumer group.
///
/// ```no_run
/// # use postrider_core::{Answer, Source};
/// # use postrider_transports::redis::RedisSource;
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let orders = RedisSource::builder("redis://127.0.0.1:6379", "orders")
///     .with_group("billing")
///     .create_group()
///     .with_refused_to("orders-refused")
///     .build()?;
/// for parcel in orders.receive(100).await? {
///     println!("{:?}", parcel.incoming.body);
///     orders.answer(&[(parcel.ticket, Answer::Done)]).await;
/// }
/// # Ok(())
/// # }
/// ```
pub struct RedisSource {
    server: Arc<Server>,
    group: Arc<Group>,
    reading: Mutex<Reading>,
    /// The connection over which is answered, so that no read stands in the way.
    line: Line<RedisLink>,
    is_closed: watch::Sender<bool>,
}

/// What the call that receives is at.
#[derive(Default)]
struct Reading {
    rounds: Option<Rounds>,
    turn: Option<JoinHandle<Turn>>,
    /// What was found for a call that did not wait for it, or more than the next one wants.
    found: VecDeque<Found>,
    has_begun: bool,
}

/// A delivery.
#[derive(Debug)]
struct Held {
    consumer: Arc<str>,
    place: Place,
    deliveries: u32,
}

impl RedisSource {
    /// A source of this stream, on the server at `url`, such as `redis://user:password@host:6379/0`, with `rediss` for TLS. It reads as one
    /// of the group `postrider`, which must exist. It connects when it is asked for messages, and again by itself.
    ///
    /// # Errors
    /// When the URL cannot be read, or the stream has no name.
    pub fn connect(url: impl Into<String>, stream: impl Into<String>) -> Result<Self, Invalid> {
        Self::builder(url, stream).build()
    }

    /// The same with settings.
    pub fn builder(url: impl Into<String>, stream: impl Into<String>) -> RedisSourceBuilder {
        RedisSourceBuilder::new(url.into(), stream.into())
    }

    fn with(server: Server, group: Group) -> Self {
        Self {
            server: Arc::new(server),
            group: Arc::new(group),
            reading: Mutex::default(),
            line: Line::new(ANSWERS),
            is_closed: watch::Sender::new(false),
        }
    }

    async fn link(&self) -> Result<Arc<RedisLink>, SourceError> {
        self.line.link(RedisLink::connect(&self.server)).await.map_err(lost)
    }

    /// Up to so many of what was found. What has been lying here for too long may be somebody else's by now, and comes again.
    fn take(&self, found: &mut VecDeque<Found>, most: usize) -> Vec<Parcel> {
        found.retain(|found| found.at.elapsed() < self.group.hold / 2);
        let most = most.min(found.len());
        let parcel = |Found { place, fields, deliveries, .. }| {
            let held = Held { consumer: Arc::clone(&self.group.consumer), place, deliveries };
            Parcel::new(entry::read(&self.group.stream, fields), Ticket::new(held)).delivered(deliveries)
        };
        found.drain(..most).map(parcel).collect()
    }

    /// What a ticket stands for, if it is one of ours.
    fn held<'a>(&self, ticket: &'a Ticket) -> Option<&'a Held> {
        ticket.inside::<Held>().filter(|held| *held.consumer == *self.group.consumer)
    }

    /// Does these steps with what is ours, and acknowledges what is done: all in one go.
    async fn tell(
        &self,
        done: &[Place],
        steps: &[(Place, u32, Step)],
    ) -> Result<Vec<Result<(), SourceError>>, SourceError> {
        let mut pipeline = Pipeline::with_capacity(done.len() + 2);
        for place in done {
            let mut ack = self.group.command("XACK");
            pipeline.add_command(ack.arg(place.to_string()).clone());
        }
        if self.group.deletes && !done.is_empty() {
            pipeline
                .cmd("XDEL")
                .arg(&self.group.stream)
                .arg(done.iter().map(Place::to_string).collect::<Vec<_>>());
        }
        if !steps.is_empty() {
            pipeline.add_command(script::held(&self.group, steps.iter().copied()));
        }
        if pipeline.is_empty() {
            return Ok(Vec::new());
        }
        let link = self.link().await?;
        let mut doubt = Doubt::about(&*link);
        let mut answers = link.send_all(&pipeline).await.map_err(SourceError::down)?;
        doubt.is_cleared = true;
        let stepped = if steps.is_empty() { Vec::new() } else { self.stepped(answers.pop(), steps.len()) };
        answers.truncate(done.len());
        Ok(answers.into_iter().map(|answer| self.told(answer)).chain(stepped).collect())
    }

    fn told(&self, answer: Value) -> Result<(), SourceError> {
        match answer {
            Value::Int(0) => Err(SourceError::stale("it was answered before, or is not pending any more")),
            Value::Int(_) => Ok(()),
            Value::ServerError(error) => Err(SourceError::down(self.group.refused(&error))),
            Value::BulkString(why) => Err(SourceError::down(String::from_utf8_lossy(&why).into_owned())),
            other => Err(SourceError::down(format!("the answer makes no sense: {other:?}"))),
        }
    }

    /// What a script said, one for each step.
    fn stepped(&self, answer: Option<Value>, count: usize) -> Vec<Result<(), SourceError>> {
        match answer {
            Some(Value::Array(told)) if told.len() == count => {
                told.into_iter().map(|answer| self.told(answer)).collect()
            }
            other => (0..count).map(|_| self.told(other.clone().unwrap_or_default())).collect(),
        }
    }

    /// Hands back what is in hand, and leaves the group.
    async fn leave(&self) -> Result<(), SourceError> {
        let link = self.link().await?;
        while link.ask(&script::hand_back(&self.group)).await.map_err(lost)? != Value::Int(0) {}
        link.ask(&script::remove(&self.group, &self.group.consumer)).await.map_err(lost)?;
        Ok(())
    }
}

/// For a source, whatever is wrong means that nothing comes.
fn lost(error: PublishError) -> SourceError {
    match error {
        PublishError::Retry { source, .. }
        | PublishError::Unknown { source }
        | PublishError::Reject { source }
        | PublishError::Down { source } => SourceError::Down { source },
        other => SourceError::down(other),
    }
}

fn not_ours() -> SourceError {
    SourceError::stale("another source received it")
}

/// The same error for each of many.
fn for_each(count: usize, error: &SourceError) -> Vec<Result<(), SourceError>> {
    let why = match error {
        SourceError::Down { source } | SourceError::Stale { source } => source.to_string(),
        other => other.to_string(),
    };
    (0..count).map(|_| Err(SourceError::down(why.clone()))).collect()
}

#[async_trait]
impl Source for RedisSource {
    fn kind(&self) -> &'static str {
        "redis"
    }

    fn origin(&self) -> &str {
        &self.group.stream
    }

    fn abilities(&self) -> Abilities {
        Abilities::answering(ANSWERS).counting().delaying(self.group.hold).holding_for(self.group.hold)
    }

    async fn receive(&self, most: usize) -> Result<Vec<Parcel>, SourceError> {
        let mut closed = self.is_closed.subscribe();
        let receiving = async {
            let mut reading = self.reading.lock().await;
            let reading = &mut *reading;
            loop {
                if *self.is_closed.borrow() {
                    return Err(SourceError::down("it was closed"));
                }
                let parcels = self.take(&mut reading.found, most.max(1));
                if !parcels.is_empty() {
                    return Ok(parcels);
                }
                reading.has_begun = true;
                let turn = reading.turn.get_or_insert_with(|| {
                    let rounds = reading.rounds.take().unwrap_or_else(|| Rounds::new(&self.group));
                    rounds::spawn(rounds, Arc::clone(&self.server), Arc::clone(&self.group), most)
                });
                let ended = turn.await;
                reading.turn = None;
                let (rounds, found) = ended.map_err(SourceError::down)?;
                reading.rounds = Some(rounds);
                reading.found.extend(found?);
            }
        };
        tokio::select! {
            received = receiving => received,
            _ = closed.wait_for(|is_closed| *is_closed) => Err(SourceError::down("it was closed")),
        }
    }

    async fn answer(&self, answers: &[(Ticket, Answer)]) -> Vec<Result<(), SourceError>> {
        let mut results: Vec<_> = answers.iter().map(|_| Err(not_ours())).collect();
        let (mut done, mut steps) = (Vec::new(), Vec::new());
        // Where in the batch they are.
        let (mut done_at, mut steps_at) = (Vec::new(), Vec::new());
        for (at, (ticket, answer)) in answers.iter().enumerate() {
            let Some(Held { place, deliveries, .. }) = self.held(ticket) else { continue };
            let step = match *answer {
                Answer::Done => {
                    done.push(*place);
                    done_at.push(at);
                    continue;
                }
                Answer::Again { after } => Step::Again(after.min(self.group.hold)),
                Answer::Refuse => Step::Refuse,
            };
            steps.push((*place, *deliveries, step));
            steps_at.push(at);
        }
        let told = self.tell(&done, &steps).await;
        let told = told.unwrap_or_else(|error| for_each(done.len() + steps.len(), &error));
        for (at, told) in done_at.iter().chain(&steps_at).zip(told) {
            results[*at] = told;
        }
        for (at, (place, _, step)) in steps_at.into_iter().zip(steps) {
            if let (Step::Again(after), Ok(())) = (step, &results[at]) {
                self.group.ask_again(place, after);
            }
        }
        results
    }

    async fn extend(&self, tickets: &[Ticket]) -> Vec<Result<(), SourceError>> {
        let ours: Vec<_> = tickets.iter().map(|ticket| self.held(ticket)).collect();
        let steps: Vec<_> =
            ours.iter().flatten().map(|held| (held.place, held.deliveries, Step::Extend)).collect();
        let told = self.tell(&[], &steps).await.unwrap_or_else(|error| for_each(steps.len(), &error));
        let mut told = told.into_iter();
        ours.into_iter()
            .map(|held| held.and_then(|_| told.next()).unwrap_or_else(|| Err(not_ours())))
            .collect()
    }

    async fn redelivers(&self) -> Result<Redelivers, SourceError> {
        let link = self.link().await?;
        match link.ask(redis::cmd("PTTL").arg(&self.group.stream)).await {
            Ok(Value::Int(left)) if left >= 0 => {
                let left = std::time::Duration::from_millis(left.cast_unsigned());
                Ok(Redelivers::within(left, format!("PTTL {} = {} ms", self.group.stream, left.as_millis())))
            }
            Ok(_) => Ok(Redelivers::for_ever("a group keeps what is pending until it is acknowledged")),
            Err(error) => {
                link.doubt();
                Err(lost(error))
            }
        }
    }

    async fn check(&self) -> Result<Vec<Finding>, SourceError> {
        let link = self.link().await?;
        let found = check::findings(&link, &self.group).await;
        if found.is_err() {
            link.doubt();
        }
        found.map_err(lost)
    }

    async fn close(&self) {
        self.is_closed.send_replace(true);
        let mut reading = self.reading.lock().await;
        if let Some(turn) = reading.turn.take() {
            // What it still finds is pending, and handed back with the rest.
            turn.await.ok();
        }
        let (has_begun, _) = (std::mem::take(&mut reading.has_begun), std::mem::take(&mut *reading));
        if has_begun {
            // If that fails, the hold decides.
            self.leave().await.ok();
        }
        self.line.close().await;
    }
}

impl fmt::Debug for RedisSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisSource")
            .field("server", &self.server.address)
            .field("group", &self.group)
            .finish_non_exhaustive()
    }
}
