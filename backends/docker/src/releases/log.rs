//! The log of a release command, in parts.
//!
//! The engine keeps the last 5 to 10 MB of a log, in which each line has its time and stream: once 10 MB are full, it drops the
//! first half. From then on bytes are counted from the oldest one that is left, so that a reader who follows such a log misses
//! what is written until it is as long again. Each part is read from the log's beginning, as the engine knows no other place.

use http::Method;
use http_body_util::BodyExt;

use crate::{
    engine::{Called, Engine, in_path},
    error::Failure,
    log_pieces::LogPieces,
    rules::diagnostics,
};

/// The largest part of a log that one call returns.
const PART_MAX: usize = 64 * 1024;

/// Returns the last lines of a container's log, or none if it cannot be read.
pub(super) async fn last_lines(engine: &Engine, container: &str) -> Vec<String> {
    let path = format!("/containers/{}/logs?stdout=true&stderr=true&tail=50", in_path(container));
    match engine.bytes(Method::GET, &path, None).await {
        Ok(bytes) => diagnostics::log_lines(&bytes, false),
        Err(failure) => {
            let error = rollhook_core::error::chain(&failure);
            tracing::debug!(container, error, "reading the log of a release command failed");
            Vec::new()
        }
    }
}

/// Returns a part of a container's log from this byte on; `None` if there is no such container.
pub(super) async fn part(engine: &Engine, container: &str, from: u64) -> Called<Option<Vec<u8>>> {
    let path = format!("/containers/{}/logs?stdout=true&stderr=true", in_path(container));
    let answer = match engine.open(Method::GET, &path, None, None).await {
        Err(failure) if failure.is_not_found() => return Ok(None),
        answer => answer?,
    };
    let (mut body, mut part) = (answer.into_body(), Part::from(from));
    while !part.is_full() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| Failure::Broken(error.into()))?;
        if let Some(bytes) = frame.data_ref() {
            part.take(bytes);
        }
    }
    Ok(Some(part.text))
}

/// A part of a log that the engine sends in pieces.
struct Part {
    /// The bytes of the log before the part that are yet to come.
    skipped: u64,
    text: Vec<u8>,
    pieces: LogPieces,
}

impl Part {
    fn from(skipped: u64) -> Self {
        Self { skipped, text: Vec::new(), pieces: LogPieces::default() }
    }

    fn is_full(&self) -> bool {
        self.text.len() >= PART_MAX
    }

    fn take(&mut self, bytes: &[u8]) {
        let Self { skipped, text, pieces } = self;
        pieces.take(bytes, |piece| {
            let before = usize::try_from(*skipped).unwrap_or(usize::MAX).min(piece.len());
            *skipped = skipped.saturating_sub(piece.len().try_into().unwrap_or(u64::MAX));
            let kept = piece.get(before..).unwrap_or_default();
            text.extend_from_slice(kept.get(..PART_MAX - text.len()).unwrap_or(kept));
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces(texts: &[&str]) -> Vec<u8> {
        let piece =
            |text: &&str| [&[1, 0, 0, 0], &u32::try_from(text.len()).unwrap().to_be_bytes(), text.as_bytes()].concat();
        texts.iter().flat_map(piece).collect()
    }

    #[test]
    fn log_is_complete_from_any_byte_on_however_it_arrives() {
        let sent = pieces(&["one\n", "", "two\n", "three"]);
        for from in 0..=16 {
            for size in 1..=sent.len() {
                let mut part = Part::from(from);
                sent.chunks(size).for_each(|bytes| part.take(bytes));
                let expected = "one\ntwo\nthree".get(usize::try_from(from).unwrap()..).unwrap_or_default();
                assert_eq!(String::from_utf8(part.text).unwrap(), expected, "from {from}, {size} bytes at a time");
            }
        }
    }

    #[test]
    fn part_is_bounded_and_the_next_one_goes_on_behind_it() {
        let log = "0123456789".repeat(PART_MAX / 8);
        let sent = pieces(&[&log[..7], &log[7..]]);
        let (mut read, mut from) = (String::new(), 0);
        for _ in 0..3 {
            let mut part = Part::from(from);
            sent.chunks(1000).for_each(|bytes| part.take(bytes));
            assert!(part.text.len() <= PART_MAX);
            read.push_str(&String::from_utf8(part.text).unwrap());
            from = read.len().try_into().unwrap();
        }
        assert!(read == log, "{} of {} bytes", read.len(), log.len());
    }
}
