//! What was found, and how it is told.

use crate::{answer, exit::Exit, problem::Problem};
use postrider::{Finding, Severity};
use serde::{Serialize, Serializer, ser::SerializeStruct};

#[derive(Debug)]
pub(super) struct Found {
    /// Which database or destination.
    pub(super) place: String,
    pub(super) finding: Finding,
}

/// For programs. Its keys are a promise.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    pub(super) databases: usize,
    pub(super) destinations: usize,
    pub(super) routes: usize,
    pub(super) findings: Vec<Found>,
}

impl Serialize for Found {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Finding { severity, code, subject, reason, fix } = &self.finding;
        let mut found = serializer.serialize_struct("Found", 6)?;
        found.serialize_field("place", &self.place)?;
        found.serialize_field("severity", &severity.to_string())?;
        found.serialize_field("code", code)?;
        found.serialize_field("subject", subject)?;
        found.serialize_field("reason", reason)?;
        found.serialize_field("fix", fix)?;
        found.end()
    }
}

impl Report {
    pub(super) fn leave_out(&mut self, codes: &[String]) {
        self.findings.retain(|found| !codes.iter().any(|code| code == found.finding.code));
    }

    pub(super) fn answer(&self, json: bool) -> Result<Exit, Problem> {
        if json { answer::json(self) } else { answer::text(&self.told()) }?;
        Ok(match self.worst() {
            Some(Severity::Problem) => Exit::Failed,
            Some(Severity::Warning) => Exit::Warned,
            Some(Severity::Note) | None => Exit::Well,
        })
    }

    fn worst(&self) -> Option<Severity> {
        self.findings.iter().map(|found| found.finding.severity).max()
    }

    fn told(&self) -> String {
        let looked =
            [(self.databases, "database"), (self.routes, "route"), (self.destinations, "destination")];
        let looked = looked.into_iter().filter(|(number, _)| *number > 0).map(count);
        let looked = looked.collect::<Vec<_>>().join(", ");
        if self.findings.is_empty() {
            return format!("nothing found: {looked}");
        }
        let mut text = String::new();
        let mut place = "";
        for Found { place: at, finding } in &self.findings {
            if at != place {
                text.push_str(&format!("{at}\n"));
                place = at;
            }
            let Finding { severity, code, subject, reason, fix } = finding;
            let (subject, reason) = (harmless(subject), harmless(reason));
            text.push_str(&format!("\n  {severity} {code}: {subject}\n  {reason}\n\n"));
            fix.lines().for_each(|line| text.push_str(&format!("    {}\n", harmless(line))));
            text.push('\n');
        }
        let number = |wanted| self.findings.iter().filter(|found| found.finding.severity == wanted).count();
        let [problems, warnings, notes] = [
            (number(Severity::Problem), "problem"),
            (number(Severity::Warning), "warning"),
            (number(Severity::Note), "note"),
        ]
        .map(count);
        text.push_str(&format!("{problems}, {warnings}, {notes}: {looked}"));
        text
    }
}

/// Names and errors come from others: they cannot write to the terminal as they like.
fn harmless(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

fn count((number, what): (usize, &str)) -> String {
    format!("{number} {what}{}", if number == 1 { "" } else { "s" })
}
