//! The files for a single machine: the systemd unit and the compose file.

use std::{fs, path::PathBuf, process::Command};

use rollhook_testing::{
    documents::root,
    process::{is_installed, tool},
    skip, test_name,
};

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
fn compose_file_follows_the_specification() {
    let Some(check) = tool("python/bin/check-jsonschema", &test_name!()) else { return };
    for name in ["compose.yaml", "compose.docker.yaml"] {
        let checked = Command::new(&check).args(["--builtin-schema", "vendor.compose-spec"]).arg(file(name)).output();
        let checked = checked.unwrap();
        assert!(checked.status.success(), "{name}: {}", String::from_utf8_lossy(&checked.stdout));
    }
}
