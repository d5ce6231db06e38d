//! Builder and reader keep every promise of their ports: the conformance suites, on a directory of its own per case.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_conformance::{Branches, Builders, Can, Lack, Made, block_on, samples};
use rollhook_core::{
    deploy::Commit,
    ports::{BranchReader, BuildTrigger},
    source::GitSource,
};
use rollhook_testing::fixtures::GitRepository;
use tempfile::TempDir;

use crate::{branches::MirrorBranches, builder::SiteBuilder};

struct Place {
    root: TempDir,
    builder: Arc<SiteBuilder>,
    repository: GitRepository,
    commits: Vec<(Made, String)>,
}

impl Place {
    fn fresh() -> Can<Self> {
        let root = tempfile::tempdir().unwrap();
        let repository = GitRepository::create(root.path().join("git/git.example.com/api"));
        let mut commits = Vec::new();
        for (made, script) in [
            (Made::Good, "mkdir public; echo one > public/index.html"),
            (Made::Another, "mkdir public; echo two > public/index.html"),
            (Made::Failing, "echo something is broken; exit 3"),
            (Made::Hanging, "sleep 600 & sleep 600"),
        ] {
            commits.push((made, repository.commit("build.sh", script)));
        }
        commits.push((Made::Short, commits[0].1[..9].to_owned()));
        commits.push((Made::Missing, "0123456789".repeat(4)));
        Ok(Self { builder: Arc::new(SiteBuilder::open(root.path())), root, repository, commits })
    }
}

#[async_trait]
impl Builders for Place {
    fn builds(&self) -> Arc<dyn BuildTrigger> {
        self.builder.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>> {
        Ok(Arc::new(SiteBuilder::open(self.root.path())))
    }

    fn source(&self) -> GitSource {
        GitSource { url: "https://git.example.com/api".parse().unwrap(), ..samples::git_source() }
    }

    fn commit(&self, made: Made) -> Can<Commit> {
        if made == Made::Ambiguous {
            return Ok(self.repository.ambiguous().parse().unwrap());
        }
        let known = self.commits.iter().find(|(known, _)| *known == made);
        known.map(|(_, commit)| commit.parse().unwrap()).ok_or(Lack::NotApplicable("no such commit"))
    }

    fn forgets(&self) -> Can {
        Err(Lack::NotApplicable("this builder keeps all builds"))
    }

    #[allow(clippy::disallowed_methods, reason = "processes are waited for, in real time")]
    async fn pause(&self) {
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[async_trait]
impl Branches for Place {
    fn reader(&self) -> Arc<dyn BranchReader> {
        Arc::new(MirrorBranches::new(self.root.path()))
    }

    fn source(&self) -> GitSource {
        Builders::source(self)
    }

    async fn push(&self, source: &GitSource) -> Commit {
        self.repository.push(source.branch.as_str()).parse().unwrap()
    }

    async fn push_back(&self, source: &GitSource, to: &Commit) {
        self.repository.push_back(source.branch.as_str(), to.as_str());
    }

    async fn silent(&self) -> Can<GitSource> {
        Ok(GitSource { url: "https://git.example.com/gone".parse().unwrap(), ..Builders::source(self) })
    }

    async fn closed(&self) -> Can<GitSource> {
        Err(Lack::NotApplicable("mirrors on this machine need no credentials"))
    }
}

rollhook_conformance::builds!(block_on, Place::fresh());
rollhook_conformance::branches!(block_on, Place::fresh());
