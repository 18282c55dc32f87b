//! A table: a head, rows, and its two forms.

use std::fmt::Write as _;

/// A table.
#[derive(Clone, Debug)]
pub struct Table {
    title: String,
    about: String,
    head: Vec<String>,
    rows: Vec<Vec<String>>,
    /// Whether all but the first column are figures.
    figures: bool,
}

impl Table {
    pub(crate) fn new(title: impl Into<String>, about: impl Into<String>, head: &[&str]) -> Self {
        Self {
            title: title.into(),
            about: about.into(),
            head: head.iter().map(|name| (*name).to_owned()).collect(),
            rows: Vec::new(),
            figures: true,
        }
    }

    pub(crate) fn of_words(title: &str, about: &str, head: &[&str]) -> Self {
        Self {
            figures: false,
            ..Self::new(title, about, head)
        }
    }

    pub(crate) fn push(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// For the terminal.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let mut text = format!("{}\n", self.title);
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}", self.about);
        }
        let rule: Vec<String> = widths.iter().map(|width| "─".repeat(*width)).collect();
        for cells in [&self.head, &rule].into_iter().chain(&self.rows) {
            let _ = writeln!(text, "  {}", self.line(cells, &widths, "  ").trim_end());
        }
        text
    }

    /// For a document.
    pub fn markdown(&self) -> String {
        let widths = self.widths();
        let mut text = format!("### {}\n\n", self.title);
        if !self.about.is_empty() {
            let _ = writeln!(text, "{}\n", self.about);
        }
        let rule: Vec<String> = widths
            .iter()
            .enumerate()
            .map(|(i, width)| {
                if self.is_figure(i) {
                    "-".repeat(width.max(&2) - 1) + ":"
                } else {
                    "-".repeat(*width)
                }
            })
            .collect();
        for cells in [&self.head, &rule].into_iter().chain(&self.rows) {
            let _ = writeln!(text, "| {} |", self.line(cells, &widths, " | "));
        }
        text
    }

    fn line(&self, cells: &[String], widths: &[usize], between: &str) -> String {
        let padded: Vec<String> = cells
            .iter()
            .zip(widths)
            .enumerate()
            .map(|(i, (cell, width))| {
                let space = " ".repeat(width.saturating_sub(cell.chars().count()));
                if self.is_figure(i) {
                    format!("{space}{cell}")
                } else {
                    format!("{cell}{space}")
                }
            })
            .collect();
        padded.join(between)
    }

    fn is_figure(&self, column: usize) -> bool {
        self.figures && column > 0
    }

    fn widths(&self) -> Vec<usize> {
        (0..self.head.len())
            .map(|column| {
                [&self.head]
                    .into_iter()
                    .chain(&self.rows)
                    .filter_map(|cells| cells.get(column))
                    .map(|cell| cell.chars().count())
                    .max()
                    .unwrap_or_default()
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_lines_up_in_both_forms() {
        let mut table = Table::new("T", "", &["name", "ns"]);
        table.push(["a".to_owned(), "1,000".to_owned()]);
        assert_eq!(
            table.text(),
            "T\n  name     ns\n  ────  ─────\n  a     1,000\n"
        );
        assert_eq!(
            table.markdown(),
            "### T\n\n| name |    ns |\n| ---- | ----: |\n| a    | 1,000 |\n"
        );
    }
}
