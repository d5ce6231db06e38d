//! An operator's way, with image and chart as they get them, on a real kubelet: install, register, deploy from a
//! pipeline, see it in the console, break it while the chart is upgraded, be told, go back, uninstall, install again.

use std::thread;

use rollhook_testing::{
    beds::{Kubectl, Postgres},
    documents::root,
    fixtures::{Ingress, Receiver},
    pipeline::{CiSystem, Job, printed},
    skip, test_name, until,
};
use serde_json::json;

use crate::release::{Release, replicas, step};

#[test]
fn operator_installs_deploys_breaks_upgrades_and_removes_a_release_without_losing_a_deploy() {
    let test = test_name!();
    let Some(release) = step("build the image", || Release::new(&test, "rollhook")) else { return };
    let _resources = CustomResources(release.own.clone());
    let notes = step("helm install", || release.helm("install", &[]));
    assert!(notes.contains("rollhook app create api") && notes.contains(&release.project), "{notes}");
    assert_eq!(replicas(&release.own).len(), 2);
    let secrets = release.secrets();
    let cli = release.cli();

    step("register an app", || {
        let image = release.app_image("v1");
        let template = "--replicas 2 --port 8080 --readiness-path /healthz --settle 1s --wait";
        cli.run(&format!("app create api --image {image} {template}")).ok();
    });
    // Further pods count as soon as they are ready; what the app was made with is for apps that people use.
    let patch = json!({ "spec": { "minReadySeconds": 0 } }).to_string();
    release.apps.run(&["patch", "deployment", "api", "--patch", &patch]);
    let enabled = cli.run("app webhook enable api").ok().out;
    let (job, url, token) =
        (Job::read(CiSystem::GitLab, &enabled), printed(&enabled, "URL"), printed(&enabled, "Token"));
    let receiver = Receiver::on(release.bridge());
    let secret = cli.run(&format!("receiver add ops --webhook {} -o json", receiver.url)).ok().json()["secret"].clone();

    let ended = step("deploy from a pipeline", || job.run(url, token, "v2").ok());
    assert!(ended.out.contains("Revision 2 succeeded"), "{ended:?}");
    assert_eq!(release.apps.image("deployment/api"), release.app_image("v2"));
    let page = step("see it in the console", || release.page());
    assert!(page.contains(&release.app_image("v2")) && page.contains("current"), "{page}");
    let listed = release.own.run(&["exec", "deployment/rollhook", "--", "rollhook", "app", "list"]);
    assert!(listed.contains("api"), "{listed}");

    // The upgrade replaces both replicas while they watch a rollout that fails.
    let broken = step("break it, upgrade the chart meanwhile, and have it put right", || {
        thread::scope(|scope| {
            let pipeline = scope.spawn(|| job.run(url, token, "crash").exits(3));
            until("it rolls out", || cli.run("app history api").ok().out.contains("rolling"));
            step("  of that, helm upgrade", || release.helm("upgrade", &["podAnnotations.restarted=once"]));
            pipeline.join().unwrap()
        })
    });
    assert!(broken.err.contains("Put right: revision 4 runs"), "{broken:?}");
    assert_eq!(release.apps.image("deployment/api").split('@').next(), Some(release.app_image("v2").as_str()));
    let history = ["1 manual succeeded", "2 webhook succeeded", "3 webhook failed", "4 rollback succeeded"];
    assert_eq!(release.outline(), history);
    assert!(release.page().contains("put right by #4"));
    assert_eq!(release.secrets(), secrets, "the hook replaces nothing");
    step("be told", || is_told(&receiver, secret.as_str().unwrap()));

    let history = [&history[..], &["5 rollback succeeded", "6 webhook succeeded"]].concat();
    deploys_while_the_chart_goes_back(&release, || job.run(url, token, "v3").ok().out);
    assert_eq!(release.outline(), history);

    step("helm uninstall", || release.back(&["uninstall"]));
    assert_eq!(release.apps.running("api"), [release.app_image("v3"), release.app_image("v3")]);
    assert_eq!(release.apps.get("appdeploys")["items"].as_array().unwrap().len(), 6);
    assert_eq!(release.secrets(), secrets);

    step("helm install again", || release.helm("install", &[]));
    assert_eq!(release.outline(), history);
    assert!(job.run(url, token, "v3").ok().out.contains("Revision 6 succeeded"), "the same job deploys nothing anew");
}

/// A person rolls the app back, and a good deploy is under way while helm goes back to the release's first revision.
fn deploys_while_the_chart_goes_back(release: &Release, pipeline: impl FnOnce() -> String + Send) {
    let cli = release.cli();
    let rollback = cli.run("app rollback api --wait").ok().out;
    assert!(rollback.contains("revision 1"), "{rollback}");
    cli.run("app set api --settle 20s").ok();
    step("deploy again, and helm rollback meanwhile", || {
        thread::scope(|scope| {
            let pipeline = scope.spawn(pipeline);
            until("it rolls out", || cli.run("app history api").ok().out.contains("rolling"));
            release.back(&["rollback", "1"]);
            let out = pipeline.join().unwrap();
            assert!(out.contains("Revision 6 succeeded"), "{out}");
        });
    });
}

/// Waits until the receiver was told how the rollout failed and was put right, in order and signed.
fn is_told(receiver: &Receiver, secret: &str) {
    let expected =
        [("accepted", 2), ("succeeded", 2), ("accepted", 3), ("failed", 3), ("accepted", 4), ("put_right", 4)];
    let expected: Vec<_> = expected.map(|(event, revision)| format!("{event} {revision}")).into();
    let events = || {
        let name = |kind: &str| kind.trim_start_matches("rollhook.deploy.").to_owned();
        let told = receiver.taken().into_iter();
        told.map(|(kind, subject)| format!("{} {}", name(&kind), subject.trim_start_matches("deploys/")))
            .collect::<Vec<_>>()
    };
    until("the receiver is told", || (events() == expected).then_some(()).ok_or_else(events));
    assert!(receiver.sent().iter().all(|sent| sent.is_signed(secret)));
}

/// The chart's custom resources, which outlive the release.
struct CustomResources(Kubectl);

impl Drop for CustomResources {
    fn drop(&mut self) {
        let resources = ["rollhookapps", "appdeploys", "serverrecords"].map(|name| format!("crd/{name}.rollhook.dev"));
        let mut delete = self.0.command(&["delete", "--ignore-not-found", "--wait=false"]);
        drop(delete.args(resources).output());
    }
}

#[test]
fn release_with_its_store_in_postgresql_keeps_the_history_and_makes_no_lost_admin_token_anew() {
    let test = test_name!();
    let database = match Postgres::own() {
        Ok(database) => database,
        Err(reason) => return skip(&test, reason),
    };
    let Some(release) = Release::new(&test, "rollhook-postgres") else { return };
    // The database listens on loopback, where pods do not get to.
    let url = database.url("url").unwrap();
    let address = url.rsplit('@').next().unwrap().split('/').next().unwrap();
    let server = address.parse().unwrap();
    let door = Ingress::on(release.bridge(), move || Some(server));
    let url = format!("--from-literal=url={}", url.replace(address, &door.address.to_string()));
    release.own.run(&["create", "secret", "generic", "database", &url]);

    // A server that cannot read its trust root does not start.
    let trust_root = root().join("backends/signatures/src/recorded/root-times.json");
    let trust_root = format!("--from-file=trusted_root.json={}", trust_root.display());
    release.own.run(&["create", "configmap", "sigstore", &trust_root]);

    let sets = ["store.type=postgres", "store.postgres.existingSecret=database", "signatures.rootConfigMap=sigstore"];
    release.helm("install", &sets);
    let image = release.app_image("v1");
    let cli = release.cli();
    cli.run(&format!("app create api --image {image} --port 8080 --readiness-path /healthz --settle 0s --wait")).ok();
    cli.run(&format!("app deploy api {} --wait", release.app_image("v2"))).ok();
    let history = ["1 manual succeeded", "2 manual succeeded"];
    assert_eq!(release.outline(), history);
    assert!(release.page().contains(&release.app_image("v2")));

    let token = format!("--from-literal=admin-token={}", release.token());
    release.own.run(&["delete", "secret", "rollhook-admin-token"]);
    let told = release.helm_fails("upgrade", &sets);
    assert!(told.contains("there is a Secret rollhook-keys, and no Secret rollhook-admin-token"), "{told}");
    release.own.run(&["create", "secret", "generic", "rollhook-admin-token", &token]);
    release.back(&["uninstall"]);
    release.helm("install", &sets);
    assert_eq!(release.outline(), history);
}
