//! Pages about a machine with Docker, on an engine of the test's own.

use std::path::Path;

use rollhook_testing::{beds::Docker, fixtures::GitHost, skip, test_name};

use crate::{
    pages::{Place, pages_on},
    script::Reader,
};

/// The image of the bed, with a page by which it tells that it is ready.
const IMAGES: &str = r#"
image() {
  echo "$1" > healthz
  printf '#!/bin/sh\nsleep 1000\n' > jobs; chmod +x jobs
  printf 'FROM app:v1\nCOPY healthz /www/healthz\nCOPY jobs /bin/jobs\n' > Dockerfile
  docker build -q -t "$REGISTRY/shop/web:$1" .
  docker push -q "$REGISTRY/shop/web:$1"
}
without_app() {
  rollhook app delete web --yes
  docker rm -f web
}
"#;

#[test]
fn pages_about_one_machine_work_as_they_are_pasted() {
    let docker = match Docker::own() {
        Ok(docker) => docker,
        Err(reason) => return skip(&test_name!(), reason),
    };
    let git = GitHost::start();
    let repository = git.repository("shop/web.git");
    repository.commit("healthz", "built");
    repository.commit("Dockerfile", "FROM app:v1\nCOPY healthz /www/healthz\n");

    let failures: Vec<_> =
        pages_on(Place::Docker).filter_map(|page| reader(&docker, &git).pastes(page, Place::Docker)).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

fn reader(docker: &Docker, git: &GitHost) -> Reader {
    let debian = Path::new("/usr/bin/docker");
    let client = if debian.exists() { debian } else { Path::new("/usr/local/bin/docker") };
    let reader = Reader::new().program("docker", client);
    let host = format!("unix://{}", docker.socket().display());
    let (url, root) = (format!("http://{}", reader.address), reader.path("root").display().to_string());
    reader
        .with("DOCKER_HOST", &host)
        .with("DOCKER_CONFIG", &docker.state.join("config").display().to_string())
        .with("REGISTRY", &docker.registry())
        .with("URL", &url)
        .with("NETWORK", &docker.network())
        .with("ROLLHOOK_ALLOW_LOCAL_SOURCES", "true")
        .knows(IMAGES)
        .reads("http://127.0.0.1:8080", &url)
        .reads("registry.example.com", &docker.registry())
        .reads("https://git.example.com/shop/web.git", &format!("http://{}/shop/web.git/.git", git.address))
        .reads("/usr/local", &format!("{root}/usr/local"))
        .reads("/etc", &format!("{root}/etc"))
        .reads("/var/lib/rollhook", &format!("{root}/var/lib/rollhook"))
}
