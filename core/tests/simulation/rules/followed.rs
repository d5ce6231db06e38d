//! Versions that apps follow at the registry: each once, only forward, and none that is held.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    app::{AppId, Namespace},
    deploy::{Deploy, Trigger},
    image::{ImageRef, Tag},
    ledger::AppState,
};

use super::{Known, Rules};
use crate::{journal::Journal, recording_ports::Life, requests::VERSIONS};

/// The versions that were pushed to the registry.
#[derive(Default)]
pub(crate) struct Published {
    /// The versions by their numbers.
    versions: BTreeMap<u64, Version>,
}

/// A version that was pushed.
struct Version {
    /// The tag before the number.
    name: &'static str,
    /// Whether the registry lists it.
    is_listed: bool,
    /// The apps that were sent a hint while it was listed.
    hinted: BTreeSet<AppId>,
}

impl Published {
    /// Pushes a version: the next one, or one below the last.
    pub(crate) fn publish(&mut self, name: &'static str, below: bool) {
        let last = self.versions.keys().next_back().copied().unwrap_or_default();
        let number = if below { last.saturating_sub(5) } else { last + 10 };
        self.versions.entry(number).or_insert(Version { name, is_listed: true, hinted: BTreeSet::new() });
    }

    /// Has the newest version not listed any more.
    pub(crate) fn withdraw(&mut self) {
        let newest = self.versions.values_mut().rev().find(|version| version.is_listed);
        newest.into_iter().for_each(|version| version.is_listed = false);
    }

    /// Notes that the registry sends an app a hint.
    pub(crate) fn hint(&mut self, app: &AppId) {
        for version in self.versions.values_mut().filter(|version| version.is_listed) {
            version.hinted.insert(app.clone());
        }
    }

    /// The tags of the versions that are listed, beside those that are none.
    pub(crate) fn tags(&self) -> Vec<Tag> {
        let listed = self.versions.iter().filter(|(_, version)| version.is_listed);
        let versions = listed.map(|(number, version)| format!("{}-{number}", version.name));
        versions.chain(["v1".to_owned(), "latest".to_owned()]).map(|tag| tag.parse().unwrap()).collect()
    }

    fn newest(&self) -> Option<u64> {
        let listed = self.versions.iter().rev().find(|(_, version)| version.is_listed);
        listed.map(|(number, _)| *number)
    }

    /// Returns whether an image is a higher version than the newest that is listed.
    pub(crate) fn is_above_newest(&self, image: &ImageRef) -> bool {
        number(image).zip(self.newest()).is_some_and(|(number, newest)| number > newest)
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
        let is_hinted = self.published.versions.get(&found).is_some_and(|version| version.hinted.contains(&app.id));
        journal.count(if is_hinted {
            "follow: a version was followed after a hint"
        } else {
            "follow: a version was followed without a hint"
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
        let newest = before.iter().rev().find(|entry| !entry.is_out_of_order());
        let newest = newest.and_then(|entry| number(entry.image.as_ref()?));
        journal.expect(newest.is_none_or(|newest| newest < found), || {
            format!("revision {revision} goes back to {found}, and {newest:?} was accepted last")
        });
        let decided = known.view.followed();
        journal.expect(decided.is_some(), || format!("revision {revision} was followed by a rule that was just set"));
        let decided = decided.and_then(|decided| number(decided.newest.as_ref()?));
        journal.expect(decided.is_none_or(|decided| decided < found), || {
            format!("revision {revision} goes back to {found}, and {decided:?} was decided on")
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
