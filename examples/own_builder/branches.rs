//! The heads of branches, read from mirrors on this machine.

use std::{
    path::{Component, Path, PathBuf},
    process::Command,
};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::AppId,
    deploy::Commit,
    ports::{BranchReader, LOGGED_MIN},
    source::{BranchLog, GitSource, LoggedCommit},
};

/// Reads the branches of mirrors below one directory.
pub(crate) struct MirrorBranches {
    root: PathBuf,
}

impl MirrorBranches {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
}

#[async_trait]
impl BranchReader for MirrorBranches {
    async fn head(&self, _app: &AppId, source: &GitSource) -> Result<Option<Commit>> {
        let reference = format!("refs/heads/{}", source.branch);
        let head = self.git(source, &["for-each-ref", "--format=%(objectname)", &reference])?;
        // The reference as a pattern also matches branches below it, which have longer names.
        head.lines().next().map(parsed).transpose()
    }

    async fn log(&self, app: &AppId, source: &GitSource) -> Result<BranchLog> {
        let Some(head) = self.head(app, source).await? else { return Ok(BranchLog::default()) };
        let most = format!("--max-count={LOGGED_MIN}");
        let listed = self.git(source, &["rev-list", "--parents", &most, head.as_str(), "--"])?;
        let logged = |line: &str| {
            let commits = line.split_whitespace().map(parsed).collect::<Result<Vec<_>>>()?;
            let (commit, parents) = commits.split_first().ok_or_else(|| Error::invalid("git listed no commit"))?;
            Ok(LoggedCommit { commit: commit.clone(), parents: parents.to_vec() })
        };
        Ok(BranchLog::new(listed.lines().map(logged).collect::<Result<_>>()?))
    }
}

impl MirrorBranches {
    /// Returns what git says of a source's mirror.
    fn git(&self, source: &GitSource, arguments: &[&str]) -> Result<String> {
        let output = Command::new("git")
            .arg("-C")
            .arg(mirror(&self.root, source)?)
            .args(arguments)
            .output()
            .map_err(|error| Error::unavailable("git cannot be run", error))?;
        if !output.status.success() {
            let message = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(Error::unavailable("the mirror cannot be read", message));
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}

fn parsed(word: &str) -> Result<Commit> {
    word.parse().map_err(|error| Error::corrupt("git's answer", error))
}

/// Returns the mirror of a source: `ROOT/git/git.example.com/shop/api.git`.
pub(crate) fn mirror(root: &Path, source: &GitSource) -> Result<PathBuf> {
    let (_, path) = source.url.as_str().split_once("://").unwrap_or_default();
    let is_plain = !path.is_empty() && Path::new(path).components().all(|part| matches!(part, Component::Normal(_)));
    if is_plain { Ok(root.join("git").join(path)) } else { Err(Error::invalid("the source has no mirror here")) }
}
