//! The file while it is read. What is wrong is collected, so that one look tells everything.

use crate::problem::Problem;
use std::{cell::RefCell, ops::Range, path::Path};

#[derive(Debug)]
pub(crate) struct Reading<'t> {
    file: &'t Path,
    text: &'t str,
    problems: RefCell<Vec<(usize, Problem)>>,
}

impl<'t> Reading<'t> {
    pub(crate) fn new(file: &'t Path, text: &'t str) -> Self {
        Self { file, text, problems: RefCell::default() }
    }

    pub(crate) fn line_of(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// Notes what is wrong in `line`, and what to write there instead.
    pub(crate) fn wrong(&self, line: usize, what: impl AsRef<str>, help: impl Into<String>) {
        let what = format!("{}:{line}: {}", self.file.display(), what.as_ref());
        self.problems.borrow_mut().push((line, Problem::new(what, help)));
    }

    /// Notes what is wrong, though not in the file.
    pub(crate) fn wrong_elsewhere(&self, what: String, help: &str) {
        self.problems.borrow_mut().push((0, Problem::new(what, help)));
    }

    /// What was wrong, in the order of the file.
    pub(crate) fn problems(self) -> Vec<Problem> {
        let mut problems = self.problems.into_inner();
        problems.sort_by_key(|(line, _)| *line);
        problems.into_iter().map(|(_, problem)| problem).collect()
    }
}
