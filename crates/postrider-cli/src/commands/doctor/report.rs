//! The report of the findings, as text and as JSON.

use crate::{exit::Exit, output, problem::Problem};
use postrider::{Finding, Severity};
use serde::{Serialize, Serializer, ser::SerializeStruct};

#[derive(Debug)]
pub(super) struct LocatedFinding {
    /// The database, destination or consumer.
    pub(super) target: String,
    pub(super) finding: Finding,
}

/// The report as JSON. Its keys are stable.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) databases: usize,
    pub(super) destinations: usize,
    pub(super) routes: usize,
    pub(super) findings: Vec<LocatedFinding>,
}

impl Serialize for LocatedFinding {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Finding { severity, code, subject, reason, fix } = &self.finding;
        let mut located = serializer.serialize_struct("LocatedFinding", 6)?;
        located.serialize_field("target", &self.target)?;
        located.serialize_field("severity", &severity.to_string())?;
        located.serialize_field("code", code)?;
        located.serialize_field("subject", subject)?;
        located.serialize_field("reason", reason)?;
        located.serialize_field("fix", fix)?;
        located.end()
    }
}

impl Report {
    pub(super) fn skip(&mut self, codes: &[String]) {
        self.findings.retain(|located| !codes.iter().any(|code| code == located.finding.code));
    }

    pub(super) fn print(&self, json: bool) -> Result<Exit, Problem> {
        if json { output::json(self) } else { output::text(&self.to_text()) }?;
        Ok(match self.worst() {
            Some(Severity::Problem) => Exit::Failed,
            Some(Severity::Warning) => Exit::Warnings,
            Some(Severity::Note) | None => Exit::Success,
        })
    }

    fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|located| located.finding.severity).max()
    }

    fn to_text(&self) -> String {
        let checked =
            [(self.databases, "database"), (self.routes, "route"), (self.destinations, "destination")];
        let checked = checked.into_iter().filter(|(number, _)| *number > 0).map(count);
        let checked = checked.collect::<Vec<_>>().join(", ");
        if self.findings.is_empty() {
            return format!("no findings: checked {checked}");
        }
        let mut text = String::new();
        let mut last_target = "";
        for LocatedFinding { target, finding } in &self.findings {
            if target != last_target {
                text.push_str(&format!("{target}\n"));
                last_target = target;
            }
            let Finding { severity, code, subject, reason, fix } = finding;
            let (subject, reason) = (sanitize(subject), sanitize(reason));
            text.push_str(&format!("\n  {severity} {code}: {subject}\n  {reason}\n\n"));
            fix.lines().for_each(|line| text.push_str(&format!("    {}\n", sanitize(line))));
            text.push('\n');
        }
        let number =
            |wanted| self.findings.iter().filter(|located| located.finding.severity == wanted).count();
        let [problems, warnings, notes] = [
            (number(Severity::Problem), "problem"),
            (number(Severity::Warning), "warning"),
            (number(Severity::Note), "note"),
        ]
        .map(count);
        text.push_str(&format!("{problems}, {warnings}, {notes}: checked {checked}"));
        text
    }
}

/// Names and errors come from others: they must not control the terminal.
fn sanitize(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn count((number, noun): (usize, &str)) -> String {
    format!("{number} {noun}{}", if number == 1 { "" } else { "s" })
}
