//! Findings for schema drift: one finding for all differences that one statement fixes.

use postrider::{Finding, schema::Drift};

/// `database` is the option that names the database.
pub(super) fn findings(drifts: &[Drift], database: &str) -> Vec<Finding> {
    let mut groups: Vec<(&Option<String>, Vec<&Drift>)> = Vec::new();
    for drift in drifts {
        match groups.iter_mut().find(|(fix, _)| *fix == &drift.fix) {
            Some((_, drifts)) => drifts.push(drift),
            None => groups.push((&drift.fix, vec![drift])),
        }
    }
    let groups = groups.into_iter().filter_map(|(fix, drifts)| {
        let (first, more) = drifts.split_first()?;
        let reason = match more.len() {
            0 => format!("{first}"),
            more => format!("{first}; and {more} more with the same fix"),
        };
        let finding = match fix {
            None => {
                Finding::problem("unmigrated", "tables").fixed_by(format!("postrider migrate up {database}"))
            }
            Some(fix) => of(first).fixed_by(fix),
        };
        Some(finding.because(reason))
    });
    groups.collect()
}

fn of(drift: &Drift) -> Finding {
    let subject = drift.object.as_str();
    let kind = subject.split(' ').next().unwrap_or_default();
    match (kind, drift.found.as_deref()) {
        ("index", None) => Finding::problem("missing_index", subject),
        ("index", Some(found)) if found.ends_with(", invalid") => Finding::problem("invalid_index", subject),
        ("table", Some(found)) if found.ends_with(", not logged") => {
            Finding::problem("unlogged_table", subject)
        }
        ("option", _) if subject.contains(".autovacuum_") => Finding::problem("autovacuum_weakened", subject),
        _ => Finding::problem("drift", subject),
    }
}
