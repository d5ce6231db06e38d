//! Pages about a server, on one with the simulated cluster.

use std::{fs, sync::Mutex, thread};

use rollhook_testing::{
    Server,
    fixtures::{GitHost, Receiver, SshHost},
    process::is_installed,
    server, skip, test_name,
};

use crate::{
    pages::{Page, Place, pages_on},
    script::Reader,
};

/// Takes what the page asks for as built, without an image's contents.
const BUILD: &str = r#"#!/bin/sh -e
test -f "$ROLLHOOK_CONTEXT/$ROLLHOOK_DOCKERFILE"
echo "building $ROLLHOOK_COMMIT"
echo "$ROLLHOOK_IMAGE_REPOSITORY@sha256:$(printf %s "$ROLLHOOK_COMMIT" | sha256sum | cut -d ' ' -f 1)"
"#;

/// The id of an app's first trust.
const FIRST_TRUST: &str =
    "$(rollhook app webhook trust list api --project shop --environment prod | awk 'NR == 2 { print $1 }')";

#[test]
fn pages_about_a_server_work_as_they_are_pasted() {
    for program in ["curl", "git"] {
        if !is_installed(program) {
            return skip(&test_name!(), &format!("there is no {program}"));
        }
    }
    if let Err(reason) = SshHost::start() {
        return skip(&test_name!(), reason);
    }
    // Most of the time is spent with waiting.
    let (pages, failures) = (Mutex::new(pages_on(Place::Server)), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                loop {
                    let Some(page) = pages.lock().unwrap().next() else { return };
                    let failure = Surroundings::new().paste(page);
                    failures.lock().unwrap().extend(failure);
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// A server, and those that it talks to.
struct Surroundings {
    server: Server,
    git: GitHost,
    ssh: SshHost,
    receiver: Receiver,
    commit: String,
}

impl Surroundings {
    fn new() -> Self {
        let git = GitHost::start();
        let commit = git.repository("shop/api.git").commit("Dockerfile", "FROM scratch");
        git.repository("shop/all.git").commit("web/Dockerfile.prod", "FROM scratch");
        let start = server!().driver("simulated:10ms").builder(BUILD).unlimited();
        let credentials = start.file("credentials");
        fs::create_dir(&credentials).unwrap();
        fs::write(credentials.join("shop"), git.login("ada:secret")).unwrap();
        let start = start.variable("ROLLHOOK_BUILD_CREDENTIALS", credentials);
        let server = start.variable("ROLLHOOK_ALLOW_LOCAL_RECEIVERS", "true").run();
        Self { server, git, ssh: SshHost::start().unwrap(), receiver: Receiver::start(), commit }
    }

    fn paste(&self, page: &Page) -> Option<String> {
        let url = format!("http://{}", self.server.address);
        let reader = Reader::new().with("URL", &url).with("DATA", &self.server.file("").display().to_string());
        let root = reader.path("root").display().to_string();
        let git = |name: &str| format!("http://{}/{name}/.git", self.git.address);
        let reader = reader
            .reads("http://127.0.0.1:8080", &url)
            .reads("http://SERVER", &url)
            .reads("APP", "api")
            .reads("https://hooks.example.com", &self.receiver.url)
            .reads("https://git.example.com/shop/api.git", &git("shop/api.git"))
            .reads("https://git.example.com/shop/all.git", &git("shop/all.git"))
            .reads("git.example.com", &format!("-p {} {}", self.ssh.address.port(), self.ssh.address.ip()))
            .reads("1a2b3c4", &self.commit[..7])
            .with("COMMIT", &self.commit[..7])
            .reads("193e1fc8ea1b01bc", FIRST_TRUST)
            .reads("5d1f0c9a7be24836", "$(rollhook session list | awk 'NR == 2 { print $1 }')")
            .reads("/usr/local/bin", &format!("{root}/usr/local/bin"))
            .reads("/etc", &format!("{root}/etc"))
            .reads("/var/lib/rollhook", &format!("{root}/var/lib/rollhook"));
        fs::copy(self.server.file("admin-token"), reader.path("admin-token")).unwrap();
        reader.pastes(page, Place::Server)
    }
}
