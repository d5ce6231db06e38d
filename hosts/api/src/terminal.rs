//! Text that a program has written for a terminal, such as the log of a build.

use rollhook_core::text::escaped;

/// The characters that begin an escape sequence.
pub const INTRODUCERS: [char; 2] = ['\u{1b}', '\u{9b}'];

/// Reads the escape sequence at the begin of a text. Returns its parameters if it sets a style, and what follows it.
pub fn sequence(text: &str) -> (Option<&str>, &str) {
    let (introducer, rest) = match text.strip_prefix("\u{1b}[").or_else(|| text.strip_prefix('\u{9b}')) {
        Some(rest) => ('[', rest),
        None => {
            let after = text.get(1..).unwrap_or_default();
            let Some(kind) = after.chars().next() else { return (None, "") };
            (kind, &after[kind.len_utf8()..])
        }
    };
    match introducer {
        '[' => {
            let end = rest.find(|character: char| !matches!(character, '0'..='?' | ' '..='/'));
            let Some(end) = end else { return (None, "") };
            let last = rest[end..].chars().next().unwrap_or_default();
            ((last == 'm').then_some(&rest[..end]), &rest[end + last.len_utf8()..])
        }
        // Titles, links and other strings, up to BEL or ST.
        ']' | 'P' | '_' | '^' | 'X' => match rest.find(['\u{7}', '\u{1b}', '\u{9c}']) {
            Some(end) if rest[end..].starts_with("\u{1b}\\") => (None, &rest[end + 2..]),
            Some(end) if rest[end..].starts_with('\u{1b}') => (None, &rest[end..]),
            Some(end) => (None, &rest[end + rest[end..].chars().next().map_or(1, char::len_utf8)..]),
            None => (None, ""),
        },
        '(' | ')' | '#' | '%' => (None, rest.get(1..).unwrap_or_default()),
        _ => (None, rest),
    }
}

/// Returns a line without styles, as a terminal may show it: escape sequences are left out, and so is text that a
/// carriage return lets later text overwrite; tabs stay, and other control characters are escaped.
pub fn plain(line: &str) -> String {
    let line = line.trim_end_matches(['\r', '\n']);
    let mut rest = line.rsplit_once('\r').map_or(line, |(_, last)| last);
    let mut shown = String::with_capacity(rest.len());
    let mut push = |text: &str| {
        let parts: Vec<String> = text.split('\t').map(escaped).collect();
        shown.push_str(&parts.join("\t"));
    };
    while let Some(start) = rest.find(INTRODUCERS) {
        push(&rest[..start]);
        rest = sequence(&rest[start..]).1;
    }
    push(rest);
    shown
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_has_no_escape_sequence_left() {
        for (line, shown) in [
            ("plain\ttext", "plain\ttext"),
            ("\u{1b}[32m ---> \u{1b}[0mdone", " ---> done"),
            ("\u{1b}[2J\u{1b}[1;1Hgone", "gone"),
            ("\u{1b}]0;title\u{7}a\u{1b}]8;;https://example.com\u{1b}\\link", "alink"),
            ("10%\r50%\r100%\r", "100%"),
            ("\u{9b}31mred \u{1b}", "red "),
            ("bell \u{7} and \u{202e} turned", "bell \\u{7} and \\u{202e} turned"),
            ("\u{1b}(Bcharset \u{1b}cü", "charset ü"),
            ("\u{1b}[31", ""),
            ("\u{1b}\u{e4}x", "x"),
        ] {
            assert_eq!(plain(line), shown, "{line:?}");
        }
    }
}
