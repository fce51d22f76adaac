//! Tables for terminal output.

use comfy_table::{ColumnConstraint, Row, Width, presets};
use std::{borrow::Cow, fmt, io};

/// The gap between two columns.
const GAP: u16 = 2;
/// No column shrinks below the length of a message id: a cut id is of no use.
const MIN_WIDTH: u16 = 36;

/// Rows under a heading.
///
/// On a terminal, long texts are cut so that a row fits into a line, the last columns first; a row that is still wider wraps. The JSON
/// output has every value in full, and so has a table that is not printed on a terminal.
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

    /// The lines, cut to the width of the terminal if there is one.
    fn lines(&self, terminal_width: Option<u16>) -> Vec<String> {
        let mut table = comfy_table::Table::new();
        table.load_style(presets::NOTHING).set_truncation_indicator("…");
        // No cell contains this delimiter: a cell is cut at the width of its column, not after the last word that fits.
        table.set_delimiter('\0');
        for cells in &self.rows {
            let mut row = match terminal_width {
                Some(width) => Row::from(cells.each_ref().map(|cell| prefix(cell, width.into()))),
                None => Row::from(cells),
            };
            row.max_height(1);
            table.add_row(row);
        }
        for column in table.column_iter_mut() {
            column.set_padding((0, GAP));
        }
        if let Some(terminal_width) = terminal_width {
            let mut widths = table.column_max_content_widths();
            shrink(&mut widths, terminal_width);
            let fixed = |width: u16| ColumnConstraint::Absolute(Width::Fixed(width.saturating_add(GAP)));
            table.set_constraints(widths.into_iter().map(fixed));
        }
        table.lines().map(|line| line.trim_end().to_owned()).collect()
    }
}

/// The text of a cell: on one line, and without control characters.
fn cell_text(text: &str) -> String {
    if text.is_empty() { "-".to_owned() } else { text.replace(char::is_control, " ") }
}

/// The first characters of a cell. The table splits a whole cell into lines before it drops all but the first, which is slow for a long cell.
fn prefix(cell: &str, max_chars: usize) -> Cow<'_, str> {
    match cell.char_indices().nth(max_chars) {
        Some((end, _)) => Cow::Owned(format!("{}…", &cell[..end])),
        None => Cow::Borrowed(cell),
    }
}

/// Shrinks the columns to the width of the terminal, as far as possible.
fn shrink(widths: &mut [u16], terminal_width: u16) {
    let gaps = usize::from(GAP) * widths.len().saturating_sub(1);
    let total: usize = widths.iter().map(|width| usize::from(*width)).sum();
    let mut excess = (total + gaps).saturating_sub(terminal_width.into());
    for width in widths.iter_mut().rev() {
        let cut = width.saturating_sub(MIN_WIDTH).min(u16::try_from(excess).unwrap_or(u16::MAX));
        *width -= cut;
        excess -= usize::from(cut);
    }
}

impl<const N: usize> fmt::Display for Table<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let terminal_width = terminal_size::terminal_size_of(io::stdout()).map(|(columns, _)| columns.0);
        self.lines(terminal_width).iter().try_for_each(|line| writeln!(f, "{line}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table<const N: usize>(rows: &[[&str; N]]) -> Table<N> {
        let mut table = Table::new(rows[0]);
        rows[1..].iter().for_each(|row| table.push(row.map(str::to_owned)));
        table
    }

    fn display_width(line: &str) -> usize {
        ratatui::text::Span::raw(line).width()
    }

    #[test]
    fn columns_are_aligned_and_cells_are_sanitized() {
        let long = "x".repeat(70);
        let table =
            table(&[["KEY", "ERROR"], ["order-17", "gone\n\u{1b}[2J\u{9b}away  now"], ["", &long], ["", ""]]);
        let expected =
            ["KEY       ERROR", "order-17  gone  [2J away  now", &format!("-         {long}"), "-         -"];
        assert_eq!(table.lines(None), expected);
        assert_eq!(table.lines(Some(80)), expected);
    }

    #[test]
    fn columns_are_aligned_by_display_width() {
        let table = table(&[
            ["KEY", "STATE"],
            ["注文", "dead"],
            ["e\u{301}", "done"],
            ["👩‍👩‍👧", "dead"],
            ["order", "done"],
        ]);
        let expected = ["KEY    STATE", "注文   dead", "e\u{301}      done", "👩‍👩‍👧     dead", "order  done"];
        assert_eq!(table.lines(None), expected);
    }

    #[test]
    fn long_texts_shrink_and_ids_do_not() {
        let id = "0190b2c4-0000-7000-8000-000000000001";
        let error = "no such address: 注文 Elm Street 7, second floor, at the back";
        let table = table(&[["ID", "ERROR", "WHY"], [id, error, error]]);
        assert_eq!(table.lines(Some(200))[1], format!("{id}  {error}  {error}"));
        assert_eq!(
            table.lines(Some(150))[1],
            format!("{id}  {error}  no such address: 注文 Elm Street 7, second floor…")
        );
        let shortest = "no such address: 注文 Elm Street 7,…";
        assert_eq!(table.lines(Some(80))[1], format!("{id}  {shortest}  {shortest}"));
    }

    #[test]
    fn rows_fit_into_a_terminal_that_is_wide_enough() {
        let wide = "注文👩‍👩‍👧e\u{301}".repeat(20);
        let table = table(&[["ID", "KEY", "ERROR"], ["1", &wide, "x"], [&wide, "order-17", &wide]]);
        for terminal_width in 3 * (MIN_WIDTH + GAP)..400 {
            for line in table.lines(Some(terminal_width)) {
                assert!(display_width(&line) <= terminal_width.into(), "{terminal_width}: {line}");
            }
        }
    }

    #[test]
    fn any_terminal_width_and_cell_width_is_accepted() {
        let wide = "x".repeat(70_000);
        let table = table(&[["ID", "ERROR"], [&wide, &wide]]);
        for terminal_width in [None, Some(0), Some(1), Some(2000)] {
            assert_eq!(table.lines(terminal_width).len(), 2);
        }
        assert!(Table::<0>::new([]).lines(Some(80)).iter().all(String::is_empty));
    }
}
