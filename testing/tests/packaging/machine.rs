//! The files for a single machine: the systemd unit and the compose file.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use rollhook_testing::{
    documents::root,
    process::{is_installed, tool},
    skip, test_name,
};
use serde_json::{Value, json};

fn file(name: &str) -> PathBuf {
    root().join("packaging").join(name)
}

#[test]
fn systemd_unit_is_valid_and_confined() {
    if !is_installed("systemd-analyze") {
        return skip(&test_name!(), "systemd is not installed");
    }
    // Its program is not installed where tests run.
    let unit = fs::read_to_string(file("systemd/rollhook-server.service")).unwrap();
    let unit = unit.replace("ExecStart=/usr/local/bin/rollhook-server", "ExecStart=/bin/true");
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("rollhook-server.service");
    fs::write(&path, unit).unwrap();
    // With the drop-ins for containers of the machine, and for a cluster as documented.
    let drop_ins = directory.path().join("rollhook-server.service.d");
    fs::create_dir(&drop_ins).unwrap();
    fs::copy(file("systemd/docker.conf"), drop_ins.join("docker.conf")).unwrap();
    let page = fs::read_to_string(file("../docs/install.md")).unwrap();
    let (_, drop_in) = page
        .split_once(
            "cluster.conf <<'END'
",
        )
        .unwrap();
    fs::write(
        drop_ins.join("cluster.conf"),
        drop_in
            .split_once(
                "END
",
            )
            .unwrap()
            .0,
    )
    .unwrap();
    for arguments in [&["verify"][..], &["security", "--offline=true", "--threshold=20", "--no-pager"]] {
        let output = Command::new("systemd-analyze").args(arguments).arg(&path).output().unwrap();
        let told = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{arguments:?}: {told}");
        assert!(arguments != ["verify"] || told.is_empty(), "{told}");
    }
}

#[test]
fn server_goes_on_where_memory_runs_out_in_another_process_of_its_unit() {
    let unit = fs::read_to_string(file("systemd/rollhook-server.service")).unwrap();
    assert!(unit.lines().any(|line| line == "OOMPolicy=continue"), "{unit}");
}

/// A compose file with the values that its variables have by default.
fn compose(name: &str) -> Value {
    let text = fs::read_to_string(file(name)).unwrap();
    let text = text.replace("${ROLLHOOK_PRIVATE_NET:-10.213.71}", "10.213.71").replace("!reset ", "");
    serde_saphyr::from_str(&text).unwrap()
}

fn names(object: &Value) -> Vec<&str> {
    object.as_object().unwrap().keys().map(String::as_str).collect()
}

#[test]
fn compose_keeps_the_calls_of_the_server_from_the_network_of_apps() {
    let (alone, beside) = (compose("compose.yaml"), compose("compose.docker.yaml"));
    let (server, proxy) = (&alone["services"]["rollhook"], &beside["services"]["proxy"]);
    assert_eq!(names(&server["networks"]), ["private"]);
    let address = server["networks"]["private"]["ipv4_address"].as_str().unwrap();
    let listens = |variable: &str| server["environment"][variable].as_str().unwrap();
    assert_eq!(listens("ROLLHOOK_LISTEN"), format!("{address}:8080"), "at the private address alone");
    assert_eq!(
        listens("ROLLHOOK_PROBE_LISTEN"),
        format!("{address}:8081"),
        "metrics are not at what the proxy passes on"
    );

    let private = alone["networks"]["private"]["ipam"]["config"][0]["subnet"].as_str().unwrap();
    assert_eq!(listens("ROLLHOOK_TRUSTED_PROXY"), private);
    assert_eq!(names(&proxy["networks"]), ["apps", "private"]);
    assert_eq!(proxy["environment"]["ROLLHOOK_ADDRESS"], format!("{address}:8080"), "a name could be an app's");
    let of_proxy = proxy["networks"]["private"]["ipv4_address"].as_str().unwrap();
    assert!(of_proxy != address && of_proxy.starts_with("10.213.71."), "{of_proxy}");

    // Docker would publish a port through the network of apps.
    assert_eq!(beside["services"]["rollhook"]["ports"], json!([]));
    assert!(fs::read_to_string(file("compose.docker.yaml")).unwrap().contains("    ports: !reset []\n"));
    assert!(beside["services"].as_object().unwrap().values().all(|service| service["network_mode"].is_null()));
}

#[test]
fn logs_of_the_compose_services_are_bounded() {
    for name in ["compose.yaml", "compose.docker.yaml"] {
        let file = compose(name);
        // A service that another file begins has its settings.
        let begun = file["services"].as_object().unwrap().iter().filter(|(_, service)| service["image"].is_string());
        for (service, settings) in begun {
            let options = &settings["logging"]["options"];
            assert!(options["max-size"].is_string() && options["max-file"].is_string(), "{name}: {service}");
        }
    }
}

#[test]
fn proxy_file_passes_calls_to_the_address_of_the_server() {
    let caddy = Path::new("/usr/bin/caddy");
    if !caddy.exists() {
        return skip(&test_name!(), "caddy is not installed");
    }
    let home = tempfile::tempdir().unwrap();
    let mut adapt = Command::new(caddy);
    adapt.args(["adapt", "--adapter", "caddyfile", "--config"]).arg(file("Caddyfile")).env("HOME", home.path());
    adapt.env("ROLLHOOK_HOST", "deploys.example.com").env("ROLLHOOK_ADDRESS", "10.213.71.2:8080");
    let adapted = adapt.output().unwrap();
    let read = String::from_utf8_lossy(&adapted.stdout);
    assert!(adapted.status.success() && read.contains(r#""dial":"10.213.71.2:8080""#), "{read}");
}

#[test]
fn compose_file_follows_the_specification() {
    let Some(check) = tool("python/bin/check-jsonschema", &test_name!()) else { return };
    for name in ["compose.yaml", "compose.docker.yaml"] {
        // The checker does not know this tag, which is Compose's own.
        let copy = tempfile::Builder::new().suffix(".yaml").tempfile().unwrap();
        fs::write(copy.path(), fs::read_to_string(file(name)).unwrap().replace("!reset ", "")).unwrap();
        let checked = Command::new(&check).args(["--builtin-schema", "vendor.compose-spec"]).arg(copy.path()).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
    }
}
