//! One thing that was measured, beside what it is compared with.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::{
    env,
    io::{self, Write},
};

/// What was measured, told as a ratio.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) bench: &'static str,
    pub(crate) scenario: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) reference: f64,
    /// What the reference is.
    pub(crate) beside: &'static str,
    pub(crate) goal: &'static str,
}

impl Figure {
    /// Prints it: a line for people, or a JSON object.
    pub(crate) fn print(&self, is_json: bool) -> Result<()> {
        let ratio = self.ours / self.reference;
        let line = if is_json {
            let mut object = Map::new();
            let mut put = |key: &str, value: Value| object.insert(key.to_owned(), value);
            put("bench", json!(self.bench));
            put("scenario", json!(self.scenario));
            put("store", json!("postgres"));
            put("version", json!(env!("CARGO_PKG_VERSION")));
            put("commit", json!(env::var("POSTRIDER_BENCH_COMMIT").ok()));
            put("unit", json!(self.unit));
            put("ours", json!(self.ours));
            put("reference", json!(self.reference));
            put("beside", json!(self.beside));
            put("ratio", json!(ratio));
            put("goal", json!(self.goal));
            Value::Object(object).to_string()
        } else {
            format!(
                "{:<28} {:>12.2} {:<12} {:>12.2} {:<34} ratio {ratio:>5.2}   goal {}",
                self.scenario, self.ours, self.unit, self.reference, self.beside, self.goal
            )
        };
        writeln!(io::stdout(), "{line}").context("writing the report")
    }
}

/// The value below which this share of the others lies.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let index = ((values.len() as f64 - 1.0) * share).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}
