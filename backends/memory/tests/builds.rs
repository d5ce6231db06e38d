//! The build suite, on the simulated builder.

mod clock;

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use clock::ByHand;
use rollhook_conformance::{Builders, Can, Lack, Made, block_on, samples};
use rollhook_core::{deploy::Commit, ports::Builds, source::GitSource};
use rollhook_memory::SimulatedBuilds;

struct Simulated {
    clock: Arc<ByHand>,
    builds: Arc<SimulatedBuilds>,
}

impl Simulated {
    fn fresh() -> Can<Self> {
        let clock = Arc::new(ByHand::default());
        let builds = Arc::new(SimulatedBuilds::new(clock.clone(), Duration::from_secs(2)));
        Ok(Self { clock, builds })
    }
}

#[async_trait]
impl Builders for Simulated {
    fn builds(&self) -> Arc<dyn Builds> {
        self.builds.clone()
    }

    async fn restarted(&self) -> Can<Arc<dyn Builds>> {
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
