//! Makes parts of a log of a stream of lines, each of which begins with its time.

use std::collections::VecDeque;

use super::{InstanceLogPart, LOG_LINES_MAX, LogLine, LogPosition, LogQuery};
use crate::time::Timestamp;

/// The most bytes of a part's lines.
const PART_MAX: usize = 256 << 10;
/// The most bytes of a line.
const LINE_MAX: usize = 4 << 10;
/// The most bytes of a line's time, with the space behind it.
const TIME_MAX: usize = 64;
/// The most bytes that are read for a part: more than platforms keep of a log in one file.
const READ_MAX: usize = 16 << 20;
/// The nanoseconds of a second.
const SECOND: i64 = 1_000_000_000;
/// The line in place of those that were not read.
const LEFT_OUT: &str = "[rollhook: lines were left out: the log grows faster than it is read]";

/// Reads a log, as a platform sends it, into a part: lines that begin with their time and a space.
///
/// Lines of two streams may be out of order by moments: a line counts as no older than the one before it. The platform is
/// to be asked for the lines since [`LogReader::since`], a second before the position, so that each read counts alike.
pub struct LogReader {
    query: LogQuery,
    /// Reads a time as nanoseconds since the Unix epoch.
    time: fn(&str) -> Option<i64>,
    /// The begin of the current line; what is beyond its bound is dropped.
    line: Vec<u8>,
    read: usize,
    /// The position of the last line that was read.
    at: LogPosition,
    part: VecDeque<LogLine>,
    bytes: usize,
    next: LogPosition,
    is_full: bool,
}

impl LogReader {
    /// Returns a reader for this part. `time` reads a line's time as nanoseconds since the Unix epoch.
    pub fn new(query: &LogQuery, time: fn(&str) -> Option<i64>) -> Self {
        let (line, part) = Default::default();
        let next = query.after.unwrap_or(LogPosition::START);
        let query = LogQuery { lines: query.lines.clamp(1, LOG_LINES_MAX), ..*query };
        Self { query, time, line, read: 0, at: LogPosition::START, part, bytes: 0, next, is_full: false }
    }

    /// Returns the time, in nanoseconds since the Unix epoch, from which on the platform is to send lines; `None`: the newest
    /// ones.
    pub fn since(query: &LogQuery) -> Option<i64> {
        query.after.map(|position| (position.time - SECOND).max(0))
    }

    /// Returns whether the part is complete, so that nothing more is to be read.
    pub const fn is_full(&self) -> bool {
        self.is_full
    }

    /// Takes a piece of the log, of any size.
    pub fn take(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_full {
                return;
            }
            self.read += piece.len();
            let (text, is_end) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            let free = (LINE_MAX + TIME_MAX).saturating_sub(self.line.len());
            self.line.extend_from_slice(text.get(..free).unwrap_or(text));
            if is_end {
                self.end_line();
            }
            self.is_full |= self.read >= READ_MAX;
        }
    }

    /// Returns the part, after all that was sent. `is_over`: nothing is written any more, so that a last line without an end
    /// is whole.
    pub fn finish(mut self, is_over: bool) -> InstanceLogPart {
        if is_over && !self.is_full && !self.line.is_empty() {
            self.end_line();
        }
        let is_stuck = self.read >= READ_MAX && self.part.is_empty();
        if is_stuck {
            // Behind what was read already, where all that was read lies before it.
            let read = self.query.after.map_or(0, |after| after.time).max(self.at.time);
            let time = (read / SECOND).saturating_add(1).saturating_mul(SECOND);
            self.next = self.next.max(LogPosition { time, lines: 0 });
            let at = Timestamp::from_millis(time / 1_000_000);
            self.part.push_back(LogLine { at, text: LEFT_OUT.to_owned() });
        }
        InstanceLogPart { lines: self.part.into(), next: self.next, has_more: self.is_full }
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.line);
        let space = line.iter().take(TIME_MAX).position(|byte| *byte == b' ');
        let stamp = space.and_then(|space| (self.time)(std::str::from_utf8(line.get(..space)?).ok()?));
        // A platform's own words about a log that it cannot read have no time.
        let text = match (stamp, space) {
            (Some(_), Some(space)) => line.get(space + 1..).unwrap_or_default(),
            _ => &line,
        };
        let time = stamp.unwrap_or(self.at.time);
        self.at = match time > self.at.time {
            true => LogPosition { time, lines: 1 },
            false => LogPosition { lines: self.at.lines.saturating_add(1), ..self.at },
        };
        let is_read = self.query.after.is_some_and(|after| self.at <= after);
        if !is_read {
            self.add(text);
        }
    }

    fn add(&mut self, text: &[u8]) {
        let text = text.get(..LINE_MAX).unwrap_or(text);
        // A character that was cut in two is left out.
        let text = match std::str::from_utf8(text) {
            Err(error) if error.error_len().is_none() && text.len() == LINE_MAX => &text[..error.valid_up_to()],
            _ => text,
        };
        let text = String::from_utf8_lossy(text).into_owned();
        let is_beyond = |bytes: usize, lines: usize| bytes > PART_MAX || lines > self.query.lines;
        if self.query.after.is_some() && is_beyond(self.bytes + text.len(), self.part.len() + 1) {
            self.is_full = true;
            return;
        }
        self.bytes += text.len();
        self.part.push_back(LogLine { at: Timestamp::from_millis(self.at.time / 1_000_000), text });
        self.next = self.at;
        while self.bytes > PART_MAX || self.part.len() > self.query.lines {
            self.bytes -= self.part.pop_front().map_or(0, |line| line.text.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Option<i64> {
        text.strip_prefix('t')?.parse().ok()
    }

    fn read(log: &str, query: LogQuery) -> InstanceLogPart {
        let mut reader = LogReader::new(&query, time);
        log.as_bytes().chunks(3).for_each(|bytes| reader.take(bytes));
        reader.finish(false)
    }

    fn texts(part: &InstanceLogPart) -> Vec<&str> {
        part.lines.iter().map(|line| line.text.as_str()).collect()
    }

    /// Lines of which some have one time, one comes late, and the last has no end.
    const LOG: &str = "t10 a\nt10 b\nt10 \nt30 c\nt20 late\nt30 d\nt40 e\nt50 un";

    #[test]
    fn parts_of_any_size_lose_and_repeat_nothing() {
        let whole = read(LOG, LogQuery::newest(100));
        assert_eq!(texts(&whole), ["a", "b", "", "c", "late", "d", "e"]);
        for lines in 1..=8 {
            let (mut all, mut position) = (Vec::new(), LogPosition::START);
            loop {
                let part = read(LOG, LogQuery::newest(lines).after(position));
                assert!(part.lines.len() <= lines);
                assert_eq!(part.has_more, part.next < whole.next, "{part:?}");
                if part.lines.is_empty() {
                    break;
                }
                position = part.next;
                all.extend(part.lines);
            }
            assert_eq!((all, position), (whole.lines.clone(), whole.next), "{lines} lines at a time");
        }
    }

    #[test]
    fn newest_lines_are_the_last_ones_and_reading_goes_on_behind_them() {
        let part = read(LOG, LogQuery::newest(2));
        assert_eq!(texts(&part), ["d", "e"]);
        let more = format!("{LOG}finished\nt50 f\n");
        assert_eq!(texts(&read(&more, LogQuery::newest(9).after(part.next))), ["unfinished", "f"]);
        // A platform that filters by time leaves lines out that came before.
        let filtered = more.split_inclusive('\n').skip(2).collect::<String>();
        assert_eq!(texts(&read(&filtered, LogQuery::newest(9).after(part.next))), ["unfinished", "f"]);
    }

    #[test]
    fn unfinished_line_is_whole_once_nothing_is_written_any_more() {
        let mut reader = LogReader::new(&LogQuery::newest(1), time);
        reader.take(LOG.as_bytes());
        assert_eq!(texts(&reader.finish(true)), ["un"]);
    }

    #[test]
    fn lines_and_parts_are_bounded() {
        let long = format!("t1 {}\n", "\u{1f600}".repeat(5000)).repeat(200);
        let mut reader = LogReader::new(&LogQuery::newest(5000).after(LogPosition::START), time);
        reader.take(long.as_bytes());
        let part = reader.finish(true);
        assert!(part.lines.iter().all(|line| line.text.len() <= LINE_MAX && !line.text.contains('\u{fffd}')));
        assert_eq!((part.lines.len(), part.has_more), (64, true));
        let newest = read(&"t1 a\n".repeat(3000), LogQuery::newest(5000));
        assert_eq!((newest.lines.len(), newest.next.lines), (LOG_LINES_MAX, 3000));
    }

    #[test]
    fn bytes_that_are_no_text_are_replaced() {
        let mut reader = LogReader::new(&LogQuery::newest(9), time);
        reader.take(b"t1 \xff\x00\x1b[31m\nt2 ok\n");
        assert_eq!(texts(&reader.finish(true)), ["\u{fffd}\u{0}\u{1b}[31m", "ok"]);
    }

    #[test]
    fn line_without_a_time_is_shown_once() {
        let part = read("the log cannot be read\n", LogQuery::newest(9));
        assert_eq!(texts(&part), ["the log cannot be read"]);
        assert_eq!(texts(&read("the log cannot be read\n", LogQuery::newest(9).after(part.next))), [""; 0]);
    }

    #[test]
    fn log_that_grows_too_fast_is_read_on_later() {
        let second = format!("t{} {}\n", SECOND, "x".repeat(1 << 20)).repeat(20);
        let position = LogPosition { time: SECOND, lines: 100 };
        let mut reader = LogReader::new(&LogQuery::newest(9).after(position), time);
        second.as_bytes().chunks(1 << 16).for_each(|bytes| reader.take(bytes));
        let part = reader.finish(false);
        assert_eq!(texts(&part), [LEFT_OUT]);
        assert_eq!((part.next, part.has_more), (LogPosition { time: 2 * SECOND, lines: 0 }, true));
    }
}
