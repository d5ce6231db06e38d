//! Fits a table to a terminal: what says least gives way first.

use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

use super::{Cell, Column, GAP, widths};

/// The least width of a column that is cut.
const CUT_MIN: usize = 8;

/// How a column gives way on a terminal that is narrower than the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fit {
    /// The column stays as it is.
    Keep,
    /// Images lose registry and path; then the ends of their names.
    Image,
    /// Times lose year and seconds.
    Time,
    /// Texts lose their ends.
    Cut,
    /// The column is left out; of several, the one with the lowest number first.
    Drop(u8),
}

/// Makes the table no wider than this, if that is possible: shortens images and times, gives up least widths, leaves out
/// columns, and cuts the widest cells.
pub(super) fn fit(columns: &mut Vec<Column>, rows: &mut [Vec<Cell>], width: usize) {
    let is_wide = |columns: &[Column], rows: &[Vec<Cell>]| total(&widths(columns, rows)) > width;
    for (kind, shorter) in [(Fit::Image, image as fn(&str) -> String), (Fit::Time, time)] {
        if is_wide(columns, rows) {
            change(columns, rows, kind, shorter);
        }
    }
    if is_wide(columns, rows) {
        columns.iter_mut().for_each(|column| column.1 = 0);
    }
    while is_wide(columns, rows)
        && let Some((index, _)) = droppable(columns)
    {
        columns.remove(index);
        rows.iter_mut().filter(|row| index < row.len()).for_each(|row| drop(row.remove(index)));
    }
    let mut allowed = widths(columns, rows);
    while total(&allowed) > width
        && let Some(index) = widest_that_is_cut(columns, &allowed)
    {
        allowed[index] -= 1;
    }
    for row in rows {
        row.iter_mut().zip(&allowed).for_each(|(cell, allowed)| cell.text = cut(&cell.text, *allowed));
    }
}

fn total(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + GAP * widths.len().saturating_sub(1)
}

fn change(columns: &[Column], rows: &mut [Vec<Cell>], kind: Fit, shorter: fn(&str) -> String) {
    for row in rows {
        for (cell, _) in row.iter_mut().zip(columns).filter(|(_, column)| column.2 == kind) {
            cell.text = shorter(&cell.text);
        }
    }
}

fn droppable(columns: &[Column]) -> Option<(usize, u8)> {
    let given = columns.iter().enumerate().filter_map(|(index, column)| match column.2 {
        Fit::Drop(order) => Some((index, order)),
        Fit::Keep | Fit::Image | Fit::Time | Fit::Cut => None,
    });
    given.min_by_key(|(_, order)| *order)
}

fn widest_that_is_cut(columns: &[Column], widths: &[usize]) -> Option<usize> {
    let cut = columns.iter().zip(widths).enumerate().filter(|(_, (column, width))| {
        matches!(column.2, Fit::Cut | Fit::Image) && **width > CUT_MIN.max(column.0.width())
    });
    cut.max_by_key(|(_, (_, width))| **width).map(|(index, _)| index)
}

/// Returns an image without registry and path.
fn image(image: &str) -> String {
    image.rsplit_once('/').map_or(image, |(_, name)| name).to_owned()
}

/// Returns `2026-01-02T03:04:05Z` as `01-02 03:04`, and any other text as it is.
fn time(time: &str) -> String {
    match (time.get(5..10), time.get(11..16), time.len()) {
        (Some(date), Some(clock), 20) if time.ends_with('Z') => format!("{date} {clock}"),
        _ => time.to_owned(),
    }
}

/// Returns the beginning of a text that is too wide, with an ellipsis.
fn cut(text: &str, width: usize) -> String {
    if text.width() <= width {
        return text.to_owned();
    }
    let mut left = width.saturating_sub(1);
    let fits = |character: &char| {
        let rest = left.checked_sub(character.width().unwrap_or(0));
        rest.inspect(|rest| left = *rest).is_some()
    };
    let mut shown: String = text.chars().take_while(fits).collect();
    shown.push('…');
    shown
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::{Colour, Style, render};

    const COLUMNS: [Column; 4] = [
        Column("#", 4, Fit::Keep),
        Column("IMAGE", 0, Fit::Image),
        Column("BY", 0, Fit::Drop(1)),
        Column("WHEN", 0, Fit::Cut),
    ];

    fn at(width: usize) -> String {
        let cells = ["7", "registry.example.com:5000/team/api:def456a", "webhook", "9 min ago (failed, on cluster)"];
        render(&COLUMNS, &[cells.map(Cell::new).to_vec()], Style { colour: Colour::Off, width: Some(width) })
    }

    #[test]
    fn what_says_least_gives_way_first() {
        let wide = at(120);
        assert!(wide.contains("registry.example.com:5000/team/api:def456a") && wide.contains("BY"), "{wide}");
        assert_eq!(
            at(80),
            "#     IMAGE        BY       WHEN\n7     api:def456a  webhook  9 min ago (failed, on cluster)\n"
        );
        assert_eq!(at(48), "#  IMAGE        WHEN\n7  api:def456a  9 min ago (failed, on cluster)\n");
        assert_eq!(at(40), "#  IMAGE        WHEN\n7  api:def456a  9 min ago (failed, on c…\n");
    }

    #[test]
    fn no_line_is_wider_than_the_terminal_down_to_the_least_widths() {
        for width in 22..130 {
            let table = at(width);
            assert!(table.lines().all(|line| line.width() <= width), "{width}: {table}");
        }
        assert!(!at(1).is_empty());
    }

    #[test]
    fn wide_characters_are_cut_by_what_a_terminal_shows() {
        assert_eq!(cut("短い短い", 5), "短い…");
        assert_eq!(cut("短い短い", 4), "短…");
        assert_eq!(cut("plain", 5), "plain");
        assert_eq!(cut("plain", 0), "…");
    }

    #[test]
    fn times_and_images_are_shortened_only_where_they_are_some() {
        assert_eq!(time("2026-01-02T03:04:05Z"), "01-02 03:04");
        assert_eq!(time("-"), "-");
        assert_eq!(image("api:1"), "api:1");
    }
}
