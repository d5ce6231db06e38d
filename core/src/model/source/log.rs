//! The newest commits of a branch, from which follows which of two is older.

use std::collections::BTreeSet;

use crate::deploy::Commit;

/// The newest commits of a branch, its head first. Older ones are not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BranchLog {
    commits: Vec<LoggedCommit>,
}

/// A commit of a branch, in full.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoggedCommit {
    /// The commit.
    pub commit: Commit,
    /// Its parents.
    pub parents: Vec<Commit>,
}

impl BranchLog {
    /// Returns the log of these commits, of which the first is the branch's head.
    pub fn new(commits: Vec<LoggedCommit>) -> Self {
        Self { commits }
    }

    /// The commits, the head first.
    pub fn commits(&self) -> &[LoggedCommit] {
        &self.commits
    }

    /// Returns whether a commit is certainly older than another: the other one was made from it, and the branch is not at it any
    /// more, or again. A commit that the log does not have, or has several of by these digits, is not older.
    pub fn is_older(&self, commit: &Commit, than: &Commit) -> bool {
        let (Some(commit), Some(than)) = (self.find(commit), self.find(than)) else { return false };
        let is_head = self.commits.first().is_some_and(|head| head.commit == commit.commit);
        !is_head && commit != than && self.is_ancestor(commit, than)
    }

    fn is_ancestor(&self, commit: &LoggedCommit, of: &LoggedCommit) -> bool {
        let (mut seen, mut left) = (BTreeSet::new(), vec![of]);
        while let Some(next) = left.pop() {
            if next == commit {
                return true;
            }
            let parents = next.parents.iter().filter(|parent| seen.insert(parent.as_str()));
            left.extend(parents.filter_map(|parent| self.commits.iter().find(|known| known.commit == *parent)));
        }
        false
    }

    fn find(&self, commit: &Commit) -> Option<&LoggedCommit> {
        let mut found = self.commits.iter().filter(|known| known.commit.may_be(commit));
        found.next().filter(|_| found.next().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::sha;

    /// The log of a branch whose head `e` merges `d`, which was made from `b`, with `c`, which was as well.
    fn log() -> BranchLog {
        let of = |(name, parents): &(&str, &[&str])| LoggedCommit {
            commit: sha(name),
            parents: parents.iter().map(|parent| sha(parent)).collect(),
        };
        let commits: [(&str, &[&str]); 4] = [("e", &["d", "c"]), ("d", &["b"]), ("c", &["b"]), ("b", &["a"])];
        BranchLog::new(commits.iter().map(of).collect())
    }

    #[test]
    fn commit_is_older_than_what_was_made_from_it() {
        let is_older = |commit: &str, than: &str| log().is_older(&sha(commit), &sha(than));
        assert!(is_older("b", "e") && is_older("c", "e") && is_older("b", "c") && is_older("b", "d"));
        assert!(!is_older("d", "c") && !is_older("c", "d"), "neither was made from the other");
        assert!(!is_older("e", "b") && !is_older("b", "b"));
    }

    #[test]
    fn commit_whose_place_is_not_known_is_not_older() {
        let is_older = |commit: &str, than: &str| log().is_older(&sha(commit), &sha(than));
        assert!(!is_older("a", "e"), "before the log begins");
        assert!(!is_older("b", "f") && !is_older("f", "b"), "of another branch");
        let short: Commit = sha("b").as_str()[..8].parse().unwrap();
        assert!(log().is_older(&short, &sha("e")));
        let twice = BranchLog::new([log().commits().to_vec(), log().commits()[3..].to_vec()].concat());
        assert!(!twice.is_older(&sha("b"), &sha("e")), "two commits begin so");
    }

    #[test]
    fn head_is_never_older() {
        let mut commits = log().commits().to_vec();
        commits.rotate_left(3);
        assert!(!BranchLog::new(commits).is_older(&sha("b"), &sha("e")), "the branch was taken back to it");
    }
}
