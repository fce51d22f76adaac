//! One measured value, compared with its reference.

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};
use std::{
    env,
    io::{self, Write},
};

/// A measured value, reported as a ratio.
#[derive(Debug)]
pub(crate) struct Figure {
    pub(crate) bench: &'static str,
    pub(crate) scenario: String,
    pub(crate) unit: &'static str,
    pub(crate) ours: f64,
    pub(crate) reference: f64,
    /// The name of the reference.
    pub(crate) reference_name: &'static str,
    pub(crate) goal: &'static str,
}

impl Figure {
    /// Prints it as one line of text, or as a JSON object.
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
            put("beside", json!(self.reference_name));
            put("ratio", json!(ratio));
            put("goal", json!(self.goal));
            Value::Object(object).to_string()
        } else {
            format!(
                "{:<28} {:>12.2} {:<12} {:>12.2} {:<34} ratio {ratio:>5.2}   goal {}",
                self.scenario, self.ours, self.unit, self.reference, self.reference_name, self.goal
            )
        };
        writeln!(io::stdout(), "{line}").context("writing the report")
    }
}

/// The value at this percentile.
pub(crate) fn quantile(values: &[f64], share: f64) -> f64 {
    let mut values = values.to_vec();
    values.sort_unstable_by(f64::total_cmp);
    let index = ((values.len() as f64 - 1.0) * share).round() as usize;
    values.get(index).copied().unwrap_or(f64::NAN)
}
