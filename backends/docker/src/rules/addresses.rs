//! The addresses of a deploy's container that is ready.

use std::net::SocketAddr;

use rollhook_core::{
    instance::InstanceName,
    ports::{InstanceAddress, ReadyInstances},
};

use super::{
    container::{Container, Seen},
    instances, observation,
};
use crate::settings::Rollout;

/// Returns the rollout's container if it is ready, with the address of this port.
pub(crate) fn of(seen: &Seen, rollout: &Rollout, port: u16) -> ReadyInstances {
    let own = observation::own(seen, rollout).filter(|own| instances::is_ready(own));
    ReadyInstances::of(
        own.map(|own| InstanceAddress { instance: InstanceName::shortened(own.name()), address: address(own, port) }),
    )
}

/// Returns the address of a container's port. One in the network of this machine, or of another container, has none of its own.
fn address(container: &Container, port: u16) -> Option<SocketAddr> {
    let own = container.address().filter(|_| !container.shares_network())?;
    Some(SocketAddr::new(own.parse().ok()?, port))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rules::samples::{OURS, claim, container, rollout, seen, stamped, with};

    fn addressed(container: Container) -> Container {
        with(container, "/NetworkSettings", json!({ "Networks": { "web": { "IPAddress": "172.18.0.7" } } }))
    }

    fn named(seen: &Seen, rollout: &Rollout) -> Vec<(String, Option<String>)> {
        let shown =
            |found: InstanceAddress| (found.instance.to_string(), found.address.map(|address| address.to_string()));
        of(seen, rollout, 8080).instances.into_iter().map(shown).collect()
    }

    #[test]
    fn only_the_container_of_the_deploy_has_an_address_and_only_once_it_is_ready() {
        let old = || addressed(container("web", "running"));
        let new = |status: &str| addressed(stamped(OURS, 2, status));
        let at = Some("172.18.0.7:8080".to_owned());
        let both = seen(vec![old(), new("running")]);
        let found = named(&both, &rollout(2));
        assert_eq!(found, [(new("running").name().to_owned(), at.clone())]);
        assert_eq!(named(&both, &rollout(1)), []);
        for status in ["created", "restarting", "exited", "paused"] {
            assert_eq!(named(&seen(vec![old(), new(status)]), &rollout(2)), [], "{status}");
        }
        let starting = with(new("running"), "/State/Health", json!({ "Status": "starting" }));
        assert_eq!(named(&seen(vec![old(), starting]), &rollout(2)), []);
        let adopted = Rollout { adopted: true, ..rollout(1) };
        assert_eq!(named(&seen(vec![old()]), &adopted), [("web".to_owned(), at.clone())]);
        // What a restore keeps is its own.
        let mut kept = seen(vec![old()]);
        kept.claims.push(crate::rules::container::Claim { keeps: Some(old().id().to_owned()), ..claim(OURS, 3) });
        assert_eq!(named(&kept, &rollout(3)), [("web".to_owned(), at)]);
    }

    #[test]
    fn container_without_a_network_of_its_own_has_no_address() {
        for mode in ["host", "container:0123456789ab"] {
            let shared = with(addressed(stamped(OURS, 2, "running")), "/HostConfig", json!({ "NetworkMode": mode }));
            let found = named(&seen(vec![shared]), &rollout(2));
            assert_eq!(found.first().map(|(_, address)| address.clone()), Some(None), "{mode}");
        }
        let unconnected = with(stamped(OURS, 2, "running"), "/NetworkSettings", json!({ "Networks": {} }));
        assert_eq!(
            named(&seen(vec![unconnected]), &rollout(2)).first().map(|(_, address)| address.clone()),
            Some(None)
        );
    }
}
