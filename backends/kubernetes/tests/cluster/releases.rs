//! Release commands on simulated nodes: their runs end once and for all, and are no pods of the workload.

use std::path::PathBuf;

use async_trait::async_trait;
use k8s_openapi::api::{batch::v1::Job, core::v1::Pod};
use kube::{
    Api,
    api::{ListParams, Patch, PatchParams},
};
use rollhook_conformance::{Can, Does, Environment, Lack, Releases};
use rollhook_core::{
    Error,
    app::Target,
    deploy::Reason,
    ports::{ReleaseFailure, ReleaseRun, ReleaseRunner, ReleaseSpec, ReleaseState, RolloutDriver, RunKind},
};
use rollhook_kubernetes::{
    KubernetesCluster,
    WorkloadKind::{self, CronJob, DaemonSet, Deployment, StatefulSet},
};
use rollhook_testing::{beds::shared_cluster, until_async as until};
use serde_json::{Value, json};

use crate::{
    bed::{self, Bed, clusters::Namespaced},
    conformance::Simulated,
};

/// Writes the logs of release commands until it is dropped: simulated containers write none.
pub(crate) struct Writer(tokio::task::AbortHandle);

impl Drop for Writer {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Writer {
    fn start(bed: &Bed) -> Self {
        let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
        let logs = logs(bed);
        let write = async move {
            loop {
                if let Ok(found) = pods.list(&ListParams::default().labels("rollhook.dev/release-app")).await {
                    found.items.iter().filter(|pod| has_begun(pod)).for_each(|pod| write(&logs, pod));
                }
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        };
        Self(tokio::spawn(write).abort_handle())
    }
}

fn logs(bed: &Bed) -> PathBuf {
    bed.state.join("logs").join(&bed.namespace)
}

fn has_begun(pod: &Pod) -> bool {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let state = statuses.first().and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.waiting.is_none())
}

fn write(logs: &std::path::Path, pod: &Pod) {
    let directory = logs.join(pod.metadata.name.as_deref().unwrap());
    if directory.exists() {
        return;
    }
    std::fs::create_dir_all(&directory).unwrap();
    let arguments = pod.spec.as_ref().unwrap().containers[0].args.clone().unwrap_or_default().join(" ");
    std::fs::write(directory.join("app"), format!("it has begun\nand {arguments}\n")).unwrap();
}

/// The name of the run's Job.
fn job_name(run: &ReleaseRun) -> String {
    match run.id.kind {
        RunKind::Release(revision) => format!("release-{}-{revision}", run.id.app),
        RunKind::ByHand(number) => format!("run-{}-{number}", run.id.app),
        RunKind::Check(check) => format!("check-{}-{}", run.id.app, check.get()),
    }
}

/// How many pods of the run have begun, those that are gone among them.
fn begun(bed: &Bed, run: &ReleaseRun) -> usize {
    let name = format!("{}-", job_name(run));
    let written = std::fs::read_dir(logs(bed)).into_iter().flatten();
    written.filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(&name)).count()
}

rollhook_conformance::releases!(bed::run, fresh().await);

async fn fresh() -> Can<Namespaced<Simulated>> {
    let bed = Bed::at(shared_cluster().map_err(Lack::Skip)?).await;
    let writer = Writer::start(&bed);
    Ok(Namespaced { bed, instances: Simulated { _writer: Some(writer) } })
}

#[async_trait]
impl Releases for Namespaced<Simulated> {
    fn command(&self, does: Does) -> Vec<String> {
        command(match does {
            Does::Succeed => "succeeds",
            Does::Fail => "fails",
            Does::Hang => "hangs",
        })
    }

    async fn times_begun(&self, run: &ReleaseRun) -> Can<usize> {
        Ok(begun(&self.bed, run))
    }

    async fn environment_of(&self, run: &ReleaseRun) -> Can<Environment> {
        let pod = job(&self.bed, run).await.spec.unwrap().template.spec.unwrap();
        Ok(self.bed.environment(&pod.containers[0]).await)
    }
}

fn command(does: &str) -> Vec<String> {
    vec!["release".to_owned(), does.to_owned()]
}

/// The runner of the bed's driver.
pub(crate) fn runner(bed: &Bed) -> &dyn ReleaseRunner {
    bed.driver.release_runner().unwrap()
}

/// The run of a revision's command for the workload `api`.
pub(crate) fn spec(bed: &Bed, kind: WorkloadKind, revision: u64, does: &str) -> ReleaseSpec {
    let order = bed.order(kind, revision, "api:v2");
    ReleaseSpec::new(ReleaseRun { app: order.app, id: order.id.into() }, order.target, order.image, command(does))
}

async fn ended(runner: &dyn ReleaseRunner, run: &ReleaseRun) -> ReleaseState {
    until("the run ends", async || {
        let state = runner.observe(run).await.unwrap();
        if state.is_ended() { Ok(state) } else { Err(state) }
    })
    .await
}

async fn failed(runner: &dyn ReleaseRunner, run: &ReleaseRun) -> ReleaseFailure {
    let end = ended(runner, run).await;
    let ReleaseState::Failed(failure) = end else { panic!("no failure: {end:?}") };
    failure
}

async fn begins(bed: &Bed, spec: &ReleaseSpec) {
    assert_eq!(runner(bed).prepare(spec).await.unwrap(), ReleaseState::Prepared);
    runner(bed).start(&spec.run).await.unwrap();
    until("it has begun", async || begun(bed, &spec.run) == 1).await;
}

async fn job(bed: &Bed, run: &ReleaseRun) -> Job {
    let name = job_name(run);
    Api::<Job>::namespaced(bed.client.clone(), &bed.namespace).get(&name).await.unwrap()
}

async fn pods_of(bed: &Bed, run: &ReleaseRun) -> Vec<Pod> {
    let selected = ListParams::default().labels(&format!("batch.kubernetes.io/job-name={}", job_name(run)));
    Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace).list(&selected).await.unwrap().items
}

#[test]
fn release_of_each_kind_runs_beside_the_workload() {
    bed::test("release_of_each_kind_runs_beside_the_workload", async |bed| {
        let _writer = Writer::start(bed);
        for (revision, kind) in (1..).zip([Deployment, StatefulSet, DaemonSet, CronJob]) {
            let containers = json!([{"name": "app", "image": "api:v1", "env": [{"name": "MODE", "value": "test"}]}]);
            let pod = json!({"template": {"spec": {"containers": containers, "serviceAccountName": "api"}}});
            let over = if kind == CronJob { json!({"jobTemplate": {"spec": pod}}) } else { pod };
            bed.make(kind, "api:v1", over).await;
            let spec = spec(bed, kind, revision, "succeeds");
            begins(bed, &spec).await;
            assert!(matches!(ended(runner(bed), &spec.run).await, ReleaseState::Succeeded { .. }), "{kind}");
            let pods = pods_of(bed, &spec.run).await;
            let pod = pods[0].spec.as_ref().unwrap();
            assert_eq!((pods.len(), pod.service_account_name.as_deref()), (1, Some("api")), "{kind}");
            let container = serde_json::to_value(&pod.containers[0]).unwrap();
            assert_eq!(
                (&container["image"], &container["env"][0]["name"]),
                (&json!("api:v2"), &json!("MODE")),
                "{kind}"
            );
            bed.objects(kind).delete("api", &Default::default()).await.unwrap();
        }
    });
}

#[test]
fn pod_of_a_release_is_selected_by_nothing_of_the_workload() {
    bed::test("pod_of_a_release_is_selected_by_nothing_of_the_workload", async |bed| {
        let _writer = Writer::start(bed);
        bed.make(Deployment, "api:v1", json!({})).await;
        let order = bed.order(Deployment, 1, "api:v1");
        bed.roll_out(&order).await;
        let spec = spec(bed, Deployment, 2, "hangs");
        begins(bed, &spec).await;
        let pod = pods_of(bed, &spec.run).await.remove(0);
        let labels = pod.metadata.labels.unwrap();
        let workload = bed.read(Deployment).await;
        for name in workload["spec"]["selector"]["matchLabels"].as_object().unwrap().keys() {
            assert!(!labels.contains_key(name), "{labels:?}");
        }
        let owners = pod.metadata.owner_references.unwrap();
        assert!(owners.len() == 1 && owners[0].kind == "Job", "{owners:?}");
        bed.until_complete(&order).await;
        runner(bed).cancel(&spec.run).await.unwrap();
        failed(runner(bed), &spec.run).await;
    });
}

#[test]
fn missing_workload_fails_the_release_unless_it_can_be_created() {
    bed::test("missing_workload_fails_the_release_unless_it_can_be_created", async |bed| {
        let _writer = Writer::start(bed);
        let mut spec = spec(bed, Deployment, 1, "succeeds");
        let ReleaseState::Failed(failure) = runner(bed).prepare(&spec).await.unwrap() else { panic!("it cannot be") };
        assert_eq!((failure.reason.as_str(), failure.began), (Reason::TARGET_MISSING, false), "{failure:?}");
        assert_eq!(runner(bed).observe(&spec.run).await.unwrap(), ReleaseState::Unknown);
        let template = json!({"replicas": 1, "env": {"MODE": "test"}, "pull_secret": "registry"});
        spec.target.settings.insert("template".to_owned(), template);
        begins(bed, &spec).await;
        assert!(matches!(ended(runner(bed), &spec.run).await, ReleaseState::Succeeded { .. }));
        let pod = pods_of(bed, &spec.run).await.remove(0).spec.unwrap();
        assert_eq!(pod.image_pull_secrets.unwrap()[0].name, "registry");
        assert_eq!(pod.containers[0].env.as_ref().unwrap()[0].name, "MODE");
        assert!(bed.objects(Deployment).get_opt("api").await.unwrap().is_none(), "the rollout makes it");

        spec.run = ReleaseRun { app: "no-such/api".parse().unwrap(), ..spec.run };
        let ReleaseState::Failed(failure) = runner(bed).prepare(&spec).await.unwrap() else { panic!("it cannot be") };
        assert!(!failure.began && failure.message.contains("kubectl create namespace"), "{failure:?}");
    });
}

#[test]
fn workload_that_cannot_be_rolled_out_is_refused_before_the_command_begins() {
    bed::test("workload_that_cannot_be_rolled_out_is_refused_before_the_command_begins", async |bed| {
        bed.make(Deployment, "api:v1", json!({"paused": true})).await;
        let spec = spec(bed, Deployment, 1, "succeeds");
        let ReleaseState::Failed(failure) = runner(bed).prepare(&spec).await.unwrap() else { panic!("it cannot be") };
        assert_eq!((failure.reason.as_str(), failure.began), (Reason::PAUSED, false), "{failure:?}");
    });
}

#[test]
fn refused_job_and_a_foreign_one_of_its_name_are_errors() {
    bed::test("refused_job_and_a_foreign_one_of_its_name_are_errors", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let spec = spec(bed, Deployment, 1, "succeeds");
        let name = format!("release-{}-1", spec.run.id.app);
        bed.kubectl(&["create", "job", &name, "--image=other:hang"]);
        let refused = runner(bed).prepare(&spec).await.unwrap_err();
        assert!(matches!(&refused, Error::Invalid { what, .. } if what.contains(&name)), "{}", refused.chain());
        assert_eq!(runner(bed).observe(&spec.run).await.unwrap(), ReleaseState::Unknown);
        runner(bed).cancel(&spec.run).await.unwrap();
        bed.kubectl(&["delete", "job", &name, "--cascade=background"]);
        bed.kubectl(&["create", "quota", "none", "--hard=count/jobs.batch=0"]);
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        let refused = runner(bed).prepare(&spec).await.unwrap_err();
        assert!(
            matches!(&refused, Error::Invalid { what, .. } if what.contains("exceeded quota")),
            "{}",
            refused.chain()
        );
    });
}

#[test]
fn volume_for_one_pod_alone_is_left_out() {
    bed::test("volume_for_one_pod_alone_is_left_out", async |bed| {
        for (name, mode) in [("one", "ReadWriteOncePod"), ("shared", "ReadWriteMany")] {
            let spec = json!({"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}});
            let claim = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
            let claims = Api::<k8s_openapi::api::core::v1::PersistentVolumeClaim>::namespaced(
                bed.client.clone(),
                &bed.namespace,
            );
            claims.create(&Default::default(), &claim).await.unwrap();
        }
        let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
        let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
        let mounts = json!([mount("one"), mount("shared")]);
        let containers = json!([{"name": "app", "image": "api:v1", "volumeMounts": mounts}]);
        let pod = json!({"containers": containers, "volumes": [volume("one"), volume("shared")]});
        bed.make(Deployment, "api:v1", json!({"template": {"spec": pod}})).await;
        let spec = spec(bed, Deployment, 1, "succeeds");
        assert_eq!(runner(bed).prepare(&spec).await.unwrap(), ReleaseState::Prepared);
        let pod = job(bed, &spec.run).await.spec.unwrap().template.spec.unwrap();
        let names: Vec<String> = pod.volumes.unwrap().into_iter().map(|volume| volume.name).collect();
        assert_eq!(names, ["shared"]);
        runner(bed).cancel(&spec.run).await.unwrap();
    });
}

#[test]
fn cancelled_release_keeps_its_last_lines_and_its_record() {
    bed::test("cancelled_release_keeps_its_last_lines_and_its_record", async |bed| {
        let _writer = Writer::start(bed);
        bed.make(Deployment, "api:v1", json!({})).await;
        let spec = spec(bed, Deployment, 1, "hangs");
        begins(bed, &spec).await;
        runner(bed).cancel(&spec.run).await.unwrap();
        let failure = failed(runner(bed), &spec.run).await;
        assert_eq!((failure.reason.as_str(), failure.began), (Reason::CANCELLED, true), "{failure:?}");
        assert_eq!(failure.log, ["it has begun", "and hangs"]);
        until("its pod is gone", async || pods_of(bed, &spec.run).await.is_empty()).await;
        let another = KubernetesCluster::with_config(bed::config(&bed.state).await).unwrap();
        ReleaseRunner::start(&another, &spec.run).await.unwrap();
        assert_eq!(ended(&another, &spec.run).await, ReleaseState::Failed(failure));
        let log = String::from_utf8(ReleaseRunner::log(&another, &spec.run, 0).await.unwrap().unwrap()).unwrap();
        assert!(log.ends_with("it has begun\nand hangs\n"), "{log}");
        assert_eq!(begun(bed, &spec.run), 1);
    });
}

#[test]
fn start_and_cancel_at_the_same_moment_agree() {
    bed::test("start_and_cancel_at_the_same_moment_agree", async |bed| {
        let _writer = Writer::start(bed);
        bed.make(Deployment, "api:v1", json!({})).await;
        let another = KubernetesCluster::with_config(bed::config(&bed.state).await).unwrap();
        for revision in 1..=6 {
            let spec = spec(bed, Deployment, revision, "hangs");
            assert_eq!(runner(bed).prepare(&spec).await.unwrap(), ReleaseState::Prepared);
            let (started, cancelled) =
                futures_util::join!(runner(bed).start(&spec.run), ReleaseRunner::cancel(&another, &spec.run));
            started.unwrap();
            cancelled.unwrap();
            let failure = failed(runner(bed), &spec.run).await;
            assert_eq!(failure.reason.as_str(), Reason::CANCELLED, "{failure:?}");
            let job = job(bed, &spec.run).await;
            let was_started = job.metadata.annotations.unwrap().contains_key("rollhook.dev/release-started");
            assert_eq!(failure.began, was_started, "{failure:?}");
            if !failure.began {
                assert_eq!(begun(bed, &spec.run), 0);
            }
            let finished = async || {
                let status = self::job(bed, &spec.run).await.status.unwrap_or_default();
                status.conditions.into_iter().flatten().any(|found| found.type_ == "Failed")
            };
            until("the Job is finished, so that it is cleaned up", finished).await;
        }
    });
}

#[test]
fn release_whose_pod_is_deleted_does_not_run_again() {
    bed::test("release_whose_pod_is_deleted_does_not_run_again", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        // The image's name leaves the pod to this test.
        let spec = spec(bed, Deployment, 1, "succeeds").with(|spec| spec.image = "api:hang".parse().unwrap());
        runner(bed).prepare(&spec).await.unwrap();
        runner(bed).start(&spec.run).await.unwrap();
        until("it has a pod", async || pods_of(bed, &spec.run).await.len() == 1).await;
        let name = pods_of(bed, &spec.run).await.remove(0).metadata.name.unwrap();
        let play = async |phase: &str, state: Value| {
            let container =
                json!({"name": "app", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let patch = Patch::Merge(json!({"status": {"phase": phase, "containerStatuses": [container]}}));
            let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
            pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
        };
        play("Running", json!({"running": {"startedAt": "2026-01-01T00:00:00Z"}})).await;
        bed.kubectl(&["delete", "pod", &name, "--wait=false"]);
        for _ in 0..8 {
            assert_eq!(runner(bed).observe(&spec.run).await.unwrap(), ReleaseState::Running);
            assert_eq!(pods_of(bed, &spec.run).await.len(), 1, "a successor would run the command again");
            tokio::time::sleep(std::time::Duration::from_millis(250)).await;
        }
        play("Failed", json!({"terminated": {"exitCode": 143, "startedAt": "2026-01-01T00:00:00Z"}})).await;
        let failure = failed(runner(bed), &spec.run).await;
        assert!(failure.began, "{failure:?}");
        assert!(pods_of(bed, &spec.run).await.len() <= 1);
    });
}

#[test]
fn release_that_is_cancelled_while_its_pod_waits_has_not_begun() {
    bed::test("release_that_is_cancelled_while_its_pod_waits_has_not_begun", async |bed| {
        let pod = json!({"nodeSelector": {"no-such": "node"}});
        bed.make(Deployment, "api:v1", json!({"template": {"spec": pod}})).await;
        let spec = spec(bed, Deployment, 1, "succeeds");
        runner(bed).prepare(&spec).await.unwrap();
        runner(bed).start(&spec.run).await.unwrap();
        let is_refused = |pod: &Pod| {
            let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
            conditions.iter().any(|found| found.reason.as_deref() == Some("Unschedulable"))
        };
        until("no node takes its pod", async || pods_of(bed, &spec.run).await.iter().any(is_refused)).await;
        runner(bed).cancel(&spec.run).await.unwrap();
        let failure = failed(runner(bed), &spec.run).await;
        assert_eq!((failure.reason.as_str(), failure.began), ("Unschedulable", false), "{failure:?}");
        assert!(failure.message.contains("0/2 nodes are available"), "{failure:?}");
    });
}

#[test]
fn release_whose_pod_goes_on_for_a_sidecar_ends_with_its_command() {
    bed::test("release_whose_pod_goes_on_for_a_sidecar_ends_with_its_command", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        for (revision, code) in [(1, 0), (2, 3)] {
            // The image's name leaves the pod to this test.
            let spec =
                spec(bed, Deployment, revision, "succeeds").with(|spec| spec.image = "api:hang".parse().unwrap());
            runner(bed).prepare(&spec).await.unwrap();
            runner(bed).start(&spec.run).await.unwrap();
            until("it has a pod", async || pods_of(bed, &spec.run).await.len() == 1).await;
            let name = pods_of(bed, &spec.run).await.remove(0).metadata.name.unwrap();
            let status = |name: &str, state: Value| json!({"name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state});
            let ended = json!({"terminated": {"exitCode": code, "startedAt": "2026-01-01T00:00:00Z"}});
            let statuses = json!([status("app", ended), status("proxy", json!({"running": {}}))]);
            let patch = Patch::Merge(json!({"status": {"phase": "Running", "containerStatuses": statuses}}));
            let pods = Api::<Pod>::namespaced(bed.client.clone(), &bed.namespace);
            pods.patch_status(&name, &PatchParams::default(), &patch).await.unwrap();
            let end = ended_for_all(bed, &spec.run).await;
            if code == 0 {
                assert_eq!(end, ReleaseState::Succeeded { digest: None });
            } else {
                let ReleaseState::Failed(failure) = end else { panic!("no failure: {end:?}") };
                assert!(failure.began && failure.message.contains("exit code 3"), "{failure:?}");
            }
            until("its pod is gone", async || pods_of(bed, &spec.run).await.is_empty()).await;
        }
    });
}

/// The end of the run, which another process reports as well.
async fn ended_for_all(bed: &Bed, run: &ReleaseRun) -> ReleaseState {
    let end = ended(runner(bed), run).await;
    let another = KubernetesCluster::with_config(bed::config(&bed.state).await).unwrap();
    assert_eq!(ended(&another, run).await, end);
    end
}

#[test]
fn oldest_releases_of_an_app_are_deleted() {
    bed::test("oldest_releases_of_an_app_are_deleted", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let jobs = Api::<Job>::namespaced(bed.client.clone(), &bed.namespace);
        for revision in 1..=12 {
            let spec = spec(bed, Deployment, revision, "succeeds");
            assert_eq!(runner(bed).prepare(&spec).await.unwrap(), ReleaseState::Prepared);
            runner(bed).cancel(&spec.run).await.unwrap();
            let finished = async || {
                let status = job(bed, &spec.run).await.status.unwrap_or_default();
                status.conditions.into_iter().flatten().any(|found| found.type_ == "Failed")
            };
            until("the Job is finished", finished).await;
        }
        until("the newest are left", async || jobs.list(&ListParams::default()).await.unwrap().items.len() == 10).await;
        let first = spec(bed, Deployment, 1, "succeeds").run;
        assert_eq!(runner(bed).observe(&first).await.unwrap(), ReleaseState::Unknown);
    });
}

#[test]
fn unknown_release_has_no_effect_on_other_runs() {
    bed::test("unknown_release_has_no_effect_on_other_runs", async |bed| {
        bed.make(Deployment, "api:v1", json!({})).await;
        let spec = spec(bed, Deployment, 1, "succeeds");
        runner(bed).prepare(&spec).await.unwrap();
        let unknown = ReleaseRun::new(&spec.run.app, spec.run.id.app, spec.run.deploy_id().revision.next());
        runner(bed).start(&unknown).await.unwrap();
        runner(bed).cancel(&unknown).await.unwrap();
        assert_eq!(runner(bed).observe(&unknown).await.unwrap(), ReleaseState::Unknown);
        assert_eq!(runner(bed).observe(&spec.run).await.unwrap(), ReleaseState::Prepared);
        let no_workload = spec.with(|spec| spec.target = Target::default());
        assert!(runner(bed).prepare(&no_workload).await.unwrap() == ReleaseState::Prepared, "it is known");
    });
}
