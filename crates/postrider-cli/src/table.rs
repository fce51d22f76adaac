//! Tables for people.

use std::fmt;

const GAP: usize = 2;
/// A cell that says more is cut: the whole of it is in the JSON.
const WIDEST: usize = 60;

/// Rows under a heading. The last column is as wide as it likes to be.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heading: [&str; N]) -> Self {
        Self { rows: vec![heading.map(str::to_owned)] }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| line(&cell)));
    }
}

/// Text that stays in its cell, and cannot write to the terminal as it likes.
fn line(text: &str) -> String {
    let mut line: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(WIDEST + 1).collect();
    if line.chars().count() > WIDEST {
        line.pop();
        line.pop();
        line.push('…');
    }
    if line.is_empty() { "-".to_owned() } else { line }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let width = |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max();
        let widths: [usize; N] = std::array::from_fn(|column| width(column).unwrap_or_default());
        for row in &self.rows {
            let mut text = String::new();
            for (cell, width) in row.iter().zip(widths) {
                text.push_str(&format!("{cell:<width$}", width = width + GAP));
            }
            writeln!(f, "{}", text.trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_cells_stay_cells() {
        let mut table = Table::new(["KEY", "ERROR"]);
        table.push(["order-17".to_owned(), "gone\n\u{1b}[2Jaway".to_owned()]);
        table.push([String::new(), "x".repeat(70)]);
        let cut = format!("{}…", "x".repeat(59));
        assert_eq!(table.to_string(), format!("KEY       ERROR\norder-17  gone  [2Jaway\n-         {cut}\n"));
    }
}
