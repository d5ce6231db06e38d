//! The archives and the installer of a release, made of stand-ins for its programs.

use std::{
    fs,
    path::PathBuf,
    process::{Command, Output},
};

use rollhook_testing::{documents::root, process::program};
use tempfile::TempDir;

const PROGRAMS: [&str; 3] = ["rollhook", "rollhook-server", "rollhook-build"];

fn script(name: &str) -> PathBuf {
    root().join("packaging/release").join(name)
}

/// A release in a directory, which the installer reads as it would read a server's files.
struct Release(TempDir);

impl Release {
    fn new() -> Self {
        let release = Self(tempfile::tempdir().unwrap());
        let (binaries, out) = (release.path("binaries"), release.path("out"));
        fs::create_dir(&binaries).unwrap();
        for program in PROGRAMS {
            fs::write(binaries.join(program), format!("#!/bin/sh\necho {program} 9.9.9\n")).unwrap();
        }
        let packed = Command::new(script("build.sh"))
            .args(["9.9.9", out.to_str().unwrap()])
            .env("BINARIES", &binaries)
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .output()
            .unwrap();
        assert!(packed.status.success(), "{packed:?}");
        // The other architecture's archive comes from another machine.
        for architecture in ["amd64", "arm64"] {
            let archive = out.join(format!("rollhook-9.9.9-linux-{architecture}.tar.gz"));
            if !archive.exists() {
                fs::write(archive, "of another machine").unwrap();
            }
        }
        let url = format!("file://{}", out.display());
        let finished = Command::new(script("finish.sh")).args(["9.9.9", &url]).arg(&out).output().unwrap();
        assert!(finished.status.success(), "{finished:?}");
        release
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn archive(&self) -> PathBuf {
        let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
        self.path("out").join(format!("rollhook-9.9.9-linux-{architecture}.tar.gz"))
    }

    fn install(&self, shell: &str) -> Output {
        let installer = self.path("out").join("install.sh");
        Command::new(shell).arg(installer).env("ROLLHOOK_BIN", self.path("bin")).output().unwrap()
    }
}

#[test]
fn installer_installs_the_programs_of_its_release() {
    let release = Release::new();
    for shell in ["sh", "bash"] {
        let installed = release.install(shell);
        assert!(installed.status.success(), "{installed:?}");
        for program in PROGRAMS {
            let run = Command::new(release.path("bin").join(program)).arg("--version").output().unwrap();
            assert_eq!(String::from_utf8_lossy(&run.stdout), format!("{program} 9.9.9\n"));
        }
        let left: Vec<_> = fs::read_dir(release.path("bin")).unwrap().collect();
        assert_eq!(left.len(), PROGRAMS.len(), "{left:?}");
    }
    let sums = Command::new("sha256sum").args(["-c", "SHA256SUMS"]).current_dir(release.path("out")).output().unwrap();
    assert!(sums.status.success(), "{sums:?}");
}

#[test]
fn installer_refuses_an_archive_with_another_checksum_and_changes_nothing() {
    let release = Release::new();
    assert!(release.install("sh").status.success());
    let before = fs::read(release.path("bin").join("rollhook")).unwrap();
    let mut altered = fs::read(release.archive()).unwrap();
    *altered.last_mut().unwrap() ^= 1;
    fs::write(release.archive(), altered).unwrap();
    let refused = release.install("sh");
    assert!(!refused.status.success());
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(told.contains("SHA-256") && told.contains("nothing was installed"), "{told}");
    assert_eq!(fs::read(release.path("bin").join("rollhook")).unwrap(), before);
}

#[test]
fn installer_without_a_release_says_so() {
    let refused = Command::new("sh").arg(script("install.sh")).output().unwrap();
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("use the one of a release"), "{refused:?}");
}

#[test]
fn archive_is_the_same_for_the_same_programs() {
    let (one, two) = (Release::new(), Release::new());
    assert_eq!(fs::read(one.archive()).unwrap(), fs::read(two.archive()).unwrap());
}

#[test]
fn programs_need_the_c_library_alone() {
    let listed = Command::new("ldd").arg(program("rollhook-server", "rollhook-server")).output().unwrap();
    let listed = String::from_utf8(listed.stdout).unwrap();
    let known = ["linux-vdso.", "libgcc_s.", "libm.", "libc.", "ld-linux-"];
    for line in listed.lines() {
        assert!(known.iter().any(|known| line.contains(known)), "{line}");
    }
}
