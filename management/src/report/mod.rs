//! Reports over the histories of all apps that a caller may read: the newest deploys (activity), and the delivery measures
//! of projects and environments.
//!
//! ```text
//!   list of apps ─▶ newest: the newest entries of all, from few pages of few apps ─▶ activity: those that a filter leaves
//!                                                                               └─▶ measures: pure, of each environment
//! ```
//!
//! All of it is read from the store when it is asked for, and nothing is remembered from one caller to the next. A call reads
//! at most [`READ_MAX`] entries, and says from when on it has read all of them. A caller has one such call at a time, and the
//! entries that its calls read in a minute are bounded too.

mod activity;
mod measures;
mod newest;

#[cfg(test)]
mod tests;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use rollhook_core::{
    app::{AppId, Environment, Namespace, Project},
    deploy::Deploy,
    ledger::AppState,
    lock::PrincipalKey,
    ports::{AppPage, UnreadableApp, listed_id},
    request::Refusal as CoreRefusal,
    time::Timestamp,
};

pub use activity::{ActivityFilter, ActivityPlace, InvalidPlace, InvalidStatus, StatusFilter};
pub use measures::{DAY, DayCount, End, Entry, Kind, Measures, measure};
pub use newest::{READ_MAX, ReportedApp};

use crate::{ListTurn, Management, Outcome, Refusal, access::Principal, rate::Rate};
use newest::Newest;

/// The entries that are counted as one event of a caller, or of those of its environment: shorter reads count for nothing.
const COUNTED: usize = 500;
/// Of these events 10 in a second, and 200 at once: 5,000 entries in a second, and 100,000 at once.
const READS: Rate = Rate { every: Duration::from_millis(100), burst: 200 };

/// The number of apps of a page of the list.
const PAGE: usize = 200;

/// The apps that a report is of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Apps {
    /// Only apps of this project.
    pub project: Option<Project>,
    /// Only apps of environments of this name.
    pub environment: Option<Environment>,
}

/// The newest deploys of the apps that a caller may read.
#[derive(Clone, Debug, Default)]
pub struct Activity {
    /// The deploys, newest first, without evidence.
    pub deploys: Vec<(Arc<ReportedApp>, Deploy)>,
    /// The place after which the next part begins; `None` if there is none.
    pub next: Option<ActivityPlace>,
    /// Whether the call has read as many entries as it may, so that older ones are left out.
    pub truncated: bool,
    /// The apps of which some deploys cannot be read, and are left out.
    pub unreadable: Vec<AppId>,
}

/// The delivery measures of the environments of the apps that a caller may read.
#[derive(Clone, Debug, PartialEq)]
pub struct DeliveryReport {
    /// The begin of the period: of a day in UTC, or later if older deploys were not read.
    pub since: Timestamp,
    /// The end of the period: the time of the report.
    pub until: Timestamp,
    /// Whether the call has read as many entries as it may, so that the period begins with the oldest of them.
    pub truncated: bool,
    /// The apps of which some deploys cannot be read, and do not count.
    pub unreadable: Vec<AppId>,
    /// The measures by project and environment; those without an entry in the period are left out.
    pub environments: BTreeMap<(Project, Environment), Measures>,
}

impl Apps {
    fn contain(&self, state: &AppState) -> bool {
        let app = &state.app;
        self.project.as_ref().is_none_or(|project| *project == app.project)
            && self.environment.as_ref().is_none_or(|environment| *environment == app.environment)
    }

    /// The namespace of the apps, if there is one alone.
    fn namespace(&self) -> Option<Namespace> {
        let (project, environment) = self.project.as_ref().zip(self.environment.as_ref())?;
        Namespace::of(project, environment).ok()
    }
}

impl Management {
    /// Returns the newest deploys of the apps that the principal may read, at most `limit` of those that the filter leaves,
    /// from a place on.
    ///
    /// # Errors
    /// As [`Management::apps`]; [`Refusal::TooManyReports`].
    pub async fn activity(
        &self,
        principal: &Principal,
        filter: &ActivityFilter,
        after: Option<&ActivityPlace>,
        limit: usize,
    ) -> Outcome<Activity> {
        let _turn = self.report_turn(principal).await?;
        let mut newest = self.newest(principal, &filter.apps, None).await?;
        let mut activity = Activity::default();
        let leaves = filter.leaves();
        let keep = |app: &ReportedApp, deploy: Deploy| {
            let is_after = after.is_none_or(|after| after.is_before(&app.id, &deploy));
            Some(deploy).filter(|deploy| is_after && leaves(deploy))
        };
        while let Some(read) = newest.next(&*self.deployer.ports().history, keep).await? {
            let Some(deploy) = read.kept else { continue };
            if activity.deploys.len() == limit {
                activity.next = activity.deploys.last().map(|(app, deploy)| ActivityPlace::of(&app.id, deploy));
                break;
            }
            activity.deploys.push((read.app, deploy));
        }
        self.count_reads(principal, newest.spent());
        activity.truncated = newest.is_spent() && activity.next.is_none();
        activity.unreadable = newest.into_unreadable();
        Ok(activity)
    }

    /// Returns the delivery measures of the environments of the apps that the principal may read, over today and the days
    /// before it, in UTC: so many days in all.
    ///
    /// # Errors
    /// As [`Management::activity`].
    pub async fn delivery_report(&self, principal: &Principal, apps: &Apps, days: u32) -> Outcome<DeliveryReport> {
        let _turn = self.report_turn(principal).await?;
        let until = self.store_time(principal).await?;
        let begin = measures::period(until, days);
        let mut newest = self.newest(principal, apps, Some(begin)).await?;
        let mut entries: BTreeMap<usize, (Arc<ReportedApp>, Vec<Entry>)> = BTreeMap::new();
        let keep = |app: &ReportedApp, deploy: Deploy| Some(Entry::of(&deploy, &app.recoveries, &app.watches));
        while let Some(read) = newest.next(&*self.deployer.ports().history, keep).await? {
            let (_, of_app) = entries.entry(read.index).or_insert_with(|| (Arc::clone(&read.app), Vec::new()));
            of_app.extend(read.kept);
        }
        self.count_reads(principal, newest.spent());
        let since = newest.read_since().map_or(begin, |read_since| read_since.max(begin));
        let mut environments: BTreeMap<(Project, Environment), Vec<Vec<Entry>>> = BTreeMap::new();
        for (app, mut of_app) in entries.into_values() {
            of_app.reverse();
            environments.entry((app.project.clone(), app.environment.clone())).or_default().push(of_app);
        }
        let measured = environments.into_iter().map(|(name, apps)| (name, measure(&apps, since, until)));
        let environments = measured.filter(|(_, measures)| !measures.is_empty()).collect();
        let truncated = newest.is_spent();
        Ok(DeliveryReport { since, until, truncated, unreadable: newest.into_unreadable(), environments })
    }

    /// Returns the turn of a caller to read a report.
    async fn report_turn(&self, principal: &Principal) -> Outcome<ListTurn> {
        if !self.reports.may(READS, &reader(principal), self.deployer.ports().clock.elapsed()) {
            return Err(Refusal::TooManyReports);
        }
        Ok(self.report_lists.turn(principal).await)
    }

    /// Counts the entries that a report has read.
    fn count_reads(&self, principal: &Principal, entries: usize) {
        self.reports.spend(READS, reader(principal), entries / COUNTED, self.deployer.ports().clock.elapsed());
    }

    /// Returns the time by the store's clock, which the first load of an app brings.
    async fn store_time(&self, principal: &Principal) -> Outcome<Timestamp> {
        if self.deployer.time() == Timestamp::default()
            && let Some(first) = self.apps(principal, AppPage::first(1)).await?.first()
        {
            match self.deployer.find_app(listed_id(first)).await {
                // Of an app that cannot be read, the clock was read.
                Ok(_) | Err(CoreRefusal::Internal) => {}
                Err(refusal) => return Err(refusal.into()),
            }
        }
        Ok(self.deployer.time())
    }

    /// Returns the newest entries, to be read, of the apps that the principal may read, down to a time.
    async fn newest<T>(&self, principal: &Principal, apps: &Apps, since: Option<Timestamp>) -> Outcome<Newest<T>> {
        let mut newest = Newest::new(since);
        let mut page = AppPage::first(PAGE).of(apps.namespace());
        loop {
            let listed = self.apps(principal, page.clone()).await?;
            page.after = listed.last().map(listed_id).cloned();
            let is_last = listed.len() < PAGE;
            for app in listed {
                match app {
                    Ok(state) if apps.contain(&state) => newest.add(&state),
                    Ok(_) => {}
                    Err(UnreadableApp { id, .. }) => newest.add_unreadable(id),
                }
            }
            if is_last {
                return Ok(newest);
            }
        }
    }
}

/// Returns the party whose reads are counted together.
fn reader(principal: &Principal) -> PrincipalKey {
    let caller = principal.known_caller();
    caller.environment.unwrap_or(caller.party)
}
