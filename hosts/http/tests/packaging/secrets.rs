//! The Secrets that a server in a cluster is started with are made once, and never replaced.

use std::process::Output;

use rollhook_testing::{
    beds::{Kind, Kubectl},
    server, test_name,
};
use serde_json::Value;

/// A namespace of the lent cluster.
struct Place(Kubectl);

impl Place {
    fn make(&self) -> Output {
        let mut command = server!().command();
        command.args(["secrets", "--namespace", &self.0.namespace]);
        command.env("KUBECONFIG", self.0.state.join("kubeconfig")).output().unwrap()
    }

    fn data(&self, secret: &str) -> Value {
        self.0.get(&format!("secret/{secret}"))["data"].clone()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.remove_namespace();
    }
}

#[test]
fn secrets_of_an_installation_are_made_once_and_lost_keys_are_not_replaced() {
    let Some(state) = Kind::Cluster.lent_for(&test_name!()) else { return };
    let place = Place(Kubectl { state, namespace: format!("secrets-{}", std::process::id()) });
    place.0.run(&["create", "namespace", &place.0.namespace]);
    let made = place.make();
    assert!(made.status.success(), "{made:?}");
    let [keys, token] = ["rollhook-keys", "rollhook-admin-token"].map(|secret| place.data(secret));
    assert_eq!(keys.as_object().unwrap().len(), 1);
    assert!(token["admin-token"].is_string());

    let again = place.make();
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("unchanged"), "{again:?}");
    assert_eq!([&keys, &token], [&place.data("rollhook-keys"), &place.data("rollhook-admin-token")]);

    place.0.run(&["delete", "secret", "rollhook-keys"]);
    let lost = place.make();
    let told = String::from_utf8_lossy(&lost.stderr).into_owned();
    assert!(!lost.status.success() && told.contains("put it back from your copy"), "{told}");
    let found = place.0.command(&["get", "secret", "rollhook-keys"]).output().unwrap();
    assert!(!found.status.success(), "{found:?}");
}
