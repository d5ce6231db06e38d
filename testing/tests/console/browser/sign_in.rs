//! Signing in at a certified OpenID provider (npm's `oidc-provider`), in a real browser: `testing/browser/sign_in.mjs`
//! drives Chromium, `testing/browser/provider.mjs` is the provider. `.ci/setup` installs what they need.

use std::{
    fs,
    io::{BufRead, BufReader},
    os::unix::fs::PermissionsExt,
    process::{Child, Command, Stdio},
};

use rollhook_testing::{free_address, server, skip, test_name};
use serde_json::json;

use crate::browser::{self, Programs};

/// The secret of the client, which the server's log never has.
const SECRET: &str = "the-secret-of-the-client";

/// A process that ends with the test.
struct Provider(Child);

impl Drop for Provider {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn people_sign_in_at_a_provider_with_the_roles_of_their_groups() {
    let test = test_name!();
    let Programs { browser: program, node, modules } = match Programs::find("oidc-provider") {
        Ok(found) => found,
        Err(missing) => return skip(&test, missing),
    };
    let (address, issuer) = (free_address(), format!("http://{}", free_address()));
    let redirect = format!("http://{address}/sign-in/callback");
    let arguments = json!({ "issuer": issuer, "redirect": redirect, "modules": modules });
    let mut provider = Command::new(&node);
    provider.arg(browser::script("provider.mjs")).arg(arguments.to_string());
    let mut provider = Provider(provider.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap());
    // Kept open: a program that writes into a closed pipe ends.
    let mut told = BufReader::new(provider.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(told.any(|line| line == "listening"), "the provider does not start");

    let start = server!().at(address).arguments(["--allow-local-issuers"]).variable("RUST_LOG", "trace");
    let (file, secret) = (start.file("sign-in.yaml"), start.file("client-secret"));
    fs::write(&secret, SECRET).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o600)).unwrap();
    let settings = json!({
        "issuer": issuer, "client_id": "rollhook", "client_secret_file": secret, "name": "the test's provider",
        "scopes": ["profile", "email", "groups"],
        "grants": [
            { "group": "shop-developers", "role": "deployer", "project": "shop" },
            { "group": "shop-viewers", "role": "viewer", "project": "shop", "environment": "test" },
        ],
    });
    fs::write(&file, settings.to_string()).unwrap();
    let server = start.variable("ROLLHOOK_SIGN_IN", file).run();
    server.app("api");

    let arguments = json!({
        "address": address.to_string(), "screenshots": browser::pictures(), "program": program,
        "modules": modules,
    });
    let mut script = Command::new(node);
    script.arg(browser::script("sign_in.mjs")).arg(arguments.to_string());
    let ended = script.env("TMPDIR", server.file("")).output().unwrap();
    let told = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{told}\n{}", String::from_utf8_lossy(&ended.stderr));
    let log = server.log();
    assert!(!log.contains(SECRET) && !log.contains("__Host-rollhook-sign-in="), "a secret is in the log");
}
