//! The ended runs of an app, of one kind, that the cluster is to delete before their time, as newer ones are kept.

use std::cmp::Reverse;

use k8s_openapi::api::batch::v1::Job;
use rollhook_core::ports::RunId;

use super::job;
use crate::rules::{jobs::is_over, listed::ListedJob};

/// The number of an app's newest runs of each kind that are kept, with their pods and so with their logs.
const KEPT: usize = 10;
/// The most runs that are deleted at once: each new run deletes more.
const AT_ONCE: usize = 10;

/// The Jobs of an app's newest runs, and of ended ones beyond those, while their list is read.
pub(super) struct OldRuns {
    like: RunId,
    jobs: Vec<(u64, Job)>,
}

impl OldRuns {
    pub(super) const fn new(like: RunId) -> Self {
        Self { like, jobs: Vec::new() }
    }

    /// Adds a page of the list.
    pub(super) fn add(&mut self, page: Vec<ListedJob>) {
        let jobs = page.into_iter().map(Job::from);
        self.jobs.extend(jobs.filter_map(|job| Some((job::number_of(&job.metadata, self.like)?, job))));
        self.jobs.sort_by_key(|(number, _)| Reverse(*number));
        let mut newer = 0;
        self.jobs.retain(|(_, job)| {
            newer += 1;
            newer <= KEPT || is_over(job)
        });
        self.jobs.truncate(KEPT + AT_ONCE);
    }

    /// The Jobs of the ended runs beyond those that are kept.
    pub(super) fn ended(self) -> impl Iterator<Item = Job> {
        self.jobs.into_iter().skip(KEPT).map(|(_, job)| job)
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::{app::AppUid, deploy::Revision, ports::RunKind};
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
        let revisions = runs.ended().map(|job| super::job::number_of(&job.metadata, like).unwrap());
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
