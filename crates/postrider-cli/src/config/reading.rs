//! The file while it is read. What is wrong is collected, so that one look tells everything.

use crate::problem::{Code, Problem};
use std::{cell::RefCell, ops::Range, path::Path};

#[derive(Debug)]
pub(crate) struct Reading<'t> {
    file: &'t Path,
    text: &'t str,
    /// The text as it may be shown, if there is one.
    shown: Option<String>,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Reading<'t> {
    pub(crate) fn new(file: &'t Path, text: &'t str, shown: Option<String>) -> Self {
        Self { file, text, shown, problems: RefCell::default() }
    }

    pub(crate) fn line_of(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// What is written in a line.
    fn span_of(&self, line: usize) -> Range<usize> {
        let written = self.text.split_inclusive('\n').nth(line.saturating_sub(1)).unwrap_or_default();
        let end_before: usize =
            self.text.split_inclusive('\n').take(line.saturating_sub(1)).map(str::len).sum();
        let indent = written.len() - written.trim_start().len();
        end_before + indent..end_before + written.trim_end().len().max(indent)
    }

    /// Notes what is wrong in `line`, and what to write there instead.
    pub(crate) fn wrong(&self, line: usize, what: impl AsRef<str>, help: impl Into<String>) {
        let what = format!("{}:{line}: {}", self.file.display(), what.as_ref());
        let problem = Problem::new(what, help).coded(Code::Config);
        let problem = match &self.shown {
            Some(shown) => problem.at(self.file.to_string_lossy(), shown.clone(), self.span_of(line)),
            None => problem,
        };
        self.problems.borrow_mut().push((line, problem));
    }

    /// Notes what is wrong, though not in the file.
    pub(crate) fn wrong_elsewhere(&self, what: String, help: &str) {
        self.problems.borrow_mut().push((0, Problem::new(what, help).coded(Code::Config)));
    }

    /// What was wrong, in the order of the file.
    pub(crate) fn problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(line, _)| *line);
        problems.into_iter().map(|(_, problem)| problem).collect()
    }
}
