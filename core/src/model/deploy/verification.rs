//! The verification of a deploy: what its app's checks have measured, and what follows.

use serde::{Deserialize, Serialize};

use super::{
    decision::{Decision, Ruling},
    state::written,
};
use crate::{
    check::{
        Check, CheckMode, CheckName, MESSAGE_MAX, Measurement, PAST_VALUE_MAX, PAST_VALUES_MAX, PastValue, VALUE_MAX,
        Verdict, WithoutVerdict,
    },
    text,
    time::Timestamp,
};

/// The most measurements that are kept of a check.
pub const MEASUREMENTS_MAX: usize = 20;
/// The most bytes of all measurements and past values of an entry as JSON writes them. The last ones of each check stay all the same.
const BYTES_MAX: usize = 24 << 10;

/// The verification of a deploy by its app's checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Verification {
    /// The begin: the rollout had settled.
    pub since: Timestamp,
    /// The checks, in the order of the app's policy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckResult>,
    /// Why nothing was measured, as a clause; `None` if the checks were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub skipped: Option<String>,
    /// The time since which a person's decision is waited for, as the checks that are left have no verdict. It stays once the person
    /// has decided; a verdict that comes meanwhile takes it away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub awaited_since: Option<Timestamp>,
    /// The person's decision.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The most measurements of a check that was changed or removed meanwhile.
    #[serde(default, skip_serializing_if = "is_zero")]
    counted: u32,
}

/// What a check has measured of one deploy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct CheckResult {
    /// The check's name.
    pub name: CheckName,
    /// What follows from its verdict.
    pub mode: CheckMode,
    /// The [fingerprint](Check::fingerprint) of what was measured: other settings begin anew.
    pub fingerprint: String,
    /// The verdict; `None` as long as there is none, and if the deploy ended before. While a person is asked in the place of the
    /// check, it is [`Verdict::None`], and the measurements go on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The condition that a pass must meet, as people read it; empty before the first measurement.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub condition: String,
    /// The number of measurements so far.
    #[serde(default)]
    pub count: u32,
    /// Whether a measurement has passed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_passed: bool,
    /// The measurements that failed since the last that passed.
    #[serde(default)]
    pub failed: u32,
    /// The measurements without a verdict since the last that had one.
    #[serde(default)]
    pub silent: u32,
    /// The last measurements, oldest first, at most [`MEASUREMENTS_MAX`].
    #[serde(default)]
    pub measurements: Vec<Measurement>,
    /// The values of the time before the rollout, oldest first, at most [`PAST_VALUES_MAX`]; empty before they are known, and of a
    /// check that has none. Nothing is judged by them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub before: Vec<PastValue>,
}

impl Verification {
    /// Returns a verification by these checks that begins now.
    pub fn begin(checks: &[Check], since: Timestamp) -> Self {
        let checks = checks.iter().map(CheckResult::new).collect();
        Self { since, checks, skipped: None, awaited_since: None, decision: None, counted: 0 }
    }

    /// Returns the verification that is not made, for this reason: a clause.
    pub fn skipped(reason: &str, since: Timestamp) -> Self {
        Self { skipped: Some(reason.to_owned()), ..Self::begin(&[], since) }
    }

    /// The result of the check that is made of these settings.
    pub fn of(&self, check: &Check) -> Option<&CheckResult> {
        let fingerprint = check.fingerprint();
        self.checks.iter().find(|result| result.name == check.name && result.fingerprint == fingerprint)
    }

    /// Returns how often a check was measured; one that is set anew goes on behind all that were measured before, so that it
    /// measures by runs of its own.
    pub fn count_of(&self, check: &Check) -> u32 {
        self.of(check).map_or_else(|| self.counted(), |result| result.count)
    }

    /// Returns how often the check was measured that was measured most often, be it one that is no longer set.
    pub fn counted(&self) -> u32 {
        self.checks.iter().map(|result| result.count).fold(self.counted, u32::max)
    }

    /// Follows a change of the app's checks: what was measured by other settings counts no more.
    pub fn follow(&mut self, checks: &[Check]) {
        let counted = self.counted();
        self.counted = counted;
        let new = |check| CheckResult { count: counted, ..CheckResult::new(check) };
        let known = checks.iter().map(|check| {
            let known = self.of(check).cloned().unwrap_or_else(|| new(check));
            CheckResult { mode: check.mode, ..known }
        });
        self.checks = known.collect();
    }

    /// Returns why this deploy is not verified, or not by all of its enforced checks, as a clause; `None` if it is, or if the
    /// verification is not over and no person is asked.
    pub fn gap(&self) -> Option<String> {
        if let Some(skipped) = &self.skipped {
            return Some(skipped.clone());
        }
        let clauses: Vec<String> = self
            .without_verdict()
            .map(|result| {
                let message = result.last().map_or("nothing was measured", |last| &last.message);
                format!("{}: {}", result.name, message.trim_end_matches('.'))
            })
            .collect();
        (!clauses.is_empty()).then(|| clauses.join(", "))
    }

    /// The enforced checks that came to no verdict.
    pub fn without_verdict(&self) -> impl Iterator<Item = &CheckResult> {
        let silent = |result: &&CheckResult| result.mode == CheckMode::Enforce && result.verdict == Some(Verdict::None);
        self.checks.iter().filter(silent)
    }

    /// Returns whether anything was measured.
    pub fn is_measured(&self) -> bool {
        self.checks.iter().any(|result| !result.measurements.is_empty())
    }

    /// The first check whose fail fails the deploy, if one has failed.
    pub fn enforced_fail(&self) -> Option<&CheckResult> {
        let has_failed =
            |result: &&CheckResult| result.mode == CheckMode::Enforce && result.verdict == Some(Verdict::Fail);
        self.checks.iter().find(has_failed)
    }

    /// Returns the verification with a person's decision.
    #[must_use]
    pub fn decided(&self, decision: Decision) -> Self {
        Self { decision: Some(decision), ..self.clone() }
    }

    /// Returns whether a person has rejected the deploy.
    pub fn is_rejected(&self) -> bool {
        self.decision.as_ref().is_some_and(|decision| decision.ruling == Ruling::Fail)
    }

    /// Returns whether nothing but a person's decision is missing, by the app's checks of now: each check that decides has passed
    /// or has no verdict, and one of the latter asks.
    pub fn asks(&self, checks: &[Check]) -> bool {
        let enforced = || checks.iter().filter(|check| check.mode == CheckMode::Enforce);
        let verdict = |check: &Check| self.of(check).and_then(|result| result.verdict);
        let is_asking =
            |check: &Check| check.without_verdict == WithoutVerdict::Ask && verdict(check) == Some(Verdict::None);
        enforced().all(|check| matches!(verdict(check), Some(Verdict::Pass | Verdict::None)))
            && enforced().any(is_asking)
    }

    /// Returns the verification with the last measurement of each check alone.
    #[must_use]
    pub fn short(&self) -> Self {
        let mut short = self.clone();
        for result in &mut short.checks {
            result.keep_last(1);
            result.before.clear();
        }
        short
    }

    /// Returns the verification with what an entry may hold of it: texts come from outside. The last measurements stay.
    #[must_use]
    pub(super) fn bounded(mut self) -> Self {
        for result in &mut self.checks {
            text::cut(&mut result.condition, VALUE_MAX);
            for measurement in &mut result.measurements {
                text::cut(&mut measurement.message, MESSAGE_MAX);
                measurement.value.iter_mut().for_each(|value| text::cut(value, VALUE_MAX));
            }
            for past in &mut result.before {
                past.value = past.value.take().filter(|value| value.chars().count() <= PAST_VALUE_MAX);
            }
        }
        let mut kept = MEASUREMENTS_MAX;
        loop {
            for result in &mut self.checks {
                result.keep_last(kept);
                keep_last(&mut result.before, kept.min(PAST_VALUES_MAX));
            }
            let bytes: usize =
                self.checks.iter().map(|result| written(&result.measurements) + written(&result.before)).sum();
            if kept <= 1 || bytes <= BYTES_MAX {
                return self;
            }
            kept -= 1;
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
const fn is_zero(count: &u32) -> bool {
    *count == 0
}

impl CheckResult {
    /// Returns the result of a check that has measured nothing yet.
    pub fn new(check: &Check) -> Self {
        Self {
            name: check.name.clone(),
            mode: check.mode,
            fingerprint: check.fingerprint(),
            verdict: None,
            condition: String::new(),
            count: 0,
            has_passed: false,
            failed: 0,
            silent: 0,
            measurements: Vec::new(),
            before: Vec::new(),
        }
    }

    /// The last measurement.
    pub fn last(&self) -> Option<&Measurement> {
        self.measurements.last()
    }

    /// Takes in a measurement.
    pub fn measured(&mut self, measurement: Measurement, condition: String) {
        match measurement.verdict {
            Verdict::Pass => (self.has_passed, self.failed, self.silent) = (true, 0, 0),
            // A run of fails goes on over measurements that say nothing.
            Verdict::Fail => (self.failed, self.silent) = (self.failed.saturating_add(1), 0),
            Verdict::None => self.silent = self.silent.saturating_add(1),
        }
        self.count = self.count.saturating_add(1);
        self.condition = condition;
        self.measurements.push(measurement);
        self.keep_last(MEASUREMENTS_MAX);
    }

    fn keep_last(&mut self, count: usize) {
        keep_last(&mut self.measurements, count);
    }
}

fn keep_last<T>(all: &mut Vec<T>, count: usize) {
    let surplus = all.len().saturating_sub(count);
    all.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_bounded_and_the_last_of_each_check_stays() {
        let check = |number: usize| {
            let name = format!("check-{number}").parse().unwrap();
            Check::new(name, "http".parse().unwrap(), crate::app::Settings::default())
        };
        let checks: Vec<Check> = (0..10).map(check).collect();
        for text in ["x", "\u{1}", "é"] {
            let mut verification = Verification::begin(&checks, Timestamp::default());
            for (result, number) in verification.checks.iter_mut().flat_map(|result| [(result, 30)]) {
                for at in 0..number {
                    let long = text.repeat(5_000);
                    let at = Timestamp::from_millis(at);
                    let measurement = Measurement {
                        value: Some(long.clone()),
                        message: long.clone(),
                        ..Measurement::new(at, Verdict::Fail, "")
                    };
                    result.before.push(PastValue { at, value: Some(text.repeat(PAST_VALUE_MAX)) });
                    result.measured(measurement, long);
                }
            }
            let kept = verification.bounded();
            assert!(written(&kept) <= 50 << 10, "{text:?}: {}", written(&kept));
            for result in &kept.checks {
                assert_eq!((result.failed, result.last().unwrap().at), (30, Timestamp::from_millis(29)));
            }
        }
        let mut usual = CheckResult::new(&checks[0]);
        (0..30).for_each(|at| {
            usual.measured(Measurement::new(Timestamp::from_millis(at), Verdict::Pass, "status 200"), String::new())
        });
        let past = |at| PastValue { at: Timestamp::from_millis(at), value: Some("0.0123456789".to_owned()) };
        usual.before = (0..30).map(past).collect();
        usual.before[29].value = Some("1".repeat(PAST_VALUE_MAX + 1));
        let kept = Verification { checks: vec![usual], ..Verification::begin(&[], Timestamp::default()) }.bounded();
        assert_eq!(kept.checks[0].measurements.len(), MEASUREMENTS_MAX);
        let expected = (30 - PAST_VALUES_MAX as i64..29).map(past).chain([PastValue { value: None, ..past(29) }]);
        assert_eq!(kept.checks[0].before, expected.collect::<Vec<_>>());
        let short = kept.short();
        assert_eq!((short.checks[0].measurements.len(), short.checks[0].before.len()), (1, 0));
    }

    #[test]
    fn other_settings_begin_anew_and_what_decides_nothing_is_no_gap() {
        let check = Check::new("front-page".parse().unwrap(), "http".parse().unwrap(), crate::app::Settings::default());
        let mut verification = Verification::begin(std::slice::from_ref(&check), Timestamp::default());
        verification.checks[0]
            .measured(Measurement::new(Timestamp::default(), Verdict::None, "No data."), String::new());
        verification.checks[0].verdict = Some(Verdict::None);
        assert_eq!(verification.gap().as_deref(), Some("front-page: No data"));
        let observed = Check { mode: CheckMode::Observe, failures: 9, ..check.clone() };
        verification.follow(&[observed]);
        assert_eq!((verification.gap(), verification.checks[0].silent), (None, 1));
        let mut settings = crate::app::Settings::default();
        settings.insert("url".to_owned(), "http://localhost".into());
        verification.follow(&[Check { settings, ..check }]);
        assert_eq!(verification.checks[0].silent, 0);
        verification.follow(&[]);
        assert_eq!(verification.checks, Vec::new());
    }
}
