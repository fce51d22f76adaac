//! The results, as a table or as one JSON object per line.

use crate::{backend::Backend, scenario::Scenario};
use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::{
    env,
    io::{self, Write},
};

/// The variable with the measured commit.
const COMMIT: &str = "POSTRIDER_BENCH_COMMIT";

/// The measurements of one turn of one side, per message.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figures {
    /// Messages per second.
    pub(crate) rate: f64,
    /// CPU time of the server, in microseconds.
    pub(crate) server: Option<f64>,
    /// CPU time of this process, in microseconds.
    pub(crate) client: Option<f64>,
    /// Round trips.
    pub(crate) trips: Option<f64>,
    /// Bytes of write-ahead log.
    pub(crate) wal: Option<f64>,
    /// Dead row versions.
    pub(crate) dead: Option<f64>,
    /// The share of HOT updates.
    pub(crate) hot: Option<f64>,
}

/// The turns of one side.
#[derive(Debug)]
pub(crate) struct Series {
    side: &'static str,
    pub(crate) figures: Vec<Figures>,
    pub(crate) trips: Option<f64>,
}

impl Series {
    pub(crate) fn new(side: &'static str) -> Self {
        Self { side, figures: Vec::new(), trips: None }
    }

    fn median(&self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.figures.iter().filter_map(figure).collect())
    }

    /// The ratio of each round: neighbouring turns are compared.
    fn ratios(&self, to: &Self, figure: impl Fn(&Figures) -> Option<f64>) -> Vec<f64> {
        let pairs = self.figures.iter().zip(&to.figures);
        pairs.filter_map(|(own, other)| Some(figure(own)? / figure(other)?)).collect()
    }

    fn ratio(&self, to: &Self, figure: impl Fn(&Figures) -> Option<f64>) -> Option<f64> {
        median(self.ratios(to, figure))
    }

    /// The lowest and the highest ratio.
    fn range(&self, to: &Self) -> Option<(f64, f64)> {
        let ratios = self.ratios(to, rate);
        let lowest = ratios.iter().copied().reduce(f64::min)?;
        Some((lowest, ratios.iter().copied().reduce(f64::max)?))
    }
}

/// The median.
pub(crate) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some(f64::midpoint(values[middle - 1], values[middle])),
    }
}

/// Prints scenarios as they finish.
#[derive(Debug)]
pub(crate) struct Report {
    json: bool,
    commit: String,
    /// The subject of the current table.
    begun: Option<&'static str>,
}

impl Report {
    pub(crate) fn new(json: bool) -> Self {
        let commit = env::var(COMMIT).unwrap_or_else(|_| "an unknown commit".to_owned());
        Self { json, commit, begun: None }
    }

    /// The first series is ours, the second is the reference.
    pub(crate) fn scenario(
        &mut self,
        scenario: &Scenario,
        backend: &dyn Backend,
        rounds: u32,
        messages: usize,
        series: &[Series],
    ) -> Result<()> {
        let [ours, others @ ..] = series else { return Ok(()) };
        let store = scenario.store.name();
        if self.json {
            let mut object = Map::new();
            let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
            put("bench", json!("store"));
            put("scenario", json!(scenario.name));
            put("store", json!(store));
            put("server", json!(backend.version()));
            put("version", json!(env!("CARGO_PKG_VERSION")));
            put("commit", json!(self.commit));
            put("rounds", json!(rounds));
            put("messages", json!(messages));
            compared(put, ours, others)?;
            return print(&Value::Object(object).to_string());
        }
        if self.begun != Some(store) {
            let gap = if self.begun.replace(store).is_some() { "\n" } else { "" };
            print(&format!(
                "{gap}Postrider {} at {}, {}, medians of {rounds} rounds. Ratios are ours to that side, the median of the\n\
                 rounds' ratios: in messages a second (more than 1: ours is faster) and in CPU (less than 1: ours is cheaper),\n\
                 the server's or, where there is none, the process's. The rest is per message.\n",
                env!("CARGO_PKG_VERSION"),
                self.commit,
                backend.title(),
            ))?;
            print(&format!(
                "{:<40} {:<10} {:>8} {:>6} {:>10} {:>6} {:>10} {:>10} {:>7} {:>6} {:>5} {:>6}",
                "scenario",
                "side",
                "msgs/s",
                "ratio",
                "(range)",
                "CPU",
                "server µs",
                "client µs",
                "trips",
                "WAL B",
                "dead",
                "HOT %"
            ))?;
        }
        for (index, side) in series.iter().enumerate() {
            let title = if index == 0 { scenario.name.as_str() } else { "" };
            let (ratio, used) = match index {
                0 => (None, None),
                _ => (ours.ratio(side, rate), ours.ratio(side, cpu)),
            };
            let range = if index == 0 { None } else { ours.range(side) };
            print(&format!(
                "{title:<40} {:<10} {:>8} {:>6} {:>10} {:>6} {:>10} {:>10} {:>7} {:>6} {:>5} {:>6}",
                side.side,
                cell(side.median(rate), 0),
                cell(ratio, 2),
                range.map_or_else(|| "-".to_owned(), |(lowest, highest)| format!("{lowest:.2}–{highest:.2}")),
                cell(used, 2),
                cell(side.median(|figures| figures.server), 2),
                cell(side.median(|figures| figures.client), 2),
                cell(side.trips, 4),
                cell(side.median(|figures| figures.wal), 0),
                cell(side.median(|figures| figures.dead), 2),
                cell(side.median(|figures| Some(figures.hot? * 100.0)), 1),
            ))?;
        }
        Ok(())
    }

    pub(crate) fn end(self) -> Result<()> {
        io::stdout().flush().context("writing the report")
    }
}

fn compared(
    mut put: impl FnMut(&str, Value) -> Option<Value>,
    ours: &Series,
    others: &[Series],
) -> Result<()> {
    let reference = others.first().context("a scenario without a reference")?;
    put("ours", json!(ours.median(rate)));
    put("reference", json!(reference.median(rate)));
    put("ratio", json!(ours.ratio(reference, rate)));
    if let Some((lowest, highest)) = ours.range(reference) {
        put("ratio_lowest", json!(lowest));
        put("ratio_highest", json!(highest));
    }
    put("server_cpu_ratio", json!(ours.ratio(reference, |figures| figures.server)));
    put("client_cpu_ratio", json!(ours.ratio(reference, |figures| figures.client)));
    if let Some(raw) = others.get(1) {
        put("raw_reference", json!(raw.median(rate)));
        put("raw_ratio", json!(ours.ratio(raw, rate)));
        put("raw_server_cpu_ratio", json!(ours.ratio(raw, |figures| figures.server)));
    }
    let per_side = [("", ours)].into_iter().chain(["reference_", "raw_"].into_iter().zip(others));
    for (prefix, side) in per_side {
        put(&format!("{prefix}server_us_per_message"), json!(side.median(|figures| figures.server)));
        put(&format!("{prefix}client_us_per_message"), json!(side.median(|figures| figures.client)));
        put(&format!("{prefix}round_trips_per_message"), json!(side.trips));
        put(&format!("{prefix}wal_bytes_per_message"), json!(side.median(|figures| figures.wal)));
        put(&format!("{prefix}dead_tuples_per_message"), json!(side.median(|figures| figures.dead)));
        put(&format!("{prefix}hot_share"), json!(side.median(|figures| figures.hot)));
    }
    Ok(())
}

/// The server's CPU time, or this process's if there is no server.
fn cpu(figures: &Figures) -> Option<f64> {
    figures.server.or(figures.client)
}

#[expect(clippy::unnecessary_wraps, reason = "a figure that every turn has, among those that it may lack")]
fn rate(figures: &Figures) -> Option<f64> {
    Some(figures.rate)
}

fn cell(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| "-".to_owned(), |value| format!("{value:.decimals$}"))
}

fn print(line: &str) -> Result<()> {
    writeln!(io::stdout(), "{line}").context("writing the report")
}

#[cfg(test)]
mod tests {
    use super::median;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!(median(Vec::new()), None);
    }
}
