//! The evidence that a run of follow-ups leaves, and a check for violations.
//!
//! Every claim is counted, so every attempt of a follow-up has one owner. From that follow the rules checked here: no call of an attempt is
//! made twice; a row that has ended has the count of the claim that ended it, whose call was made and whose outcome was audited before; and
//! the audited outcome is that of the call. A runner that settles another's claim leaves a row that belongs to no such claim.

use crate::script::{CANARY, Part};
use postrider_core::{AuditEvent, AuditKind};
use sqlx::{PgConnection, Row};
use std::collections::{BTreeMap, BTreeSet};
use uuid::Uuid;

/// The staged follow-ups, with their subjects.
pub(crate) type StagedCall = BTreeMap<Uuid, String>;

/// A violation of the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Violation {
    /// A follow-up is missing, or one exists that was not staged.
    NotWhatWasStaged,
    InTwoTables,
    Unended,
    /// Rejected and yet succeeded, or abandoned without a reason.
    WrongEnding,
    /// No event of its kind and attempt precedes the outcome.
    NotAudited,
    /// One attempt was audited twice.
    AuditedTwice,
    /// An event whose attempt made no call, or whose call had another outcome.
    WrongEvent,
    /// Two runners made the call of one attempt.
    CalledTwice,
    /// Its counters do not agree with the calls.
    Miscounted,
    /// A group is complete, and that was not reported everywhere.
    Uncompleted,
    CompletedTwice,
    /// A group was reported as complete, and is not.
    WronglyCompleted,
    /// A payload is kept that should be erased.
    PayloadKept,
}

#[derive(Debug)]
pub(crate) struct Evidence {
    rows: Vec<FollowUpState>,
    audited: Vec<AuditedEvent>,
    /// The attempts of which the call was made.
    calls: BTreeMap<Uuid, Vec<u32>>,
    /// When the call of an attempt was made.
    called: BTreeMap<(Uuid, u32), i64>,
    /// The reported completions, by subject: in the application's table and in the queue.
    reported: [Vec<String>; 2],
    payloads: i64,
}

#[derive(Debug)]
struct FollowUpState {
    table: String,
    key: Uuid,
    deliveries: u32,
    attempts: u32,
    ended: Option<i64>,
}

#[derive(Debug)]
struct AuditedEvent {
    at: i64,
    event: AuditEvent,
}

impl AuditedEvent {
    /// The attempt that the event is about.
    fn attempt(&self) -> (Uuid, u32) {
        let key = self.event.follow_up.map(|id| id.as_uuid()).unwrap_or_default();
        (key, self.event.attempt.unwrap_or_default())
    }

    fn subject(&self) -> &str {
        self.event.subject.as_ref().map_or("", |subject| subject.as_str())
    }
}

/// The faults of the run.
#[derive(Debug, Default)]
pub(crate) struct FaultCounts {
    pub(crate) succeeded: usize,
    pub(crate) abandoned: usize,
    pub(crate) completed: usize,
    pub(crate) calls: usize,
    /// Calls that succeeded, and were repeated.
    pub(crate) repeated: usize,
    /// Claims whose lease expired.
    pub(crate) expired: u32,
    pub(crate) most_claims: u32,
    /// Successes that were audited more than once.
    pub(crate) audited_again: usize,
    pub(crate) completed_again: usize,
    /// Outcomes that were audited after another runner had repeated the call, before and after that runner settled the follow-up.
    pub(crate) too_late: [usize; 2],
}

const MICROS: &str = "(extract(epoch from";

impl Evidence {
    /// Reads what is there, on this connection.
    pub(crate) async fn read(on: &mut PgConnection) -> Self {
        let table = |name: &str, ended: &str| {
            format!(
                "select '{name}', r.message_id, r.deliveries, r.attempts, {ended} from postrider.{name} r \
                 join postrider.queue q on q.id = r.queue where q.name = 'follow-ups'"
            )
        };
        let never = "null::bigint";
        let tables = [
            table("ready", never),
            table("scheduled", never),
            table("dead", &format!("{MICROS} r.failed_at) * 1000000)::bigint")),
            table("archive", &format!("{MICROS} r.archived_at) * 1000000)::bigint")),
        ];
        let rows = all(on, &tables.join(" union all ")).await;
        let kept = |row: &sqlx::postgres::PgRow| FollowUpState {
            table: row.get(0),
            key: row.get(1),
            deliveries: row.get::<i32, _>(2).cast_unsigned(),
            attempts: row.get::<i32, _>(3).cast_unsigned(),
            ended: row.get(4),
        };
        let ledger = format!("select {MICROS} l.at) * 1000000)::bigint, l.body from postrider.ledger l");
        let audited = |row: &sqlx::postgres::PgRow| AuditedEvent {
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
            audited: all(on, &ledger).await.iter().map(audited).collect(),
            calls,
            called,
            reported: [subjects(on, "select subject from farewell").await, subjects(on, completed).await],
            payloads: payloads(on).await,
        }
    }

    /// Everything that cannot be true, and of whom.
    pub(crate) fn check(&self, staged: &StagedCall) -> BTreeSet<(Violation, String)> {
        let mut found = BTreeSet::new();
        let mut report = |what: Violation, who: &dyn ToString| _ = found.insert((what, who.to_string()));
        self.check_tables(staged, &mut report);
        self.check_endings(&mut report);
        self.check_events(&mut report);
        self.check_completions(staged, &mut report);
        if self.payloads > 0 {
            report(Violation::PayloadKept, &self.payloads);
        }
        found
    }

    fn check_tables(&self, staged: &StagedCall, report: &mut impl FnMut(Violation, &dyn ToString)) {
        let mut places: BTreeMap<Uuid, usize> = BTreeMap::new();
        for row in &self.rows {
            *places.entry(row.key).or_default() += 1;
        }
        for key in staged.keys().filter(|key| !places.contains_key(key)) {
            report(Violation::NotWhatWasStaged, key);
        }
        for (key, places) in places {
            if places > 1 {
                report(Violation::InTwoTables, &key);
            }
            if !staged.contains_key(&key) {
                report(Violation::NotWhatWasStaged, &key);
            }
        }
    }

    fn check_endings(&self, report: &mut impl FnMut(Violation, &dyn ToString)) {
        let audited: BTreeMap<(Uuid, u32), &AuditedEvent> =
            self.audited.iter().map(|audited| (audited.attempt(), audited)).collect();
        for (key, calls) in &self.calls {
            if calls.iter().collect::<BTreeSet<_>>().len() < calls.len() {
                report(Violation::CalledTwice, key);
            }
        }
        for FollowUpState { table, key, deliveries, attempts, ended } in &self.rows {
            let Some(ended) = ended else {
                report(Violation::Unended, key);
                continue;
            };
            let part = Part::of(*key);
            let (refused, given_up) = (part == Part::Refusing, table == "dead");
            if refused != given_up {
                report(Violation::WrongEnding, key);
            }
            let kind = if given_up { AuditKind::Abandoned } else { AuditKind::Succeeded };
            let of_this_claim = audited.get(&(*key, *deliveries));
            if !of_this_claim.is_some_and(|audited| audited.event.kind == kind && audited.at <= *ended) {
                report(Violation::NotAudited, key);
            }
            let calls = self.calls.get(key).map_or(&[][..], Vec::as_slice);
            // A retried failure was an attempt, and so was an abandonment; a success counts as none.
            let counts = if given_up { 1..=*deliveries } else { 0..=*deliveries - 1 };
            if !counts.contains(attempts) || calls.iter().max() != Some(deliveries) {
                let counted =
                    format!("{key}: {deliveries} claims, {attempts} attempts, calls of {calls:?}, {part:?}");
                report(Violation::Miscounted, &counted);
            }
        }
    }

    fn check_events(&self, report: &mut impl FnMut(Violation, &dyn ToString)) {
        let mut seen = BTreeSet::new();
        for audited in self.audited.iter().filter(|audited| audited.event.kind != AuditKind::Completed) {
            let (key, attempt) = audited.attempt();
            if !seen.insert((key, attempt)) {
                report(Violation::AuditedTwice, &key);
            }
            let part = Part::of(key);
            let came_to = match part {
                Part::Refusing => Some(AuditKind::Abandoned),
                _ => (!part.fails(attempt)).then_some(AuditKind::Succeeded),
            };
            let called = self.calls.get(&key).is_some_and(|calls| calls.contains(&attempt));
            if !called || came_to != Some(audited.event.kind) {
                report(Violation::WrongEvent, &key);
            }
        }
    }

    fn check_completions(&self, staged: &StagedCall, report: &mut impl FnMut(Violation, &dyn ToString)) {
        let blocked: BTreeSet<&str> = staged
            .iter()
            .filter_map(|(key, subject)| (Part::of(*key) == Part::Refusing).then_some(subject.as_str()))
            .collect();
        let due: BTreeSet<&str> =
            staged.values().map(String::as_str).filter(|subject| !blocked.contains(subject)).collect();
        let audited: Vec<&str> = self.completions().collect();
        for (reported, is_told_again) in
            [(strs(&self.reported[0]), false), (strs(&self.reported[1]), false), (audited, true)]
        {
            let distinct: BTreeSet<&str> = reported.iter().copied().collect();
            if distinct.len() < reported.len() && !is_told_again {
                report(Violation::CompletedTwice, &(reported.len() - distinct.len()));
            }
            for subject in due.difference(&distinct) {
                report(Violation::Uncompleted, subject);
            }
            for subject in distinct.difference(&due) {
                report(Violation::WronglyCompleted, subject);
            }
        }
    }

    fn completions(&self) -> impl Iterator<Item = &str> {
        self.audited
            .iter()
            .filter(|audited| audited.event.kind == AuditKind::Completed)
            .map(AuditedEvent::subject)
    }

    /// What happened on the way, if everything has ended.
    pub(crate) fn counts(&self) -> FaultCounts {
        let mut counts = FaultCounts { completed: self.reported[0].len(), ..FaultCounts::default() };
        let mut ends = BTreeMap::new();
        for row in &self.rows {
            let is_success = row.table == "archive";
            counts.succeeded += usize::from(is_success);
            counts.abandoned += usize::from(row.table == "dead");
            // What failed was counted when it was ended; what succeeded was not.
            counts.expired += row.deliveries - (row.attempts + u32::from(is_success)).min(row.deliveries);
            counts.most_claims = counts.most_claims.max(row.deliveries);
            ends.insert(row.key, (row.ended, row.deliveries));
        }
        for (key, calls) in &self.calls {
            let last = ends.get(key).map_or(0, |(_, last)| *last);
            counts.calls += calls.len();
            counts.repeated +=
                calls.iter().filter(|attempt| **attempt < last && !Part::of(*key).fails(**attempt)).count();
        }
        let mut successes = BTreeSet::new();
        for audited in self.audited.iter().filter(|audited| audited.event.kind != AuditKind::Completed) {
            let (key, attempt) = audited.attempt();
            counts.audited_again +=
                usize::from(audited.event.kind == AuditKind::Succeeded && !successes.insert(key));
            let ended = ends.get(&key).and_then(|(ended, _)| *ended);
            let is_taken =
                self.called.range((key, attempt + 1)..=(key, u32::MAX)).any(|(_, at)| *at < audited.at);
            if is_taken {
                counts.too_late[usize::from(ended.is_some_and(|ended| ended < audited.at))] += 1;
            }
        }
        let completions: Vec<&str> = self.completions().collect();
        counts.completed_again = completions.len() - completions.iter().collect::<BTreeSet<_>>().len();
        counts
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
async fn payloads(on: &mut PgConnection) -> i64 {
    let sql = format!(
        "select (select count(*) from postrider.dead r where r.payload <> '' or r::text like '%{CANARY}%') \
           + (select count(*) from postrider.archive r where r.payload <> '' or r::text like '%{CANARY}%') \
           + (select count(*) from postrider.ledger r where r::text like '%{CANARY}%')"
    );
    all(on, &sql).await[0].get(0)
}
