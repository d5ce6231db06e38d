//! The progress of a build by BuildKit, as the engine hands it on: pieces of protobuf with the steps that changed and the
//! output of some.

use std::collections::HashMap;

use prost::Message;
use rollhook_command::Log;

/// The most steps that are shown.
const STEPS_MAX: usize = 10_000;
/// The longest name of a step, in characters.
const NAME_MAX: usize = 1000;
/// The longest part of a line that waits for its end.
const OPEN_MAX: usize = 4 << 10;

/// A piece of progress; other fields are skipped.
#[derive(Clone, PartialEq, Message)]
struct Progress {
    #[prost(message, repeated, tag = "1")]
    vertices: Vec<Vertex>,
    #[prost(message, repeated, tag = "3")]
    logs: Vec<Output>,
}

/// The state of a step. Texts are bytes, as one that is no UTF-8 would make the rest unreadable.
#[derive(Clone, PartialEq, Message)]
struct Vertex {
    #[prost(string, tag = "1")]
    digest: String,
    #[prost(bytes = "vec", tag = "3")]
    name: Vec<u8>,
    #[prost(bool, tag = "4")]
    cached: bool,
    #[prost(message, optional, tag = "5")]
    started: Option<Time>,
    #[prost(message, optional, tag = "6")]
    completed: Option<Time>,
    #[prost(bytes = "vec", tag = "7")]
    error: Vec<u8>,
}

/// A time, of which only the presence is read.
#[derive(Clone, PartialEq, Message)]
struct Time {}

/// Some output of a step.
#[derive(Clone, PartialEq, Message)]
struct Output {
    #[prost(string, tag = "1")]
    vertex: String,
    #[prost(bytes = "vec", tag = "4")]
    text: Vec<u8>,
}

/// The steps of a build so far.
#[derive(Debug, Default)]
pub(crate) struct Trace {
    steps: HashMap<String, Step>,
    failed: Option<Failed>,
}

#[derive(Debug, Default)]
struct Step {
    is_shown: bool,
    is_cached: bool,
    /// The start of a line.
    open: Vec<u8>,
}

/// The step that failed.
#[derive(Debug)]
struct Failed {
    name: String,
    error: String,
}

impl Trace {
    /// Reads a piece of progress and writes it to the log; what cannot be read is skipped.
    pub(crate) fn take(&mut self, piece: &[u8], log: &mut Log) {
        let Ok(progress) = Progress::decode(piece) else { return };
        for vertex in &progress.vertices {
            let is_begun = vertex.started.is_some() || vertex.cached || !vertex.error.is_empty();
            if let Some(step) = self.step(&vertex.digest).filter(|step| is_begun && !step.is_shown) {
                step.is_shown = true;
                log.write(format!("{}\n", line(&vertex.name)).as_bytes());
            }
        }
        for output in &progress.logs {
            if let Some(step) = self.step(&output.vertex) {
                step.write(&output.text, log);
            }
        }
        for vertex in progress.vertices {
            self.end(&vertex, log);
        }
    }

    /// Writes how a step ended, if it did.
    fn end(&mut self, vertex: &Vertex, log: &mut Log) {
        let Some(step) = self.step(&vertex.digest) else { return };
        if vertex.completed.is_some() || !vertex.error.is_empty() {
            step.flush(log);
        }
        if vertex.cached && !step.is_cached {
            step.is_cached = true;
            log.write(b"CACHED\n");
        }
        let error = line(&vertex.error);
        // A step that another one's failure ended says only that.
        if !error.is_empty() && !error.contains("context canceled") && self.failed.is_none() {
            log.write(format!("ERROR: {error}\n").as_bytes());
            self.failed = Some(Failed { name: line(&vertex.name), error });
        }
    }

    fn step(&mut self, digest: &str) -> Option<&mut Step> {
        if self.steps.len() >= STEPS_MAX && !self.steps.contains_key(digest) {
            return None;
        }
        Some(self.steps.entry(digest.to_owned()).or_default())
    }

    /// Writes what is left of the output.
    pub(crate) fn finish(&mut self, log: &mut Log) {
        self.steps.values_mut().for_each(|step| step.flush(log));
    }

    /// Whether an error that ends the build is that of a step, which is in the log.
    pub(crate) fn has_shown(&self, error: &str) -> bool {
        self.failed.as_ref().is_some_and(|failed| line(error.as_bytes()).contains(&failed.error))
    }

    /// Returns the step that failed, such as `2/5`, or `builder 2/5` if its stage has a name.
    pub(crate) fn failed(&self) -> Option<&str> {
        let (place, _) = self.failed.as_ref()?.name.strip_prefix('[')?.split_once(']')?;
        let unnamed = place.split_once(' ').filter(|(stage, _)| stage.starts_with("stage-"));
        place.contains('/').then(|| unnamed.map_or(place, |(_, step)| step))
    }
}

impl Step {
    fn write(&mut self, text: &[u8], log: &mut Log) {
        for piece in text.split_inclusive(|byte| *byte == b'\n') {
            self.open.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.open.len() > OPEN_MAX {
                log.write(&std::mem::take(&mut self.open));
            }
        }
    }

    fn flush(&mut self, log: &mut Log) {
        if !self.open.is_empty() {
            self.open.push(b'\n');
            log.write(&std::mem::take(&mut self.open));
        }
    }
}

/// Returns a text as one line.
fn line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.trim().chars().take(NAME_MAX).map(|letter| if letter.is_control() { ' ' } else { letter }).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use base64::{Engine as _, prelude::BASE64_STANDARD};

    use super::*;

    fn vertex(digest: &str, name: &str) -> Vertex {
        Vertex { digest: digest.to_owned(), name: name.into(), ..Vertex::default() }
    }

    fn started(digest: &str, name: &str) -> Vertex {
        Vertex { started: Some(Time {}), ..vertex(digest, name) }
    }

    fn wrote(digest: &str, text: &str) -> Output {
        Output { vertex: digest.to_owned(), text: text.into() }
    }

    fn piece(vertices: Vec<Vertex>, logs: Vec<Output>) -> Vec<u8> {
        Progress { vertices, logs }.encode_to_vec()
    }

    /// Returns the frame of a step that ended with this error, after this output.
    pub(crate) fn failed(name: &str, output: &str, error: &str) -> String {
        let vertex = Vertex { completed: Some(Time {}), error: error.into(), ..started("a", name) };
        let bytes = BASE64_STANDARD.encode(piece(vec![vertex], vec![wrote("a", output)]));
        format!("{{\"id\":\"moby.buildkit.trace\",\"aux\":\"{bytes}\"}}\n")
    }

    fn shown(pieces: &[Vec<u8>]) -> (Trace, String) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut log = Log::create(&path).unwrap();
        let mut trace = Trace::default();
        for piece in pieces {
            trace.take(piece, &mut log);
        }
        trace.finish(&mut log);
        (trace, std::fs::read_to_string(path).unwrap())
    }

    #[test]
    fn steps_are_shown_once_with_their_output() {
        let ended = |digest: &str| Vertex { completed: Some(Time {}), ..started(digest, "[1/2] FROM a") };
        let cached = Vertex { cached: true, completed: Some(Time {}), ..started("c", "[2/2] COPY a /a") };
        let (trace, log) = shown(&[
            piece(vec![vertex("a", "[1/2] FROM a"), vertex("c", "[2/2] COPY a /a")], vec![]),
            piece(vec![started("a", "[1/2] FROM a")], vec![]),
            piece(vec![ended("a"), started("a", "[1/2] FROM a"), ended("a")], vec![]),
            piece(vec![started("b", "RUN <<EOF\nmake")], vec![wrote("b", "one\ntw")]),
            piece(vec![], vec![wrote("b", "o\nthree")]),
            piece(vec![ended("b"), cached.clone(), cached], vec![]),
        ]);
        assert_eq!(log, "[1/2] FROM a\nRUN <<EOF make\none\ntwo\n[2/2] COPY a /a\nthree\nCACHED\n");
        assert_eq!(trace.failed(), None);
    }

    #[test]
    fn failed_step_is_the_one_that_was_not_cancelled() {
        let error = |digest: &str, name: &str, error: &str| Vertex {
            completed: Some(Time {}),
            error: error.into(),
            ..started(digest, name)
        };
        let (trace, log) = shown(&[
            piece(vec![error("a", "[web 2/3] RUN npm ci", "context canceled")], vec![]),
            piece(vec![error("b", "[api 2/5] RUN make", "exit code: 3")], vec![wrote("b", "no rule")]),
            piece(vec![error("b", "[api 2/5] RUN make", "exit code: 3")], vec![]),
        ]);
        assert_eq!(trace.failed(), Some("api 2/5"));
        assert_eq!(log, "[web 2/3] RUN npm ci\n[api 2/5] RUN make\nno rule\nERROR: exit code: 3\n");
        assert!(trace.has_shown("failed to solve: exit code: 3") && !trace.has_shown("lease lost"));
        let of = |name: &str| shown(&[piece(vec![error("a", name, "no")], vec![])]).0.failed().map(str::to_owned);
        assert_eq!(of("[stage-0 2/2] RUN make").as_deref(), Some("2/2"));
        assert_eq!(of("[internal] load metadata for a"), None);
    }

    #[test]
    fn malformed_progress_is_skipped() {
        let good = piece(vec![started("a", "[1/1] FROM a")], vec![wrote("a", "kept")]);
        let mut no_text = started("b", "");
        no_text.name = vec![0xff, b'x'];
        let unknown = [good.clone(), vec![0x22, 1, 0, 0xf8, 0x3f, 1]].concat();
        let pieces = [vec![0xff; 9], good[..good.len() - 1].to_vec(), vec![], unknown, piece(vec![no_text], vec![])];
        assert_eq!(shown(&pieces).1, "[1/1] FROM a\n\u{fffd}x\nkept\n");
    }

    #[test]
    fn what_is_kept_of_steps_is_bounded() {
        let many = (0..STEPS_MAX + 10).map(|digest| vertex(&digest.to_string(), "x")).collect();
        let long = wrote("0", &"x".repeat(3 * OPEN_MAX));
        let endless = started("1", &"n".repeat(2 * NAME_MAX));
        let (trace, log) = shown(&[piece(many, vec![long.clone(), long]), piece(vec![endless], vec![])]);
        assert_eq!(trace.steps.len(), STEPS_MAX);
        assert_eq!(log.len(), 6 * OPEN_MAX + NAME_MAX + 1);
    }
}
