//! An error for the user: what is wrong, its code, and what to do about it.
//!
//! On a terminal it is drawn, with the position in the file if there is one. Otherwise it is two lines that are easy to search
//! for: `error[config]: …` and `help: …`.

use crate::exit::Exit;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal},
    ops::Range,
};

/// The minimum width of a drawn error.
const MIN_WIDTH: usize = 40;

/// The code of an error. The names are stable; `docs/guides/errors.md` explains each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Code {
    Usage,
    NotFound,
    Config,
    Database,
    Schema,
    Ledger,
    Listen,
    Output,
    Failed,
}

impl Code {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Usage => "usage",
            Self::NotFound => "not_found",
            Self::Config => "config",
            Self::Database => "database",
            Self::Schema => "schema",
            Self::Ledger => "ledger",
            Self::Listen => "listen",
            Self::Output => "output",
            Self::Failed => "failed",
        }
    }
}

/// An error with advice.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    advice: String,
    code: Code,
    exit: Exit,
    snippet: Option<Box<Snippet>>,
}

/// The part of a file that the error is about.
#[derive(Debug)]
struct Snippet {
    file: NamedSource<String>,
    span: Range<usize>,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            advice: advice.into(),
            code: Code::Failed,
            exit: Exit::Failed,
            snippet: None,
        }
    }

    /// Sets the code.
    pub(crate) fn with_code(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// Sets the exit code of the program.
    pub(crate) fn with_exit(self, exit: Exit) -> Self {
        let code = match exit {
            Exit::Usage => Code::Usage,
            Exit::NotFound => Code::NotFound,
            _ => self.code,
        };
        Self { exit, code, ..self }
    }

    /// Sets the position in `file`, whose text is shown around it. The text must not contain secrets.
    pub(crate) fn at(self, file: impl AsRef<str>, text: String, span: Range<usize>) -> Self {
        Self { snippet: Some(Box::new(Snippet { file: NamedSource::new(file, text), span })), ..self }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> &str {
        &self.advice
    }

    /// Replaces the advice.
    pub(crate) fn with_advice(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// The error on one line, for the log.
    pub(crate) fn one_line(&self) -> String {
        format!("{}; {}", self.what, self.advice)
    }

    /// Prints the error on stderr.
    pub(crate) fn print(&self) {
        let text = match io::stderr().is_terminal() {
            true => draw(self).unwrap_or_else(|fmt::Error| self.plain()),
            false => self.plain(),
        };
        eprintln!("{}", text.trim_end());
    }

    fn plain(&self) -> String {
        format!("error[{}]: {}\n  help: {}", self.code.word(), self.what, self.advice)
    }
}

fn draw(problem: &Problem) -> Result<String, fmt::Error> {
    let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let width = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(columns, _)| columns.0.into());
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(MIN_WIDTH.max(width))
        .with_context_lines(1)
        .with_wrap_lines(true);
    let mut text = String::new();
    handler.render_report(&mut text, problem)?;
    Ok(text)
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for Problem {}

impl Diagnostic for Problem {
    fn code<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(Box::new(format!("postrider::{}", self.code.word())))
    }

    fn help<'a>(&'a self) -> Option<Box<dyn Display + 'a>> {
        Some(Box::new(&self.advice))
    }

    fn source_code(&self) -> Option<&dyn SourceCode> {
        Some(&self.snippet.as_ref()?.file)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.snippet.as_ref()?.span.clone();
        Some(Box::new([LabeledSpan::new_with_span(None, span)].into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_guide_documents_every_code() {
        let guide = include_str!("../../../docs/guides/errors.md");
        let codes = [
            Code::Usage,
            Code::NotFound,
            Code::Config,
            Code::Database,
            Code::Schema,
            Code::Ledger,
            Code::Listen,
            Code::Output,
            Code::Failed,
        ];
        let explained: Vec<_> =
            guide.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
        let expected: Vec<_> = codes.iter().map(|code| code.word()).chain(["mistake"]).collect();
        assert_eq!(explained, expected);
    }

    #[test]
    fn problem_is_one_line_in_the_log() {
        let problem = Problem::new("port 80 is in use", "choose another");
        assert_eq!(problem.one_line(), "port 80 is in use; choose another");
        assert_eq!(problem.plain(), "error[failed]: port 80 is in use\n  help: choose another");
    }
}
