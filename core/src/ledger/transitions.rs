//! The transitions of a deploy's status, as one table: the engine records no other, and ARCHITECTURE.md shows it.

use crate::deploy::Status::{
    self, Building, Cancelled, Failed, Queued, Releasing, RollingOut, Succeeded, Superseded, Verifying,
};

/// Each status that is not final, the statuses that may follow, and what the deploy waits for in it.
pub const TRANSITIONS: [(Status, &[Status], &str); 5] = [
    (
        Queued,
        &[Building, Releasing, RollingOut, Failed, Superseded, Cancelled],
        "the digest of its image, and its turn",
    ),
    (Building, &[Releasing, RollingOut, Failed, Superseded, Cancelled], "the end of its build, and then its turn"),
    (Releasing, &[RollingOut, Failed, Superseded, Cancelled], "the end of its release command"),
    (RollingOut, &[Verifying, Succeeded, Failed, Superseded, Cancelled], "its instances, until they have settled"),
    (
        Verifying,
        &[Succeeded, Failed, Superseded, Cancelled],
        "the verdicts of the app's checks, or a person's in their place",
    ),
];

/// Returns whether a deploy of status `from` may have status `to` next. A deploy under way may also be changed within its
/// status, as when an outage begins.
pub fn is_allowed(from: Status, to: Status) -> bool {
    let stays = from == to && matches!(from, Queued | Building | Releasing | RollingOut | Verifying);
    stays || TRANSITIONS.iter().any(|(status, next, _)| *status == from && next.contains(&to))
}

/// Returns the table as Markdown.
pub fn table() -> String {
    let mut table = "| status | waits for | may become |\n|---|---|---|\n".to_owned();
    for (status, next, waits_for) in TRANSITIONS {
        let next: Vec<String> = next.iter().map(|status| format!("`{status}`")).collect();
        table.push_str(&format!("| `{status}` | {waits_for} | {} |\n", next.join(", ")));
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: [Status; 9] =
        [Queued, Building, Releasing, RollingOut, Verifying, Succeeded, Failed, Superseded, Cancelled];

    #[test]
    fn final_statuses_have_no_successor_and_every_other_ends() {
        for from in ALL {
            let follows = ALL.into_iter().filter(|to| is_allowed(from, *to)).collect::<Vec<_>>();
            assert_eq!(follows.is_empty(), from.is_terminal(), "{from}: {follows:?}");
            assert!(from.is_terminal() || follows.contains(&Cancelled) && follows.contains(&Superseded), "{from}");
        }
        assert!(!is_allowed(Queued, Succeeded) && !is_allowed(Releasing, Succeeded), "only a rollout succeeds");
        assert!(!is_allowed(Queued, Verifying) && !is_allowed(Verifying, RollingOut), "what was measured stays so");
        assert!(!is_allowed(RollingOut, Releasing), "nothing is touched before the release command");
    }
}
