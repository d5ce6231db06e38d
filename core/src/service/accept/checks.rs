//! What is asked of the checks of an app.

use crate::{
    app::{Policy, settings_bytes},
    check::{CHECKS_MAX, EVERY, FAILURES, TIMEOUT, VERIFY_FOR_MAX},
    request::{Field, Refusal},
    service::Outcome,
};

/// The most bytes of the settings of all checks of an app.
const CHECK_BYTES_MAX: usize = 16 * 1024;

/// Returns `Ok` if the checks can be kept in memory, and come to verdicts. What their settings say is the verifier's.
pub(super) fn check(policy: &Policy) -> Outcome<()> {
    let refuse = |rule: String| Err(Refusal::InvalidField(Field::PolicyChecks, rule));
    let checks = &policy.checks;
    let bytes: usize = checks.iter().map(|check| settings_bytes(&check.settings)).sum();
    if checks.len() > CHECKS_MAX || bytes > CHECK_BYTES_MAX {
        return refuse(format!("must be at most {CHECKS_MAX}, with {CHECK_BYTES_MAX} bytes in all."));
    }
    for (index, check) in checks.iter().enumerate() {
        let name = &check.name;
        if checks.iter().take(index).any(|other| other.name == *name) {
            return refuse(format!("two of them have the name {name}."));
        }
        if !EVERY.contains(&check.every) {
            return refuse(format!("{name} must be measured every 1s to 1h."));
        }
        if !FAILURES.contains(&check.failures) {
            return refuse(format!(
                "{name} must fail after {} to {} measurements in a row.",
                FAILURES.start(),
                FAILURES.end()
            ));
        }
        if !TIMEOUT.contains(&check.timeout) {
            return refuse(format!("a measurement of {name} must take at most 1s to 1m."));
        }
    }
    if policy.verify_for > VERIFY_FOR_MAX {
        return Err(Refusal::InvalidField(Field::PolicyVerifyFor, "must be at most 24h.".to_owned()));
    }
    Ok(())
}
