//! The delivery measures of an environment, as DORA defines them, from the histories of its apps alone.
//!
//! A *deployment* is an ended deploy that brought a change: an image, a commit or a promotion that succeeded, or that failed
//! after it had touched the cluster. It *failed* by its own verdict, by a check that revoked it later, or because a person rolled back from it. The first
//! deploy that succeeds after it, or its own recovery, ends the failure. Rollbacks and restores repair; so does a
//! deployment that is accepted while the one before has failed. `docs/report.md` has the same in the words of users.

use std::{collections::BTreeMap, time::Duration};

use rollhook_core::{
    deploy::{Deploy, Revision, Status, Trigger, Watch},
    ledger::Recovery,
    time::Timestamp,
};

/// A day.
pub const DAY: Duration = Duration::from_secs(24 * 3600);

/// An entry of a history, as the measures need it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The number of the entry.
    pub revision: Revision,
    /// The version that it deploys, by the revision that first did.
    pub effective: Revision,
    /// The purpose of the entry.
    pub kind: Kind,
    /// The end of the entry.
    pub end: End,
    /// Whether it may have changed the cluster.
    pub touched: bool,
    /// The time of the accept.
    pub created_at: Timestamp,
    /// The time of the end; of an unfinished entry, of its last change.
    pub ended_at: Timestamp,
    /// The time by which the instances of an entry without success ran well.
    pub recovered_at: Option<Timestamp>,
    /// The time at which the verification of an entry that succeeded was revoked.
    pub revoked_at: Option<Timestamp>,
    /// The time of the commit, if it is known.
    pub committed_at: Option<Timestamp>,
}

/// The purpose of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An image, a commit or a promotion.
    Change,
    /// A person's return to an earlier version.
    Rollback,
    /// The service's return to the version that was current.
    Restore,
    /// Anything else: the same version once more, a stop or a start, a configuration, a version that ran when the app was
    /// registered.
    Other,
}

/// The end of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The deploy succeeded.
    Succeeded,
    /// The deploy failed.
    Failed,
    /// The deploy has not ended, or was superseded or cancelled.
    None,
}

impl Entry {
    /// Returns the entry of a deploy.
    pub fn of(deploy: &Deploy, recoveries: &[Recovery], watches: &[Watch]) -> Self {
        let kind = match deploy.trigger {
            Trigger::Rollback if deploy.actor.is_service() => Kind::Restore,
            Trigger::Rollback => Kind::Rollback,
            Trigger::Config => Kind::Other,
            Trigger::Webhook | Trigger::Manual | Trigger::Promotion | Trigger::Git | Trigger::Registry => {
                if deploy.adopted || deploy.is_redeploy() { Kind::Other } else { Kind::Change }
            }
        };
        let end = match deploy.status() {
            Status::Succeeded => End::Succeeded,
            Status::Failed => End::Failed,
            Status::Queued
            | Status::Building
            | Status::Releasing
            | Status::RollingOut
            | Status::Verifying
            | Status::Superseded
            | Status::Cancelled => End::None,
        };
        let watch = watches.iter().find(|watch| watch.revision == deploy.revision);
        let recovery = recoveries.iter().find(|recovery| recovery.revision == deploy.revision);
        Self {
            revision: deploy.revision,
            effective: deploy.effective,
            kind,
            end,
            touched: deploy.touched,
            created_at: deploy.created_at,
            ended_at: deploy.updated_at,
            recovered_at: recovery.map(|recovery| recovery.at),
            revoked_at: watch.and_then(Watch::revoked).map(|(fail, _)| fail.at),
            committed_at: deploy.committed_at,
        }
    }

    /// Whether the entry is a deployment, which succeeded or failed where users could see it.
    fn is_deployment(&self) -> bool {
        self.kind == Kind::Change
            && match self.end {
                End::Succeeded => true,
                End::Failed => self.touched,
                End::None => false,
            }
    }

    /// Whether the entry is a return to an earlier version that had an effect.
    fn is_return(&self) -> bool {
        let has_ended = self.end != End::None;
        matches!(self.kind, Kind::Rollback | Kind::Restore) && has_ended && (self.touched || self.end == End::Succeeded)
    }

    /// The time from which on the entry is known to run well.
    fn well_at(&self) -> Option<Timestamp> {
        match self.end {
            End::Succeeded => Some(self.ended_at),
            End::Failed | End::None => self.recovered_at,
        }
    }
}

/// The delivery measures of an environment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measures {
    /// The deployments.
    pub deployments: usize,
    /// The deployments of a day, on average.
    pub per_day: f64,
    /// The deployments that failed, or were rolled back from.
    pub failed: usize,
    /// The share of the failed ones; `None` without deployments.
    pub fail_rate: Option<f64>,
    /// The median of the times from failures to their ends; `None` without an ended one.
    pub recovery: Option<Duration>,
    /// The failures that have not ended.
    pub unrecovered: usize,
    /// The rollbacks and restores.
    pub returns: usize,
    /// The rollbacks and restores, and the deployments that were accepted while the one before had failed.
    pub repairs: usize,
    /// The share of the repairs among deployments, rollbacks and restores; `None` without any.
    pub rework_rate: Option<f64>,
    /// The median of the times from commits to the ends of their deployments, of those that succeeded; `None` without any
    /// whose commit's time is known.
    pub lead_time: Option<Duration>,
    /// The deployments that succeeded and whose commit's time is known.
    pub lead_times: usize,
    /// The deployments of each day on which there were some, by the day's begin in UTC.
    pub days: BTreeMap<Timestamp, DayCount>,
    /// The time since which all entries are kept, if some of the period may be forgotten.
    pub kept_since: Option<Timestamp>,
}

/// The deployments of a day.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DayCount {
    /// All deployments of the day.
    pub deployments: usize,
    /// The deployments that failed, or were rolled back from.
    pub failed: usize,
}

impl Measures {
    /// Returns whether nothing was counted.
    pub fn is_empty(&self) -> bool {
        self.deployments == 0 && self.returns == 0 && self.unrecovered == 0
    }
}

/// Returns the begin of a period of so many days in UTC, of which the last is the one of `until`.
pub(super) fn period(until: Timestamp, days: u32) -> Timestamp {
    day_of(until).before(DAY * days.saturating_sub(1))
}

fn day_of(time: Timestamp) -> Timestamp {
    let day = i64::try_from(DAY.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(time.as_millis().div_euclid(day).saturating_mul(day))
}

/// Returns the measures of an environment from the entries of each of its apps, oldest first. Those from `since` to `until`
/// count; earlier ones are there for what they say of these.
pub fn measure(apps: &[Vec<Entry>], since: Timestamp, until: Timestamp) -> Measures {
    let mut measures = Measures::default();
    let mut recoveries = Vec::new();
    let mut lead_times = Vec::new();
    for entries in apps {
        let mut of_app = OfApp::default();
        let failures = failures(entries);
        let mut before = Vec::new();
        for (entry, failure) in entries.iter().zip(failures) {
            if entry.created_at >= since {
                of_app.count(entry, failure, &before);
            }
            before.extend(failure);
        }
        measures.add(of_app, &mut recoveries, &mut lead_times);
        measures.kept_since = measures.kept_since.max(kept_since(entries, since));
    }
    // The last day has not ended; it counts as one.
    let days = until.since(day_of(since)).as_millis() / DAY.as_millis() + 1;
    measures.per_day = ratio(measures.deployments, usize::try_from(days).unwrap_or(usize::MAX)).unwrap_or_default();
    measures.fail_rate = ratio(measures.failed, measures.deployments);
    measures.rework_rate = ratio(measures.repairs, measures.deployments + measures.returns);
    measures.recovery = median(recoveries);
    measures.lead_times = lead_times.len();
    measures.lead_time = median(lead_times);
    measures
}

/// The counts of one app's entries in the period.
#[derive(Default)]
struct OfApp {
    deployments: usize,
    failed: usize,
    unrecovered: usize,
    returns: usize,
    repairs: usize,
    recoveries: Vec<Duration>,
    lead_times: Vec<Duration>,
    days: BTreeMap<Timestamp, DayCount>,
}

impl OfApp {
    fn count(&mut self, entry: &Entry, failure: Option<Failure>, before: &[Failure]) {
        if entry.is_return() {
            self.returns += 1;
            self.repairs += 1;
        }
        if !entry.is_deployment() {
            return;
        }
        self.deployments += 1;
        // The newest is the likeliest.
        let is_repair = before.iter().rev().any(|failure| failure.is_open_at(entry.created_at));
        self.repairs += usize::from(is_repair);
        let day = self.days.entry(day_of(entry.created_at)).or_default();
        day.deployments += 1;
        if let Some(failure) = failure {
            self.failed += 1;
            day.failed += 1;
            match failure.until {
                Some(until) => self.recoveries.push(until.since(failure.since)),
                None => self.unrecovered += 1,
            }
        }
        // A commit of the future is that of a clock which is ahead.
        let committed_at = entry.committed_at.filter(|at| entry.end == End::Succeeded && *at <= entry.created_at);
        self.lead_times.extend(committed_at.map(|at| entry.ended_at.since(at)));
    }
}

impl Measures {
    fn add(&mut self, app: OfApp, recoveries: &mut Vec<Duration>, lead_times: &mut Vec<Duration>) {
        self.deployments += app.deployments;
        self.failed += app.failed;
        self.unrecovered += app.unrecovered;
        self.returns += app.returns;
        self.repairs += app.repairs;
        recoveries.extend(app.recoveries);
        lead_times.extend(app.lead_times);
        for (day, count) in app.days {
            let sum = self.days.entry(day).or_default();
            sum.deployments += count.deployments;
            sum.failed += count.failed;
        }
    }
}

/// The failure of a deployment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Failure {
    /// The begin: the deployment's end.
    since: Timestamp,
    /// The time from which on it was known: the same, the revocation, or the accept of the rollback.
    known_at: Timestamp,
    /// The end; `None`: it lasts.
    until: Option<Timestamp>,
}

impl Failure {
    fn is_open_at(&self, time: Timestamp) -> bool {
        self.known_at <= time && self.until.is_none_or(|until| until > time)
    }
}

/// Returns the failure of each entry that is a deployment which failed, whose verification was revoked, or that was rolled back
/// from.
fn failures(entries: &[Entry]) -> Vec<Option<Failure>> {
    let known_at = known_failures(entries);
    let mut failures = vec![None; entries.len()];
    // The earliest success of the entries after the one that is looked at.
    let mut well_at: Option<Timestamp> = None;
    for (index, entry) in entries.iter().enumerate().rev() {
        if let (Some(known_at), Some(failure)) = (known_at[index], failures.get_mut(index)) {
            // What a person rolled back from succeeded once; that ends no failure of its own.
            let own = entry.recovered_at.filter(|_| entry.end == End::Failed);
            *failure = Some(Failure { since: entry.ended_at, known_at, until: earliest(well_at, own) });
        }
        well_at = earliest(well_at, entry.well_at());
    }
    failures
}

/// Returns the time from which on each entry that is a failed deployment was known to be one.
fn known_failures(entries: &[Entry]) -> Vec<Option<Timestamp>> {
    let mut known_at = vec![None; entries.len()];
    // The version on the cluster.
    let mut on_cluster: Option<Revision> = None;
    for (index, entry) in entries.iter().enumerate() {
        if entry.is_deployment() && entry.end == End::Failed {
            known_at[index] = Some(entry.ended_at);
        }
        if entry.is_deployment() && entry.end == End::Succeeded {
            known_at[index] = entry.revoked_at;
        }
        if entry.kind == Kind::Rollback
            && entry.is_return()
            && let Some(left) = on_cluster.filter(|left| entry.effective < *left)
            && let Ok(place) = entries[..index].binary_search_by_key(&left, |entry| entry.revision)
            && entries[place].is_deployment()
        {
            known_at[place].get_or_insert(entry.created_at);
        }
        if entry.touched || entry.end == End::Succeeded {
            on_cluster = Some(entry.effective);
        }
    }
    known_at
}

/// Returns the accept of the first entry of the period that is followed by all later ones, unless the first of all is that:
/// revisions have no gaps but where entries are forgotten.
fn kept_since(entries: &[Entry], since: Timestamp) -> Option<Timestamp> {
    let first = entries.first().filter(|first| first.created_at >= since && first.revision > Revision::FIRST);
    let has_gap = |pair: &&[Entry]| pair[1].revision > Revision::following(Some(pair[0].revision));
    let after_gap = entries.windows(2).rev().find(has_gap).map(|pair| &pair[1]);
    let newest = after_gap.or(first)?;
    Some(newest.created_at).filter(|at| *at > since)
}

fn earliest(one: Option<Timestamp>, other: Option<Timestamp>) -> Option<Timestamp> {
    one.into_iter().chain(other).min()
}

/// Returns the lower of the two middle values, of an even number, so that it is one of them.
fn median(mut values: Vec<Duration>) -> Option<Duration> {
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}

fn ratio(part: usize, whole: usize) -> Option<f64> {
    let number = |count: usize| u32::try_from(count).map_or(f64::from(u32::MAX), f64::from);
    (whole > 0).then(|| number(part) / number(whole))
}
