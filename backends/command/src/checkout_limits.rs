//! Limits what a commit may check out. A repository chooses the number, names, depth and sizes of its files, and a few
//! kilobytes of it may name billions of them: directories whose entries all are the same directory.

use crate::disk_limits::Bytes;

/// The most characters of an entry before its path: mode, type, hash and size.
const HEAD_MAX: usize = 256;

/// The most that a commit may check out.
#[derive(Clone, Copy, Debug)]
pub struct CheckoutLimits {
    /// Bytes of files.
    pub bytes: u64,
    /// Files and directories.
    pub entries: usize,
    /// Bytes of the paths of all entries.
    pub paths: usize,
    /// Directories in one another.
    pub depth: usize,
    /// Bytes on the disk of all that git fetches; what it checks out may take as many again.
    pub fetched: u64,
}

impl Default for CheckoutLimits {
    fn default() -> Self {
        Self { bytes: 4 << 30, entries: 500_000, paths: 64 << 20, depth: 256, fetched: 5 << 30 }
    }
}

/// Counts the entries of a commit, as `git ls-tree -r -t -l -z` lists them.
pub(crate) struct EntryCount {
    limits: CheckoutLimits,
    bytes: u64,
    entries: usize,
    paths: usize,
    /// The begin of an entry whose end is not read yet.
    open: Vec<u8>,
}

impl EntryCount {
    pub(crate) fn new(limits: CheckoutLimits) -> Self {
        Self { limits, bytes: 0, entries: 0, paths: 0, open: Vec::new() }
    }

    /// Counts a piece of the list.
    ///
    /// # Errors
    /// A sentence that names the first limit that is passed.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Result<(), String> {
        for part in piece.split_inclusive(|byte| *byte == 0) {
            if self.open.len() + part.len() > self.limits.paths.saturating_add(HEAD_MAX) {
                return Err(self.paths_too_long());
            }
            self.open.extend_from_slice(part);
            if self.open.ends_with(&[0]) {
                let counted = self.count();
                self.open.clear();
                counted?;
            }
        }
        Ok(())
    }

    /// Counts the entry that has been read: `MODE TYPE HASH SIZE\tPATH\0`.
    fn count(&mut self) -> Result<(), String> {
        let CheckoutLimits { bytes, entries, paths, depth, .. } = self.limits;
        let end = self.open.iter().position(|byte| *byte == b'\t').unwrap_or(self.open.len());
        let (head, path) = self.open.split_at(end);
        let head = String::from_utf8_lossy(head);
        let mut words = head.split_ascii_whitespace().skip(1);
        let is_directory = words.next() == Some("tree");
        // A directory and the commit of another repository, which is not fetched, have no size.
        let size: u64 = words.nth(1).and_then(|size| size.parse().ok()).unwrap_or(0);
        let parents = path.iter().filter(|byte| **byte == b'/').count();
        // Without the tab before and the zero behind.
        self.paths = self.paths.saturating_add(path.len().saturating_sub(2));
        self.entries += 1;
        self.bytes = self.bytes.saturating_add(size);
        if self.entries > entries {
            return Err(format!("The commit has more than {entries} files and directories: build from a smaller one."));
        }
        if parents + usize::from(is_directory) > depth {
            return Err(format!("The commit has more than {depth} directories in one another."));
        }
        if self.paths > paths {
            return Err(self.paths_too_long());
        }
        if self.bytes > bytes {
            return Err(format!("The files of the commit are larger than {} together.", Bytes(bytes)));
        }
        Ok(())
    }

    fn paths_too_long(&self) -> String {
        format!("The paths of the commit's files are longer than {} together.", Bytes(self.limits.paths as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with two files, one of them a link, and a submodule, as git lists them.
    const LIST: &str = "040000 tree aaaa       -\tdocs\x00100644 blob bbbb       4\tdocs/text\0\
                        120000 blob cccc      10\tlink\x00160000 commit dddd       -\tother\0";

    fn counted(limits: CheckoutLimits, list: &str, piece: usize) -> Result<(), String> {
        let mut count = EntryCount::new(limits);
        list.as_bytes().chunks(piece).try_for_each(|piece| count.add(piece))
    }

    #[test]
    fn each_limit_is_named_by_the_refusal() {
        let fits = CheckoutLimits { bytes: 14, entries: 4, paths: 22, depth: 1, ..CheckoutLimits::default() };
        for piece in [1, 7, 4096] {
            assert_eq!(counted(fits, LIST, piece), Ok(()));
            for (limits, named) in [
                (CheckoutLimits { bytes: 13, ..fits }, "larger than 13 bytes"),
                (CheckoutLimits { entries: 3, ..fits }, "more than 3 files and directories"),
                (CheckoutLimits { paths: 21, ..fits }, "paths of the commit's files are longer than 21 bytes"),
                (CheckoutLimits { depth: 0, ..fits }, "more than 0 directories in one another"),
            ] {
                let refused = counted(limits, LIST, piece).unwrap_err();
                assert!(refused.contains(named), "{refused}");
            }
        }
    }

    #[test]
    fn name_without_an_end_is_refused_before_it_takes_memory() {
        let limits = CheckoutLimits { paths: 1000, ..CheckoutLimits::default() };
        let mut count = EntryCount::new(limits);
        let pieces = (0..1_000_000).position(|_| count.add(&[b'x'; 100]).is_err());
        assert!(pieces.is_some() && count.open.len() <= 1000 + HEAD_MAX, "{pieces:?}");
    }
}
