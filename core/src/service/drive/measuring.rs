//! Measuring the checks of a deploy, beside all else that its driver does.

use std::{
    collections::BTreeMap,
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use futures_util::{
    FutureExt,
    future::{BoxFuture, MaybeDone, join, join_all, maybe_done},
    select_biased,
};

use crate::{
    app::Namespace,
    check::{CheckSecret, Measurement, PAST_VALUES_MAX, PastValue, Verdict},
    engine::verifying::{Answer, Round, RoundOf},
    error::{Error, Result},
    ports::{ConfigurationStore, MeasureSpec, Measured, Verifier},
    rate::Rate,
    service::{
        Deployer,
        drive::{asked_instances::with_instances, commands::WhenDropped},
    },
    slots::Rank,
};

/// The most measurements that this process makes at once, and the most of them of one environment.
pub(crate) const MEASUREMENTS: (usize, usize) = (32, 16);
/// The rounds of the apps of one environment: one in a tenth of a second, 20 at once. Each is stored.
const ROUNDS: Rate = Rate { every: Duration::from_millis(100), burst: 20 };

/// The rate of rounds of each environment: the time at which those so far are paid off.
#[derive(Default)]
pub(crate) struct RoundRate(Mutex<BTreeMap<Namespace, Duration>>);

impl RoundRate {
    /// Counts a round of an environment, and returns how long it has to wait.
    fn wait(&self, namespace: &Namespace, now: Duration) -> Duration {
        let mut paid = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        paid.retain(|_, until| *until > now);
        let before = paid.get(namespace).copied().unwrap_or_default();
        paid.insert(namespace.clone(), ROUNDS.spend(before, now));
        ROUNDS.wait(before, now)
    }
}

/// The measurements of a verification that are under way.
pub(crate) struct Measuring<'a> {
    /// The verification that they belong to.
    pub(crate) of: RoundOf,
    /// The answers of each round, once all of them have come.
    rounds: Vec<MaybeDone<BoxFuture<'a, Vec<Answer>>>>,
}

impl Measuring<'_> {
    /// Returns the measurements with those that were under way before, if they are of the same verification.
    pub(crate) fn beside(mut self, before: Option<Self>) -> Self {
        self.rounds.extend(before.filter(|before| before.of == self.of).into_iter().flat_map(|before| before.rounds));
        self
    }

    /// Waits for the answers of the next round that ends, and takes them.
    pub(crate) async fn ended(&mut self) -> Vec<Answer> {
        poll_fn(|context| {
            self.poll(context);
            let Some(ended) = self.rounds.iter().position(|round| matches!(round, MaybeDone::Done(_))) else {
                return Poll::Pending;
            };
            let mut round = self.rounds.remove(ended);
            Poll::Ready(Pin::new(&mut round).take_output().unwrap_or_default())
        })
        .await
    }

    /// Returns whether all answers were taken.
    pub(crate) fn is_taken(&self) -> bool {
        self.rounds.is_empty()
    }

    /// Has the measurements go on.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) {
        for round in &mut self.rounds {
            let _is_ended = round.poll_unpin(context);
        }
    }
}

/// Performs a call while others go on: one that takes long must not make them miss their time.
pub(crate) async fn beside<T>(mut go_on: impl FnMut(&mut Context<'_>), call: impl Future<Output = T>) -> T {
    let mut call = pin!(call);
    poll_fn(|context| {
        go_on(context);
        call.as_mut().poll(context)
    })
    .await
}

impl Deployer {
    /// Begins the measurements of a round, which go on while their answers are polled.
    pub(crate) fn measure(&self, round: Round) -> Measuring<'_> {
        let (clock, asked) = (self.ports.clock.clone(), self.ports.clock.elapsed());
        let waits = round.specs.first().map(|spec| self.round_rate.wait(&spec.app.namespace, asked));
        // A deploy waits for the end of its verification, and nothing for that of a watch.
        let rank = if round.of.is_watch { Rank::Background } else { Rank::Awaited };
        let measure = |spec| self.measure_once(spec, rank, WhenDropped::RunsOn);
        let answers = join_all(round.specs.into_iter().map(measure).collect::<Vec<_>>());
        let paced = async move {
            clock.sleep(waits.unwrap_or_default()).await;
            answers.await
        };
        Measuring { of: round.of, rounds: vec![maybe_done(paced.boxed())] }
    }

    /// Measures once, as soon as there is a slot for it. The answer comes within the check's timeout from then on, whatever the
    /// verifier promises.
    pub(crate) fn measure_once(
        &self,
        spec: MeasureSpec,
        rank: Rank,
        when_dropped: WhenDropped,
    ) -> BoxFuture<'_, Answer> {
        if spec.check.kind.is_command() {
            return self.measure_by_command(spec, rank, when_dropped).boxed();
        }
        let Some(verifier) = self.ports.verifier.clone() else {
            let error = "This server cannot measure checks.".to_owned();
            let answer = Answer { check: spec.check, at: spec.now, measured: Err(error), before: Vec::new() };
            return std::future::ready(answer).boxed();
        };
        let (clock, slots, asked) = (self.ports.clock.clone(), self.measuring.clone(), self.ports.clock.elapsed());
        let (configurations, rollouts) = (self.ports.configurations.clone(), self.ports.rollouts.clone());
        async move {
            let _slot = slots.acquire_ranked(&spec.app.namespace, rank).await;
            let at = spec.now.after(clock.elapsed().saturating_sub(asked));
            let spec = MeasureSpec { now: at, ..spec };
            let measured = async {
                let measured = async {
                    match with_instances((&*verifier, &*rollouts, &*clock), &spec).await? {
                        Ok(spec) => measured(&verifier, configurations.as_ref(), &spec).await,
                        Err(why) => Ok(unmeasured(&spec, &why)),
                    }
                };
                select_biased! {
                    measured = measured.boxed().fuse() => measured.map_err(|error| {
                        // The deploy's page has it too; of a provider that is away, there are many.
                        tracing::debug!(
                            app = %spec.app, revision = %spec.deploy.revision, check = %spec.check.name,
                            error = %error.chain(), "measuring a check failed"
                        );
                        error.to_string()
                    }),
                    () = clock.sleep(spec.check.timeout).fuse() => Ok(unanswered(&spec, spec.check.timeout)),
                }
            };
            // A time of its own: what is only shown takes none of the measurement's.
            let before = async {
                select_biased! {
                    before = values_before(&verifier, configurations.as_ref(), &spec).fuse() => before,
                    () = clock.sleep(spec.check.timeout).fuse() => Vec::new(),
                }
            };
            let (measured, before) = join(measured, before).await;
            Answer { check: spec.check, at, measured, before }
        }
        .boxed()
    }
}

/// Measures a check with its secret, if it has one.
async fn measured(
    verifier: &Arc<dyn Verifier>,
    store: Option<&Arc<dyn ConfigurationStore>>,
    spec: &MeasureSpec,
) -> Result<Measured> {
    if spec.check.secret.is_none() {
        return verifier.measure(spec).await;
    }
    match secret_of(verifier, store, spec).await? {
        Ok(secret) => verifier.measure(&MeasureSpec { secret: Some(secret), ..spec.clone() }).await,
        Err(why) => Ok(unmeasured(spec, &format!("Nothing was measured: {why}."))),
    }
}

/// Returns the values of before the rollout, if they are wanted and known now.
async fn values_before(
    verifier: &Arc<dyn Verifier>,
    store: Option<&Arc<dyn ConfigurationStore>>,
    spec: &MeasureSpec,
) -> Vec<PastValue> {
    let Some(times) = spec.before else { return Vec::new() };
    let secret = match spec.check.secret {
        None => None,
        Some(_) => match secret_of(verifier, store, spec).await {
            Ok(Ok(secret)) => Some(secret),
            // The measurement beside it says so.
            Ok(Err(_)) | Err(_) => return Vec::new(),
        },
    };
    let spec = MeasureSpec { secret, window: times.window, ..spec.clone() };
    let mut values = verifier.values_before(&spec, &times).await;
    values.truncate(PAST_VALUES_MAX);
    values
}

/// Returns the secret of a check, as far as it was given for the place that the check's settings name now.
///
/// # Errors
/// Within, why it is not at hand; that of a store that is away.
async fn secret_of(
    verifier: &Arc<dyn Verifier>,
    store: Option<&Arc<dyn ConfigurationStore>>,
    spec: &MeasureSpec,
) -> Result<std::result::Result<CheckSecret, &'static str>> {
    let check = &spec.check;
    let (Some(store), Some(id)) = (store, check.secret) else {
        return Ok(Err("this server has no store that keeps the check's secret"));
    };
    let kept = match store.get(spec.deploy.app, id).await {
        Ok(kept) => kept,
        Err(error @ (Error::Denied { .. } | Error::Corrupt { .. })) => {
            tracing::warn!(
                app = %spec.app, check = %check.name, error = %error.chain(), "opening the secret of a check failed"
            );
            return Ok(Err("the check's secret cannot be opened; set the check anew with its secret"));
        }
        Err(error) => return Err(error),
    };
    let place = verifier.secret_for(&check.kind, &check.settings);
    let secret = kept.zip(place).and_then(|(kept, place)| CheckSecret::of_kept(&kept, &check.name, &place));
    Ok(secret.ok_or("the check's secret is for another address; set the check anew with its secret"))
}

/// Returns the measurement of a check whose verifier did not answer in time.
fn unanswered(spec: &MeasureSpec, timeout: Duration) -> Measured {
    unmeasured(spec, &format!("No answer within {} s.", timeout.as_secs_f64()))
}

/// Returns a measurement without a verdict.
fn unmeasured(spec: &MeasureSpec, message: &str) -> Measured {
    Measured {
        request: String::new(),
        condition: String::new(),
        measurement: Measurement::new(spec.now, Verdict::None, message),
    }
}
