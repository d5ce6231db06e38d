//! Measuring the checks of a deploy, beside all else that its driver does.

use std::time::Duration;

use futures_util::{
    FutureExt,
    future::{BoxFuture, Fuse, join_all},
    select_biased,
};

use crate::{
    check::{Measurement, Verdict},
    engine::verifying::{Answer, Round, RoundOf},
    ports::{MeasureSpec, Measured},
    service::Deployer,
};

/// The most measurements that this process makes at once, and the most of them of one environment.
pub(crate) const MEASUREMENTS: (usize, usize) = (32, 16);

/// The measurements of a round, which are under way.
pub(crate) struct Measuring {
    /// The verification that they belong to.
    pub(crate) of: RoundOf,
    /// Their answers, once all have come.
    pub(crate) answers: Fuse<BoxFuture<'static, Vec<Answer>>>,
}

impl Deployer {
    /// Begins the measurements of a round, which go on while their answers are polled.
    pub(crate) fn measure(&self, round: Round) -> Measuring {
        let measure = |spec| self.measure_once(spec);
        let answers = join_all(round.specs.into_iter().map(measure).collect::<Vec<_>>());
        Measuring { of: round.of, answers: answers.boxed().fuse() }
    }

    /// Measures once, as soon as there is a slot for it. The answer comes within the check's timeout from then on, whatever the
    /// verifier promises.
    fn measure_once(&self, spec: MeasureSpec) -> BoxFuture<'static, Answer> {
        let Some(verifier) = self.ports.verifier.clone() else {
            let error = "This server cannot measure checks.".to_owned();
            return std::future::ready(Answer { check: spec.check, at: spec.now, measured: Err(error) }).boxed();
        };
        let (clock, slots, asked) = (self.ports.clock.clone(), self.measuring.clone(), self.ports.clock.elapsed());
        async move {
            let _slot = slots.acquire(&spec.app.namespace).await;
            let at = spec.now.after(clock.elapsed().saturating_sub(asked));
            let spec = MeasureSpec { now: at, ..spec };
            let measured = select_biased! {
                measured = verifier.measure(&spec).fuse() => measured.map_err(|error| {
                    tracing::warn!(
                        app = %spec.app, revision = %spec.deploy.revision, check = %spec.check.name, error = %error.chain(),
                        "measuring a check failed"
                    );
                    error.to_string()
                }),
                () = clock.sleep(spec.check.timeout).fuse() => Ok(unanswered(&spec, spec.check.timeout)),
            };
            Answer { check: spec.check, at, measured }
        }
        .boxed()
    }
}

/// Returns the measurement of a check whose verifier did not answer in time.
fn unanswered(spec: &MeasureSpec, timeout: Duration) -> Measured {
    let message = format!("No answer within {} s.", timeout.as_secs_f64());
    Measured {
        request: String::new(),
        condition: String::new(),
        measurement: Measurement::new(spec.now, Verdict::None, &message),
    }
}
