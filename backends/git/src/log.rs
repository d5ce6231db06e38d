//! The newest commits of a branch: what git is asked for, and what its answer means.
//!
//! git fetches commits alone, without the files of any. A server that cannot leave those out sends them too, up to the size that
//! each file of git's may have here.

use std::time::Duration;

use rollhook_core::{
    Error, Result,
    deploy::Commit,
    ports::LOGGED_MIN,
    source::{BranchLog, LoggedCommit},
};

/// The most commits that are listed: a branch of many merges has more of them than its lines are long.
const LISTED_MAX: &str = "--max-count=300";
/// The name of the branch in the directory that it is fetched into.
const FETCHED: &str = "refs/heads/fetched";

/// The most branches that are fetched at once: a fetch may fill [as much](crate::process) of the disk as git may write to a file.
pub(crate) const AT_ONCE: usize = 1;
/// The beginning of the names of directories that branches are fetched into.
pub(crate) const PREFIX: &str = "rollhook-git-log-";
/// The age from which such a directory was left behind by a process that was killed.
pub(crate) const LEFT_AFTER: Duration = Duration::from_secs(60 * 60);
/// The kinds of names that commits have, the usual one first.
pub(crate) const FORMATS: [&str; 2] = ["sha1", "sha256"];

/// Lists the fetched commits, each with its parents.
pub(crate) const LIST: [&str; 5] = ["rev-list", "--parents", LISTED_MAX, FETCHED, "--"];

/// Returns the arguments by which git makes a repository of this kind to fetch into.
pub(crate) fn init(format: &str) -> [String; 5] {
    ["init", "-q", "--bare", "--template=", &format!("--object-format={format}")].map(str::to_owned)
}

/// Returns whether git could not fetch as the source's commits have names of another kind.
pub(crate) fn is_of_another_format(error: &str) -> bool {
    error.contains("mismatched algorithms")
}

/// Returns the arguments by which git fetches the newest commits of a branch.
pub(crate) fn fetch(url: &str, reference: &str) -> Vec<String> {
    let (depth, branch) = (format!("--depth={LOGGED_MIN}"), format!("+{reference}:{FETCHED}"));
    let settings = ["-c", "fetch.unpackLimit=1", "-c", "pack.threads=1"];
    let options = ["fetch", "-q", "--no-tags", "--no-write-fetch-head", "--filter=tree:0", &depth, "--", url, &branch];
    settings.into_iter().chain(options).map(str::to_owned).collect()
}

/// Returns the log that git has listed: a commit and its parents on each line.
pub(crate) fn parsed(listed: &str) -> Result<BranchLog> {
    let commit = |word: &str| {
        let parsed: Option<Commit> = word.parse().ok().filter(Commit::is_sha);
        parsed.ok_or_else(|| Error::invalid("git listed what is no commit"))
    };
    let line = |line: &str| {
        let mut words = line.split_whitespace().map(commit);
        let first = words.next().unwrap_or_else(|| Err(Error::invalid("git listed an empty line")))?;
        Ok(LoggedCommit { commit: first, parents: words.collect::<Result<_>>()? })
    };
    Ok(BranchLog::new(listed.lines().map(line).collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_is_a_commit_with_its_parents() {
        let [a, b, c] = ["a", "b", "c"].map(|digit| digit.repeat(40));
        let log = parsed(&format!("{a} {b} {c}\n{b} {c}\n{c}\n")).unwrap();
        let parents: Vec<usize> = log.commits().iter().map(|logged| logged.parents.len()).collect();
        assert_eq!((log.commits()[0].commit.as_str(), parents), (a.as_str(), vec![2, 1, 0]));
        assert_eq!(parsed("").unwrap(), BranchLog::default());
        assert!(parsed("\n").is_err() && parsed("HEAD\n").is_err());
    }
}
