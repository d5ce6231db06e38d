//! The suites of builds and heads, on the simulated builder.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use rollhook_conformance::{Branches, Builders, Can, Lack, Made, ManualClock, block_on, samples};
use rollhook_core::{
    deploy::Commit,
    ports::{BranchReader, BuildTrigger},
    source::GitSource,
};
use rollhook_memory::SimulatedBuilds;

struct Simulated {
    clock: Arc<ManualClock>,
    builds: Arc<SimulatedBuilds>,
}

impl Simulated {
    fn fresh() -> Can<Self> {
        let clock = Arc::new(ManualClock::default());
        let builds = Arc::new(SimulatedBuilds::new(clock.clone(), Duration::from_secs(2)));
        Ok(Self { clock, builds })
    }
}

#[async_trait]
impl Builders for Simulated {
    fn builds(&self) -> Arc<dyn BuildTrigger> {
        self.builds.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn BuildTrigger>> {
        Ok(self.builds.clone())
    }

    fn source(&self) -> GitSource {
        samples::git_source()
    }

    fn commit(&self, made: Made) -> Can<Commit> {
        let text = match made {
            Made::Good => format!("{:0<40}", "a1"),
            Made::Another => format!("{:0<40}", "b2"),
            Made::Short => "abc1234".to_owned(),
            Made::Missing => format!("{:0<40}", "404"),
            Made::Ambiguous => "3001234".to_owned(),
            Made::Failing => format!("{:0<40}", "500"),
            Made::Hanging => format!("{:0<40}", "888"),
        };
        text.parse().map_err(|_| Lack::Skip("a commit cannot be read"))
    }

    async fn pause(&self) {
        self.clock.advance(Duration::from_millis(100));
    }
}

rollhook_conformance::builds!(block_on, Simulated::fresh());

struct Moved {
    builds: Arc<SimulatedBuilds>,
    pushed: AtomicU32,
}

impl Moved {
    fn fresh() -> Can<Self> {
        let builds = Arc::new(SimulatedBuilds::new(Arc::new(ManualClock::default()), Duration::ZERO));
        Ok(Self { builds, pushed: AtomicU32::new(0) })
    }
}

#[async_trait]
impl Branches for Moved {
    fn reader(&self) -> Arc<dyn BranchReader> {
        self.builds.clone()
    }

    fn source(&self) -> GitSource {
        let source = samples::git_source();
        for missing in ["gone", "ma", "main2"] {
            let branch = missing.parse().unwrap_or_else(|_| source.branch.clone());
            self.builds.set_head(&GitSource { branch, ..source.clone() }, None);
        }
        source
    }

    async fn push(&self, source: &GitSource) -> Commit {
        let number = self.pushed.fetch_add(1, Ordering::Relaxed);
        let commit: Commit = format!("{:040x}", 0xabc_0000 + number).parse().expect("it is one");
        self.builds.set_head(source, Some(commit.clone()));
        commit
    }

    async fn push_back(&self, source: &GitSource, to: &Commit) {
        self.builds.set_head(source, Some(to.clone()));
    }

    async fn silent(&self) -> Can<GitSource> {
        let source = samples::git_source();
        self.builds.silence_source(&source);
        Ok(source)
    }

    async fn closed(&self) -> Can<GitSource> {
        let source = samples::git_source();
        self.builds.close_source(&source);
        Ok(source)
    }
}

rollhook_conformance::branches!(block_on, Moved::fresh());
