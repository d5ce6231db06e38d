//! Tables whose columns line up for any content.

use rollhook_core::text::escaped;
use unicode_width::UnicodeWidthStr;

/// The spaces between two columns.
const GAP: usize = 2;

/// A column's heading and least width.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) usize);

/// Whether tables have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

/// The meaning of a cell's colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tint {
    Good,
    Bad,
    Busy,
}

impl Tint {
    const fn code(self) -> &'static str {
        match self {
            Self::Good => "32",
            Self::Bad => "31",
            Self::Busy => "33",
        }
    }
}

/// A cell; its text may come from strangers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cell {
    text: String,
    tint: Option<Tint>,
}

impl Cell {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self { text: text.into(), tint: None }
    }

    /// Returns a cell with the text, or with a dash.
    pub(crate) fn optional(text: Option<impl Into<String>>) -> Self {
        text.map_or_else(|| Self::new("-"), Self::new)
    }

    #[must_use]
    pub(crate) fn tinted(self, tint: Option<Tint>) -> Self {
        Self { tint, ..self }
    }
}

/// Returns the table's lines. All cells are escaped here.
pub(crate) fn render(columns: &[Column], rows: &[Vec<Cell>], colour: Colour) -> String {
    let rows: Vec<Vec<(String, Option<Tint>)>> =
        rows.iter().map(|row| row.iter().map(|cell| (escaped(&cell.text), cell.tint)).collect()).collect();
    let widths: Vec<usize> = columns
        .iter()
        .enumerate()
        .map(|(index, Column(heading, least))| {
            let cells = rows.iter().filter_map(|row| row.get(index)).map(|(text, _)| text.width());
            cells.chain([heading.width(), *least]).max().unwrap_or(0)
        })
        .collect();
    let headings: Vec<_> = columns.iter().map(|Column(heading, _)| ((*heading).to_owned(), None)).collect();
    let mut lines = line(&headings, &widths, colour);
    for row in &rows {
        lines.push_str(&line(row, &widths, colour));
    }
    lines
}

fn line(cells: &[(String, Option<Tint>)], widths: &[usize], colour: Colour) -> String {
    let mut line = String::new();
    let mut padding = 0;
    for ((text, tint), width) in cells.iter().zip(widths) {
        line.extend(std::iter::repeat_n(' ', padding));
        match tint {
            Some(tint) if colour == Colour::On => line.push_str(&format!("\u{1b}[{}m{text}\u{1b}[0m", tint.code())),
            Some(_) | None => line.push_str(text),
        }
        padding = width.saturating_sub(text.width()) + GAP;
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_by_what_a_terminal_shows() {
        let rows = vec![
            vec![Cell::new("短い"), Cell::new("x")],
            vec![Cell::new("plain"), Cell::new("y")],
            vec![Cell::new("e\u{301}"), Cell::optional(None::<String>)],
        ];
        let table = render(&[Column("A", 0), Column("B", 0)], &rows, Colour::Off);
        assert_eq!(table, "A      B\n短い   x\nplain  y\ne\u{301}      -\n");
    }

    #[test]
    fn no_cell_reaches_the_terminal_unescaped() {
        let rows = vec![vec![Cell::new("\u{1b}[2J\u{9b}31m\r\n\u{202e}x").tinted(Some(Tint::Bad))]];
        let table = render(&[Column("A", 0)], &rows, Colour::Off);
        assert_eq!(table, "A\n\\u{1b}[2J\\u{9b}31m\\u{d}\\u{a}\\u{202e}x\n");
    }

    #[test]
    fn colour_changes_no_width() {
        let rows = vec![vec![Cell::new("ab").tinted(Some(Tint::Good)), Cell::new("c")]];
        let table = render(&[Column("A", 4), Column("B", 0)], &rows, Colour::On);
        assert_eq!(table, "A     B\n\u{1b}[32mab\u{1b}[0m    c\n");
    }
}
