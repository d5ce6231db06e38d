//! A build's log: the output of the builder as the node keeps it, and its kept end once the pod is gone.

use std::pin::pin;

use futures_util::AsyncReadExt;
use k8s_openapi::api::core::v1::Pod;
use kube::{Error as KubeError, api::LogParams};
use rollhook_core::{Error, Result, text::escaped};

use super::{
    api::Namespace,
    observe::{CONTAINER, container},
};
use crate::{
    error::classify,
    rules::{diagnostics, pods},
};

/// The largest part that is read at once.
const PART: u64 = 64 << 10;
/// The largest log that is read. Builders write less, and nodes keep less.
const LARGEST: u64 = 64 << 20;

/// A part of the log from this byte on; the preamble comes first, then the builder's own log.
pub(super) async fn part(namespace: &Namespace, preamble: &str, pod: Option<&Pod>, from: u64) -> Result<Vec<u8>> {
    let before = preamble.as_bytes();
    let length = u64::try_from(before.len()).unwrap_or(u64::MAX);
    let mut part = usize::try_from(from).ok().and_then(|from| before.get(from..)).unwrap_or_default().to_vec();
    let skip = from.saturating_sub(length);
    if let Some(pod) = pod.filter(|pod| has_begun(pod) && skip < LARGEST) {
        part.extend(read(namespace, pod, skip).await?);
    }
    Ok(part)
}

/// The last lines of the log, oldest first; none if they cannot be read.
pub(super) async fn tail(namespace: &Namespace, pod: Option<&Pod>) -> Vec<String> {
    let Some(pod) = pod.filter(|pod| has_begun(pod)) else { return Vec::new() };
    match namespace.cluster.log(&namespace.name, pod, CONTAINER, false).await {
        Ok(text) => bounded(diagnostics::log_lines(&text)),
        Err(error) => {
            tracing::debug!(pod = pods::name(pod), error = %error, "reading the last lines of a build's log failed");
            Vec::new()
        }
    }
}

/// The most bytes of JSON for the last lines of a log. They are written on the Job, some twice, and the API server
/// takes at most 256 KiB of annotations.
const TAIL_JSON: usize = 64 << 10;

/// The last lines, as many as fit on a Job, with control characters escaped.
fn bounded(lines: Vec<String>) -> Vec<String> {
    let mut free = TAIL_JSON;
    let shown = lines.into_iter().rev().map(|line| {
        match line.chars().any(|character| character != '\t' && character.is_control()) {
            true => line.split('\t').map(escaped).collect::<Vec<_>>().join("\t"),
            false => line,
        }
    });
    let mut kept: Vec<String> = shown
        .take_while(|line| {
            // As it is written: with quotation marks and a comma.
            let size = serde_json::to_string(line).map_or(usize::MAX, |json| json.len() + 1);
            let fits = size <= free;
            free = free.saturating_sub(size);
            fits
        })
        .collect();
    kept.reverse();
    kept
}

/// Whether the container of the pod has run.
fn has_begun(pod: &Pod) -> bool {
    let state = container(pod).and_then(|status| status.state.as_ref());
    state.is_some_and(|state| state.running.is_some() || state.terminated.is_some())
}

/// Reads the log from this byte on. The API gives a log from its beginning: the bytes before are read and dropped.
async fn read(namespace: &Namespace, pod: &Pod, skip: u64) -> Result<Vec<u8>> {
    let parameters = LogParams {
        container: Some(CONTAINER.to_owned()),
        limit_bytes: i64::try_from(skip + PART).ok(),
        ..LogParams::default()
    };
    let stream = match namespace.cluster.api::<Pod>(&namespace.name).log_stream(pods::name(pod), &parameters).await {
        Ok(stream) => stream,
        // The pod or its container is gone, or has not begun.
        Err(KubeError::Api(status)) if matches!(status.code, 400 | 404) => return Ok(Vec::new()),
        Err(error) => return Err(classify(error)),
    };
    let broken = |error| Error::unavailable("a build's log cannot be read to its end", error);
    let mut stream = pin!(stream);
    let mut buffer = vec![0; 16 << 10];
    let (mut left, mut part) = (skip, Vec::new());
    loop {
        let read = stream.read(&mut buffer).await.map_err(broken)?;
        if read == 0 {
            return Ok(part);
        }
        let dropped = usize::try_from(left).unwrap_or(usize::MAX).min(read);
        left -= u64::try_from(dropped).unwrap_or(left);
        part.extend_from_slice(&buffer[dropped..read]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn last_lines_fit_on_a_job_whatever_they_contain() {
        for rubbish in ["\u{1}", "\u{1b}", "\"", "\\", "\u{1f600}", "\t"] {
            let lines = bounded(diagnostics::log_lines(&format!("{}\n", rubbish.repeat(500)).repeat(60)));
            let written = serde_json::to_string(&lines).unwrap();
            assert!(!lines.is_empty() && written.len() <= TAIL_JSON + 2, "{rubbish:?}: {}", written.len());
        }
    }

    #[test]
    fn newest_lines_are_kept_with_control_characters_escaped() {
        let mut lines = vec!["\u{0}".repeat(500); 49];
        lines.push("\tit is \u{1b}[31mbroken".to_owned());
        let kept = bounded(lines);
        assert_eq!(kept.last().unwrap(), "\tit is \\u{1b}[31mbroken");
        assert!(kept.len() < 50 && kept.iter().all(|line| !line.contains('\u{0}')));
        assert_eq!(bounded(vec!["a\tb".to_owned(), String::new()]), ["a\tb", ""]);
    }
}
