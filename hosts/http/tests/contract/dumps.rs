//! A process that breaks down while it has values of variables in its memory, and what its types show of them.

use std::{fmt::Debug, fs, os::unix::process::ExitStatusExt, thread};

use rollhook_core::{
    app::{AppUid, Target},
    configuration::{Configuration, ConfigurationId, Variables},
    deploy::Revision,
    ports::{DeployId, ReleaseRun, ReleaseSpec, RolloutSpec},
    request::ConfigureRequest,
};
use rollhook_testing::{Connection, image, server};
use serde_json::json;

use crate::disguises::forms;

/// The first characters of the values.
const MARKER: &str = "Hb5Nw8Yc2Ts6Fd3J";
/// The signal of `abort`.
const SIGABRT: i32 = 6;

fn assert_absent(what: &str, text: &str) {
    for (form, needle) in forms(MARKER) {
        assert!(!text.contains(&needle), "a value ({form}) is in {what}");
    }
}

/// Asserts that a panic, or a log line, which has the value in it shows no part of it.
fn assert_shows_none(what: &str, value: &dyn Debug) {
    assert_absent(what, &format!("{value:?} {value:#?}"));
}

#[test]
fn nothing_that_carries_a_value_shows_it() {
    let text = json!({ "salt": MARKER.as_bytes(), "variables": [["MODE", MARKER, false], ["OPEN", MARKER, true]] });
    let variables = Variables::from_text(&text.to_string()).unwrap();
    let request: rollhook_api::ConfigPatch =
        serde_json::from_value(json!({ "set": { "MODE": MARKER, "OPEN": { "value": MARKER, "plain": true } } }))
            .unwrap();
    assert_shows_none("a call", &request);
    let request: ConfigureRequest = request.parse(None).unwrap();
    assert_shows_none("a request", &request);
    assert_shows_none("a change", &request.change);
    assert_shows_none("variables", &variables);
    let mut configuration = Configuration::of(ConfigurationId(7));
    configuration.variables = variables;
    assert_shows_none("a configuration", &configuration);
    let (app, id) =
        ("shop-test/api".parse().unwrap(), DeployId { app: AppUid::from_bits(7), revision: Revision::new(1).unwrap() });
    let image: rollhook_core::image::ImageRef = "api:v1".parse().unwrap();
    let mut rollout = RolloutSpec::new(app, id, Target::default(), image.clone());
    rollout.configuration = Some(configuration.clone());
    assert_shows_none("a rollout", &rollout);
    let run = ReleaseRun { app: rollout.app.clone(), id: id.into() };
    let mut release = ReleaseSpec::new(run, Target::default(), image, vec!["migrate".to_owned()]);
    release.configuration = Some(configuration);
    assert_shows_none("a release command", &release);
}

#[test]
fn server_that_is_aborted_in_a_change_leaves_no_value_behind() {
    let start = server!().unlimited().variable("RUST_LOG", "trace").variable("RUST_BACKTRACE", "full");
    // Where the shell may, the kernel would write a core dump.
    let unlimited = ["sh", "-c", "ulimit -c unlimited 2>/dev/null; exec \"$@\"", "sh"];
    for time in 0..4 {
        let mut server = start.clone().through(unlimited).run();
        let limits = fs::read_to_string(format!("/proc/{}/limits", server.pid())).unwrap();
        let limit = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
        assert_eq!(limit.split_whitespace().nth(4), Some("0"), "{limit}");
        let name = format!("api-{time}");
        let app = server.app_with(&name, json!({ "settle": "0s" }));
        let calls: Vec<_> = (0..8)
            .map(|number| {
                let set = json!({ "set": { "MODE": format!("{MARKER}-{number}") }, "staged": true });
                let call = server.manage("PATCH", &format!("{}/config", app.path)).json(&set);
                let address = server.address;
                thread::spawn(move || while Connection::open(address).and_then(|mut open| open.send(&call)).is_ok() {})
            })
            .collect();
        // Deploys have the values in hand as well.
        server.post(&app, &image("v2")).expect(202);
        server.signal("ABRT");
        let status = server.exit_status();
        assert_eq!((status.signal(), status.core_dumped()), (Some(SIGABRT), false));
        calls.into_iter().for_each(|call| call.join().unwrap());
        assert!(server.log().contains("DEBUG"));
        assert_absent("the log", &server.log());
    }
    for file in fs::read_dir(start.directory()).unwrap().map(|file| file.unwrap().path()).filter(|path| path.is_file())
    {
        assert_absent(&file.display().to_string(), &String::from_utf8_lossy(&fs::read(&file).unwrap()));
    }
}
