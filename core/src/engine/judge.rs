//! The verdict of a check by what it has measured of one deploy.

use std::time::Duration;

use crate::{
    check::{Check, CheckMode, Verdict, WithoutVerdict},
    deploy::CheckResult,
    time::Timestamp,
};

/// The judgement of a check so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// There is no verdict yet: the next measurement is due at this time.
    Open(Timestamp),
    /// The check has come to its verdict.
    Decided(Verdict),
}

/// Judges a check of a deploy whose verification began at `since`, and lasts for `verify_for` at least.
///
/// - [`Check::failures`] measurements that fail in a row are a fail, at once. One without a verdict neither counts nor
///   interrupts them; one that passes does.
/// - A check is measured until `verify_for` is over, and once more then. It passes if a measurement has passed, and none has
///   failed since. A run of fails under way goes on until it is decided.
/// - If the last measurements have no verdict, as many in a row as would make a fail, the check has none, unless it waits for
///   one, or [asks a person](asks): then it is measured on.
///
/// A measurement of a time to come is from before the clock was set back, and the next one is due at once.
pub fn judge(so_far: &CheckResult, check: &Check, verify_for: Duration, since: Timestamp, now: Timestamp) -> Judgement {
    if so_far.failed >= check.failures {
        return Judgement::Decided(Verdict::Fail);
    }
    let Some(last) = so_far.last().map(|last| last.at) else { return Judgement::Open(now) };
    let end = since.after(verify_for);
    if last < end {
        let next = last.after(check.every).min(end);
        return Judgement::Open(if last > now { now } else { next });
    }
    if so_far.failed == 0 && so_far.has_passed && so_far.silent < check.failures {
        return Judgement::Decided(Verdict::Pass);
    }
    if so_far.silent >= check.failures && check.without_verdict == WithoutVerdict::Accept {
        return Judgement::Decided(Verdict::None);
    }
    Judgement::Open(if last > now { now } else { last.after(check.every) })
}

/// Returns whether a person is asked in the place of a check of a deploy whose verification began at `since`: it asks, and has come
/// to the end of its time without a verdict. From then on it asks until it has one: a single measurement that says something
/// is none yet.
pub fn asks(so_far: &CheckResult, check: &Check, verify_for: Duration, since: Timestamp) -> bool {
    let is_measured_to_its_end = so_far.last().is_some_and(|last| last.at >= since.after(verify_for));
    let has_asked = so_far.verdict == Some(Verdict::None);
    check.without_verdict == WithoutVerdict::Ask
        && check.mode == CheckMode::Enforce
        && (has_asked || is_measured_to_its_end && so_far.silent >= check.failures)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{app::Settings, check::Measurement, tests::NOW};

    const EVERY: Duration = Duration::from_secs(15);

    fn check() -> Check {
        Check::new("front-page".parse().unwrap(), "http".parse().unwrap(), Settings::default())
    }

    fn verdict(letter: char) -> Verdict {
        match letter {
            'p' => Verdict::Pass,
            'f' => Verdict::Fail,
            _ => Verdict::None,
        }
    }

    fn at(seconds: u64) -> Timestamp {
        NOW.after(Duration::from_secs(seconds))
    }

    /// Judges measurements that are given by their first letters, one whenever one is due, and returns the judgement and the
    /// number of those that were made.
    fn judged(check: &Check, letters: &str, verify_for: u64) -> (Judgement, usize) {
        let mut result = CheckResult::new(check);
        let mut now = NOW;
        for (made, letter) in letters.chars().enumerate() {
            match judge(&result, check, Duration::from_secs(verify_for), NOW, now) {
                Judgement::Open(due) => now = now.max(due),
                decided @ Judgement::Decided(_) => return (decided, made),
            }
            result.measured(Measurement::new(now, verdict(letter), "seen"), "as expected".to_owned());
        }
        (judge(&result, check, Duration::from_secs(verify_for), NOW, now), letters.len())
    }

    #[test]
    fn verdicts_by_what_was_measured() {
        use Verdict::{Fail, None, Pass};
        let decided = [
            // Measurements, the time of verification, the verdict, and the number of measurements that it took.
            ("p", 0, Pass, 1),
            ("pfff", 0, Pass, 1),
            ("fp", 0, Pass, 2),
            ("ffp", 0, Pass, 3),
            ("fff", 0, Fail, 3),
            ("np", 0, Pass, 2),
            ("nnp", 0, Pass, 3),
            ("nnn", 0, None, 3),
            ("nnnp", 0, None, 3),
            ("fnfnf", 0, Fail, 5),
            ("nfnnfnnf", 0, Fail, 8),
            ("fnnn", 0, None, 4),
            ("ffnnn", 0, None, 5),
            // For a minute: measured at 0, 15, 30, 45 and 60 s.
            ("ppppp", 60, Pass, 5),
            ("pfpfp", 60, Pass, 5),
            ("nnnnp", 60, Pass, 5),
            ("pnnnn", 60, None, 5),
            ("ppnnp", 60, Pass, 5),
            ("pppnn", 60, Pass, 5),
            ("nnnnn", 60, None, 5),
            ("pfff", 60, Fail, 4),
            ("pppfffp", 60, Fail, 6),
            ("pppffp", 60, Pass, 6),
            ("ppppfff", 60, Fail, 7),
            ("ppppfp", 60, Pass, 6),
            ("ppppfnnn", 60, None, 8),
            ("ffnnnn", 60, None, 5),
        ];
        for (letters, verify_for, verdict, count) in decided {
            let seen = judged(&check(), letters, verify_for);
            assert_eq!(seen, (Judgement::Decided(verdict), count), "{letters} for {verify_for} s");
        }
    }

    #[test]
    fn number_of_fails_is_the_checks_own() {
        let once = Check { failures: 1, ..check() };
        assert_eq!(judged(&once, "f", 0).0, Judgement::Decided(Verdict::Fail));
        assert_eq!(judged(&once, "n", 0).0, Judgement::Decided(Verdict::None));
        assert_eq!(judged(&once, "nf", 60).0, Judgement::Decided(Verdict::Fail));
    }

    #[test]
    fn check_that_waits_has_no_verdict_without_one() {
        let waits = Check { without_verdict: WithoutVerdict::Wait, ..check() };
        assert_eq!(judged(&waits, "nnnnnnnnn", 0).0, Judgement::Open(at(9 * 15)));
        assert_eq!(judged(&waits, "nnnnnnp", 0).0, Judgement::Decided(Verdict::Pass));
        assert_eq!(judged(&waits, "nnnnnnffnf", 0).0, Judgement::Decided(Verdict::Fail));
    }

    #[test]
    fn check_that_asks_is_measured_on_and_asks_until_it_has_a_verdict() {
        let check = Check { without_verdict: WithoutVerdict::Ask, ..check() };
        assert_eq!(judged(&check, "nnnnnnnnn", 0).0, Judgement::Open(at(9 * 15)));
        let asks_after = |check: &Check, letters: &str, verify_for: u64| {
            let mut result = CheckResult::new(check);
            for (place, letter) in (0_u64..).zip(letters.chars()) {
                result.measured(Measurement::new(at(place * 15), verdict(letter), "seen"), String::new());
                let asks = asks(&result, check, Duration::from_secs(verify_for), NOW);
                result.verdict = asks.then_some(Verdict::None);
            }
            result.verdict.is_some()
        };
        assert!(!asks_after(&check, "nn", 0) && asks_after(&check, "nnn", 0));
        assert!(!asks_after(&check, "nnnn", 60) && asks_after(&check, "nnnnn", 60), "not before its time is over");
        assert!(asks_after(&check, "nnnff", 0), "two fails are no verdict");
        assert_eq!(judged(&check, "nnnfff", 0).0, Judgement::Decided(Verdict::Fail));
        assert_eq!(judged(&check, "nnnp", 0).0, Judgement::Decided(Verdict::Pass));
        for other in [WithoutVerdict::Accept, WithoutVerdict::Wait] {
            assert!(!asks_after(&Check { without_verdict: other, ..check.clone() }, "nnnn", 0));
        }
        assert!(!asks_after(&Check { mode: CheckMode::Observe, ..check }, "nnnn", 0), "it decides nothing");
    }

    #[test]
    fn next_measurement_is_due_after_the_last_and_at_the_end() {
        let check = check();
        assert_eq!(judged(&check, "", 0).0, Judgement::Open(NOW), "the first one at once");
        assert_eq!(judged(&check, "f", 0).0, Judgement::Open(at(15)));
        assert_eq!(judged(&check, "p", 40).0, Judgement::Open(at(15)));
        assert_eq!(judged(&check, "ppp", 40).0, Judgement::Open(at(40)), "once more at the end");
        assert_eq!(judged(&check, "p", 5).0, Judgement::Open(at(5)), "also where the end comes first");
        assert_eq!(judged(&check, "pppf", 40).0, Judgement::Open(at(55)), "a run of fails goes on");
    }

    #[test]
    fn a_verdict_is_never_made_by_time_alone() {
        let (check, hour) = (check(), Duration::from_secs(3600));
        let mut result = CheckResult::new(&check);
        let judged = |result: &CheckResult, now| judge(result, &check, hour, NOW, now);
        assert_eq!(judged(&result, at(9_000)), Judgement::Open(at(9_000)), "nothing was measured");
        result.measured(Measurement::new(NOW, Verdict::Pass, "seen"), String::new());
        // The process was away for longer than that: the last measurement is still owed.
        assert!(matches!(judged(&result, at(9_000)), Judgement::Open(due) if due <= at(9_000)));
        result.measured(Measurement::new(at(9_000), Verdict::None, "no answer"), String::new());
        assert_eq!(judged(&result, at(9_000)), Judgement::Decided(Verdict::Pass));
    }

    #[test]
    fn clock_that_was_set_back_measures_on() {
        let check = check();
        let mut result = CheckResult::new(&check);
        result.measured(Measurement::new(at(7_200), Verdict::Fail, "seen"), String::new());
        assert_eq!(judge(&result, &check, EVERY, NOW, at(60)), Judgement::Open(at(60)));
        assert_eq!(judge(&result, &check, EVERY * 1000, NOW, at(60)), Judgement::Open(at(60)));
    }
}
