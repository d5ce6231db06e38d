//! Versions that apps follow at the registry: each once, only forward, and none that is held.

use std::collections::BTreeMap;

use rollhook_core::{
    app::Namespace,
    deploy::{Deploy, Trigger},
    image::{ImageRef, Tag},
    ledger::AppState,
};

use super::{Known, Rules};
use crate::{journal::Journal, recording_ports::Life, requests::VERSIONS};

/// The versions that were pushed to the registry.
#[derive(Default)]
pub(crate) struct Published {
    /// Their names by their numbers, and whether they are listed.
    versions: BTreeMap<u64, (&'static str, bool)>,
}

impl Published {
    /// Pushes a version: the next one, or one below the last.
    pub(crate) fn publish(&mut self, name: &'static str, below: bool) {
        let last = self.versions.keys().next_back().copied().unwrap_or_default();
        let number = if below { last.saturating_sub(5) } else { last + 10 };
        self.versions.entry(number).or_insert((name, true));
    }

    /// Has the newest version not listed any more.
    pub(crate) fn withdraw(&mut self) {
        let newest = self.versions.values_mut().rev().find(|(_, is_listed)| *is_listed);
        newest.into_iter().for_each(|(_, is_listed)| *is_listed = false);
    }

    /// The tags of the versions that are listed, beside those that are none.
    pub(crate) fn tags(&self) -> Vec<Tag> {
        let listed = self.versions.iter().filter(|(_, (_, is_listed))| *is_listed);
        let versions = listed.map(|(number, (name, _))| format!("{name}-{number}"));
        versions.chain(["v1".to_owned(), "latest".to_owned()]).map(|tag| tag.parse().unwrap()).collect()
    }

    fn newest(&self) -> Option<u64> {
        let listed = self.versions.iter().rev().find(|(_, (_, is_listed))| *is_listed);
        listed.map(|(number, _)| *number)
    }
}

/// The number of a version's image.
fn number(image: &ImageRef) -> Option<u64> {
    image.tag()?.rsplit_once('-')?.1.parse().ok()
}

fn follows(view: &AppState) -> bool {
    view.app.policy.follow.as_ref().is_some_and(|rule| rule.to_string() == VERSIONS)
}

impl Rules {
    /// An entry that following made.
    pub(super) fn followed(&self, known: &Known, before: &[Deploy], new: &Deploy, journal: &Journal) {
        let (app, revision) = (&known.view.app, new.revision);
        journal.expect(known.view.is_polled() && follows(&known.view), || {
            format!("revision {revision} was followed, and {} follows nothing", app.id)
        });
        let Some((image, found)) = new.image.as_ref().and_then(|image| Some((image, number(image)?))) else {
            journal.expect(false, || format!("revision {revision} was followed, and is no version"));
            return;
        };
        journal.expect(image.digest().is_some() && self.published.versions.contains_key(&found), || {
            format!("revision {revision} was followed, and {image} was never pushed")
        });
        let held = app.holds.iter().any(|hold| hold.covers(Some(image), None));
        journal.expect(!held, || format!("revision {revision} was followed, and is held"));
        let deployed = before.iter().find(|entry| {
            let digest = entry.image.as_ref().and_then(|other| entry.digest.as_ref().or(other.digest()));
            digest.is_some() && digest == image.digest()
        });
        journal.expect(deployed.is_none(), || {
            format!("revision {revision} was followed, and {image} was deployed before")
        });
        let earlier = before.iter().filter(|entry| entry.trigger == Trigger::Registry);
        let highest = earlier.filter_map(|entry| number(entry.image.as_ref()?)).max();
        journal.expect(highest.is_none_or(|highest| highest < found), || {
            format!("revision {revision} goes back to {found}, and {highest:?} was followed")
        });
        let current = known.view.current.as_ref().and_then(|current| number(current.image.as_ref()?));
        journal.expect(current.is_none_or(|current| current < found), || {
            format!("revision {revision} goes back to {found}, and {current:?} is current")
        });
    }

    /// A life lists the tags of a repository.
    pub(crate) fn reads_tags(&self, life: &Life, environment: &Namespace, now: std::time::Duration, journal: &Journal) {
        journal.count("polling: a repository was listed");
        let of_it = |known: &&Known| known.view.app.id.namespace == *environment && follows(&known.view);
        let mut apps = self.known.values().filter(of_it).peekable();
        let may = apps.peek().is_none() || apps.any(|known| self.owners.may_look(life, known.view.app.uid, now));
        journal.expect(may, || format!("{} lists a repository that others' apps follow", life.name));
    }

    /// The apps that have not decided on the newest version.
    pub(crate) fn unfollowed(&self) -> Vec<String> {
        let unfollowed = |known: &&Known| {
            let (app, view) = (&known.view.app, &known.view);
            let (Some(newest), Some(_)) = (self.published.newest(), view.repository()) else { return false };
            let is_locked = app.locks.app.as_ref().is_some_and(|lock| lock.until.is_none());
            let held = app.holds.iter().any(|hold| hold.image.as_ref().and_then(number) == Some(newest));
            let decided = view.followed().and_then(|followed| number(followed.newest.as_ref()?));
            view.is_polled() && follows(view) && !is_locked && !held && decided.is_none_or(|decided| decided < newest)
        };
        let unfollowed = self.known.values().filter(unfollowed);
        unfollowed.map(|known| format!("{} has not followed its repository", known.view.app.id)).collect()
    }
}
