//! The printed permissions are enough for builds, and without them a sentence says what helps.

use kube::Config;
use rollhook_core::{
    deploy::Reason,
    ports::{BuildState, BuildTrigger},
};
use rollhook_kubernetes::manifests;

use crate::{
    actor::digit,
    bed,
    harness::{Ground, ended, order, start, test, until},
};

/// As the printed ServiceAccount of a server in this namespace.
async fn as_server(ground: &Ground<'_>) -> Config {
    let mut config = bed::config(&ground.bed.state).await;
    let namespace = &ground.bed.namespace;
    let account = manifests::SERVICE_ACCOUNT;
    config.auth_info.impersonate = Some(format!("system:serviceaccount:{namespace}:{account}"));
    config
}

#[test]
fn the_printed_permissions_are_enough() {
    test("the_printed_permissions_are_enough", async |ground| {
        let namespace = &ground.bed.namespace;
        let file = std::env::temp_dir().join(format!("rollhook-build-manifests-{namespace}.yaml"));
        // The one cluster-wide binding has a name of this test's own, as others print theirs at the same time.
        let printed = manifests::builds(namespace, namespace, &[5000]);
        let printed = printed.replace("name: rollhook-builds", &format!("name: rollhook-builds-{namespace}"));
        std::fs::write(&file, printed).unwrap();
        ground.bed.kubectl(&["apply", "--filename", file.to_str().unwrap()]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let credentials = std::env::temp_dir().join(format!("rollhook-build-registry-{namespace}.json"));
        std::fs::write(&credentials, "{}").unwrap();
        let mut settings = ground.settings();
        (settings.profile, settings.registry_config) = (None, Some(credentials.clone()));
        let builds = ground.handle_by(as_server(ground).await, settings);
        let good = order(1, 1, digit::GOOD);
        start(&builds, &good).await;
        until("it has ended, as changes tell", async || {
            builds.changed(good.id).await;
            !builds.observe(good.id).await.unwrap().is_under_way()
        })
        .await;
        assert!(matches!(ended(&builds, &good).await, BuildState::Built { .. }));
        assert!(builds.log(good.id, 0).await.unwrap().unwrap().ends_with(b"step 1\n"));
        until("its Secret is gone", async || ground.secrets().await.is_empty()).await;
        let hanging = order(1, 2, digit::HANGS);
        start(&builds, &hanging).await;
        builds.cancel(hanging.id).await.unwrap();
        let BuildState::Failed(failure) = ended(&builds, &hanging).await else { panic!("it was cancelled") };
        assert_eq!(failure.reason.as_str(), Reason::CANCELLED);
        ground.bed.kubectl(&["create", "quota", "none", "--hard=pods=0"]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let failure = crate::harness::fails(&builds, &order(2, 1, digit::GOOD)).await;
        assert_eq!(failure.reason.as_str(), "FailedCreate", "{failure:?}");
        ground.bed.kubectl(&["delete", "clusterrole,clusterrolebinding", &format!("rollhook-builds-{namespace}")]);
        for file in [file, credentials] {
            std::fs::remove_file(file).unwrap();
        }
    });
}

#[test]
fn missing_permission_names_the_command_that_helps() {
    test("missing_permission_names_the_command_that_helps", async |ground| {
        let builds = ground.handle_by(as_server(ground).await, ground.settings());
        let denied = builds.start(&order(1, 1, digit::GOOD)).await.unwrap_err();
        assert!(matches!(denied, rollhook_core::Error::Denied { .. }), "{}", denied.chain());
    });
}
