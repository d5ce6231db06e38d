//! The logs of Jobs' pods as their nodes keep them, read in parts by all who follow them.

pub(crate) mod readers;
mod text;

use futures_util::{AsyncRead, AsyncReadExt, StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::{Error as KubeError, api::LogParams};
use rollhook_core::{Error, Result, ports::RunId, slots::Slots, text::escaped};

use self::readers::{Container, LogReaders, Pieces};
use crate::{
    client::Cluster,
    error::classify,
    rules::{diagnostics, jobs, pods},
};

/// The largest part of a log that is read from its beginning.
const PART: usize = 64 << 10;
/// The largest log that is read. Builders write 8 MiB.
const LARGEST: usize = 9 << 20;
/// The number of logs that are read from their beginning at once, and those of one environment.
const FROM_THE_BEGINNING: usize = 4;
const FROM_THE_BEGINNING_OF_ONE: usize = 1;

/// The logs that this process reads.
pub(crate) struct Logs {
    readers: LogReaders,
    /// The reads of logs for which no reader is left, in turns of the environments: each part is read from the log's beginning.
    others: Slots<String>,
}

impl Default for Logs {
    fn default() -> Self {
        Self {
            readers: LogReaders::default(),
            others: Slots::with_share(FROM_THE_BEGINNING, FROM_THE_BEGINNING_OF_ONE),
        }
    }
}

impl Logs {
    /// Notes that the Job of a run, or of a deploy's build, was seen to have ended.
    pub(crate) fn over(&self, of: impl Into<RunId>) {
        self.readers.over(of.into());
    }

    /// Returns a part of the log of a Job that is being read here, without a call of the cluster; `None` if it is not.
    pub(crate) async fn part_of_running(&self, of: impl Into<RunId>, from: u64) -> Result<Option<Vec<u8>>> {
        let Some(reader) = self.readers.reading(of.into()) else { return Ok(None) };
        let (mut part, skip) = split(&reader.preamble, from);
        let Some(read) = reader.part(skip).await? else { return Ok(None) };
        part.extend(read);
        Ok(Some(part))
    }

    /// Returns a part of the log from this byte on, in the turn of the environment of the deploy's app; the preamble comes
    /// first, then the container's own log.
    pub(crate) async fn part(
        &self,
        namespace: (&Cluster, &str),
        environment: &str,
        (of, pod, name): (RunId, Option<&Pod>, &str),
        preamble: &str,
        from: u64,
    ) -> Result<Vec<u8>> {
        let (mut part, skip) = split(preamble, from);
        let begun = pod.and_then(|pod| Some((pod, state(pod, name)?)));
        let Some((pod, container)) = begun.filter(|_| skip < LARGEST) else { return Ok(part) };
        let uid = pod.metadata.uid.as_deref().unwrap_or_default();
        let open = || pieces(namespace, (pod, name), container, LARGEST);
        let read = match self.readers.join((environment, of), (uid, container), preamble, open) {
            Some(reader) => reader.part(skip).await?,
            None => None,
        };
        part.extend(match read {
            Some(read) => read,
            None => self.read(namespace, environment, (pod, name), skip).await?,
        });
        Ok(part)
    }

    /// Reads a part of the log from its beginning: the bytes before are read and dropped.
    async fn read(
        &self,
        namespace: (&Cluster, &str),
        environment: &str,
        container: (&Pod, &str),
        skip: usize,
    ) -> Result<Vec<u8>> {
        let _turn = self.others.acquire(&environment.to_owned()).await;
        let mut pieces = pieces(namespace, container, Container::Ended, skip + PART);
        let (mut left, mut part) = (skip, Vec::new());
        while let Some(piece) = pieces.try_next().await? {
            let dropped = left.min(piece.len());
            left -= dropped;
            part.extend_from_slice(&piece[dropped..]);
        }
        Ok(part)
    }
}

/// Returns what a part from this byte on has of the preamble, and the byte of the container's log at which it goes on.
fn split(preamble: &str, from: u64) -> (Vec<u8>, usize) {
    let from = usize::try_from(from).unwrap_or(usize::MAX);
    let before = preamble.as_bytes().get(from..).unwrap_or_default();
    (before.to_vec(), from.saturating_sub(preamble.len()))
}

/// The last lines of the log, oldest first; none if they cannot be read.
pub(crate) async fn tail((cluster, namespace): (&Cluster, &str), pod: Option<&Pod>, container: &str) -> Vec<String> {
    let Some(pod) = pod.filter(|pod| state(pod, container).is_some()) else { return Vec::new() };
    match cluster.log(namespace, pod, container, false).await {
        Ok(text) => bounded(diagnostics::log_lines(&text)),
        Err(error) => {
            tracing::debug!(pod = pods::name(pod), error = %error, "reading the last lines of a log failed");
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
    let shown = lines.into_iter().rev().map(|line| escaped_line(&line));
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

/// The line with control characters escaped, and with its tabs as they are.
pub(crate) fn escaped_line(line: &str) -> String {
    line.split('\t').map(escaped).collect::<Vec<_>>().join("\t")
}

/// Returns the state of a container of a pod; `None` if it has not run.
fn state(pod: &Pod, container: &str) -> Option<Container> {
    let state = jobs::container(pod, container)?.state.as_ref()?;
    let running = state.running.as_ref().map(|_| Container::Running);
    running.or(state.terminated.as_ref().map(|_| Container::Ended))
}

/// Returns the log of the pod's container from its beginning, up to this length; of one that runs, also what it writes from
/// now on.
fn pieces(
    (cluster, namespace): (&Cluster, &str),
    (pod, name): (&Pod, &str),
    container: Container,
    most: usize,
) -> Pieces {
    let (pods, pod, name) = (cluster.api::<Pod>(namespace), pods::name(pod).to_owned(), name.to_owned());
    let opened = async move {
        let parameters = LogParams {
            container: Some(name),
            follow: container == Container::Running,
            limit_bytes: i64::try_from(most).ok(),
            ..LogParams::default()
        };
        match pods.log_stream(&pod, &parameters).await {
            Ok(log) => Ok(Some(Box::pin(log))),
            // The pod or its container is gone, or has not begun.
            Err(KubeError::Api(status)) if matches!(status.code, 400 | 404) => Ok(None),
            Err(error) => Err(classify(error)),
        }
    };
    stream::once(opened).map_ok(|log| stream::try_unfold(log, next_piece)).try_flatten().boxed()
}

async fn next_piece<L: AsyncRead + Unpin>(log: Option<L>) -> Result<Option<(Vec<u8>, Option<L>)>> {
    let Some(mut log) = log else { return Ok(None) };
    let mut piece = vec![0; 16 << 10];
    let broken = |error| Error::unavailable("a log cannot be read to its end", error);
    let length = log.read(&mut piece).await.map_err(broken)?;
    piece.truncate(length);
    Ok((length > 0).then_some((piece, Some(log))))
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
