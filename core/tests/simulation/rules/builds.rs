//! Builds: one at a time for each app, in the order of revisions, of exactly what was asked for; told to end once
//! no entry waits for them. The builder says which builds run.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_core::{
    app::{AppUid, Source},
    deploy::{Commit, Deploy, Revision, State},
    image::ImageRef,
    ledger::AppState,
    ports::{BuildSpec, BuildState, DeployId},
};

use super::{Known, Rules};
use crate::journal::Journal;

type Build = (AppUid, Revision);

/// The builds of a run.
#[derive(Default)]
pub(super) struct Lanes {
    /// How many builds were begun.
    begun: usize,
    /// The last order of each build.
    ordered: BTreeMap<Build, BuildSpec>,
    /// The results of those that ended well.
    built: BTreeMap<Build, (ImageRef, Commit)>,
    /// Those that were told to end.
    told: BTreeSet<Build>,
    /// Those that were begun after their entry had ended, by an order that came late, and the life that it was from.
    late: BTreeMap<Build, Option<u64>>,
    /// Apps that were removed while the builder did not hear that it was to end their builds.
    left: BTreeSet<AppUid>,
    /// Those that the builder's machine was lost with.
    lost: BTreeSet<Build>,
}

impl Rules {
    /// The builder forgot everything.
    pub(crate) fn builds_are_lost(&mut self) {
        let begun = self.lanes.ordered.keys().copied();
        self.lanes.lost.extend(begun);
    }

    /// An order was given to the builder, by this life or by one that believes that it failed; the builder has begun so
    /// many builds by now, and of this app runs so many.
    pub(crate) fn begins(
        &mut self,
        by: Option<u64>,
        order: &BuildSpec,
        (begun, running): (usize, usize),
        journal: &Journal,
    ) {
        if begun == std::mem::replace(&mut self.lanes.begun, begun) {
            return;
        }
        let DeployId { app, revision } = order.id;
        let build = (app, revision);
        journal.count("rule 8: a build was begun");
        journal.expect(running <= 1, || format!("{running} builds of {} run at once", order.app));
        let mut before = self.lanes.ordered.range((app, Revision::FIRST)..).take_while(|((of, _), _)| *of == app);
        journal.count_if(
            before.clone().any(|(_, other)| other.commit == order.commit),
            "rule 8: a commit was built twice",
        );
        let again = self.lanes.lost.remove(&build);
        journal.count_if(again, "rule 8: a lost build was begun again");
        let known = self.known.get(&app);
        let entry = known.and_then(|known| known.history.iter().find(|entry| entry.revision == revision));
        match (known, entry) {
            (Some(known), Some(entry)) if entry.is_to_be_built() => {
                let newer = before.find(|((_, other), _)| *other > revision);
                journal.expect(newer.is_none(), || format!("revision {revision} was built after a newer one"));
                journal.expect(again || !self.lanes.ordered.contains_key(&build), || {
                    format!("revision {revision} was built twice")
                });
                begins_right(known, entry, order, journal);
            }
            _ => {
                journal.count("rule 8: an order to build came after its entry's end");
                self.lanes.late.insert(build, by);
            }
        }
        self.lanes.ordered.insert(build, order.clone());
    }

    /// The builder has said how far a build is.
    pub(crate) fn build_seen(&mut self, build: DeployId, seen: &BuildState, journal: &Journal) {
        let BuildState::Built { image, commit } = seen else { return };
        let key = (build.app, build.revision);
        self.lanes.built.insert(key, (image.clone(), commit.clone()));
        let entry = self.known.get(&build.app).and_then(|known| known.entry(build.revision));
        journal.count_if(entry.is_some_and(Deploy::is_terminal), "rule 8: a result after its entry's end was dropped");
    }

    /// The builder was told to end a build.
    pub(crate) fn build_is_told_to_end(&mut self, build: DeployId, journal: &Journal) {
        // Who deletes the app ends whatever is built, also what came in the meantime.
        let stays = self.known.get(&build.app).filter(|known| !self.deleting.contains(&known.view.app.id));
        let entry = stays.and_then(|known| known.entry(build.revision));
        journal.expect(entry.is_none_or(|entry| !entry.is_to_be_built()), || {
            format!("the build of revision {} was told to end while it was waited for", build.revision)
        });
        if self.lanes.told.insert((build.app, build.revision)) {
            journal.count("rule 8: a build was told to end");
        }
    }

    /// An entry has got its image.
    pub(super) fn was_built(&self, known: &Known, old: &Deploy, new: &Deploy, journal: &Journal) {
        let revision = new.revision;
        let build = (known.view.app.uid, revision);
        journal.count("rule 8: an entry has its image");
        let result = self.lanes.built.get(&build);
        let exact = result.is_some_and(|(image, commit)| {
            new.image.as_ref() == Some(image)
                && new.commit.as_ref() == Some(commit)
                && old.commit.as_ref().is_some_and(|ordered| ordered.may_be(commit))
        });
        journal.expect(exact, || format!("revision {revision} has an image that was not built for it: {result:?}"));
        let State::Building { source, paused, .. } = &old.state else {
            journal.expect(false, || format!("revision {revision} has an image, and was {}", old.status()));
            return;
        };
        journal.count_if(!paused.waiting.past.is_zero(), "rule 6: a build waited for its place, and ended well");
        journal.count_if(!paused.away.past.is_zero(), "rule 6: a build ended well, and its builder had been away");
        let ordered = self.lanes.ordered.get(&build);
        let from = ordered.is_some_and(|order| {
            let repository = new.image.as_ref().map(ImageRef::repository);
            order.source.fingerprint() == *source && repository == Some(order.source.image_repository.as_str())
        });
        journal.expect(from, || format!("revision {revision} was not built from the source that it names"));
        let stale = journal.has_counted("fault: stale read");
        journal.expect(stale || !known.outdated.contains(&revision), || {
            format!("revision {revision} has an image, and its source was changed while it was built")
        });
    }

    /// Whether the build's end was not seen yet, while its entry waits for it.
    pub(super) fn is_under_way(&self, app: AppUid, entry: &Deploy, running: bool) -> bool {
        running || !self.lanes.ordered.contains_key(&(app, entry.revision))
    }

    /// Rule 16: what was being built for an app that is gone was told to end.
    pub(super) fn builds_of_the_removed(&self, app: AppUid, journal: &Journal) {
        let told = self.lanes.told.range((app, Revision::FIRST)..).next().is_some_and(|(of, _)| *of == app);
        journal.count_if(told, "rule 16: an app was removed whose build had been told to end");
    }

    /// Apps that something was ever built for.
    pub(crate) fn built_for(&self) -> BTreeSet<AppUid> {
        self.lanes.ordered.keys().map(|(app, _)| *app).collect()
    }

    /// An app goes, and the builder did not hear that it was to end its build: that one ends by the builder's own
    /// limits.
    pub(super) fn leaves_build(&mut self, app: AppUid, journal: &Journal) {
        journal.count("rule 16: a build was left to a builder that did not hear");
        self.lanes.left.insert(app);
    }

    /// Whether a build may run without an entry: its order came after its entry had ended, from a replica
    /// that cannot know or lives no more, or the builder did not hear.
    pub(crate) fn is_left(&self, app: AppUid, revision: Revision, lives: impl Fn(u64) -> bool) -> bool {
        let build = (app, revision);
        let late = self.lanes.late.get(&build).is_some_and(|by| {
            // Who lost the app in the meantime leaves it to the new owner, who does not know.
            let knows = by.is_some_and(lives) && !self.known.contains_key(&app);
            !knows && !self.lanes.told.contains(&build)
        });
        late || self.lanes.left.contains(&app)
    }
}

/// A build is of the commit that its entry names, and it is its turn.
fn begins_right(known: &Known, entry: &Deploy, order: &BuildSpec, journal: &Journal) {
    let revision = entry.revision;
    let named = match &entry.state {
        State::Building { source, .. } => *source == order.source.fingerprint(),
        State::Queued
        | State::Releasing { .. }
        | State::RollingOut { .. }
        | State::Succeeded { .. }
        | State::Failed { .. }
        | State::Superseded { .. }
        | State::Cancelled { .. } => false,
    };
    journal.expect(named, || format!("revision {revision} is built, and its entry does not say so, or from where"));
    let commit = entry.commit.as_ref() == Some(&order.commit);
    journal.expect(commit, || format!("revision {revision} is built from {}, which is not its commit", order.commit));
    let waiting = known.history.iter().find(|other| other.revision < revision && other.is_to_be_built());
    journal.expect(waiting.is_none(), || {
        format!("revision {revision} is built before {:?}", waiting.map(|entry| entry.revision))
    });
    let rolling = known.history.iter().any(|other| matches!(other.state, State::RollingOut { .. }));
    journal.count_if(rolling, "rule 9: a build was begun beside a rollout");
    let lined = known.history.iter().any(|other| other.revision > revision && other.is_to_be_built());
    journal.count_if(lined, "rule 8: another waits for its turn");
}

impl Known {
    fn entry(&self, revision: Revision) -> Option<&Deploy> {
        self.history.iter().find(|entry| entry.revision == revision)
    }

    /// Takes in which entries are being built from a source that is not the app's any more.
    pub(super) fn sources(&mut self, history: &[Deploy], view: &AppState, under_way: impl Fn(&Deploy) -> bool) {
        let Source::Git(source) = &view.app.source else { return };
        for entry in history.iter().filter(|entry| entry.is_to_be_built()) {
            let State::Building { source: begun, .. } = &entry.state else { continue };
            if *begun == source.fingerprint() {
                self.outdated.remove(&entry.revision);
            } else if under_way(entry) {
                self.outdated.insert(entry.revision);
            }
        }
    }
}
