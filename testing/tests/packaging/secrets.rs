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
    /// Runs the command as the Job of this name does.
    fn make(&self, run: &str) -> Output {
        let mut command = server!().command();
        command.env("ROLLHOOK_SECRETS_RUN", run);
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
fn secrets_of_an_installation_are_made_once_and_a_lost_one_is_not_replaced() {
    let Some(state) = Kind::Cluster.lent_for(&test_name!()) else { return };
    let place = Place(Kubectl { state, namespace: format!("secrets-{}", std::process::id()) });
    place.0.run(&["create", "namespace", &place.0.namespace]);
    let made = place.make("install");
    assert!(made.status.success(), "{made:?}");
    let secrets = ["rollhook-keys", "rollhook-admin-token"];
    let [keys, token] = secrets.map(|secret| place.data(secret));
    assert_eq!(keys.as_object().unwrap().len(), 1);
    assert!(token["admin-token"].is_string());

    let again = place.make("upgrade");
    assert!(again.status.success() && String::from_utf8_lossy(&again.stdout).contains("unchanged"), "{again:?}");
    assert_eq!([&keys, &token], [&place.data("rollhook-keys"), &place.data("rollhook-admin-token")]);

    // The run that was stopped between the two goes on; a later one finds a loss.
    place.0.run(&["delete", "secret", "rollhook-admin-token"]);
    refuses(&place, "upgrade", "rollhook-admin-token", "admin-token set admin-token");
    assert!(place.make("install").status.success());
    assert_eq!(keys, place.data("rollhook-keys"));

    place.0.run(&["delete", "secret", "rollhook-keys"]);
    refuses(&place, "install", "rollhook-keys", "enable each webhook anew");
}

/// Checks that a run says what to do, and makes nothing.
fn refuses(place: &Place, run: &str, lost: &str, advice: &str) {
    let refused = place.make(run);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(3), "{told}");
    assert!(told.contains("put it back from your copy") && told.contains(advice), "{told}");
    let found = place.0.command(&["get", "secret", lost]).output().unwrap();
    assert!(!found.status.success(), "{found:?}");
}
