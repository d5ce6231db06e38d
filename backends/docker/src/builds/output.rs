//! The engine's answer to a build: a line of JSON for each piece of output.

use rollhook_command::Log;
use serde_json::Value;

/// The longest line that is read.
const LINE_MAX: usize = 1 << 20;
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
}

impl Output {
    /// Reads a part of the answer, and writes what it says to the log.
    ///
    /// # Errors
    /// The sentence that says why the build failed.
    pub(crate) fn take(&mut self, bytes: &[u8], log: &mut Log) -> Result<(), String> {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.open.len() + piece.len() > LINE_MAX {
                return Err("Docker's answer cannot be read: a line is longer than 1 MiB.".to_owned());
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
        log.write(format!("{error}\n").as_bytes());
        Err(self.failure(error, event["errorDetail"]["code"].as_i64()))
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
                let told: String = error.trim().trim_end_matches('.').chars().take(QUOTED).collect();
                let needs =
                    if told.to_lowercase().contains("buildkit") { " rollhook builds without BuildKit." } else { "" };
                format!("Docker cannot build the image: {told}.{needs}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> (Result<(), String>, Output, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Log::create(&path).unwrap();
        let mut output = Output::default();
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
        assert!(told.contains("--mount") && told.ends_with("rollhook builds without BuildKit."), "{told}");
        assert_eq!(
            read("{\"error\":\"pull access denied\"}\n").0.unwrap_err(),
            "Docker cannot build the image: pull access denied."
        );
    }
}
