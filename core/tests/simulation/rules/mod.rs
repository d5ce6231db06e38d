//! The rules, judged after every write, order and observation, from what is stored and what the cluster did: nothing
//! here asks the code under test.

mod admitted;
mod builds;
mod changed;
mod checks;
mod cluster;
mod configuration;
mod detected;
mod followed;
pub(crate) mod model;
mod order;
mod owners;
mod registry;
mod releases;
mod runs;
mod signed;
mod stops;
mod watches;
mod workloads;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rollhook_core::{
    app::{AppId, AppUid},
    configuration::ConfigurationId,
    deploy::{Commit, Deploy, Revision, State, Status, Trigger},
    image::{Digest, ImageRef},
    ledger::{AppState, check::check},
    ports::{DeployId, PastLives, RunId},
    time::Timestamp,
};

use crate::journal::Journal;
use builds::Lanes;
use cluster::Fences;
use owners::Owners;

/// A moment of a run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    /// The world's time.
    pub(crate) now: Duration,
    /// The same and whatever replicas' own clocks have jumped ahead: between two of these passes no less time than any
    /// replica can have felt.
    pub(crate) own: Duration,
    /// The same and whatever the store's clock has jumped ahead: later than any replica may believe it to be.
    pub(crate) most: Duration,
}

/// A replica's observation of a revision on one workload.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) by: u64,
    pub(crate) moment: Moment,
    /// The workload's name.
    pub(crate) workload: String,
    /// Whether the workload carries the revision.
    pub(crate) is_there: bool,
    pub(crate) complete: bool,
    pub(crate) sound: bool,
    pub(crate) digest: Option<Digest>,
    pub(crate) restarts: u32,
    pub(crate) past_lives: Vec<PastLives>,
    pub(crate) progress: String,
    /// Whether old pods still terminate.
    pub(crate) leaving: bool,
    /// Whether no instance is to run.
    pub(crate) is_empty: bool,
    /// Whether the answer is lost on its way to the replica.
    pub(crate) is_lost: bool,
}

/// A person's request for a rollback.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) revision: Option<Revision>,
    /// Whether that one's bits were known when it was asked for.
    pub(crate) pinned: bool,
    pub(crate) if_current: Option<Revision>,
}

/// An app as it was stored last.
pub(crate) struct Known {
    pub(crate) history: Vec<Deploy>,
    pub(crate) view: AppState,
    /// The meanings of a plain rollback since the newest revision was accepted: its effective revision and its image.
    meant: BTreeSet<(u64, Option<ImageRef>)>,
    /// The deploys that have been on the cluster since then.
    tops: Vec<Deploy>,
    /// The revisions that have been current since then.
    currents: BTreeSet<Option<Revision>>,
    /// The configurations that have waited for the next deploy.
    staged: BTreeSet<Option<ConfigurationId>>,
    /// When each rollout began.
    rolling: BTreeMap<Revision, Moment>,
    /// When each build was recorded.
    building: BTreeMap<Revision, Moment>,
    /// Entries whose source was changed while they were built.
    outdated: BTreeSet<Revision>,
    /// The newest revision when the app's workloads were changed last.
    relisted: Option<Revision>,
    /// The settling time and deadlines, of rollouts and builds, that have been the shortest so far.
    shortest: (Duration, Duration, Duration),
    latest: Timestamp,
    /// Whether nothing has happened to an entry since the owner's mind changed last, so that nothing is owed for it.
    pub(crate) undecided: bool,
}

/// The rules, and the facts of a run that they judge by.
#[derive(Default)]
pub(crate) struct Rules {
    /// The versions at the registry.
    pub(crate) published: followed::Published,
    pub(crate) known: BTreeMap<AppUid, Known>,
    pub(crate) owners: Owners,
    /// How many changes the service has found itself.
    pub(crate) found: u64,
    /// How many changes of entries were recorded.
    pub(crate) writes: u64,
    /// The rollbacks and redeploys that people asked for, by their names.
    pub(crate) wishes: BTreeMap<String, Wish>,
    /// What people have asked to decide, and their names.
    pub(crate) decisions: BTreeSet<(AppId, Revision, String, &'static str)>,
    /// Apps that a person is deleting or has deleted.
    pub(crate) deleting: BTreeSet<AppId>,
    /// Whether a person has released holds.
    pub(crate) releasing: bool,
    /// How often a requirement on an environment or a project was changed.
    pub(crate) requirements: u64,
    /// Whether images were signed that had not been.
    signed_later: bool,
    /// The images whose signatures nobody was let read, which count as images without any.
    signatures_denied: BTreeSet<Digest>,
    /// How often the webhook may have been enabled anew, and how often the highest sequence was forgotten.
    pub(crate) enables: usize,
    forgotten: usize,
    /// The digests that the registry has named of each image.
    named: BTreeMap<String, BTreeSet<Digest>>,
    measurements: checks::Measurements,
    /// The commands of checks that are known to have ended.
    ended_checks: BTreeSet<RunId>,
    watches: watches::Watches,
    fences: Fences,
    lanes: Lanes,
    /// Where each branch has been, in order.
    moves: BTreeMap<String, Vec<Option<Commit>>>,
    /// The number of them that a git host reported late.
    lagged: BTreeMap<String, usize>,
    seen: BTreeMap<(AppUid, Revision), Vec<Seen>>,
    /// What was seen of deploys after their ends.
    rested: BTreeMap<(AppUid, Revision), Vec<Seen>>,
}

impl Rules {
    /// Judges the store as it is now by what it was before. `building`: whether a build of an app runs;
    /// `deaf`: whether the builder may not have heard what it was told.
    pub(crate) fn stored(
        &mut self,
        stored: BTreeMap<AppUid, (Vec<Deploy>, AppState)>,
        building: &dyn Fn(AppUid) -> bool,
        deaf: bool,
        moment: Moment,
        journal: &Journal,
    ) {
        let gone: Vec<AppUid> = self.known.keys().filter(|uid| !stored.contains_key(uid)).copied().collect();
        for uid in gone {
            if building(uid) && deaf {
                self.leaves_build(uid, journal);
            }
            self.removed(uid, journal);
        }
        for (uid, (history, view)) in stored {
            let same = self.known.get(&uid).is_some_and(|known| {
                known.history == history
                    && known.view.app == view.app
                    && known.view.recoveries == view.recoveries
                    && known.view.watches == view.watches
                    && known.view.staged == view.staged
                    && known.view.followed == view.followed
                    && known.view.release_runs == view.release_runs
                    && known.view.release_turns == view.release_turns
                    && known.view.runs == view.runs
            });
            if !same {
                self.app(uid, history, view, building(uid), moment, journal);
            }
        }
    }

    fn app(
        &mut self,
        uid: AppUid,
        history: Vec<Deploy>,
        view: AppState,
        building: bool,
        moment: Moment,
        journal: &Journal,
    ) {
        let mut known = self.known.remove(&uid).unwrap_or_else(|| Known::new(&view));
        let before = std::mem::take(&mut known.history);
        journal.expect(before.len() <= history.len(), || "entries have gone".to_owned());
        let passed = stops::passed_on(&before, &history, journal);
        let passed = configuration::passed_on(&passed, &history, journal);
        for (old, new) in passed.iter().zip(&history).filter(|(old, new)| old != new) {
            stops::count_ends(old, new, &view, journal);
            let old = &known.begun(&before, old, new, journal);
            self.changed(&known, &before, old, new, moment, journal);
            self.resolved(old, new, journal);
            self.signed((&known.view, &view), &before, old, new, journal);
        }
        self.in_order(&known, &before, &history, &view, journal);
        for new in &history[before.len().min(history.len())..] {
            self.found += u64::from(new.trigger == Trigger::Git);
            self.admitted(&known, &before, &history, &view, new, journal);
            self.needs_signature((&known.view, &view), &before, new, journal);
        }
        self.holds(&known, &before, &history, &view, journal);
        self.recovered(&known, &history, &view, journal);
        self.watched(&known, &before, &history, &view, journal);
        runs::changed(&known.view.runs, &view.runs, journal);
        releases::turned(&known.view.release_turns, &view.release_turns, journal);
        for violation in check(&history, &view) {
            journal.expect(false, || violation.0);
        }
        known.sources(&history, &view, |entry| self.is_under_way(uid, entry, building));
        known.update(history, view, moment, &before);
        self.known.insert(uid, known);
    }

    /// An app has gone, with all that belonged to it.
    fn removed(&mut self, uid: AppUid, journal: &Journal) {
        let Some(known) = self.known.remove(&uid) else { return };
        journal.log("store", || format!("{} is gone", known.view.app.id));
        journal.expect(self.deleting.contains(&known.view.app.id) || known.history.len() <= 1, || {
            format!("{} is gone, and nobody deleted it", known.view.app.id)
        });
        journal.count("rule 16: an app was removed");
        self.builds_of_the_removed(uid, journal);
        self.owners.forgets(uid);
    }

    /// An app has become idle.
    pub(crate) fn idles(&mut self, uid: AppUid) {
        if self.known.get(&uid).is_some_and(|known| !known.has_work()) {
            self.owners.forgets(uid);
        }
    }

    /// A replica has looked at the cluster.
    pub(crate) fn observed(&mut self, stamp: DeployId, seen: Seen, journal: &Journal) {
        journal.count_if(seen.complete, "rule 7: a revision was seen complete");
        self.seen.entry((stamp.app, stamp.revision)).or_default().push(seen);
    }

    /// A replica has looked at what is at rest.
    pub(crate) fn rested(&mut self, stamp: DeployId, seen: Seen) {
        self.rested.entry((stamp.app, stamp.revision)).or_default().push(seen);
    }

    /// The apps that have work to do.
    pub(crate) fn at_work(&self) -> impl Iterator<Item = AppUid> + '_ {
        self.known.iter().filter(|(_, known)| known.has_work()).map(|(uid, _)| *uid)
    }
}

impl Known {
    fn new(view: &AppState) -> Self {
        let policy = &view.app.policy;
        Self {
            history: Vec::new(),
            view: view.clone(),
            meant: BTreeSet::new(),
            tops: Vec::new(),
            currents: [None].into(),
            staged: [None].into(),
            rolling: BTreeMap::new(),
            building: BTreeMap::new(),
            outdated: BTreeSet::new(),
            relisted: None,
            shortest: (policy.settle, policy.rollout_deadline, policy.build_deadline),
            latest: view.app.created_at,
            undecided: false,
        }
    }

    /// Whether a replica is to drive the app.
    fn has_work(&self) -> bool {
        let is_watched = self.view.watch().is_some();
        !self.view.unfinished.is_empty() || self.view.has_runs() || self.view.is_polled() || is_watched
    }

    fn update(&mut self, history: Vec<Deploy>, view: AppState, moment: Moment, before: &[Deploy]) {
        self.undecided = history == before && (self.undecided || self.view.app.policy != view.app.policy);
        let are_revoked = view.revocations().ne(self.view.revocations());
        if history.len() != before.len() || are_revoked {
            self.meant.clear();
            self.tops.clear();
            self.currents.clear();
        }
        let revoked: Vec<Revision> = view.revocations().collect();
        self.meant.extend(model::meant(&history, &revoked).map(|entry| (entry.effective.get(), entry.pinned_image())));
        self.tops.extend(model::on_cluster(&history).cloned());
        self.staged.insert(view.staged);
        self.currents.insert(model::current(&history).map(|entry| entry.revision));
        for entry in history.iter().filter(|entry| matches!(entry.state, State::RollingOut { .. })) {
            self.rolling.entry(entry.revision).or_insert(moment);
        }
        for entry in history.iter().filter(|entry| entry.status() == Status::Building) {
            self.building.entry(entry.revision).or_insert(moment);
        }
        if self.view.app.target.settings != view.app.target.settings {
            self.relisted = history.last().map(|entry| entry.revision);
        }
        let policy = &view.app.policy;
        let (settle, rollout, build) = self.shortest;
        self.shortest =
            (settle.min(policy.settle), rollout.min(policy.rollout_deadline), build.min(policy.build_deadline));
        self.latest = history.iter().map(|entry| entry.updated_at).max().unwrap_or(self.latest).max(self.latest);
        (self.history, self.view) = (history, view);
    }
}
