//! What is left when follow-ups have been carried out, and whether it can be true.
//!
//! A claim counts, so every attempt of a follow-up has one owner. From that follows what is judged here: nobody makes the call of an
//! attempt twice; a row that has ended has the count of the claim that ended it, whose call was made and whose outcome was told before;
//! and what was told is what the call came to. A runner that ends what is another's leaves a row that belongs to no such claim.

use crate::script::{CANARY, Part};
use postrider_core::{AuditEvent, AuditKind};
use sqlx::{PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// What was staged: whose each follow-up is.
pub(crate) type Staged = BTreeMap<Uuid, String>;

/// What cannot be true.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Complaint {
    /// A follow-up is nowhere, or one is there that nobody staged.
    NotWhatWasStaged,
    InTwoRooms,
    Unended,
    /// Refused and yet succeeded, or given up for no reason.
    WrongEnd,
    /// No event of its kind and its attempt came before the outcome.
    Untold,
    /// One attempt was told twice.
    ToldTwice,
    /// It was told, and the call of that attempt was not made, or came to something else.
    Untrue,
    /// Two made the call of one attempt.
    CalledTwice,
    /// Its counters do not agree with the calls.
    Miscounted,
    /// Everything was done, and that was not said: not at all, or not everywhere.
    Uncompleted,
    CompletedTwice,
    /// It was said that everything was done, and something was not.
    WronglyCompleted,
    /// Something is kept that should be forgotten.
    Remembered,
}

#[derive(Debug)]
pub(crate) struct Evidence {
    rows: Vec<Kept>,
    told: Vec<Told>,
    /// The attempts of which the call was made.
    calls: BTreeMap<Uuid, Vec<u32>>,
    /// When the call of an attempt was made.
    called: BTreeMap<(Uuid, u32), i64>,
    /// Who was told of completions, by subject: the application's table and the queue.
    said: [Vec<String>; 2],
    remembered: i64,
}

#[derive(Debug)]
struct Kept {
    room: String,
    key: Uuid,
    deliveries: u32,
    attempts: u32,
    ended: Option<i64>,
}

#[derive(Debug)]
struct Told {
    at: i64,
    event: AuditEvent,
}

impl Told {
    /// Whose attempt it tells of.
    fn attempt(&self) -> (Uuid, u32) {
        let key = self.event.follow_up.map(|id| id.as_uuid()).unwrap_or_default();
        (key, self.event.attempt.unwrap_or_default())
    }

    fn subject(&self) -> &str {
        self.event.subject.as_ref().map_or("", |subject| subject.as_str())
    }
}

/// What happened on the way.
#[derive(Debug, Default)]
pub(crate) struct Toll {
    pub(crate) succeeded: usize,
    pub(crate) abandoned: usize,
    pub(crate) completed: usize,
    pub(crate) calls: usize,
    /// Calls that went well, and were made again.
    pub(crate) repeated: usize,
    /// Claims that nobody ended.
    pub(crate) lapsed: u32,
    pub(crate) most_claims: u32,
    /// Successes that were told more than once.
    pub(crate) told_again: usize,
    pub(crate) completed_again: usize,
    /// Outcomes that were told when another runner had made the call again and had not ended the follow-up; and when it had.
    pub(crate) too_late: [usize; 2],
}

const MICROS: &str = "(extract(epoch from";

impl Evidence {
    /// Reads what is there, on this connection.
    pub(crate) async fn read(on: &mut PgConnection) -> Self {
        let room = |name: &str, ended: &str| {
            format!(
                "select '{name}', r.message_id, r.deliveries, r.attempts, {ended} from postrider.{name} r \
                 join postrider.queue q on q.id = r.queue where q.name = 'follow-ups'"
            )
        };
        let never = "null::bigint";
        let rooms = [
            room("ready", never),
            room("later", never),
            room("dead", &format!("{MICROS} r.failed_at) * 1000000)::bigint")),
            room("archive", &format!("{MICROS} r.archived_at) * 1000000)::bigint")),
        ];
        let rows = all(on, &rooms.join(" union all ")).await;
        let kept = |row: &sqlx::postgres::PgRow| Kept {
            room: row.get(0),
            key: row.get(1),
            deliveries: row.get::<i32, _>(2).cast_unsigned(),
            attempts: row.get::<i32, _>(3).cast_unsigned(),
            ended: row.get(4),
        };
        let ledger = format!("select {MICROS} l.at) * 1000000)::bigint, l.body from postrider.ledger l");
        let told = |row: &sqlx::postgres::PgRow| Told {
            at: row.get(0),
            event: serde_json::from_str(row.get(1)).unwrap(),
        };
        let mut calls: BTreeMap<Uuid, Vec<u32>> = BTreeMap::new();
        let mut called = BTreeMap::new();
        for row in all(on, &format!("select key, attempt, {MICROS} at) * 1000000)::bigint from effect")).await
        {
            let (key, attempt) = (row.get(0), row.get::<i32, _>(1).cast_unsigned());
            calls.entry(key).or_default().push(attempt);
            called.insert((key, attempt), row.get(2));
        }
        let completed = "select r.subject from postrider.ready r join postrider.queue q on q.id = r.queue \
            where q.name = 'completed'";
        Self {
            rows: rows.iter().map(kept).collect(),
            told: all(on, &ledger).await.iter().map(told).collect(),
            calls,
            called,
            said: [subjects(on, "select subject from farewell").await, subjects(on, completed).await],
            remembered: remembered(on).await,
        }
    }

    /// Everything that cannot be true, and of whom.
    pub(crate) fn judge(&self, staged: &Staged) -> BTreeSet<(Complaint, String)> {
        let mut found = BTreeSet::new();
        let mut complain = |what: Complaint, who: &dyn ToString| _ = found.insert((what, who.to_string()));
        self.judge_rooms(staged, &mut complain);
        self.judge_ends(&mut complain);
        self.judge_events(&mut complain);
        self.judge_completions(staged, &mut complain);
        if self.remembered > 0 {
            complain(Complaint::Remembered, &self.remembered);
        }
        found
    }

    fn judge_rooms(&self, staged: &Staged, complain: &mut impl FnMut(Complaint, &dyn ToString)) {
        let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
        for row in &self.rows {
            *places.entry(row.key).or_default() += 1;
        }
        for key in staged.keys().filter(|key| !places.contains_key(key)) {
            complain(Complaint::NotWhatWasStaged, key);
        }
        for (key, places) in places {
            if places > 1 {
                complain(Complaint::InTwoRooms, &key);
            }
            if !staged.contains_key(&key) {
                complain(Complaint::NotWhatWasStaged, &key);
            }
        }
    }

    fn judge_ends(&self, complain: &mut impl FnMut(Complaint, &dyn ToString)) {
        let told: BTreeMap<(Uuid, u32), &Told> =
            self.told.iter().map(|told| (told.attempt(), told)).collect();
        for (key, calls) in &self.calls {
            if calls.iter().collect::<BTreeSet<_>>().len() < calls.len() {
                complain(Complaint::CalledTwice, key);
            }
        }
        for Kept { room, key, deliveries, attempts, ended } in &self.rows {
            let Some(ended) = ended else {
                complain(Complaint::Unended, key);
                continue;
            };
            let part = Part::of(*key);
            let (refused, given_up) = (part == Part::Refusing, room == "dead");
            if refused != given_up {
                complain(Complaint::WrongEnd, key);
            }
            let kind = if given_up { AuditKind::Abandoned } else { AuditKind::Succeeded };
            let of_this_claim = told.get(&(*key, *deliveries));
            if !of_this_claim.is_some_and(|told| told.event.kind == kind && told.at <= *ended) {
                complain(Complaint::Untold, key);
            }
            let calls = self.calls.get(key).map_or(&[][..], Vec::as_slice);
            // A failure that is tried again was an attempt, and so was what was given up; a success counts as none.
            let counts = if given_up { 1..=*deliveries } else { 0..=*deliveries - 1 };
            if !counts.contains(attempts) || calls.iter().max() != Some(deliveries) {
                let counted =
                    format!("{key}: {deliveries} claims, {attempts} attempts, calls of {calls:?}, {part:?}");
                complain(Complaint::Miscounted, &counted);
            }
        }
    }

    fn judge_events(&self, complain: &mut impl FnMut(Complaint, &dyn ToString)) {
        let mut seen = BTreeSet::new();
        for told in self.told.iter().filter(|told| told.event.kind != AuditKind::Completed) {
            let (key, attempt) = told.attempt();
            if !seen.insert((key, attempt)) {
                complain(Complaint::ToldTwice, &key);
            }
            let part = Part::of(key);
            let came_to = match part {
                Part::Refusing => Some(AuditKind::Abandoned),
                _ => (!part.fails(attempt)).then_some(AuditKind::Succeeded),
            };
            let called = self.calls.get(&key).is_some_and(|calls| calls.contains(&attempt));
            if !called || came_to != Some(told.event.kind) {
                complain(Complaint::Untrue, &key);
            }
        }
    }

    fn judge_completions(&self, staged: &Staged, complain: &mut impl FnMut(Complaint, &dyn ToString)) {
        let blocked: BTreeSet<&str> = staged
            .iter()
            .filter_map(|(key, subject)| (Part::of(*key) == Part::Refusing).then_some(subject.as_str()))
            .collect();
        let due: BTreeSet<&str> =
            staged.values().map(String::as_str).filter(|subject| !blocked.contains(subject)).collect();
        let told: Vec<&str> = self.completions().collect();
        for (said, is_told_again) in
            [(strs(&self.said[0]), false), (strs(&self.said[1]), false), (told, true)]
        {
            let distinct: BTreeSet<&str> = said.iter().copied().collect();
            if distinct.len() < said.len() && !is_told_again {
                complain(Complaint::CompletedTwice, &(said.len() - distinct.len()));
            }
            for subject in due.difference(&distinct) {
                complain(Complaint::Uncompleted, subject);
            }
            for subject in distinct.difference(&due) {
                complain(Complaint::WronglyCompleted, subject);
            }
        }
    }

    fn completions(&self) -> impl Iterator<Item = &str> {
        self.told.iter().filter(|told| told.event.kind == AuditKind::Completed).map(Told::subject)
    }

    /// What happened on the way, if everything has ended.
    pub(crate) fn toll(&self) -> Toll {
        let mut toll = Toll { completed: self.said[0].len(), ..Toll::default() };
        let mut ends = BTreeMap::new();
        for row in &self.rows {
            let is_success = row.room == "archive";
            toll.succeeded += usize::from(is_success);
            toll.abandoned += usize::from(row.room == "dead");
            // What failed was counted when it was ended; what succeeded was not.
            toll.lapsed += row.deliveries - (row.attempts + u32::from(is_success)).min(row.deliveries);
            toll.most_claims = toll.most_claims.max(row.deliveries);
            ends.insert(row.key, (row.ended, row.deliveries));
        }
        for (key, calls) in &self.calls {
            let last = ends.get(key).map_or(0, |(_, last)| *last);
            toll.calls += calls.len();
            toll.repeated +=
                calls.iter().filter(|attempt| **attempt < last && !Part::of(*key).fails(**attempt)).count();
        }
        let mut successes = BTreeSet::new();
        for told in self.told.iter().filter(|told| told.event.kind != AuditKind::Completed) {
            let (key, attempt) = told.attempt();
            toll.told_again += usize::from(told.event.kind == AuditKind::Succeeded && !successes.insert(key));
            let ended = ends.get(&key).and_then(|(ended, _)| *ended);
            let is_taken =
                self.called.range((key, attempt + 1)..=(key, u32::MAX)).any(|(_, at)| *at < told.at);
            if is_taken {
                toll.too_late[usize::from(ended.is_some_and(|ended| ended < told.at))] += 1;
            }
        }
        let completions: Vec<&str> = self.completions().collect();
        toll.completed_again = completions.len() - completions.iter().collect::<BTreeSet<_>>().len();
        toll
    }
}

fn strs(texts: &[String]) -> Vec<&str> {
    texts.iter().map(String::as_str).collect()
}

async fn all(on: &mut PgConnection, sql: &str) -> Vec<sqlx::postgres::PgRow> {
    sqlx::query(sqlx::AssertSqlSafe(sql)).fetch_all(on).await.unwrap()
}

async fn subjects(on: &mut PgConnection, sql: &str) -> Vec<String> {
    all(on, sql).await.iter().map(|row| row.get(0)).collect()
}

/// How many rows of what has ended hold a payload, or the canary anywhere.
async fn remembered(on: &mut PgConnection) -> i64 {
    let sql = format!(
        "select (select count(*) from postrider.dead r where r.payload <> '' or r::text like '%{CANARY}%') \
           + (select count(*) from postrider.archive r where r.payload <> '' or r::text like '%{CANARY}%') \
           + (select count(*) from postrider.ledger r where r::text like '%{CANARY}%')"
    );
    all(on, &sql).await[0].get(0)
}
