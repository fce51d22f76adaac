//! Tables for terminal output.

use std::fmt;

const GAP: usize = 2;
/// Longer cells are cut; the JSON output has the whole value.
const MAX_CELL_WIDTH: usize = 60;

/// Rows under a heading.
#[derive(Debug)]
pub(crate) struct Table<const N: usize> {
    rows: Vec<[String; N]>,
}

impl<const N: usize> Table<N> {
    pub(crate) fn new(heading: [&str; N]) -> Self {
        Self { rows: vec![heading.map(str::to_owned)] }
    }

    pub(crate) fn push(&mut self, row: [String; N]) {
        self.rows.push(row.map(|cell| cell_text(&cell)));
    }
}

/// The text of a cell: on one line, without control characters, and cut to the maximum width.
fn cell_text(text: &str) -> String {
    let mut cell: String =
        text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(MAX_CELL_WIDTH + 1).collect();
    if cell.chars().count() > MAX_CELL_WIDTH {
        cell.pop();
        cell.pop();
        cell.push('…');
    }
    if cell.is_empty() { "-".to_owned() } else { cell }
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
    fn columns_are_aligned_and_cells_are_sanitized() {
        let mut table = Table::new(["KEY", "ERROR"]);
        table.push(["order-17".to_owned(), "gone\n\u{1b}[2Jaway".to_owned()]);
        table.push([String::new(), "x".repeat(70)]);
        let cut = format!("{}…", "x".repeat(59));
        assert_eq!(table.to_string(), format!("KEY       ERROR\norder-17  gone  [2Jaway\n-         {cut}\n"));
    }
}
