//! README and the pages below `docs`, for tests that run their commands as printed.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// A page of the documentation.
#[derive(Debug)]
pub struct Page {
    /// The path below the root of the workspace.
    pub name: String,
    /// The text, in Markdown.
    pub text: String,
}

/// A block of code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Block {
    /// The words behind the opening fence, such as `rust,no_run`.
    pub language: String,
    /// The lines between the fences.
    pub text: String,
}

/// A command as a page prints it, without its comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PrintedCommand {
    /// The page that prints it.
    pub page: String,
    /// The words of the command, without quotes.
    pub words: Vec<String>,
    /// Whether it is printed within a sentence.
    pub is_inline: bool,
}

/// README and every page below `docs`.
#[must_use]
pub fn pages() -> Vec<Page> {
    fn collect(folder: &Path, found: &mut Vec<PathBuf>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                found.push(path);
            }
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap();
    let mut paths = vec![root.join("README.md")];
    collect(&root.join("docs"), &mut paths);
    paths.sort();
    let page = |path: PathBuf| Page {
        name: path.strip_prefix(&root).unwrap().display().to_string(),
        text: fs::read_to_string(&path).unwrap(),
    };
    paths.into_iter().map(page).collect()
}

/// The page with this path below the root of the workspace.
#[must_use]
pub fn page(name: &str) -> Page {
    pages().into_iter().find(|page| page.name == name).unwrap_or_else(|| panic!("there is no page {name}"))
}

/// The commands of all pages that begin with these words.
#[must_use]
pub fn commands(begin: &str) -> Vec<PrintedCommand> {
    pages().iter().flat_map(|page| page.commands(begin)).collect()
}

impl Page {
    /// The blocks of code, in their order.
    #[must_use]
    pub fn blocks(&self) -> Vec<Block> {
        let block = |part: &str| {
            let (language, text) = part.split_once('\n').unwrap_or((part, ""));
            Block { language: language.trim().to_owned(), text: text.to_owned() }
        };
        self.text.split("```").skip(1).step_by(2).map(block).collect()
    }

    /// The commands that begin with these words: in blocks of shell, and between backticks.
    #[must_use]
    pub fn commands(&self, begin: &str) -> Vec<PrintedCommand> {
        let blocks = self.blocks().into_iter().filter(|block| block.language.starts_with("sh"));
        let lines = blocks.flat_map(|block| {
            let joined = block.text.replace("\\\n", " ");
            joined.lines().map(|line| line.trim().to_owned()).collect::<Vec<_>>()
        });
        let text: String = self.text.split("```").step_by(2).collect();
        let inline = text.split('`').skip(1).step_by(2).map(|code| code.replace('\n', " "));
        let begin = split_words(begin);
        let command = |(line, is_inline): (String, bool)| {
            let words = split_words(&line);
            let command = || PrintedCommand { page: self.name.clone(), words: words.clone(), is_inline };
            words.starts_with(&begin).then(command)
        };
        lines.map(|line| (line, false)).chain(inline.map(|line| (line, true))).filter_map(command).collect()
    }
}

impl PrintedCommand {
    /// The word behind this one.
    #[must_use]
    pub fn after(&self, word: &str) -> Option<&str> {
        let at = self.words.iter().position(|other| other == word)?;
        self.words.get(at + 1).map(String::as_str)
    }
}

impl std::fmt::Display for PrintedCommand {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{}: {}", self.page, self.words.join(" "))
    }
}

/// The words of a command line, up to a comment, a pipe, a redirection or another command.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    for c in line.chars() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if open == c => quote = None,
            (None, '#' | '|' | '>' | '&' | ';' | '(' | ')') => break,
            (None, ' ') => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            _ => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str, begin: &str) -> Vec<(String, bool)> {
        let page = Page { name: "README.md".to_owned(), text: text.to_owned() };
        page.commands(begin).into_iter().map(|found| (found.words.join(" "), found.is_inline)).collect()
    }

    #[test]
    fn commands_are_found_in_blocks_and_sentences() {
        let text = "Run `postrider doctor` or\n`postrider\nstatus --db 'a b'`, not `cargo`:\n\n\
                    ```sh once\npostrider gc \\\n    --dry-run # comment\nls\n```\n\n```text\npostrider printed\n```\n";
        let expected = [
            ("postrider gc --dry-run", false),
            ("postrider doctor", true),
            ("postrider status --db a b", true),
        ];
        assert_eq!(lines(text, "postrider"), expected.map(|(line, inline)| (line.to_owned(), inline)));
        assert_eq!(lines(text, "postrider gc").len(), 1);
        assert!(lines(text, "post").is_empty());
    }
}
