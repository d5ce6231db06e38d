//! The decision of a person on a deploy whose checks came to no verdict.

use super::{AppState, Record};
use crate::{
    deploy::{Actor, Decision, Deploy, Revision, Ruling, Status, Verification},
    request::Refusal,
    time::Timestamp,
};

/// Returns the record by which a person decides; `None` if the same person has decided so before.
///
/// # Errors
/// [`Refusal::NotAwaited`] if no decision is waited for, [`Refusal::DecidedAlready`], [`Refusal::AlreadyEnded`] if the deploy is
/// none of the unfinished ones.
pub fn decide(
    state: &AppState,
    revision: Revision,
    (ruling, by): (Ruling, &Actor),
    now: Timestamp,
) -> Result<Option<Record>, Refusal> {
    let deploy = state.unfinished(revision).ok_or(Refusal::AlreadyEnded(revision))?;
    if is_decided(deploy, ruling, by)? {
        return Ok(None);
    }
    // The checks may have been changed since a person was asked: the question is another one then.
    let asks = |verification: &Verification| verification.asks(&state.app.policy.checks);
    let awaited = deploy.awaited_decision().filter(|(asking, _)| asks(asking));
    let Some((verification, since)) = awaited else {
        return Err(Refusal::NotAwaited { revision, is_verified: deploy.status() == Status::Verifying });
    };
    // The clock may have been set back since the driver asked.
    let decision = Decision { ruling, by: by.clone(), at: state.time(now).max(since) };
    let verification = Some(Box::new(verification.decided(decision)));
    let decided = Deploy { verification, ..deploy.moved(deploy.state.clone()) };
    Ok(Some(Record { changes: vec![decided], ..Record::default() }))
}

/// Returns whether the same person has decided so before: the call is a repetition.
///
/// # Errors
/// [`Refusal::DecidedAlready`] if the decision is another person's, or another one.
pub fn is_decided(deploy: &Deploy, ruling: Ruling, by: &Actor) -> Result<bool, Refusal> {
    let Some(known) = deploy.verification.as_ref().and_then(|verification| verification.decision.as_ref()) else {
        return Ok(false);
    };
    if known.ruling == ruling && known.by == *by {
        return Ok(true);
    }
    Err(Refusal::DecidedAlready(deploy.revision, Box::new(known.clone())))
}
