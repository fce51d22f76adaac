//! How entries are found: those that nobody has had, and those that come again.
//!
//! The connection is the reader's own, because a read waits for up to [`BLOCK`] and nothing else gets through meanwhile. One turn asks for,
//! in this order and until something is there: what this consumer had before it was started, if it has a name; what it handed back and is
//! due; what others left behind, in steps; and what is new. While there is more of what others left behind, every second turn reads what is new,
//! so that neither waits for the other.

use super::{
    group::{Group, Start, UNNAMED, WAITING},
    lost,
    place::Place,
    script,
};
use crate::redis::{link::RedisLink, server::Server};
use postrider_core::SourceError;
use redis::{Cmd, FromRedisValue, Pipeline, Value};
use std::{collections::HashMap, sync::Arc, time::Duration};
use tokio::{task::JoinHandle, time::Instant};

/// A read waits for at most so long: then others are looked after, and a source can close.
pub(super) const BLOCK: Duration = Duration::from_millis(500);
/// More does not come at once.
const MOST: usize = 1_000;
/// How often is looked after what others left behind: four times within the hold, within these bounds.
const SOONEST: Duration = Duration::from_millis(250);
const LATEST: Duration = Duration::from_secs(5);

/// Names and values, as they are on the wire.
pub(super) type Fields = Vec<(Vec<u8>, Vec<u8>)>;
/// Places, and what is there unless it was deleted.
type Entries = Vec<(String, Option<Fields>)>;

/// An entry that is in hand.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) place: Place,
    pub(super) fields: Fields,
    pub(super) deliveries: u32,
    pub(super) at: Instant,
}

/// Where a reader is.
pub(super) struct Rounds {
    link: Option<RedisLink>,
    /// What this consumer had before, from here on; nothing if it has seen it all.
    history: Option<Place>,
    /// What others left behind is looked for from here on.
    cursor: String,
    swept_at: Option<Instant>,
    has_swept_last: bool,
}

impl Rounds {
    pub(super) fn new(group: &Group) -> Self {
        Self {
            link: None,
            history: group.is_named.then(Place::default),
            cursor: "0-0".to_owned(),
            swept_at: None,
            has_swept_last: false,
        }
    }

    /// Looks once, and waits for a moment where nothing is there.
    pub(super) async fn turn(
        &mut self,
        server: &Server,
        group: &Group,
        most: usize,
    ) -> Result<Vec<Found>, SourceError> {
        let most = most.clamp(1, MOST);
        let link = match self.link.take() {
            Some(link) => link,
            None => connect(server, group).await?,
        };
        let found = self.look(&Reader { link: &link, group }, most).await;
        // A connection that has failed is not used again.
        self.link = found.is_ok().then_some(link);
        found
    }

    async fn look(&mut self, reader: &Reader<'_>, most: usize) -> Result<Vec<Found>, SourceError> {
        if let Some(after) = self.history {
            let (found, last) = reader.had_before(after, most).await?;
            self.history = last;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let due = reader.group.take_due(most);
        if !due.is_empty() {
            let found = reader.claim(&due).await?;
            if !found.is_empty() {
                return Ok(found);
            }
        }
        let every = (reader.group.hold / 4).clamp(SOONEST, LATEST);
        let next_sweep = |swept_at: Option<Instant>| swept_at.map_or_else(Instant::now, |at| at + every);
        if next_sweep(self.swept_at) <= Instant::now() && !self.has_swept_last {
            self.has_swept_last = true;
            let (cursor, found) = reader.sweep(&self.cursor, most).await?;
            self.cursor = cursor;
            if self.cursor == "0-0" {
                self.swept_at = Some(Instant::now());
                reader.tidy().await?;
            }
            if !found.is_empty() {
                return Ok(found);
            }
        }
        self.has_swept_last = false;
        let until = reader
            .group
            .next_due()
            .map_or_else(|| next_sweep(self.swept_at), |due| due.min(next_sweep(self.swept_at)));
        reader.read(most, until.saturating_duration_since(Instant::now()).min(BLOCK)).await
    }
}

async fn connect(server: &Server, group: &Group) -> Result<RedisLink, SourceError> {
    let link = RedisLink::connect(server).await.map_err(lost)?;
    if let Some(start) = group.created_at {
        create(&link, group, start).await?;
    }
    Ok(link)
}

async fn create(link: &RedisLink, group: &Group, start: Start) -> Result<(), SourceError> {
    match link.send(&group.creation(start)).await.map_err(SourceError::down)? {
        // It is there.
        Value::ServerError(error) if error.code() == "BUSYGROUP" => Ok(()),
        Value::ServerError(error) => Err(SourceError::down(group.refused(&error))),
        _ => Ok(()),
    }
}

/// One who asks.
struct Reader<'a> {
    link: &'a RedisLink,
    group: &'a Group,
}

impl Reader<'_> {
    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, SourceError> {
        self.heard(self.link.send(command).await.map_err(SourceError::down)?)
    }

    fn heard<T: FromRedisValue>(&self, value: Value) -> Result<T, SourceError> {
        match value {
            Value::ServerError(error) => Err(SourceError::down(self.group.refused(&error))),
            value => redis::from_redis_value(value).map_err(|error| SourceError::down(error.to_string())),
        }
    }

    fn read_command(&self, most: usize) -> Cmd {
        let mut read = redis::cmd("XREADGROUP");
        read.arg("GROUP").arg(&self.group.name).arg(&*self.group.consumer).arg("COUNT").arg(most);
        read
    }

    /// What is new.
    async fn read(&self, most: usize, wait: Duration) -> Result<Vec<Found>, SourceError> {
        let mut read = self.read_command(most);
        // None would mean for ever.
        if wait.as_millis() > 0 {
            read.arg("BLOCK").arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        read.arg("STREAMS").arg(&self.group.stream).arg(">");
        let (found, _) = self.sort_out(self.entries(&read).await?).await?;
        Ok(found.into_iter().map(|(place, fields)| Found::new(place, fields, 1)).collect())
    }

    async fn entries(&self, read: &Cmd) -> Result<Entries, SourceError> {
        let streams: Option<Vec<(String, Entries)>> = self.ask(read).await?;
        Ok(streams.into_iter().flatten().flat_map(|(_, entries)| entries).collect())
    }

    /// What this consumer had when it was somebody else, and from where on there may be more.
    async fn had_before(
        &self,
        after: Place,
        most: usize,
    ) -> Result<(Vec<Found>, Option<Place>), SourceError> {
        let mut read = self.read_command(most);
        read.arg("STREAMS").arg(&self.group.stream).arg(after.to_string());
        let (entries, last) = self.sort_out(self.entries(&read).await?).await?;
        Ok((self.counted(entries).await?, last))
    }

    /// What was handed back and is due, unless somebody else was faster.
    async fn claim(&self, places: &[Place]) -> Result<Vec<Found>, SourceError> {
        let mut claim = self.group.command("XCLAIM");
        claim.arg(&*self.group.consumer).arg(self.group.hold_millis());
        for place in places {
            claim.arg(place.to_string());
        }
        let (entries, _) = self.sort_out(self.ask(&claim).await?).await?;
        self.counted(entries).await
    }

    /// What others left behind, in one step from `cursor` on.
    async fn sweep(&self, cursor: &str, most: usize) -> Result<(String, Vec<Found>), SourceError> {
        let mut claim = self.group.command("XAUTOCLAIM");
        claim.arg(&*self.group.consumer).arg(self.group.hold_millis()).arg(cursor).arg("COUNT").arg(most);
        // Those that were deleted are a third part, for which nothing has to be done: it is there from 7.0 on, which forgets them by itself.
        let answer: Vec<Value> = self.ask(&claim).await?;
        let mut parts = answer.into_iter();
        let mut part = || parts.next().unwrap_or_default();
        let (cursor, entries) = (self.heard(part())?, self.heard(part())?);
        let (entries, _) = self.sort_out(entries).await?;
        Ok((cursor, self.counted(entries).await?))
    }

    /// Those that are there. What was deleted cannot be delivered by anybody, so the group is told to forget it. Tells the last place of all.
    async fn sort_out(&self, entries: Entries) -> Result<(Vec<(Place, Fields)>, Option<Place>), SourceError> {
        let (mut found, mut gone, mut last) = (Vec::with_capacity(entries.len()), Vec::new(), None);
        for (place, fields) in entries {
            let Ok(place) = place.parse::<Place>() else {
                return Err(SourceError::down(format!("{place} is no place in a stream")));
            };
            last = Some(place);
            match fields {
                Some(fields) => found.push((place, fields)),
                None => gone.push(place.to_string()),
            }
        }
        if !gone.is_empty() {
            self.ask::<i64>(self.group.command("XACK").arg(gone)).await?;
        }
        Ok((found, last))
    }

    /// How often each was delivered. Whoever claims is not told that.
    async fn counted(&self, entries: Vec<(Place, Fields)>) -> Result<Vec<Found>, SourceError> {
        if entries.is_empty() {
            return Ok(Vec::new());
        }
        let mut asked = Pipeline::with_capacity(entries.len());
        for (place, _) in &entries {
            let (mut pending, place) = (self.group.command("XPENDING"), place.to_string());
            pending.arg(&place).arg(&place).arg(1);
            asked.add_command(pending);
        }
        let answers = self.link.send_all(&asked).await.map_err(SourceError::down)?;
        let mut found = Vec::with_capacity(entries.len());
        for ((place, fields), answer) in entries.into_iter().zip(answers) {
            let pending: Vec<(String, String, u64, u32)> = self.heard(answer)?;
            // Not ours any more, if the answer took longer than the hold.
            if let Some((_, owner, _, deliveries)) = pending.into_iter().next()
                && *owner == *self.group.consumer
            {
                found.push(Found::new(place, fields, deliveries));
            }
        }
        Ok(found)
    }

    /// Removes the names of processes that died, once everything of theirs has gone to others. One that lives is back with its next read.
    async fn tidy(&self) -> Result<(), SourceError> {
        let told: Vec<HashMap<String, Value>> = self
            .ask(redis::cmd("XINFO").arg("CONSUMERS").arg(&self.group.stream).arg(&self.group.name))
            .await?;
        for mut consumer in told {
            let mut part = |name: &str| consumer.remove(name).unwrap_or_default();
            let (name, pending, idle): (String, u64, u64) =
                (self.heard(part("name"))?, self.heard(part("pending"))?, self.heard(part("idle"))?);
            let is_dead = pending == 0 && idle > self.group.hold_millis().saturating_mul(2);
            if is_dead && name.starts_with(UNNAMED) && name != WAITING && *name != *self.group.consumer {
                self.ask::<Value>(&script::remove(self.group, &name)).await?;
            }
        }
        Ok(())
    }
}

impl Found {
    fn new(place: Place, fields: Fields, deliveries: u32) -> Self {
        Self { place, fields, deliveries, at: Instant::now() }
    }
}

/// What a turn ends with.
pub(super) type Turn = (Rounds, Result<Vec<Found>, SourceError>);

/// A turn runs by itself, so that nothing is lost when whoever waits for it goes away.
pub(super) fn spawn(
    mut rounds: Rounds,
    server: Arc<Server>,
    group: Arc<Group>,
    most: usize,
) -> JoinHandle<Turn> {
    tokio::spawn(async move {
        let found = rounds.turn(&server, &group, most).await;
        (rounds, found)
    })
}
