//! The port: what is decided about a site.
//!
//! Its calls take a few file operations, and no await, so that a future that is dropped has either happened or not. A
//! driver that waits in between keeps the fence all the same: compare and replace under the lock, at each step.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use async_trait::async_trait;
use rollhook_core::{
    Error, Result,
    app::{AppId, Settings, Target},
    deploy::{Evidence, Reason},
    ports::{
        Applied, DeployId, DriverIdentity, InvalidTarget, Observation, PastLives, Phase, Purpose, RolloutDriver,
        RolloutFailure, RolloutFailureKind, RolloutSpec, TargetRequest, Validated,
    },
};

use crate::site::{Record, Served, Site, Step, now_millis};

/// The one setting of a site.
const DIRECTORY: &str = "directory";

/// All sites below one directory.
pub(crate) struct Sites {
    root: PathBuf,
}

impl Sites {
    pub(crate) fn new(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    fn site(&self, target: &Target) -> Result<Site> {
        let directory = target.settings.get(DIRECTORY).and_then(|value| value.as_str());
        Site::new(&self.root, directory.ok_or_else(|| Error::invalid("the target is no site"))?.into())
    }

    /// The settings with all defaults, which is the directory by the app's name.
    fn settings(&self, request: &TargetRequest) -> Result<Settings, InvalidTarget> {
        let invalid = |name: &str, rule: &str| InvalidTarget::setting(format!("workload.{name}"), rule);
        if let Some(unknown) = request.settings.keys().find(|name| *name != DIRECTORY) {
            return Err(invalid(unknown, "is no setting of a site; there is directory."));
        }
        let default = || self.root.join("sites").join(request.app.to_string()).display().to_string();
        match request.settings.get(DIRECTORY).map(|value| value.as_str()) {
            None => Ok([(DIRECTORY.to_owned(), default().into())].into_iter().collect()),
            Some(Some(path)) if Path::new(path).is_absolute() => Ok(request.settings.clone()),
            Some(_) => Err(invalid(DIRECTORY, "must be an absolute path.")),
        }
    }
}

#[async_trait]
impl RolloutDriver for Sites {
    async fn identity(&self) -> Result<DriverIdentity> {
        Ok(DriverIdentity(format!("sites {}", self.root.display())))
    }

    async fn validate(&self, request: &TargetRequest) -> Result<Validated> {
        let settings = match self.settings(request) {
            Ok(settings) => settings,
            Err(invalid) => return Ok(Validated::Invalid(invalid)),
        };
        let is_same = |(_, other): &&(AppId, Settings)| other.get(DIRECTORY) == settings.get(DIRECTORY);
        if let Some((other, _)) = request.others.iter().filter(|_| !request.take_over).find(is_same) {
            let why = format!("The site is the one of {other}; see --take-over.");
            return Ok(Validated::Invalid(InvalidTarget::Taken(why)));
        }
        let site = self.site(&Target { settings: settings.clone(), ..Target::default() })?;
        let record = site.record()?;
        let unusable = |why: &str| Ok(Validated::Invalid(InvalidTarget::Unusable(why.to_owned())));
        match (site.current()?, record) {
            (_, Some(Record { deploy, .. })) if !request.take_over && request.is_foreign(deploy.app) => {
                let why = format!("The site carries revision {deploy} of another registration; see --take-over.");
                Ok(Validated::Invalid(InvalidTarget::Taken(why)))
            }
            (Some(Some(image)), record) => {
                let owner = record.map(|record| record.deploy.app);
                let take_over = owner.filter(|owner| request.is_foreign(*owner));
                // Nothing but the image says how a site is made.
                let unused = request.of_creation();
                Ok(Validated::Adopt { settings, image, take_over, unused, notes: notes() })
            }
            (Some(None), _) => unusable("current leads to no release: link it to one below images."),
            (None, Some(_)) => unusable("The site waits for an image of another registration: remove its file deploy."),
            (None, None) if request.image.is_some() || request.built => {
                Ok(Validated::Create { settings, take_over: None, notes: notes() })
            }
            (None, None) => unusable("There is no such site; give an image to begin with."),
        }
    }

    async fn apply(&self, spec: &RolloutSpec) -> Result<Applied> {
        let site = self.site(&spec.target)?;
        let _until_the_end = site.locked()?;
        let record = match site.record()? {
            Some(Record { deploy, .. }) if deploy.app != spec.id.app && spec.target.take_over != Some(deploy.app) => {
                return Ok(refused(Reason::FOREIGN_TARGET, format!("The site carries {deploy}, of another app.")));
            }
            Some(Record { deploy, .. }) if deploy.app == spec.id.app && deploy.revision > spec.id.revision => {
                return Ok(Applied::Newer(deploy.revision));
            }
            record => record,
        };
        if spec.adopted {
            let there = site.current()?.is_some();
            return Ok(if there { Applied::Done } else { refused(Reason::TARGET_MISSING, "There is no site.".into()) });
        }
        let record = record.filter(|record| record.deploy == spec.id);
        let step = kept(&site, spec)?.unwrap_or(Step::Waiting);
        let begun = Record { deploy: spec.id, image: spec.image.clone(), step };
        // First the deploy id, then the change: whoever comes in between is refused, or makes it good.
        if record.is_none() {
            site.write(&begun)?;
        }
        site.advance(record.unwrap_or(begun))?;
        Ok(Applied::Done)
    }

    async fn observe(&self, spec: &RolloutSpec) -> Result<Observation> {
        let site = self.site(&spec.target)?;
        let _until_the_end = site.locked()?;
        let mut record = site.record()?;
        if let Some(waiting) = record.take_if(|record| record.deploy == spec.id) {
            record = Some(site.advance(waiting)?);
        }
        let (current, served) = (site.current()?.flatten(), site.served()?);
        let ours = match &record {
            Some(record) => record.deploy == spec.id || (spec.adopted && record.deploy.app != spec.id.app),
            None => spec.adopted,
        };
        let expected = record.as_ref().map(|record| record.deploy);
        let serves = record.as_ref().and_then(Record::serves);
        let served = served.filter(|served| ours && served.deploy == serves && served.image == current);
        let ready = served.as_ref().is_some_and(|served| served.ready);
        let restarts = served.as_ref().map_or(0, |served| served.restarts);
        let failure = match (&record, &current) {
            (None, None) => failure(RolloutFailureKind::Final, Reason::TARGET_MISSING, "the site is gone"),
            (Some(record), _) if ours && record.is_waiting() => {
                failure(RolloutFailureKind::Final, "not-uploaded", "no release of the image was uploaded")
            }
            (None, Some(image)) if ours && !image.same_bits(None, &spec.image, None) => {
                failure(RolloutFailureKind::Final, Reason::REVERTED, "another program has linked current since then")
            }
            (Some(record), current)
                if ours && !current.as_ref().is_some_and(|image| image.same_bits(None, &record.image, None)) =>
            {
                failure(
                    RolloutFailureKind::Final,
                    Reason::REVERTED,
                    "another program has linked current to another release",
                )
            }
            _ if restarts > 0 && !ready => {
                failure(RolloutFailureKind::Crash, "crashing", "the server ends again and again")
            }
            _ => None,
        };
        let digest = current.as_ref().and_then(|image| image.digest().cloned());
        let is_complete = ready && failure.is_none();
        let phase = if is_complete { Phase::Complete { digest, note: None } } else { Phase::Progressing };
        let progress = format!("{:?} {} {ready}", record.map(|record| record.step), served.is_some());
        let message = if ready { "the release is served" } else { "the release is not served yet" };
        Ok(Observation::new(expected, phase, progress, message).with(|seen| {
            seen.restarts = restarts;
            seen.past_lives = served.as_ref().and_then(past_lives).into_iter().collect();
            // One server serves one release: the old one is gone before the new one is ready.
            seen.down_for = served.filter(|_| !ready).map(|served| since(served.first_start));
            seen.failure = failure;
        }))
    }

    async fn changed(&self, _order: &RolloutSpec) {
        // There are no notifications, and polling is cheap.
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }

    async fn evidence(&self, spec: &RolloutSpec, failure: Option<&RolloutFailure>) -> Result<Evidence> {
        let state = failure.map(|failure| failure.message.clone());
        let site = self.site(&spec.target)?;
        // The log is that of what is served, which may still be the deploy before.
        let own = match site.record()? {
            Some(record) if record.deploy == spec.id => record.serves(),
            _ if spec.adopted => None,
            _ => Some(spec.id),
        };
        let is_own = site.served()?.is_some_and(|served| served.deploy == own);
        let log = if is_own { site.log()? } else { Vec::new() };
        Ok(Evidence { state, log, ..Evidence::default() })
    }
}

/// Returns how a restore leaves what runs as it is, if that is the version which it returns to.
fn kept(site: &Site, spec: &RolloutSpec) -> Result<Option<Step>> {
    let Purpose::Restore { to } = spec.purpose else { return Ok(None) };
    let (current, served) = (site.current()?.flatten(), site.served()?);
    // A later deploy's process is the failed one's, even if it runs the same image.
    let is_before = |deploy: DeployId| deploy.app != spec.id.app || deploy.revision <= to;
    let kept = served.filter(|served| {
        let runs = served.image.as_ref().is_some_and(|image| image.same_bits(None, &spec.image, None));
        runs && served.image == current && served.deploy.is_none_or(is_before)
    });
    Ok(kept.map(|served| Step::Kept(served.deploy)))
}

/// What a person should know when a site is registered.
fn notes() -> Vec<String> {
    vec!["A site serves one release at a time: it is down until the new one is ready.".to_owned()]
}

/// The lives that the server of a release has had. It keeps the end of the last one alone, so that this one may have
/// begun with the first.
fn past_lives(served: &Served) -> Option<PastLives> {
    let all = Duration::from_millis(served.last_end.checked_sub(served.first_start)?);
    let instance = served.first_start.to_string();
    Some(PastLives { instance, count: served.restarts, last: all, all, ended_ago: since(served.last_end) })
}

fn since(millis: u64) -> Duration {
    Duration::from_millis(now_millis().saturating_sub(millis))
}

fn refused(reason: &str, message: String) -> Applied {
    Applied::Refused { reason: Reason::new(reason), message }
}

fn failure(kind: RolloutFailureKind, reason: &str, message: &str) -> Option<RolloutFailure> {
    Some(RolloutFailure { kind, reason: Reason::new(reason), container: None, message: message.to_owned() })
}
