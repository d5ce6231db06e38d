//! The build suite, on a real git host and a real program.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use rollhook_command::CommandBuilds;
use rollhook_conformance::{Builders, Can, Made};
use rollhook_core::{deploy::Commit, ports::BuildTrigger, source::GitSource};

use crate::bench::Bench;

struct Command {
    bench: Bench,
    builds: Arc<CommandBuilds>,
    commits: Vec<(Made, String)>,
}

impl Command {
    async fn fresh() -> Can<Self> {
        let bench = Bench::new();
        let mut commits = Vec::new();
        for (made, content) in
            [(Made::Good, "good"), (Made::Failing, "fail"), (Made::Hanging, "hang"), (Made::Another, "other")]
        {
            commits.push((made, bench.repository.commit("build.txt", content)));
        }
        let short = commits[0].1[..9].to_owned();
        commits.push((Made::Short, short));
        commits.push((Made::Missing, "0123456789".repeat(4)));
        let builds = bench.open().await;
        Ok(Self { bench, builds, commits })
    }
}

#[async_trait]
impl Builders for Command {
    fn builds(&self) -> Arc<dyn BuildTrigger> {
        self.builds.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>> {
        self.builds.close().await;
        Ok(self.bench.open().await)
    }

    fn source(&self) -> GitSource {
        self.bench.source()
    }

    fn commit(&self, made: Made) -> Can<Commit> {
        if made == Made::Ambiguous {
            return Ok(self.bench.repository.ambiguous().parse().unwrap());
        }
        Ok(self.commits.iter().find(|(known, _)| *known == made).unwrap().1.parse().unwrap())
    }

    async fn pause(&self) {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap().block_on(future)
}

rollhook_conformance::builds!(block_on, Command::fresh().await);
