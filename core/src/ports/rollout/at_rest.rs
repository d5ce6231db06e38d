//! Targets at rest: what others changed since a deploy, and how its instances do.

use async_trait::async_trait;
use futures_util::stream::BoxStream;

use super::{Observation, RolloutSpec};
use crate::{app::AppUid, deploy::MESSAGE_MAX, error::Result, image::ImageRef, text};

/// The most references of a target that are shown of each kind.
const REFERENCES_MAX: usize = 200;

/// The difference between a target and the deploy that it was brought to last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Drift {
    /// The image that the target is set to instead; `None` if that is the deploy's, or unknown, or the target is gone.
    pub image: Option<ImageRef>,
    /// The change, and its author where known, in a sentence that a person can act on.
    pub message: String,
}

/// The objects of others that a target's instances read without the deploy's doing, such as Secrets and ConfigMaps, and what has
/// become of them since the deploy began. Each is named as people name it: `ConfigMap settings`. None has a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    /// Those that were changed, made anew or removed. Instances that run may have the values from before, and those that start
    /// have the later ones.
    pub changed: Vec<String>,
    /// Those of which it is not known, such as those whose versions may not be read.
    pub unknown: Vec<String>,
}

impl References {
    /// Returns whether there is nothing to show.
    pub const fn is_empty(&self) -> bool {
        self.changed.is_empty() && self.unknown.is_empty()
    }

    fn bounded(mut self) -> Self {
        for names in [&mut self.changed, &mut self.unknown] {
            names.truncate(REFERENCES_MAX);
            names.iter_mut().for_each(|name| text::cut(name, MESSAGE_MAX));
        }
        self
    }
}

/// A target whose newest deploy has ended, all at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AtRest {
    /// The image that the target is set to, as it stands there; `None` if it is unknown. A restore that kept what ran has left
    /// it as it was, by another name of the same bits than the deploy's.
    pub image: Option<ImageRef>,
    /// The change by others since the target was brought to the deploy; `None`: there is none.
    pub drift: Option<Drift>,
    /// The deploy's instances, as [`observe`](super::RolloutDriver::observe) returns them. Where the deploy ended without
    /// success and those of a version before serve on in place of them, `seen` is of the ones that serve, and carries
    /// their deploy id, if they have one.
    pub seen: Observation,
    /// What has become of what its instances read of others; empty where the platform has no such thing.
    pub references: References,
}

impl AtRest {
    /// Returns a target without a change by others, of whose references nothing is known.
    pub fn new(image: Option<ImageRef>, seen: Observation) -> Self {
        Self { image, drift: None, seen, references: References::default() }
    }

    /// Returns whether the observed instances are those of this deploy, rather than of a version before that serves on.
    pub fn is_of(&self, spec: &RolloutSpec) -> bool {
        // A target that was adopted has no stamp of its own, and may have one of a registration before.
        spec.adopted || self.seen.deploy == Some(spec.id)
    }

    /// Returns it with its texts cut, as [`Observation::bounded`].
    #[must_use]
    pub(crate) fn bounded(mut self) -> Self {
        if let Some(drift) = &mut self.drift {
            text::cut(&mut drift.message, MESSAGE_MAX);
        }
        Self { seen: self.seen.bounded(), references: self.references.bounded(), ..self }
    }
}

/// Reads targets at rest: the part of a [`RolloutDriver`](super::RolloutDriver) whose platform shows what becomes of a
/// target after its deploy has ended.
///
/// - `drift_is_told_until_the_next_deploy`: after another party changed a target's image, `drift` is that image, and
///   nothing is changed; a further deploy of the image from before is applied, and ends it. A hint comes with the change.
/// - `at_rest_a_healthy_target_stays_complete`: as long as the instances run, `seen` is complete and without a failure.
/// - `at_rest_a_crash_loop_is_seen`: once instances end again and again, `restarts` grows, or `failure` is a crash. A hint
///   comes with each change.
/// - `at_rest_recovery_is_seen`: once the instances of a deploy that failed run, `seen` is complete and carries its id. A
///   hint comes with it.
#[async_trait]
pub trait TargetReader: Send + Sync {
    /// Returns the target as it is now. The deploy is the newest of its app, and has ended: with success, or it failed and
    /// nothing followed.
    ///
    /// Called when an app is shown, for each app once and after each hint of [`target_changes`](Self::target_changes), and
    /// now and then while the instances are not well, so that a driver answers from memory where it can. Has no effect.
    async fn at_rest(&self, spec: &RolloutSpec) -> Result<AtRest>;

    /// Returns hints of apps for which [`at_rest`](Self::at_rest) may return another answer than when it was called last.
    ///
    /// Called once; a second call may get no hints. A hint may be superfluous; one that is missing lets a change be
    /// noticed late.
    fn target_changes(&self) -> BoxStream<'static, AppUid>;

    /// Drops what is remembered of an app's targets, since it names others by now or is gone. Until the next call of
    /// [`at_rest`](Self::at_rest) for the app, it needs no hints.
    fn forget_targets(&self, _app: AppUid) {}
}
