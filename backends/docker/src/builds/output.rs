//! The engine's answer to a build: a line of JSON for each piece of output.

use base64::{Engine as _, prelude::BASE64_STANDARD};
use rollhook_command::Log;
use serde_json::Value;

use super::trace::Trace;
use crate::error::shortened;

/// The longest line that is read. BuildKit puts 1 MiB of a step's output and more into one.
const LINE_MAX: usize = 8 << 20;
/// The exit code of a process that was killed, as of one that runs out of memory.
const KILLED: i64 = 128 + 9;
/// The longest quotation of the engine, in characters.
const QUOTED: usize = 300;

/// The output of a build, so far.
#[derive(Debug, Default)]
pub(crate) struct Output {
    open: Vec<u8>,
    /// The step that runs, as in `Step 2/5`.
    step: Option<String>,
    /// The image's id, once there is one.
    pub(crate) image: Option<String>,
    /// The progress, of a build by BuildKit.
    buildkit: Option<Trace>,
    /// Why an image that may be needed is not on the machine.
    missing: Option<String>,
}

impl Output {
    /// Returns the output of a build by BuildKit. `missing` says why an image is not on the machine.
    pub(crate) fn of_buildkit(missing: Option<String>) -> Self {
        Self { buildkit: Some(Trace::default()), missing, ..Self::default() }
    }

    /// Reads a part of the answer, and writes what it says to the log.
    ///
    /// # Errors
    /// The sentence that says why the build failed.
    pub(crate) fn take(&mut self, bytes: &[u8], log: &mut Log) -> Result<(), String> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.open.len() + piece.len() > LINE_MAX {
                return Err("Docker's answer cannot be read: a line is longer than 8 MiB.".to_owned());
            }
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.open);
                if let Ok(event) = serde_json::from_slice(&line) {
                    self.event(&event, log)?;
                }
            }
        }
        Ok(())
    }

    fn event(&mut self, event: &Value, log: &mut Log) -> Result<(), String> {
        if let Some(trace) = &mut self.buildkit
            && event["id"] == "moby.buildkit.trace"
        {
            if let Some(piece) = event["aux"].as_str().and_then(|piece| BASE64_STANDARD.decode(piece).ok()) {
                trace.take(&piece, log);
            }
            return Ok(());
        }
        if let Some(text) = event["stream"].as_str() {
            log.write(text.as_bytes());
            let step = text.strip_prefix("Step ").and_then(|rest| rest.split_once(" : "));
            self.step = step.map(|(step, _)| step.to_owned()).or(self.step.take());
        }
        if let Some(id) = event["aux"]["ID"].as_str() {
            self.image = Some(id.to_owned());
        }
        // The bytes of a layer that is pulled would fill the log.
        let is_progress = event["progressDetail"].as_object().is_some_and(|detail| !detail.is_empty());
        if let Some(status) = event["status"].as_str().filter(|_| !is_progress) {
            let id = event["id"].as_str().map(|id| format!("{id}: ")).unwrap_or_default();
            log.write(format!("{id}{status}\n").as_bytes());
        }
        let Some(error) = event["error"].as_str() else { return Ok(()) };
        let Some(trace) = &mut self.buildkit else {
            log.write(format!("{error}\n").as_bytes());
            return Err(self.failure(error, event["errorDetail"]["code"].as_i64()));
        };
        trace.finish(log);
        if !trace.has_shown(error) {
            log.write(format!("{error}\n").as_bytes());
        }
        Err(buildkit_failure(error, trace.failed(), self.missing.as_deref()))
    }

    fn failure(&self, error: &str, code: Option<i64>) -> String {
        let step = self.step.as_deref().map_or_else(|| "A step".to_owned(), |step| format!("Step {step}"));
        match code {
            Some(KILLED) => {
                format!(
                    "{step} of the Dockerfile was killed; it may need more memory than a build gets (--build-memory)."
                )
            }
            Some(code) => format!("{step} of the Dockerfile failed with exit code {code}; see the build's log."),
            None => {
                let told = quoted(error);
                let needs =
                    if told.to_lowercase().contains("buildkit") { " rollhook built it without BuildKit." } else { "" };
                format!("Docker cannot build the image: {told}.{needs}")
            }
        }
    }
}

/// Returns the sentence for an error of BuildKit, which has the exit code in its text.
fn buildkit_failure(error: &str, step: Option<&str>, missing: Option<&str>) -> String {
    let has_no_session = error.contains("no active session");
    if let Some(missing) = missing.filter(|_| has_no_session || error.contains("resolve source metadata")) {
        return format!("Docker cannot build the image: {missing}.");
    }
    if has_no_session {
        return "Docker cannot build the image: BuildKit misses an image that is not on the machine (docker pull), or a secret \
                or an ssh key, which only Docker's client lends it."
            .to_owned();
    }
    // The files are read once, and an old engine's BuildKit has read them before it hands over to a newer syntax.
    if error.contains("build-context-") && error.contains("context not found") {
        return "Docker cannot build the image: BuildKit of this Docker cannot hand the files on to the syntax that the \
                Dockerfile names. Leave out the line # syntax=, or upgrade Docker."
            .to_owned();
    }
    let code = error.rsplit_once("exit code: ").and_then(|(_, code)| code.trim().parse().ok());
    let step = step.map_or_else(|| "A step".to_owned(), |step| format!("Step {step}"));
    match code {
        Some(KILLED) => format!("{step} of the Dockerfile was killed; the machine may have run out of memory."),
        Some(code) => format!("{step} of the Dockerfile failed with exit code {code}; see the build's log."),
        None => format!("Docker cannot build the image: {}.", quoted(error)),
    }
}

fn quoted(error: &str) -> String {
    shortened(error).trim_end_matches('.').chars().take(QUOTED).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::trace::tests::failed, *};

    fn read(lines: &str) -> (Result<(), String>, Output, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Log::create(&path).unwrap();
        let mut output = if lines.contains("buildkit.trace") { Output::of_buildkit(None) } else { Output::default() };
        // Split in the middle of a line, as the connection may.
        let (first, second) = lines.as_bytes().split_at(lines.len() / 2);
        let ended = output.take(first, &mut log).and_then(|()| output.take(second, &mut log));
        let written = std::fs::read_to_string(&path).unwrap();
        (ended, output, written)
    }

    #[test]
    fn log_has_the_output_and_no_progress_of_bytes() {
        let (ended, output, log) = read(concat!(
            "{\"stream\":\"Step 1/2 : FROM a\"}\n{\"stream\":\"\\n\"}\n",
            "{\"status\":\"Pulling fs layer\",\"progressDetail\":{},\"id\":\"c1\"}\n",
            "{\"status\":\"Downloading\",\"progressDetail\":{\"current\":1,\"total\":2},\"id\":\"c1\"}\n",
            "{\"aux\":{\"ID\":\"sha256:aa\"}}\n{\"stream\":\"Successfully built aa\\n\"}\n",
        ));
        assert_eq!((ended, output.image.as_deref()), (Ok(()), Some("sha256:aa")));
        assert_eq!(log, "Step 1/2 : FROM a\nc1: Pulling fs layer\nSuccessfully built aa\n");
    }

    #[test]
    fn failure_names_the_step_and_the_cause() {
        let step = "{\"stream\":\"Step 2/3 : RUN make\"}\n";
        let failed = |rest: &str| read(&format!("{step}{rest}\n")).0.unwrap_err();
        let code = |code: i64| format!("{{\"errorDetail\":{{\"code\":{code},\"message\":\"m\"}},\"error\":\"m\"}}");
        assert_eq!(failed(&code(3)), "Step 2/3 of the Dockerfile failed with exit code 3; see the build's log.");
        assert!(failed(&code(137)).contains("--build-memory"));
        let told = failed("{\"error\":\"the --mount option requires BuildKit.\"}");
        assert!(told.contains("--mount") && told.ends_with("rollhook built it without BuildKit."), "{told}");
        assert_eq!(
            read("{\"error\":\"pull access denied\"}\n").0.unwrap_err(),
            "Docker cannot build the image: pull access denied."
        );
    }

    #[test]
    fn buildkits_failure_names_the_step_and_the_cause() {
        let failed = |code: i32| {
            let error = format!("process \"/bin/sh -c make\" did not complete successfully: exit code: {code}");
            let line = json!({ "errorDetail": { "message": error }, "error": format!("failed to solve: {error}") });
            let (ended, _, log) = read(&format!("{}{line}\n", failed("[api 2/5] RUN make", "no rule", &error)));
            assert_eq!(log, format!("[api 2/5] RUN make\nno rule\nERROR: {error}\n"), "the error is there once");
            ended.unwrap_err()
        };
        assert_eq!(failed(3), "Step api 2/5 of the Dockerfile failed with exit code 3; see the build's log.");
        assert!(failed(137).contains("killed"));
        let (ended, output, log) = read(concat!(
            "{\"id\":\"moby.buildkit.trace\",\"aux\":\"?\"}\n{\"id\":\"moby.buildkit.trace\",\"aux\":1}\n",
            "{\"id\":\"moby.image.id\",\"aux\":{\"ID\":\"sha256:aa\"}}\n{\"error\":\"lease lost\"}\n",
        ));
        assert_eq!(output.image.as_deref(), Some("sha256:aa"));
        assert_eq!(
            (ended.unwrap_err().as_str(), log.as_str()),
            ("Docker cannot build the image: lease lost.", "lease lost\n")
        );
        for error in ["failed to solve: no active sessions", "a:v1: failed to resolve source metadata for a:v1: denied"]
        {
            let unpulled = buildkit_failure(error, None, Some("a:v1 cannot be pulled: no"));
            assert_eq!(unpulled, "Docker cannot build the image: a:v1 cannot be pulled: no.");
        }
        assert!(buildkit_failure("no active sessions", Some("2/2"), None).contains("a secret"));
        let syntax = "failed to load cache key: Get \"http://build-context-k6n2\": context not found";
        assert!(buildkit_failure(syntax, None, None).contains("# syntax="));
    }
}
