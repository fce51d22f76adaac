//! The summary at the end of the demo.

use super::{
    audit::Account,
    snapshot::rate,
    stats::{Percentiles, percentiles},
};
use crate::format;
use serde::Serialize;
use std::{collections::BTreeMap, fmt, time::Duration};

#[derive(Debug, Clone)]
pub(super) struct Summary {
    pub(super) account: Account,
    pub(super) rolled_back: u64,
    pub(super) retried: u64,
    pub(super) elapsed: Duration,
    pub(super) latency: Option<Percentiles>,
    /// From the start of the program to the first handled event.
    pub(super) first: Option<Duration>,
    /// Whether the messages in flight finished in time.
    pub(super) clean: bool,
}

/// The summary as JSON. Its keys are stable.
#[derive(Debug, Serialize)]
pub(super) struct Report<'s> {
    staged: u64,
    done: u64,
    dead: u64,
    waiting: u64,
    duplicates: u64,
    lost: u64,
    invented: u64,
    rolled_back: u64,
    retried: u64,
    redelivered: u64,
    dead_by_reason: &'s BTreeMap<&'static str, u64>,
    seconds: f64,
    per_second: f64,
    latency_ms: Latency,
    /// From the start of the program.
    first_handled_ms: Option<f64>,
}

/// Empty until an event was handled.
#[derive(Debug, Serialize)]
struct Latency {
    p50: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
}

impl Summary {
    pub(super) fn report(&self) -> Report<'_> {
        let account = &self.account;
        let millis = |pick: fn(&Percentiles) -> Duration| {
            self.latency.as_ref().map(|latency| rounded(pick(latency).as_secs_f64() * 1000.0, 1000.0))
        };
        Report {
            staged: account.staged,
            done: account.done,
            dead: account.dead(),
            waiting: account.waiting,
            duplicates: account.duplicates,
            lost: account.lost,
            invented: account.invented,
            rolled_back: self.rolled_back,
            retried: self.retried,
            redelivered: account.redelivered,
            dead_by_reason: &account.dead,
            seconds: rounded(self.elapsed.as_secs_f64(), 1000.0),
            per_second: rounded(rate(account.done, self.elapsed), 10.0),
            latency_ms: Latency {
                p50: millis(|latency| latency.p50),
                p95: millis(|latency| latency.p95),
                p99: millis(|latency| latency.p99),
            },
            first_handled_ms: self.first.map(|first| rounded(first.as_secs_f64() * 1000.0, 1000.0)),
        }
    }
}

fn rounded(number: f64, to: f64) -> f64 {
    (number * to).round() / to
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = &self.account;
        let Account { staged, done, waiting, lost, duplicates, invented, redelivered, .. } = account;
        let dead = account.dead();
        if !self.clean {
            writeln!(f, "Some messages in flight did not finish in time; their leases were released.")?;
        }
        writeln!(f, "{staged} staged = {done} done + {dead} dead + {waiting} waiting")?;
        writeln!(
            f,
            "{lost} lost, {duplicates} duplicated, {invented} of {} rolled-back orders delivered",
            self.rolled_back
        )?;
        if *redelivered > 0 {
            writeln!(f, "{redelivered} redelivered to a handler without a transaction (at least once)")?;
        }
        if dead > 0 {
            let reasons = account.dead.iter().map(|(reason, count)| (reason, *count));
            writeln!(f, "dead letters: {}", format::list(reasons))?;
        }
        writeln!(
            f,
            "{} retries; {:.0} done per second for {}",
            self.retried,
            rate(*done, self.elapsed),
            format::time(self.elapsed)
        )?;
        writeln!(f, "latency: {}", percentiles(self.latency))?;
        if account.adds_up() {
            write!(f, "It all adds up.")
        } else {
            write!(f, "IT DOES NOT ADD UP. Please report this, with the database if you can.")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> Summary {
        Summary {
            account: Account {
                staged: 1921,
                done: 1852,
                dead: BTreeMap::from([("rejected", 12), ("undecodable", 5)]),
                waiting: 52,
                ..Account::default()
            },
            rolled_back: 79,
            retried: 64,
            elapsed: Duration::from_millis(10_021),
            latency: Some(Percentiles {
                p50: Duration::from_micros(6_123),
                p95: Duration::from_micros(38_400),
                p99: Duration::from_micros(131_000),
            }),
            first: Some(Duration::from_millis(45)),
            clean: true,
        }
    }

    fn json(summary: &Summary) -> String {
        serde_json::to_string(&summary.report()).unwrap()
    }

    #[test]
    fn summary_of_balanced_run() {
        insta::assert_snapshot!(summary());
    }

    #[test]
    fn summary_of_unbalanced_run() {
        let mut summary = summary();
        summary.account.waiting -= 2;
        summary.account.lost = 2;
        summary.account.redelivered = 1;
        summary.clean = false;
        insta::assert_snapshot!(summary);
    }

    #[test]
    fn summary_as_json() {
        insta::assert_snapshot!(json(&summary()));
        let unseen = Summary { latency: None, first: None, ..summary() };
        assert!(
            json(&unseen)
                .ends_with(r#""latency_ms":{"p50":null,"p95":null,"p99":null},"first_handled_ms":null}"#)
        );
    }
}
