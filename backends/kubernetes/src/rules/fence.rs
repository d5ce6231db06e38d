//! The fence: it keeps effects from going backwards, and off workloads that belong to another registration.

use rollhook_core::{
    deploy::{Reason, Revision},
    ports::DeployId,
};

use super::{
    object::{Object, STAMP, Stamp},
    scale,
};
use crate::workload::{Rollout, Workload};

/// The decision on a rollout to a workload that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// The workload is to be patched.
    Patch,
    /// The workload carries the rollout already, or is adopted as it is.
    UpToDate,
    /// The workload carries a newer revision of the same app.
    Newer(Revision),
    /// The workload must not be touched.
    Refused {
        /// The reason code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
    },
}

impl Decision {
    fn refused(reason: &str, message: String) -> Self {
        Self::Refused { reason: Reason::new(reason), message }
    }
}

/// Decides whether the rollout may change this workload.
pub(crate) fn decide(object: &Object, rollout: &Rollout) -> Decision {
    let title = object.title();
    if object.metadata().deletion_timestamp.is_some() {
        return Decision::refused(Reason::TARGET_MISSING, format!("{title} is being deleted"));
    }
    let carried = match object.stamp() {
        Stamp::Absent => None,
        Stamp::Deploy(id) => Some(id),
        Stamp::Unreadable(text) => {
            return Decision::refused(
                Reason::FOREIGN_TARGET,
                format!("{title} carries the annotation {STAMP}={text:?}, which is not rollhook's: remove it"),
            );
        }
    };
    by_stamp(object, rollout, carried).or_else(|| obstacle(object, rollout)).unwrap_or(match rollout.adopted {
        true => Decision::UpToDate,
        false => Decision::Patch,
    })
}

fn by_stamp(object: &Object, rollout: &Rollout, carried: Option<DeployId>) -> Option<Decision> {
    let carried = carried?;
    if carried.app != rollout.id.app {
        return (rollout.take_over != Some(carried.app)).then(|| {
            Decision::refused(
                Reason::FOREIGN_TARGET,
                format!(
                    "{} carries revision {} of another registration, {}: if that one is gone, let this app's deploys \
                     replace it, by app set --take-over; else give each a workload of its own",
                    object.title(),
                    carried.revision,
                    carried.app
                ),
            )
        });
    }
    if carried.revision > rollout.id.revision {
        return Some(Decision::Newer(carried.revision));
    }
    if carried.revision < rollout.id.revision || rollout.adopted {
        return None;
    }
    // Stamp and image are written in one patch, so an image that differs now was changed since. Patching it once more
    // would fight the manager that changed it; the next observation names that manager.
    Some(Decision::UpToDate)
}

/// The refusal of a workload that cannot be rolled out in its present form.
fn obstacle(object: &Object, rollout: &Rollout) -> Option<Decision> {
    let title = object.title();
    let Workload { kind, name, .. } = &rollout.workload;
    if let Some(why) = scale::obstacle(*kind, name).filter(|_| !rollout.scale.is_keep()) {
        return Some(Decision::refused(Reason::UNSUPPORTED, why));
    }
    if let Some(why) = object.unsupported().filter(|_| !rollout.adopted) {
        return Some(Decision::refused(Reason::UNSUPPORTED, why));
    }
    let has = |name: &String| object.container(name).is_some();
    let missing: Vec<_> = rollout.workload.containers.iter().filter(|name| !has(name)).map(String::as_str).collect();
    if !missing.is_empty() {
        let present = object.containers().iter().chain(object.init_containers());
        let present: Vec<_> = present.map(|container| container.name.as_str()).collect();
        return Some(Decision::refused(
            "container-not-found",
            format!("{title} has no container {}; it has {}", missing.join(", "), present.join(", ")),
        ));
    }
    (object.is_paused() && !rollout.adopted).then(|| {
        Decision::refused(
            Reason::PAUSED,
            format!("{title} is paused, so that nothing would roll out: kubectl rollout resume, then deploy again"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{deployment, rollout, stamped, stateful_set};

    fn reason(verdict: Decision) -> String {
        match verdict {
            Decision::Refused { reason, .. } => reason.as_str().to_owned(),
            other @ (Decision::Patch | Decision::UpToDate | Decision::Newer(_)) => format!("{other:?}"),
        }
    }

    #[test]
    fn workload_without_stamp_is_patched() {
        assert_eq!(decide(&deployment(json!({})), &rollout(1)), Decision::Patch);
    }

    #[test]
    fn lower_stamp_is_patched_and_higher_one_is_newer() {
        let ours = |revision| stamped(deployment(json!({})), &rollout(revision));
        assert_eq!(decide(&ours(4), &rollout(5)), Decision::Patch);
        assert_eq!(decide(&ours(5), &rollout(5)), Decision::UpToDate);
        assert_eq!(decide(&ours(6), &rollout(5)), Decision::Newer(Revision::new(6).unwrap()));
    }

    #[test]
    fn foreign_stamp_is_refused_unless_it_is_the_one_to_take_over() {
        let mut other = rollout(9);
        other.id.app = rollhook_core::app::AppUid::from_bits(77);
        let object = stamped(deployment(json!({})), &other);
        let refused = decide(&object, &rollout(5));
        let Decision::Refused { message, .. } = &refused else { panic!("{refused:?}") };
        assert!(message.contains(&other.id.app.to_string()), "{message}");
        assert_eq!(reason(refused), Reason::FOREIGN_TARGET);

        let mut takes = rollout(5);
        takes.take_over = Some(rollhook_core::app::AppUid::from_bits(78));
        assert_eq!(reason(decide(&object, &takes)), Reason::FOREIGN_TARGET);
        takes.take_over = Some(other.id.app);
        assert_eq!(decide(&object, &takes), Decision::Patch);
    }

    #[test]
    fn stamp_of_the_pod_template_counts_if_the_workloads_was_removed() {
        let mut object = stamped(deployment(json!({})), &rollout(6));
        if let Object::Deployment(deployment) = &mut object {
            deployment.metadata.annotations = None;
        }
        assert_eq!(decide(&object, &rollout(5)), Decision::Newer(Revision::new(6).unwrap()));
    }

    #[test]
    fn unreadable_stamp_is_refused() {
        let object = deployment(json!({"metadata": {"annotations": {STAMP: "seven"}}}));
        assert_eq!(reason(decide(&object, &rollout(5))), Reason::FOREIGN_TARGET);
    }

    #[test]
    fn workload_that_cannot_roll_out_is_refused() {
        let paused = json!({"spec": {"paused": true}});
        assert_eq!(reason(decide(&deployment(paused.clone()), &rollout(1))), Reason::PAUSED);
        // Its own stamp is recognised first: a repeated rollout did land.
        assert_eq!(decide(&stamped(deployment(paused), &rollout(1)), &rollout(1)), Decision::UpToDate);

        let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert_eq!(reason(decide(&stateful_set(on_delete), &rollout(1))), "workload-unsupported");
        let held = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}}});
        assert_eq!(reason(decide(&stateful_set(held), &rollout(1))), "workload-unsupported");

        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(reason(decide(&deployment(deleted), &rollout(1))), Reason::TARGET_MISSING);
    }

    #[test]
    fn missing_containers_are_listed() {
        let mut rollout = rollout(1);
        rollout.workload.containers = vec!["app".to_owned(), "web".to_owned()];
        let Decision::Refused { message, .. } = decide(&deployment(json!({})), &rollout) else { panic!("not refused") };
        assert_eq!(message, "Deployment api has no container web; it has app, migrate");
    }

    #[test]
    fn adopted_workload_is_not_changed() {
        let mut adopted = rollout(1);
        adopted.adopted = true;
        assert_eq!(decide(&deployment(json!({"spec": {"paused": true}})), &adopted), Decision::UpToDate);
        let newer = stamped(deployment(json!({})), &rollout(2));
        assert_eq!(decide(&newer, &adopted), Decision::Newer(Revision::new(2).unwrap()));
    }
}
