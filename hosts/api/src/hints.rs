//! The ways on from refusals, in the words of the command line and the server's flags.

use rollhook_core::{request::Hint, service::StartError};

/// Returns the reason why a process must not drive a store's apps, with the command that is the way on.
pub fn of_start(error: &StartError) -> String {
    if let StartError::OtherDriver { .. } = error {
        return format!("{error} (rollhook-server store rebind)");
    }
    rollhook_core::error::chain(error)
}

/// Returns the text of a refused rollback without the sentence that names its confirmation, for a caller that asks for it by
/// itself.
pub fn without_confirmation(detail: &str) -> &str {
    let sentences = [Hint::GoWithoutRelease, Hint::PassReleases, Hint::BringRevoked].map(sentence);
    sentences.into_iter().flatten().find_map(|hint| detail.strip_suffix(hint)).unwrap_or(detail).trim_end()
}

/// Returns a sentence that names the way on.
#[allow(clippy::wildcard_enum_match_arm, reason = "a hint that is not known here is left out")]
pub(crate) fn sentence(hint: Hint) -> Option<&'static str> {
    Some(match hint {
        Hint::ReleaseHold => "Commands: rollhook app release-hold, rollhook app deploy.",
        Hint::BreakGlass => "Commands: rollhook app deploy --break-glass, rollhook app config set --break-glass.",
        Hint::ReadToken => "Commands: rollhook app webhook status, rollhook app webhook enable.",
        Hint::OpenBuilder => "Or give this one a builder: --build-command or --build-image.",
        Hint::AllowLocalSources => "The server's flag: --allow-local-sources.",
        Hint::AllowSourceHost => "The server's flag: --source-host.",
        Hint::AdoptWorkload => {
            "Register it as it is by --adopt, or name another workload: --workload KIND/NAME, or another name of the app."
        }
        Hint::GoWithoutRelease => "Command: rollhook app rollback --yes; in the API, without_release.",
        Hint::PassReleases => "Command: rollhook app rollback --yes; in the API, past_releases.",
        Hint::PassVariables => "Command: rollhook app promote --yes; in the API, without_variables.",
        Hint::BringRevoked => "Command: rollhook app rollback --with-config --yes; in the API, with_revoked.",
        Hint::EndRun => "Commands: rollhook app runs --follow, rollhook app runs --cancel.",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn caller_that_asks_names_no_other_confirmation() {
        let hint = sentence(Hint::PassReleases).unwrap();
        assert_eq!(without_confirmation(&format!("It changed. {hint}")), "It changed.");
        assert_eq!(without_confirmation("It changed."), "It changed.");
    }
}
