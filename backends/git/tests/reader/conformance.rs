//! The suite of heads, on a real git host.

use std::sync::Arc;

use async_trait::async_trait;
use rollhook_conformance::{Branches, Can};
use rollhook_core::{deploy::Commit, ports::BranchReader, source::GitSource};
use rollhook_git::GitBranchReader;
use rollhook_testing::fixtures::GitHost;

use crate::bench::{AUTHORIZATION, Bench};

struct Git {
    bench: Bench,
    closed: GitHost,
    heads: Arc<GitBranchReader>,
}

impl Git {
    fn fresh() -> Can<Self> {
        let bench = Bench::new();
        let closed = GitHost::start_with(Some(AUTHORIZATION));
        let heads = Arc::new(bench.reader());
        Ok(Self { bench, closed, heads })
    }
}

#[async_trait]
impl Branches for Git {
    fn reader(&self) -> Arc<dyn BranchReader> {
        self.heads.clone()
    }

    fn source(&self) -> GitSource {
        self.bench.source()
    }

    async fn push(&self, source: &GitSource) -> Commit {
        self.bench.repository.push(source.branch.as_str()).parse().unwrap()
    }

    async fn push_back(&self, source: &GitSource, to: &Commit) {
        self.bench.repository.push_back(source.branch.as_str(), to.as_str());
    }

    async fn silent(&self) -> Can<GitSource> {
        self.bench.host.hang();
        Ok(self.bench.source())
    }

    async fn closed(&self) -> Can<GitSource> {
        self.closed.repository("api").push("main");
        Ok(GitSource { url: self.closed.url("api").parse().unwrap(), ..self.bench.source() })
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

rollhook_conformance::branches!(block_on, Git::fresh());
