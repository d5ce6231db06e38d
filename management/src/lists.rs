//! Turns of the projects and environments whose callers ask for what few calls do at once: long lists that are read from the
//! store, and the count of bounded records.

use rollhook_core::{
    lock::PrincipalKey,
    slots::{Slot, Slots},
};

use crate::access::{KnownCaller, Principal};

/// The lists of one kind that are read at once, those of the callers of one project, and those of one environment or one
/// other caller: a page of apps has all their settings.
const ALL: usize = 6;
const OF_PROJECT: usize = 3;
const OF_ONE: usize = 2;

/// The turns of the long lists of one kind.
pub(crate) struct Lists {
    /// Few lists of an environment wait among those of its project at a time, so that the project's environments take turns
    /// there too.
    environments: Slots<PrincipalKey>,
    projects: Slots<PrincipalKey>,
}

/// The turn of a caller, such as to read a long list, which ends when this is dropped.
pub struct ListTurn {
    _project: Slot<PrincipalKey>,
    _environment: Slot<PrincipalKey>,
}

impl Default for Lists {
    fn default() -> Self {
        Self { environments: Slots::with_share(usize::MAX, OF_ONE), projects: Slots::with_share(ALL, OF_PROJECT) }
    }
}

impl Lists {
    /// Returns turns that come one at a time.
    pub(crate) fn one_at_a_time() -> Self {
        Self { environments: Slots::with_share(usize::MAX, 1), projects: Slots::new(1) }
    }

    /// Returns turns of calls that read very many entries: one of an environment or another caller at a time, two of a
    /// project, and four in all.
    pub(crate) fn of_reports() -> Self {
        Self { environments: Slots::with_share(usize::MAX, 1), projects: Slots::with_share(4, 2) }
    }

    /// Returns the turn of a principal, among those of its environment and project.
    pub(crate) async fn turn(&self, principal: &Principal) -> ListTurn {
        self.turn_of(principal.known_caller()).await
    }

    /// Returns the turn of a caller, among those of its environment and project.
    pub(crate) async fn turn_of(&self, caller: KnownCaller) -> ListTurn {
        let KnownCaller { party, environment, project } = caller;
        let environment = environment.or_else(|| project.clone()).unwrap_or(party);
        let slot = self.environments.acquire(&environment).await;
        let project = self.projects.acquire(project.as_ref().unwrap_or(&environment)).await;
        ListTurn { _project: project, _environment: slot }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::access::Realm;

    fn caller(name: &str, project: &str, environment: Option<&str>) -> KnownCaller {
        let environment = environment.map(|environment| environment.parse().unwrap());
        let realm = Realm::of(Some(project.parse().unwrap()), environment).unwrap();
        KnownCaller::made_in(PrincipalKey::of("token", &[name]), &realm)
    }

    #[test]
    fn callers_of_many_environments_of_a_project_leave_half_of_the_lists_to_others() {
        let lists = Lists::default();
        let now = |caller: KnownCaller| lists.turn_of(caller).now_or_never();
        let held: Vec<_> =
            (0..100).filter_map(|number| now(caller("eve", "shop", Some(&format!("made-up-{number}"))))).collect();
        assert_eq!(held.len(), OF_PROJECT);
        assert!(now(caller("eva", "shop", None)).is_none(), "the project's own callers have no more");
        let others = ["test", "prod"].map(|environment| now(caller("ada", "blog", Some(environment))));
        assert!(others.iter().all(Option::is_some));
        assert!(now(KnownCaller::new(PrincipalKey::of("person", &["grace"]))).is_some());
        drop(held);
        assert!(now(caller("eve", "shop", Some("test"))).is_some());
    }

    #[test]
    fn environments_of_a_project_take_turns() {
        let lists = Lists::default();
        let held: Vec<_> = (0..OF_PROJECT)
            .map(|number| lists.turn_of(caller("ada", "shop", Some(&format!("e{number}")))).now_or_never().unwrap())
            .collect();
        let mut many: Vec<_> = (0..50).map(|_| Box::pin(lists.turn_of(caller("eve", "shop", Some("test"))))).collect();
        assert!(many.iter_mut().all(|turn| turn.as_mut().now_or_never().is_none()));
        let mut other = Box::pin(lists.turn_of(caller("eva", "shop", Some("prod"))));
        assert!(other.as_mut().now_or_never().is_none());
        drop(held);
        let served = many.iter_mut().filter_map(|turn| turn.as_mut().now_or_never()).collect::<Vec<_>>();
        assert_eq!(served.len(), OF_ONE);
        assert!(other.as_mut().now_or_never().is_some());
    }
}
