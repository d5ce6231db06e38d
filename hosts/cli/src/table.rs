//! Tables whose columns line up for any content, and fit a narrow terminal.

mod fit;

use rollhook_core::text::escaped;
use unicode_width::UnicodeWidthStr;

pub(crate) use fit::Fit;

/// The spaces between two columns.
const GAP: usize = 2;

/// A column's heading and least width, and how it gives way on a narrow terminal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Column(pub(crate) &'static str, pub(crate) usize, pub(crate) Fit);

/// Whether tables have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Colour {
    On,
    Off,
}

/// How tables are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Style {
    /// Whether they have colours.
    pub(crate) colour: Colour,
    /// The width of the terminal that they have to fit; `None`: any width will do.
    pub(crate) width: Option<usize>,
}

impl Style {
    /// The style of a table that keeps all of its columns.
    #[must_use]
    pub(crate) const fn at_any_width(self) -> Self {
        Self { width: None, ..self }
    }
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
pub(crate) fn render(columns: &[Column], rows: &[Vec<Cell>], style: Style) -> String {
    let shown = |cell: &Cell| Cell { text: escaped(&cell.text), tint: cell.tint };
    let mut columns = columns.to_vec();
    let mut rows: Vec<Vec<Cell>> = rows.iter().map(|row| row.iter().map(shown).collect()).collect();
    if let Some(width) = style.width {
        fit::fit(&mut columns, &mut rows, width);
    }
    let widths = widths(&columns, &rows);
    let headings: Vec<_> = columns.iter().map(|Column(heading, ..)| Cell::new(*heading)).collect();
    let mut lines = line(&headings, &widths, style.colour);
    for row in &rows {
        lines.push_str(&line(row, &widths, style.colour));
    }
    lines
}

/// Returns the width of each column.
fn widths(columns: &[Column], rows: &[Vec<Cell>]) -> Vec<usize> {
    let width = |(index, Column(heading, least, _)): (usize, &Column)| {
        let cells = rows.iter().filter_map(|row| row.get(index)).map(|cell| cell.text.width());
        cells.chain([heading.width(), *least]).max().unwrap_or(0)
    };
    columns.iter().enumerate().map(width).collect()
}

fn line(cells: &[Cell], widths: &[usize], colour: Colour) -> String {
    let mut line = String::new();
    let mut padding = 0;
    for (Cell { text, tint }, width) in cells.iter().zip(widths) {
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

    const PLAIN: Style = Style { colour: Colour::Off, width: None };

    #[test]
    fn columns_line_up_by_what_a_terminal_shows() {
        let rows = vec![
            vec![Cell::new("短い"), Cell::new("x")],
            vec![Cell::new("plain"), Cell::new("y")],
            vec![Cell::new("e\u{301}"), Cell::optional(None::<String>)],
        ];
        let table = render(&[Column("A", 0, Fit::Keep), Column("B", 0, Fit::Keep)], &rows, PLAIN);
        assert_eq!(table, "A      B\n短い   x\nplain  y\ne\u{301}      -\n");
    }

    #[test]
    fn no_cell_reaches_the_terminal_unescaped() {
        let rows = vec![vec![Cell::new("\u{1b}[2J\u{9b}31m\r\n\u{202e}x").tinted(Some(Tint::Bad))]];
        let table = render(&[Column("A", 0, Fit::Keep)], &rows, PLAIN);
        assert_eq!(table, "A\n\\u{1b}[2J\\u{9b}31m\\u{d}\\u{a}\\u{202e}x\n");
    }

    #[test]
    fn colour_changes_no_width() {
        let rows = vec![vec![Cell::new("ab").tinted(Some(Tint::Good)), Cell::new("c")]];
        let columns = [Column("A", 4, Fit::Keep), Column("B", 0, Fit::Keep)];
        let table = render(&columns, &rows, Style { colour: Colour::On, width: None });
        assert_eq!(table, "A     B\n\u{1b}[32mab\u{1b}[0m    c\n");
    }
}
