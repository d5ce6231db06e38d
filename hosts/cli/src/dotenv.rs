//! Files of variables, as `.env` files are usually written: `NAME=VALUE`, `export`, quotes and comments.
//!
//! Nothing is expanded, and the environment of the process has no part in it. A line that could be meant in two ways is an
//! error, which repeats no text: it may be a secret.

use std::{iter::Peekable, str::Chars};

/// A line that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Unreadable {
    /// The number of the line.
    pub(crate) line: usize,
    /// The rule that it breaks.
    pub(crate) why: &'static str,
}

/// Returns names and values in their order.
///
/// # Errors
/// The first line that cannot be read.
pub(crate) fn read(text: &str) -> Result<Vec<(String, String)>, Unreadable> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut reader = Reader { rest: text.chars().peekable(), line: 1 };
    let mut variables = Vec::new();
    while reader.rest.peek().is_some() {
        variables.extend(reader.line()?);
    }
    Ok(variables)
}

struct Reader<'a> {
    rest: Peekable<Chars<'a>>,
    line: usize,
}

impl Reader<'_> {
    /// Reads a line with its end, or the lines of a value between quotes; `None` if it has no variable.
    fn line(&mut self) -> Result<Option<(String, String)>, Unreadable> {
        let begin = self.line;
        let fail = |why| Err(Unreadable { line: begin, why });
        self.skip_blanks();
        if matches!(self.rest.peek(), None | Some('\n' | '\r' | '#')) {
            self.rest_of_line();
            return Ok(None);
        }
        let mut name = self.word();
        let has_blanks = self.skip_blanks();
        if name == "export" && has_blanks && self.rest.peek() != Some(&'=') {
            name = self.word();
            self.skip_blanks();
        }
        if name.is_empty() || self.rest.next_if_eq(&'=').is_none() {
            return fail("must be NAME=VALUE, a comment or empty");
        }
        self.skip_blanks();
        let value = match self.rest.peek() {
            Some('\'') => self.quoted('\''),
            Some('"') => self.quoted('"'),
            Some('#') => return fail("a value that begins with # must be in quotes"),
            _ => return Ok(Some((name, unquoted(&self.rest_of_line())))),
        };
        let value = match value {
            Ok(value) => value,
            Err(why) => return fail(why),
        };
        let after = self.rest_of_line();
        let after = after.trim();
        if !after.is_empty() && !after.starts_with('#') {
            return fail("has more after the closing quote");
        }
        Ok(Some((name, value)))
    }

    fn skip_blanks(&mut self) -> bool {
        let mut has_any = false;
        while self.rest.next_if(|next| matches!(next, ' ' | '\t')).is_some() {
            has_any = true;
        }
        has_any
    }

    fn word(&mut self) -> String {
        let mut word = String::new();
        while let Some(next) = self.rest.next_if(|next| next.is_ascii_alphanumeric() || *next == '_') {
            word.push(next);
        }
        word
    }

    /// Returns the rest of the line, and reads its end.
    fn rest_of_line(&mut self) -> String {
        let mut rest = String::new();
        for next in self.rest.by_ref() {
            if next == '\n' {
                self.line += 1;
                break;
            }
            rest.push(next);
        }
        rest
    }

    /// Reads a value between quotes: as it is between single ones, with escapes between double ones.
    fn quoted(&mut self, quote: char) -> Result<String, &'static str> {
        self.rest.next();
        let mut value = String::new();
        while let Some(next) = self.rest.next() {
            match next {
                close if close == quote => return Ok(value),
                '\\' if quote == '"' => value.push(match self.rest.next() {
                    Some('n') => '\n',
                    Some('r') => '\r',
                    Some('t') => '\t',
                    Some(same @ ('\\' | '"' | '\'' | '$' | '`')) => same,
                    _ => return Err("has an escape that is unknown; \\n, \\r, \\t, \\\\, \\\" and \\$ are known"),
                }),
                other => {
                    self.line += usize::from(other == '\n');
                    value.push(other);
                }
            }
        }
        Err("has a quote that is not closed")
    }
}

/// Returns a value without quotes: up to a comment, without the blanks around it.
fn unquoted(text: &str) -> String {
    let comment = text.match_indices('#').map(|(at, _)| at).find(|at| text[..*at].ends_with([' ', '\t']));
    text[..comment.unwrap_or(text.len())].trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        read(text).unwrap()
    }

    #[test]
    fn usual_files_are_read() {
        let text = "\u{feff}# a comment\r\n\nA=1\r\nexport B = two words # and why\n  C='$HOME \"x\" #'  # c\nD=\"a\\n\\\"b\\\" \\$\"\n\
                    E=\nF=a#b\nG=\"one\ntwo\"\nH=it's\nexport=5\nURL=postgres://u:p@h/db?x=1";
        let read = pairs(text);
        let read: Vec<_> = read.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(
            read,
            [
                ("A", "1"),
                ("B", "two words"),
                ("C", "$HOME \"x\" #"),
                ("D", "a\n\"b\" $"),
                ("E", ""),
                ("F", "a#b"),
                ("G", "one\ntwo"),
                ("H", "it's"),
                ("export", "5"),
                ("URL", "postgres://u:p@h/db?x=1"),
            ]
        );
        assert!(pairs("").is_empty() && pairs("#").is_empty() && pairs(" ").is_empty());
    }

    #[test]
    fn line_that_cannot_be_read_is_named_by_its_number() {
        for (text, line) in [
            ("A=1\nhunter2", 2),
            ("A: 1", 1),
            ("=1", 1),
            ("A-B=1", 1),
            ("A='x", 1),
            ("\n\nA=\"x\ny", 3),
            ("A=\"x\" y", 1),
            ("A=\"\\x\"", 1),
            ("A=#x", 1),
            ("B=\"1\n2\"\nexport A B=1", 3),
        ] {
            assert_eq!(read(text).unwrap_err().line, line, "{text}");
        }
    }
}
