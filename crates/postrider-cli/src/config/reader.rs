//! The configuration file while it is read. All problems are collected, so that one run reports every one of them.

use crate::problem::{Code, Problem};
use std::{cell::RefCell, ops::Range, path::Path};

#[derive(Debug)]
pub(crate) struct ConfigReader<'t> {
    file: &'t Path,
    text: &'t str,
    /// The text without secrets, for error messages; none if the file cannot be parsed.
    redacted: Option<String>,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> ConfigReader<'t> {
    pub(crate) fn new(file: &'t Path, text: &'t str, redacted: Option<String>) -> Self {
        Self { file, text, redacted, problems: RefCell::default() }
    }

    pub(crate) fn line_of(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// The text of a value as it is written in the file.
    pub(crate) fn written(&self, span: &Range<usize>) -> &'t str {
        self.text.get(span.clone()).unwrap_or_default()
    }

    /// The span of a line, without the white space around it.
    fn span_of(&self, line: usize) -> Range<usize> {
        let content = self.text.split_inclusive('\n').nth(line.saturating_sub(1)).unwrap_or_default();
        let end_before: usize =
            self.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let indent = content.len() - content.trim_start().len();
        end_before + indent..end_before + content.trim_end().len().max(indent)
    }

    /// Records a problem in `line`, and what to write there instead.
    pub(crate) fn report(&self, line: usize, what: impl AsRef<str>, help: impl Into<String>) {
        let what = format!("{}:{line}: {}", self.file.display(), what.as_ref());
        let problem = Problem::new(what, help).with_code(Code::Config);
        let problem = match &self.redacted {
            Some(text) => problem.at(self.file.to_string_lossy(), text.clone(), self.span_of(line)),
            None => problem,
        };
        self.problems.borrow_mut().push((line, problem));
    }

    /// Records a problem of the environment or of a flag.
    pub(crate) fn report_outside_file(&self, what: String, help: &str) {
        self.problems.borrow_mut().push((0, Problem::new(what, help).with_code(Code::Config)));
    }

    /// All problems, in the order of the file.
    pub(crate) fn problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(line, _)| *line);
        problems.into_iter().map(|(_, problem)| problem).collect()
    }
}
