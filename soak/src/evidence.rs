//! The evidence of a violation: everything that is known about some of the messages concerned.

use crate::{database::Database, round::Checked, state::State};
use anyhow::Result;
use serde_json::{Value, json};
use std::{
    fs,
    path::{Path, PathBuf},
};
use uuid::Uuid;

/// Messages per violation. The rest is in the database.
const MESSAGES: usize = 20;

/// Writes the evidence to a file of the folder, and returns its path.
pub(crate) async fn write(
    folder: &Path,
    state: &State,
    checked: &Checked,
    database: &Database,
    data: &Path,
) -> Result<PathBuf> {
    let mut violations = Vec::new();
    for violation in &checked.violations {
        let ids = violation.messages();
        violations.push(violation_evidence(&violation.to_string(), ids, checked, database).await?);
    }
    let waiting = &checked.history.waiting;
    if !waiting.is_empty() {
        let title = format!("neither delivered nor dead: {} messages", waiting.len());
        violations.push(violation_evidence(&title, waiting, checked, database).await?);
    }
    let evidence = json!({
        "seed": state.seed,
        "round": state.rounds,
        "totals": checked.totals,
        "database": data,
        "violations": violations,
    });
    let path = folder.join("violations.json");
    fs::write(&path, serde_json::to_string_pretty(&evidence)?)?;
    Ok(path)
}

async fn violation_evidence(
    title: &str,
    ids: &[Uuid],
    checked: &Checked,
    database: &Database,
) -> Result<Value> {
    let mut messages = Vec::new();
    for id in ids.iter().take(MESSAGES) {
        let runs = checked.history.runs.iter().enumerate().filter(|(_, run)| *run == id);
        messages.push(json!({
            "id": id,
            "runs, by their positions in the journal": runs.map(|(position, _)| position).collect::<Vec<_>>(),
            "rows": database.rows(*id).await?,
        }));
    }
    Ok(json!({ "violation": title, "ids": ids, "messages": messages }))
}
