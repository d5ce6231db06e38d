//! A release of the chart on the lent node, as its operator has it.

use std::{
    io::{Write, stderr},
    net::SocketAddr,
    path::PathBuf,
    process::Command,
    time::Instant,
};

use rollhook_testing::{
    Call, Cli,
    beds::{Kind, Kubectl},
    documents::root,
    fixtures::Ingress,
    process::program,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{helm::Helm, images::Image};

/// A release in a namespace of the lent node, a namespace of its apps, and what stands before the release.
pub(crate) struct Release {
    name: &'static str,
    /// `kubectl` in the servers' namespace.
    pub(crate) own: Kubectl,
    /// `kubectl` in the namespace of apps.
    pub(crate) apps: Kubectl,
    pub(crate) project: String,
    helm: Helm,
    image: &'static Image,
    /// The packed chart, and the directory that it goes with.
    chart: (TempDir, PathBuf),
    ingress: Ingress,
}

impl Release {
    /// Nothing is installed yet. Without a node or helm the test is reported as skipped.
    pub(crate) fn new(test: &str, name: &'static str) -> Option<Self> {
        let project = format!("{}{}", name.replace("rollhook", "shop").replace('-', ""), std::process::id());
        let state = Kind::Node.lent_for(test)?;
        let own = Kubectl { state: state.clone(), namespace: format!("rollhook-{project}") };
        let apps = Kubectl { state, namespace: format!("{project}-test") };
        let helm = Helm::on(&own, test)?;
        for kubectl in [&own, &apps] {
            kubectl.run(&["create", "namespace", &kubectl.namespace]);
        }
        own.run(&["label", "namespace", &own.namespace, "pod-security.kubernetes.io/enforce=restricted"]);
        let image = Image::server(&own);
        let servers = own.clone();
        let ingress = Ingress::start(move || replicas(&servers).first().copied());
        Some(Self { name, own, apps, project, chart: packed(&helm, image), helm, image, ingress })
    }

    /// `helm install` or `helm upgrade`, as docs/install.md has it.
    pub(crate) fn helm(&self, verb: &str, sets: &[&str]) -> String {
        let arguments = self.arguments(verb, sets);
        self.helm.run(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    /// Returns what `helm install` or `helm upgrade` says when it fails, which it must.
    pub(crate) fn helm_fails(&self, verb: &str, sets: &[&str]) -> String {
        let arguments = self.arguments(verb, sets);
        self.helm.fails(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
    }

    fn arguments(&self, verb: &str, sets: &[&str]) -> Vec<String> {
        let values = [
            format!("appNamespaces={{{}}}", self.apps.namespace),
            format!("baseUrl=http://{}", self.ingress.address),
            // The receiver speaks plain http.
            "receivers.allowLocal=true".to_owned(),
        ];
        let mut arguments = vec![verb, self.name, self.chart.1.to_str().unwrap(), "--namespace", &self.own.namespace];
        arguments.extend(["--wait", "--timeout", "4m"]);
        for set in values.iter().map(String::as_str).chain(sets.iter().copied()) {
            arguments.extend(["--set", set]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// `helm rollback`, to the first revision, or `helm uninstall`.
    pub(crate) fn back(&self, verb: &[&str]) {
        let arguments = ["--namespace", &self.own.namespace, "--wait", "--timeout", "4m"];
        self.helm.run(&[&verb[..1], &[self.name], &verb[1..], &arguments].concat());
    }

    pub(crate) fn secrets(&self) -> [Value; 2] {
        ["rollhook-keys", "rollhook-admin-token"].map(|name| self.own.get(&format!("secret/{name}"))["data"].clone())
    }

    /// The admin token, read as the release's notes say.
    pub(crate) fn token(&self) -> String {
        let path = "go-template={{index .data \"admin-token\" | base64decode}}";
        self.own.run(&["get", "secret", "rollhook-admin-token", "--output", path]).trim().to_owned()
    }

    /// The operator's command line, on the project and environment of the apps.
    pub(crate) fn cli(&self) -> Cli {
        Cli::new(program("rollhook-cli", "rollhook"))
            .with("ROLLHOOK_SERVER", &format!("http://{}", self.ingress.address))
            .with("ROLLHOOK_TOKEN", &self.token())
            .with("ROLLHOOK_PROJECT", &self.project)
    }

    /// Each entry as `revision trigger status`, oldest first.
    pub(crate) fn outline(&self) -> Vec<String> {
        let list = self.cli().run("app history api -o json").ok().json();
        let word = |entry: &Value, name: &str| entry[name].as_str().unwrap().to_owned();
        let line =
            |entry: &Value| format!("{} {} {}", entry["revision"], word(entry, "trigger"), word(entry, "status"));
        list["deploys"].as_array().unwrap().iter().rev().map(line).collect()
    }

    pub(crate) fn app_image(&self, tag: &str) -> String {
        format!("{}/app:{tag}", self.image.repository().split('/').next().unwrap())
    }

    /// The address of this machine that pods reach.
    pub(crate) fn bridge(&self) -> &str {
        self.image.repository().split(':').next().unwrap()
    }

    /// Signs in to the console, and returns the app's page.
    pub(crate) fn page(&self) -> String {
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([("token", self.token().as_str()), ("name", "Ada")])
            .finish();
        let sign_in = Call::to(self.ingress.address, "POST", "/sign-in").header("sec-fetch-site", "same-origin");
        let sign_in = sign_in.header("content-type", "application/x-www-form-urlencoded").body(form.as_bytes());
        let cookie = sign_in.expect(303).header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
        let path = format!("/apps/{}/api", self.apps.namespace);
        Call::to(self.ingress.address, "GET", &path).header("cookie", &cookie).expect(200).text()
    }
}

/// Packs the chart as a release does: it names the image by its digest.
fn packed(helm: &Helm, image: &Image) -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let script = root().join("packaging/release/chart.sh");
    let mut pack = Command::new(script);
    pack.args(["0.1.0", image.repository(), &image.digest]).arg(directory.path()).env("PATH", helm.path());
    let packed = pack.output().unwrap();
    assert!(packed.status.success(), "{}", String::from_utf8_lossy(&packed.stderr));
    let file = directory.path().join("rollhook-0.1.0.tgz");
    (directory, file)
}

/// The addresses of replicas that are ready.
pub(crate) fn replicas(own: &Kubectl) -> Vec<SocketAddr> {
    let address = |pod: &Value| {
        let ready = pod["status"]["containerStatuses"].as_array()?.iter().all(|status| status["ready"] == true);
        let ip = pod["status"]["podIP"].as_str()?;
        ready.then(|| format!("{ip}:8080").parse().unwrap())
    };
    own.pods("rollhook").iter().filter_map(address).collect()
}

/// Does a step, and says how long it took, also where the output of tests that pass is not shown.
pub(crate) fn step<T>(name: &str, work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let done = work();
    let _ = writeln!(stderr(), "{:>6.1} s  {name}", begin.elapsed().as_secs_f32());
    done
}

impl Drop for Release {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the server's namespace\n{}", self.own.story());
            eprintln!("--- the namespace of apps\n{}", self.apps.story());
            let logs =
                self.own.command(&["logs", "--selector", "app.kubernetes.io/instance=rollhook", "--prefix"]).output();
            eprintln!(
                "--- the logs\n{}",
                logs.map(|logs| String::from_utf8_lossy(&logs.stdout).into_owned()).unwrap_or_default()
            );
        }
        let gone = self
            .helm
            .command(&["uninstall", self.name, "--namespace", &self.own.namespace, "--ignore-not-found"])
            .output();
        drop(gone);
        self.own.remove_namespace();
        self.apps.remove_namespace();
    }
}
