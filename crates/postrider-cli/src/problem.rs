//! What the user is told when something goes wrong: what it is, its code, and what to do about it.
//!
//! On a terminal it is drawn, with the place in the file where there is one. Elsewhere it is two lines that are easy to search
//! for: `error[config]: …` and `help: …`.

use crate::exit::Exit;
use miette::{Diagnostic, GraphicalReportHandler, GraphicalTheme, LabeledSpan, NamedSource, SourceCode};
use std::{
    env,
    fmt::{self, Display},
    io::{self, IsTerminal},
    ops::Range,
};

/// The narrowest picture that can be read.
const NARROWEST: usize = 40;

/// What kind of problem it is. The words are a promise; `docs/guides/errors.md` explains each.
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

/// What went wrong, and what to do about it.
#[derive(Debug)]
pub(crate) struct Problem {
    what: String,
    advice: String,
    code: Code,
    exit: Exit,
    place: Option<Box<Place>>,
}

/// Where in a file it stands.
#[derive(Debug)]
struct Place {
    file: NamedSource<String>,
    span: Range<usize>,
}

impl Problem {
    pub(crate) fn new(what: impl Into<String>, advice: impl Into<String>) -> Self {
        Self { what: what.into(), advice: advice.into(), code: Code::Failed, exit: Exit::Failed, place: None }
    }

    /// Of this kind.
    pub(crate) fn coded(self, code: Code) -> Self {
        Self { code, ..self }
    }

    /// The program ends like this because of it.
    pub(crate) fn ending(self, exit: Exit) -> Self {
        let code = match exit {
            Exit::Misused => Code::Usage,
            Exit::NotFound => Code::NotFound,
            _ => self.code,
        };
        Self { exit, code, ..self }
    }

    /// It stands there in `file`, whose text is shown around it. What is secret must not be in the text any more.
    pub(crate) fn at(self, file: impl AsRef<str>, text: String, span: Range<usize>) -> Self {
        Self { place: Some(Box::new(Place { file: NamedSource::new(file, text), span })), ..self }
    }

    pub(crate) fn exit(&self) -> Exit {
        self.exit
    }

    /// What to do about it.
    pub(crate) fn advice(&self) -> &str {
        &self.advice
    }

    /// The same, where something else has to be done about it.
    pub(crate) fn helped_by(self, advice: impl Into<String>) -> Self {
        Self { advice: advice.into(), ..self }
    }

    /// The same in one line, for a log.
    pub(crate) fn in_a_line(&self) -> String {
        format!("{}; {}", self.what, self.advice)
    }

    /// Tells whoever sits there.
    pub(crate) fn tell(&self) {
        let told = match io::stderr().is_terminal() {
            true => drawn(self).unwrap_or_else(|fmt::Error| self.plain()),
            false => self.plain(),
        };
        eprintln!("{}", told.trim_end());
    }

    fn plain(&self) -> String {
        format!("error[{}]: {}\n  help: {}", self.code.word(), self.what, self.advice)
    }
}

fn drawn(problem: &Problem) -> Result<String, fmt::Error> {
    let colours = env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    let theme = if colours { GraphicalTheme::unicode() } else { GraphicalTheme::unicode_nocolor() };
    let width = terminal_size::terminal_size_of(io::stderr()).map_or(80, |(columns, _)| columns.0.into());
    let handler = GraphicalReportHandler::new_themed(theme)
        .with_width(NARROWEST.max(width))
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
        Some(&self.place.as_ref()?.file)
    }

    fn labels(&self) -> Option<Box<dyn Iterator<Item = LabeledSpan> + '_>> {
        let span = self.place.as_ref()?.span.clone();
        Some(Box::new([LabeledSpan::new_with_span(None, span)].into_iter()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guide_explains_every_code() {
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
    fn a_log_has_it_in_a_line() {
        let problem = Problem::new("the door is shut", "open it");
        assert_eq!(problem.in_a_line(), "the door is shut; open it");
        assert_eq!(problem.plain(), "error[failed]: the door is shut\n  help: open it");
    }
}
