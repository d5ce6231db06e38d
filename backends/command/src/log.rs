//! A build's log: a file of bounded size, and the last lines for the history.

use std::{
    collections::VecDeque,
    fs::{self, File},
    io::{self, Read, Seek, SeekFrom, Write},
    os::unix::fs::OpenOptionsExt,
    path::Path,
};

/// The largest log that is kept. A longer one is cut at its end; its last lines are in the history all the same.
const FILE_MAX: u64 = 8 << 20;
/// The bytes that a node puts before a line: the time to the nanosecond with its zone, the stream and a tag, some 45.
const NODE_PREFIX: u64 = 48;
/// The largest part that is read at once.
const PART_MAX: u64 = 64 << 10;
/// The lines that the history keeps, and how long each is at most, in characters.
const LINES: usize = 50;
const LINE: usize = 500;
/// The most bytes that a line's characters may have.
const LINE_BYTES: usize = 4 * LINE;

/// A build's log that is being written, up to a size.
pub struct Log {
    file: File,
    written: u64,
    /// The bytes that are counted for each line besides its text.
    per_line: u64,
    cut: bool,
    tail: Tail,
}

/// The last lines of a text that comes in pieces.
#[derive(Default)]
pub(crate) struct Tail {
    lines: VecDeque<String>,
    open: Vec<u8>,
}

impl Log {
    /// Creates a log in this file, which other users cannot read.
    pub fn create(path: &Path) -> io::Result<Self> {
        File::options().create(true).write(true).truncate(true).mode(0o600).open(path).map(Self::to)
    }

    /// Returns a log that is written to this file.
    pub(crate) fn to(file: File) -> Self {
        Self { file, written: 0, per_line: 0, cut: false, tail: Tail::default() }
    }

    /// Returns the log of a container. Its node puts the time and more before each line, and begins a new file at 10
    /// MiB.
    pub(crate) fn of_container(output: File) -> Self {
        Self { per_line: NODE_PREFIX, ..Self::to(output) }
    }

    /// Adds the output of a process. A log that cannot be written does not fail the build.
    pub fn write(&mut self, bytes: &[u8]) {
        self.tail.write(bytes);
        if self.cut {
            return;
        }
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        let lines = count(bytes.iter().filter(|byte| **byte == b'\n').count());
        let length = count(bytes.len()).saturating_add(lines.saturating_mul(self.per_line));
        if self.written.saturating_add(length) > FILE_MAX {
            self.cut = true;
            let _ = self.file.write_all(b"\n[rollhook: the log is longer than what is kept of one; it is cut here]\n");
            return;
        }
        match self.file.write_all(bytes) {
            Ok(()) => self.written += length,
            Err(error) => {
                tracing::warn!(%error, "writing a build's log failed");
                self.cut = true;
            }
        }
    }

    /// Adds a line of our own.
    pub fn say(&mut self, line: &str) {
        self.write(format!("[rollhook: {line}]\n").as_bytes());
    }

    /// Returns the last lines, oldest first.
    pub(crate) fn tail(&self) -> Vec<String> {
        self.tail.lines()
    }
}

impl Tail {
    pub(crate) fn write(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LINE_BYTES.saturating_sub(self.open.len());
            self.open.extend(piece.iter().take(room));
            if piece.ends_with(b"\n") {
                let line = shown(&self.open);
                self.open.clear();
                self.lines.extend((!line.is_empty()).then_some(line));
                if self.lines.len() > LINES {
                    self.lines.pop_front();
                }
            }
        }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        let last = shown(&self.open);
        let lines = self.lines.iter().cloned().chain((!last.is_empty()).then_some(last));
        let surplus = (self.lines.len() + 1).saturating_sub(LINES);
        lines.skip(if self.open.is_empty() { 0 } else { surplus }).collect()
    }

    /// Returns the last line that is not empty.
    pub(crate) fn last(&self) -> Option<String> {
        self.lines().pop()
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().chars().take(LINE).collect()
}

/// Returns a part of a log from this byte on; `None` if there is no log.
pub(crate) fn read(path: &Path, from: u64) -> io::Result<Option<Vec<u8>>> {
    let mut file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    file.seek(SeekFrom::Start(from.min(file.metadata()?.len())))?;
    let mut part = Vec::new();
    file.take(PART_MAX).read_to_end(&mut part)?;
    Ok(Some(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_are_kept_however_they_are_split() {
        let mut tail = Tail::default();
        for line in 0..80 {
            tail.write(format!("line {line}\r\n\n").as_bytes());
        }
        tail.write(b"ha");
        tail.write(b"lf");
        let lines = tail.lines();
        assert_eq!(lines.len(), LINES);
        assert_eq!(lines[0], "line 31");
        assert_eq!(tail.last().as_deref(), Some("half"));
        tail.write(&[b'x'; 100_000]);
        assert_eq!(tail.last().unwrap().chars().count(), LINE);
        tail.write(b"\n\xff\n");
        assert_eq!(tail.last().as_deref(), Some("\u{fffd}"));
    }

    #[test]
    fn log_of_a_container_leaves_space_for_its_nodes_prefixes() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Log::of_container(File::create(&path).unwrap());
        for _ in 0..4000 {
            log.write(&b"a line of a build\n".repeat(100));
        }
        let written = fs::read_to_string(&path).unwrap();
        let at_the_node = written.lines().map(|line| line.len() + 1 + 45).sum::<usize>();
        assert!(at_the_node < 10 << 20 && at_the_node > 6 << 20, "{at_the_node}");
        assert!(written.ends_with("it is cut here]\n"));
    }

    #[test]
    fn log_is_bounded_and_read_in_parts() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        assert_eq!(read(&path, 0).unwrap(), None);
        let mut log = Log::create(&path).unwrap();
        for _ in 0..200 {
            log.write(&[b'y'; 64 << 10]);
        }
        log.write(b"\nthe end\n");
        assert!(fs::metadata(&path).unwrap().len() <= FILE_MAX + 100);
        assert_eq!(log.tail().last().map(String::as_str), Some("the end"));
        assert_eq!(read(&path, 0).unwrap().unwrap().len() as u64, PART_MAX);
        assert_eq!(read(&path, FILE_MAX * 2).unwrap().unwrap(), b"");
    }
}
