//! Looks at images at registries: real ones, and one that answers as those do which deny or are busy.

use rollhook_testing::{
    App, Call, Reply, Server,
    fixtures::{ImageRegistry, Receiver, RegistryProgram},
    server, skip, test_name,
};
use serde_json::{Value, json};

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";

fn run() -> Server {
    server!().arguments(["--insecure-registry", "127.0.0.1"]).run()
}

fn look(server: &Server, app: &App, reference: &str) -> Call {
    server.manage("GET", &format!("{}/image?reference={reference}", app.path))
}

/// Pushes an image under each of these tags, and returns its digest.
fn push(registry: &ImageRegistry, tags: &[&str]) -> String {
    let labels = json!({
        "org.opencontainers.image.revision": "abc123f",
        "org.opencontainers.image.source": "https://git.example.com/shop/api",
        "org.opencontainers.image.version": "1.2",
    });
    let configuration = json!({
        "os": "linux", "architecture": "amd64",
        "rootfs": {"type": "layers", "diff_ids": []}, "config": {"Labels": labels},
    });
    let configuration = configuration.to_string().into_bytes();
    let digest = registry.push_blob("shop/api", &configuration);
    let manifest = json!({
        "schemaVersion": 2, "mediaType": MANIFEST, "layers": [],
        "config": {"mediaType": CONFIGURATION, "digest": digest, "size": configuration.len()},
    });
    let manifest = manifest.to_string();
    let mut pushed = tags.iter().map(|tag| registry.push_manifest("shop/api", tag, MANIFEST, manifest.as_bytes()));
    let first = pushed.next().unwrap();
    pushed.for_each(drop);
    first
}

fn started() -> Result<ImageRegistry, &'static str> {
    let all = [RegistryProgram::GoContainerregistry, RegistryProgram::Distribution];
    let found = all.into_iter().find(|program| program.missing().is_none());
    found.map(ImageRegistry::start).ok_or("there is no registry of images: .ci/setup installs two")
}

/// Returns the problem's type, and the members that a client acts on.
fn problem(reply: &Reply) -> (String, Value) {
    let body = reply.json();
    (reply.problem(), json!([body["nearest"], body["repository_missing"], body["registry"]]))
}

#[test]
fn image_is_shown_as_its_registry_has_it() {
    let registry = match started() {
        Ok(registry) => registry,
        Err(missing) => return skip(&test_name!(), missing),
    };
    let digest = push(&registry, &["v1", "v2"]);
    let server = run();
    let repository = format!("{}/shop/api", registry.address);
    let app = server.register("api", &json!({ "image": format!("{repository}:v1"), "policy": { "settle": "0s" } }));
    let expected = |image: String| {
        json!({
            "image": image, "digest": digest, "media_type": MANIFEST, "platforms": ["linux/amd64"],
            "revision": "abc123f", "source": "https://git.example.com/shop/api", "version": "1.2",
        })
    };
    let found = look(&server, &app, &format!("{repository}:v2")).expect(200).json();
    assert_eq!(found, expected(format!("{repository}:v2")));
    let newest = server.manage("GET", &format!("{}/image", app.path)).expect(200).json();
    assert_eq!(newest, expected(format!("{repository}:v1")), "that of the newest deploy");
    let history = server.manage("GET", &format!("{}/deploys", app.path)).expect(200).json();
    assert_eq!(history["deploys"].as_array().unwrap().len(), 1, "a look is no deploy");

    let missing = look(&server, &app, &format!("{repository}:v3")).expect(404);
    assert_eq!(problem(&missing), ("image-not-found".to_owned(), json!([["v1", "v2"], false, null])));
    assert!(missing.text().contains("nearest: v1, v2"), "{}", missing.text());
    let missing = look(&server, &app, &format!("{}/shop/apo:v1", registry.address)).expect(404);
    assert_eq!(problem(&missing), ("image-not-found".to_owned(), json!([[], true, null])));

    let address = registry.address;
    drop(registry);
    let away = look(&server, &app, &format!("{repository}:v2")).expect(503);
    assert_eq!(problem(&away), ("registry-unavailable".to_owned(), json!([null, null, address.to_string()])));
    assert!(away.header("retry-after").is_some());
}

#[test]
fn registry_that_denies_or_is_busy_is_named_with_the_way_on() {
    let registry = Receiver::start();
    let host = registry.url.trim_start_matches("http://").trim_end_matches('/').split('/').next().unwrap().to_owned();
    let server = run();
    let app = server.app("api");
    let reference = format!("{host}/shop/api:v1");
    registry.answer(Some("401 Unauthorized\r\nwww-authenticate: Basic realm=\"closed\""));
    let denied = look(&server, &app, &reference).expect(409);
    assert_eq!(problem(&denied), ("registry-denied".to_owned(), json!([null, null, host])));
    registry.answer(Some("429 Too Many Requests\r\nretry-after: 40"));
    let busy = look(&server, &app, &reference).expect(503);
    assert_eq!(problem(&busy).0, "registry-unavailable");
    assert_eq!(busy.header("retry-after"), Some("40"));
}

#[test]
fn registry_is_called_only_where_the_operator_lets_it_be() {
    let registry = Receiver::start();
    let host = registry.url.trim_start_matches("http://").trim_end_matches('/').split('/').next().unwrap().to_owned();
    for arguments in [&[][..], &["--registry-host", "registry.example.com"]] {
        let server = server!().arguments(arguments.iter().copied()).run();
        let app = server.app("api");
        for host in [&*host, "169.254.169.254"] {
            let refused = look(&server, &app, &format!("{host}/shop/api:v1")).expect(422);
            assert_eq!(refused.problem(), "invalid-image", "{}", refused.text());
        }
    }
    assert!(registry.sent().is_empty(), "no registry of this machine is called");
}

#[test]
fn reference_that_is_none_is_refused_and_looks_are_bounded() {
    let server = run();
    let app = server.app("api");
    assert_eq!(look(&server, &app, "Not/An/Image").expect(422).problem(), "invalid-image");
    server.manage("GET", &format!("{}/image?image=api", app.path)).expect(400);
    let statuses: Vec<u16> = (0..30).map(|_| look(&server, &app, "localhost/api:v1").send().status).collect();
    assert_eq!(statuses[..20], [422; 20], "20 at once");
    assert!(statuses[20..].contains(&429), "{statuses:?}");
}
