//! Whether an order may touch a workload: the fence that keeps effects from going backwards or into another's hands.

use rollhook_core::{
    deploy::{Reason, Revision},
    ports::DeployId,
};

use super::object::{Mark, Object, STAMP};
use crate::workload::Rollout;

/// What is to be done with a workload that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be patched.
    Patch,
    /// It carries the order already, or the order asks for no change.
    Settled,
    /// It carries a newer revision of the same app.
    Newer(Revision),
    /// It must not be touched.
    Refused {
        /// The code.
        reason: Reason,
        /// A sentence that a person can act on.
        message: String,
    },
}

impl Verdict {
    fn refused(reason: &str, message: String) -> Self {
        Self::Refused { reason: Reason::new(reason), message }
    }
}

/// What is to be done with this workload for this order.
pub(crate) fn decide(object: &Object, order: &Rollout) -> Verdict {
    let title = object.title();
    if object.metadata().deletion_timestamp.is_some() {
        return Verdict::refused(Reason::TARGET_MISSING, format!("{title} is being deleted"));
    }
    let carried = match object.mark() {
        Mark::Absent => None,
        Mark::Stamp(stamp) => Some(stamp),
        Mark::Unreadable(text) => {
            return Verdict::refused(
                Reason::FOREIGN_STAMP,
                format!("{title} carries the annotation {STAMP}={text:?}, which is no stamp of ours: remove it"),
            );
        }
    };
    by_stamp(object, order, carried).or_else(|| obstacle(object, order)).unwrap_or(match order.adopted {
        true => Verdict::Settled,
        false => Verdict::Patch,
    })
}

fn by_stamp(object: &Object, order: &Rollout, carried: Option<DeployId>) -> Option<Verdict> {
    let carried = carried?;
    if carried.app != order.stamp.app {
        return (order.take_over != Some(carried.app)).then(|| {
            Verdict::refused(
                Reason::FOREIGN_STAMP,
                format!(
                    "{} carries revision {} of another registration, {}: delete that app and register this one with \
                     --take-over, or give each a workload of its own",
                    object.title(),
                    carried.revision,
                    carried.app
                ),
            )
        });
    }
    if carried.revision > order.stamp.revision {
        return Some(Verdict::Newer(carried.revision));
    }
    if carried.revision < order.stamp.revision || order.adopted {
        return None;
    }
    // Stamp and image are written in one patch, so an image that differs now was changed since. To patch it once more
    // would be to fight whoever did that; the next observation says who it was.
    Some(Verdict::Settled)
}

/// What about the workload itself keeps it from being rolled out.
fn obstacle(object: &Object, order: &Rollout) -> Option<Verdict> {
    let title = object.title();
    if let Some(why) = object.unsupported().filter(|_| !order.adopted) {
        return Some(Verdict::refused("workload-unsupported", why));
    }
    let has = |name: &String| object.containers().iter().any(|container| container.name == *name);
    let missing: Vec<_> = order.workload.containers.iter().filter(|name| !has(name)).map(String::as_str).collect();
    if !missing.is_empty() {
        let there: Vec<_> = object.containers().iter().map(|container| container.name.as_str()).collect();
        return Some(Verdict::refused(
            "container-not-found",
            format!("{title} has no container {}; it has {}", missing.join(", "), there.join(", ")),
        ));
    }
    (object.is_paused() && !order.adopted).then(|| {
        Verdict::refused(
            Reason::PAUSED,
            format!("{title} is paused, so that nothing would roll out: kubectl rollout resume, then deploy again"),
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{deployment, order, stamped, stateful_set};

    fn reason(verdict: Verdict) -> String {
        match verdict {
            Verdict::Refused { reason, .. } => reason.as_str().to_owned(),
            other @ (Verdict::Patch | Verdict::Settled | Verdict::Newer(_)) => format!("{other:?}"),
        }
    }

    #[test]
    fn a_workload_without_stamp_is_patched() {
        assert_eq!(decide(&deployment(json!({})), &order(1)), Verdict::Patch);
    }

    #[test]
    fn the_stamp_decides() {
        let ours = |revision| stamped(deployment(json!({})), &order(revision));
        assert_eq!(decide(&ours(4), &order(5)), Verdict::Patch);
        assert_eq!(decide(&ours(5), &order(5)), Verdict::Settled);
        assert_eq!(decide(&ours(6), &order(5)), Verdict::Newer(Revision::new(6).unwrap()));
    }

    #[test]
    fn a_foreign_stamp_is_refused_unless_just_that_one_is_taken_over() {
        let mut other = order(9);
        other.stamp.app = rollhook_core::app::AppUid::from_bits(77);
        let object = stamped(deployment(json!({})), &other);
        let refused = decide(&object, &order(5));
        let Verdict::Refused { message, .. } = &refused else { panic!("{refused:?}") };
        assert!(message.contains(&other.stamp.app.to_string()), "{message}");
        assert_eq!(reason(refused), Reason::FOREIGN_STAMP);

        let mut takes = order(5);
        takes.take_over = Some(rollhook_core::app::AppUid::from_bits(78));
        assert_eq!(reason(decide(&object, &takes)), Reason::FOREIGN_STAMP);
        takes.take_over = Some(other.stamp.app);
        assert_eq!(decide(&object, &takes), Verdict::Patch);
    }

    #[test]
    fn the_pods_stamp_counts_where_the_workloads_was_removed() {
        let mut object = stamped(deployment(json!({})), &order(6));
        if let Object::Deployment(deployment) = &mut object {
            deployment.metadata.annotations = None;
        }
        assert_eq!(decide(&object, &order(5)), Verdict::Newer(Revision::new(6).unwrap()));
    }

    #[test]
    fn an_annotation_that_is_no_stamp_is_refused() {
        let object = deployment(json!({"metadata": {"annotations": {STAMP: "seven"}}}));
        assert_eq!(reason(decide(&object, &order(5))), Reason::FOREIGN_STAMP);
    }

    #[test]
    fn what_cannot_roll_out_is_refused() {
        let paused = json!({"spec": {"paused": true}});
        assert_eq!(reason(decide(&deployment(paused.clone()), &order(1))), Reason::PAUSED);
        // The own stamp is recognised first: a repeated order did land.
        assert_eq!(decide(&stamped(deployment(paused), &order(1)), &order(1)), Verdict::Settled);

        let on_delete = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert_eq!(reason(decide(&stateful_set(on_delete), &order(1))), "workload-unsupported");
        let held = json!({"spec": {"updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 3}}}});
        assert_eq!(reason(decide(&stateful_set(held), &order(1))), "workload-unsupported");

        let deleted = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}});
        assert_eq!(reason(decide(&deployment(deleted), &order(1))), Reason::TARGET_MISSING);
    }

    #[test]
    fn missing_containers_are_listed() {
        let mut order = order(1);
        order.workload.containers = vec!["app".to_owned(), "web".to_owned()];
        let Verdict::Refused { message, .. } = decide(&deployment(json!({})), &order) else { panic!("not refused") };
        assert_eq!(message, "Deployment api has no container web; it has app");
    }

    #[test]
    fn an_adopted_order_changes_nothing() {
        let mut adopted = order(1);
        adopted.adopted = true;
        assert_eq!(decide(&deployment(json!({"spec": {"paused": true}})), &adopted), Verdict::Settled);
        let newer = stamped(deployment(json!({})), &order(2));
        assert_eq!(decide(&newer, &adopted), Verdict::Newer(Revision::new(2).unwrap()));
    }
}
