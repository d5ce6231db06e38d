//! The port that names the addresses of a deploy's instances.

use std::net::SocketAddr;

use async_trait::async_trait;

use crate::{error::Result, instance::InstanceName, ports::RolloutSpec};

/// The most instances whose addresses are returned.
pub const ADDRESSES_MAX: usize = 500;

/// An instance that is ready, and the address at which this process reaches it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstanceAddress {
    /// The instance, by the name that the reader of its log has for it.
    pub instance: InstanceName,
    /// The address of the port that was asked for: the instance's own, or one that the platform publishes for it alone. `None`:
    /// it has none, as where it shares the network of its machine.
    pub address: Option<SocketAddr>,
}

/// The instances of a deploy that are ready.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadyInstances {
    /// The instances by name, at most [`ADDRESSES_MAX`].
    pub instances: Vec<InstanceAddress>,
    /// Whether there may be more of them.
    pub is_part: bool,
}

impl ReadyInstances {
    /// Returns these instances in the order of their names, without those beyond the bound.
    pub fn of(instances: impl IntoIterator<Item = InstanceAddress>) -> Self {
        let mut instances: Vec<_> = instances.into_iter().collect();
        instances.sort_by(|one, other| one.instance.cmp(&other.instance));
        let is_part = instances.len() > ADDRESSES_MAX;
        instances.truncate(ADDRESSES_MAX);
        Self { instances, is_part }
    }
}

/// Names the addresses of a deploy's instances: the part of a [`RolloutDriver`](super::RolloutDriver) whose platform gives each of
/// its instances an address that this process can reach.
///
/// The [`Error`](crate::Error) of a call says what its caller does next, as for a [`RolloutDriver`](super::RolloutDriver).
///
/// - `addresses_are_of_ready_instances_of_the_deploy`: each of them once, by the name of its log; also of an adopted deploy, whose
///   instances no deploy has made.
/// - `addresses_have_no_old_instance`: an instance is the deploy's own by what it carries: while those of the deploy are not
///   ready, there is none, though earlier ones serve.
/// - `addresses_of_a_restore_are_of_what_it_keeps`: the instances that a restore keeps as its own are.
/// - `addresses_away_is_unavailable`: while the platform cannot be reached.
///
/// Security: whoever may set checks chooses the port. An address leads to the instance alone, and never to the machine that it
/// runs on.
#[async_trait]
pub trait InstanceAddresses: Send + Sync {
    /// Returns the instances of a deploy that are ready, each with the address of this port of its own. Of the specification count
    /// the app, the deploy id, the target, and whether the deploy was adopted. A target that does not exist has none.
    async fn addresses(&self, spec: &RolloutSpec, port: u16) -> Result<ReadyInstances>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_beyond_the_bound_are_left_out_and_known_to_be() {
        let instance = |number: usize| InstanceAddress {
            instance: InstanceName::shortened(&format!("api-{number:04}")),
            address: None,
        };
        let all = ReadyInstances::of((0..ADDRESSES_MAX).rev().map(instance));
        assert_eq!((all.instances.len(), all.is_part), (ADDRESSES_MAX, false));
        assert!(all.instances.is_sorted_by_key(|found| &found.instance));
        let part = ReadyInstances::of((0..=ADDRESSES_MAX).map(instance));
        assert_eq!((part.instances, part.is_part), (all.instances, true));
    }
}
