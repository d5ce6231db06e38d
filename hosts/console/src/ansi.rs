//! Build logs: the colours of a terminal as classes; every other control is dropped or made visible.

use rollhook_api::terminal::{INTRODUCERS, sequence};
use rollhook_core::text::escaped;

/// The bytes of HTML after which no further line of a log is shown at once.
const HTML_MAX: usize = 256 << 10;

/// The text of a log as HTML: escaped, with `span`s of fixed classes for colours.
pub(crate) fn html(log: &str) -> String {
    let mut shown = Shown::default();
    for line in log.split_inclusive('\n') {
        shown.line(line);
    }
    shown.end()
}

/// The first lines of a log as HTML, as [`html`] has them, and the number of bytes that they have in the log.
pub(crate) fn part(log: &[u8]) -> (String, usize) {
    let (mut shown, mut length) = (Shown::default(), 0);
    for line in log.split_inclusive(|byte| *byte == b'\n') {
        if shown.html.len() >= HTML_MAX {
            break;
        }
        shown.line(&String::from_utf8_lossy(line));
        length += line.len();
    }
    (shown.end(), length)
}

/// The style that a terminal would have set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Style {
    bold: bool,
    faint: bool,
    italic: bool,
    underlined: bool,
    /// One of 16 colours.
    colour: Option<u8>,
}

#[derive(Default)]
struct Shown {
    html: String,
    style: Style,
    /// The style of the text before, whose `span` is open unless it is the default one.
    open: Style,
}

impl Shown {
    /// Adds a line. Text that a carriage return lets later text overwrite is left out, as of progress bars.
    fn line(&mut self, line: &str) {
        let (text, end) = match line.strip_suffix('\n') {
            Some(text) => (text.strip_suffix('\r').unwrap_or(text), "\n"),
            None => (line, ""),
        };
        let mut rest = text;
        if let Some(start) = text.rfind('\r') {
            // Colours that were set in what is overwritten still count.
            self.skip(&text[..start]);
            rest = &text[start + 1..];
        }
        while let Some(start) = rest.find(INTRODUCERS) {
            self.text(&rest[..start]);
            rest = self.control(&rest[start..]);
        }
        self.text(rest);
        self.html.push_str(end);
    }

    fn skip(&mut self, mut text: &str) {
        while let Some(start) = text.find(INTRODUCERS) {
            text = self.control(&text[start..]);
        }
    }

    fn text(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        // A tab is no danger, and aligns.
        let parts: Vec<String> = text.split('\t').map(escaped).collect();
        let safe = parts.join("\t").replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.open(self.style);
        self.html.push_str(&safe);
    }

    /// Has the text that follows in this style. Text of one style is one `span`, however it was written.
    fn open(&mut self, style: Style) {
        if style == self.open {
            return;
        }
        if self.open != Style::default() {
            self.html.push_str("</span>");
        }
        if style != Style::default() {
            self.html.push_str(&format!("<span class=\"{}\">", style.classes()));
        }
        self.open = style;
    }

    fn end(mut self) -> String {
        self.open(Style::default());
        self.html
    }

    /// Reads an escape sequence at the begin of the text, and returns what follows it.
    fn control<'a>(&mut self, text: &'a str) -> &'a str {
        let (style, rest) = sequence(text);
        if let Some(parameters) = style {
            self.style.set(parameters);
        }
        rest
    }
}

impl Style {
    fn set(&mut self, parameters: &str) {
        let mut codes = parameters.split([';', ':']).map(|code| code.parse::<u16>().unwrap_or(0));
        while let Some(code) = codes.next() {
            match code {
                0 => *self = Self::default(),
                1 => self.bold = true,
                2 => self.faint = true,
                3 => self.italic = true,
                4 => self.underlined = true,
                22 => (self.bold, self.faint) = (false, false),
                23 => self.italic = false,
                24 => self.underlined = false,
                30..=37 => self.colour = u8::try_from(code - 30).ok(),
                90..=97 => self.colour = u8::try_from(code - 82).ok(),
                39 => self.colour = None,
                38 | 48 => {
                    let colour = extended(&mut codes);
                    if code == 38 {
                        self.colour = colour;
                    }
                }
                _ => {}
            }
        }
    }

    fn classes(self) -> String {
        let mut classes = Vec::new();
        for (is_set, class) in [(self.bold, "a-b"), (self.faint, "a-f"), (self.italic, "a-i"), (self.underlined, "a-u")]
        {
            if is_set {
                classes.push(class.to_owned());
            }
        }
        classes.extend(self.colour.map(|colour| format!("a-{colour}")));
        classes.join(" ")
    }
}

/// Returns the nearest of the 16 colours for `5;N` or `2;R;G;B`.
fn extended(codes: &mut impl Iterator<Item = u16>) -> Option<u8> {
    let (red, green, blue) = match codes.next()? {
        5 => match codes.next()? {
            code @ 0..=15 => return u8::try_from(code).ok(),
            code @ 16..=231 => {
                let level = |step: u16| [0, 95, 135, 175, 215, 255][usize::from(step % 6)];
                (level((code - 16) / 36), level((code - 16) / 6), level(code - 16))
            }
            code => {
                let grey = 8 + 10 * code.min(255).saturating_sub(232);
                (grey, grey, grey)
            }
        },
        2 => (codes.next()?, codes.next()?, codes.next()?),
        _ => return None,
    };
    let bit = |value: u16| u8::from(value >= 96);
    let base = bit(red) | bit(green) << 1 | bit(blue) << 2;
    Some(if red.max(green).max(blue) > 200 { base + 8 } else { base })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_classes() {
        assert_eq!(html("\u{1b}[1;32mok\u{1b}[0m done\n"), "<span class=\"a-b a-2\">ok</span> done\n");
        assert_eq!(html("\u{1b}[91mred\u{1b}[39m"), "<span class=\"a-9\">red</span>");
        assert_eq!(html("\u{1b}[38;5;196mx\u{1b}[m"), "<span class=\"a-9\">x</span>");
        assert_eq!(html("\u{1b}[38;2;0;0;255mx\u{1b}[m"), "<span class=\"a-12\">x</span>");
        assert_eq!(html("\u{1b}[48;5;1mplain"), "plain", "a background is left out");
        assert_eq!(html("\u{1b}[33ma\nb"), "<span class=\"a-3\">a\nb</span>");
    }

    #[test]
    fn text_of_one_style_is_one_element_however_it_is_written() {
        let style = "\u{1b}[1;2;3;4;97m";
        for between in ["\u{1b}c", "\n", style, "\u{1b}[48;5;1m"] {
            let text = format!("{style}{}", format!("x{between}").repeat(1000));
            assert_eq!(html(&text).matches("<span").count(), 1, "{between:?}");
        }
    }

    #[test]
    fn part_ends_at_a_line_before_it_is_too_large_and_the_next_one_goes_on_behind_it() {
        let mut log = "\u{1b}[1;2;3;4;97mx\u{1b}[my\n".repeat(20_000).into_bytes();
        log.extend(b"\xff\n".repeat(10));
        let (mut read, mut parts) = (0, 0);
        while read < log.len() {
            let (html, length) = part(&log[read..]);
            assert!(length > 0 && html.len() < HTML_MAX + 100 && log[..read + length].ends_with(b"\n"));
            read += length;
            parts += 1;
        }
        assert!(parts > 1);
    }

    #[test]
    fn text_is_escaped_and_other_controls_do_nothing() {
        assert_eq!(html("<script>&\"'"), "&lt;script&gt;&amp;\"'");
        assert_eq!(html("\u{1b}[31m</span><script>"), "<span class=\"a-1\">&lt;/span&gt;&lt;script&gt;</span>");
        assert_eq!(html("a\u{1b}[2Jb\u{1b}[10;10Hc\u{9b}31md"), "abc<span class=\"a-1\">d</span>");
        assert_eq!(html("\u{1b}]8;;https://evil.example\u{7}link\u{1b}]8;;\u{7}"), "link");
        assert_eq!(html("\u{1b}]0;title\u{1b}\\x"), "x");
        assert_eq!(html("a\u{202e}b\u{0}c\td"), "a\\u{202e}b\\u{0}c\td");
        for unfinished in ["\u{1b}", "\u{1b}[", "\u{1b}[3", "\u{1b}]8;;x", "\u{1b}(", "\u{9b}", "\u{1b}é", "\u{1b}[é"]
        {
            assert!(!html(unfinished).contains('\u{1b}'), "{unfinished:?}");
        }
    }

    #[test]
    fn a_progress_bar_shows_its_last_state() {
        assert_eq!(html("10%\r50%\r100%\ndone\r\n"), "100%\ndone\n");
        assert_eq!(html("\u{1b}[32m10%\r100%"), "<span class=\"a-2\">100%</span>");
    }
}
