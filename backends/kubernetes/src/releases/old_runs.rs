//! The ended runs of an app, of one kind, that the cluster is to delete before their time, as newer ones are kept.

use std::{cmp::Reverse, collections::BTreeMap};

use k8s_openapi::api::batch::v1::Job;
use rollhook_core::ports::{RunId, RunKind};

use super::job;
use crate::rules::{jobs::is_over, listed::ListedJob};

/// The number of an app's newest runs of each kind that are kept, with their pods and so with their logs.
const KEPT: usize = 10;
/// The most runs that are deleted at once: each new run deletes more.
const AT_ONCE: usize = 10;

/// The Jobs of an app's newest runs, and of ended ones beyond those, while their list is read.
pub(super) struct OldRuns {
    like: RunId,
    jobs: Vec<(RunKind, Job)>,
}

impl OldRuns {
    pub(super) const fn new(like: RunId) -> Self {
        Self { like, jobs: Vec::new() }
    }

    /// Adds a page of the list.
    pub(super) fn add(&mut self, page: Vec<ListedJob>) {
        let jobs = page.into_iter().map(Job::from);
        self.jobs.extend(jobs.filter_map(|job| Some((job::named(&job.metadata, self.like)?, job))));
        self.jobs.sort_by_key(|(run, _)| Reverse(*run));
        let (mut kept, mut ended) = (Newest::new(self.like), 0);
        self.jobs.retain(|(run, job)| {
            if kept.has_room(*run) {
                return true;
            }
            ended += usize::from(is_over(job));
            is_over(job) && ended <= AT_ONCE
        });
    }

    /// The Jobs of the ended runs beyond those that are kept.
    pub(super) fn ended(self) -> impl Iterator<Item = Job> {
        let mut kept = Newest::new(self.like);
        self.jobs.into_iter().filter_map(move |(run, job)| (!kept.has_room(run)).then_some(job))
    }
}

/// The newest runs of each series, counted.
struct Newest {
    ready: RunKind,
    counts: BTreeMap<Option<u32>, usize>,
}

impl Newest {
    const fn new(ready: RunId) -> Self {
        Self { ready: ready.kind, counts: BTreeMap::new() }
    }

    /// Counts a run, and returns whether it is one of the newest.
    fn has_room(&mut self, run: RunKind) -> bool {
        let count = self.counts.entry(run.series(self.ready)).or_default();
        *count += 1;
        *count <= KEPT
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::{app::AppUid, deploy::Revision, ports::CheckRun};
    use serde_json::json;

    use super::*;

    fn job(name: String, is_over: bool) -> ListedJob {
        let conditions = if is_over { json!([{"type": "Failed", "status": "True"}]) } else { json!([]) };
        let metadata = json!({"name": name, "uid": "7", "resourceVersion": "12", "annotations": {"theirs": "x"}});
        serde_json::from_value(json!({"metadata": metadata, "status": {"conditions": conditions}})).unwrap()
    }

    /// The names of the Jobs that are to be deleted of these pages, by their revisions.
    fn deleted(pages: Vec<Vec<ListedJob>>) -> Vec<u64> {
        let like = RunId { app: AppUid::from_bits(7), kind: RunKind::Release(Revision::FIRST) };
        let mut runs = OldRuns::new(like);
        pages.into_iter().for_each(|page| runs.add(page));
        let revisions = runs.ended().map(|job| super::job::named(&job.metadata, like).unwrap().number());
        revisions.collect()
    }

    fn run(revision: u64, is_over: bool) -> ListedJob {
        job(format!("release-{}-{revision}", AppUid::from_bits(7)), is_over)
    }

    #[test]
    fn ended_runs_beyond_the_newest_are_deleted() {
        assert!(deleted(vec![(1..=10).map(|revision| run(revision, true)).collect()]).is_empty());
        let (first, second) = ((8..=12).rev(), (1..=7));
        let page = |revisions: &mut dyn Iterator<Item = u64>| revisions.map(|revision| run(revision, true)).collect();
        assert_eq!(deleted(vec![page(&mut second.clone()), page(&mut first.clone())]), [2, 1]);
        assert_eq!(deleted(vec![page(&mut { first }), page(&mut { second })]), [2, 1]);
        assert_eq!(deleted(vec![page(&mut (1..=100))]).len(), AT_ONCE);
    }

    #[test]
    fn runs_of_a_slow_check_are_kept_beside_many_of_a_fast_one() {
        let of = |revision, measurement, check| CheckRun::new(Revision::new(revision).unwrap(), measurement, check);
        let like = RunId { app: AppUid::from_bits(7), kind: RunKind::Check(of(5, 40, 1)) };
        let named = |run: CheckRun| job(job::name(RunId { kind: RunKind::Check(run), ..like }), true);
        let mut runs = OldRuns::new(like);
        let fast = (1..=12).map(|measurement| named(of(5, measurement + 20, 1)));
        let slow = (1..=2).map(|measurement| named(of(5, measurement, 2)));
        let before = (1..=11).map(|measurement| named(of(4, measurement, 2)));
        runs.add(fast.chain(slow).chain(before).collect());
        let deleted: Vec<_> =
            runs.ended().map(|job| super::job::named(&job.metadata, like).unwrap().number()).collect();
        assert_eq!(deleted, [of(5, 22, 1), of(5, 21, 1), of(4, 1, 2)].map(CheckRun::get));
    }

    #[test]
    fn runs_that_go_on_and_other_jobs_are_left_alone() {
        let all = (1..=20).map(|revision| run(revision, revision % 2 == 0)).collect();
        assert_eq!(deleted(vec![all]), [10, 8, 6, 4, 2]);
        let foreign =
            ["backup", "release-00000000000000000000000000000008-3", "release-00000000000000000000000000000007-x"];
        let foreign = foreign.map(|name| job(name.to_owned(), true)).into_iter();
        let newest = (1..=10).map(|revision| run(revision, true));
        assert!(deleted(vec![foreign.chain(newest).collect()]).is_empty());
    }
}
