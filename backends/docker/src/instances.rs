//! The logs of containers, as the engine keeps them: all lives of a container in one.

use async_trait::async_trait;
use http::Method;
use http_body_util::BodyExt;
use jiff::Timestamp;
use rollhook_core::{
    Error, Result,
    app::App,
    instance::InstanceName,
    ports::{InstanceLogPart, InstanceLogs, LogQuery, LogReader, TargetInstance},
};
use serde::Deserialize;

use crate::{
    DockerMachine,
    engine::{Called, Engine, in_path},
    error::Failure,
    log_pieces::LogPieces,
    rules::{
        container::{Container, Process},
        instances,
    },
    settings::Workload,
    target,
};

/// How far back lines of a life before are looked for, in nanoseconds, as the engine cannot read backwards from a time.
const BACK: [i64; 3] = [60_000_000_000, 3_600_000_000_000, i64::MAX];

#[async_trait]
impl InstanceLogs for DockerMachine {
    async fn instances(&self, app: &App) -> Result<Vec<TargetInstance>> {
        self.in_turn(&app.id.namespace, |engine| {
            Box::pin(async move {
                let seen = target::read(&engine, &workload(app)?).await?;
                Ok(instances::of(&seen, app.uid))
            })
        })
        .await
    }

    async fn read(&self, app: &App, instance: &InstanceName, query: &LogQuery) -> Result<Option<InstanceLogPart>> {
        self.in_turn(&app.id.namespace, |engine| {
            Box::pin(async move {
                let seen = target::read(&engine, &workload(app)?).await?;
                let Some(container) = instances::named(&seen, instance) else { return Ok(None) };
                Ok(Some(read(&engine, container, query).await?))
            })
        })
        .await
    }
}

fn workload(app: &App) -> Result<Workload> {
    Workload::deserialize(&app.target.settings)
        .map_err(|error| Error::corrupt(format!("the target of app {} is not a container", app.id), error))
}

async fn read(engine: &Engine, container: &Container, query: &LogQuery) -> Called<InstanceLogPart> {
    let begin = instances::life_begin(container).and_then(nanos);
    let since = LogReader::since(query);
    if !query.previous {
        // All lines behind a position, also of lives that have ended since.
        return part(engine, container, query, (since.or(begin), None)).await;
    }
    let Some(begin) = begin else { return Ok(LogReader::new(query, time).finish(true)) };
    if since.is_some() {
        return part(engine, container, query, (since, Some(begin))).await;
    }
    let mut found = LogReader::new(query, time).finish(true);
    for back in BACK {
        let since = begin.saturating_sub(back).max(0);
        found = part(engine, container, query, (Some(since), Some(begin))).await?;
        if found.lines.len() >= query.lines || since == 0 {
            break;
        }
    }
    Ok(found)
}

/// Reads the lines from the first time on, up to the second.
async fn part(
    engine: &Engine,
    container: &Container,
    query: &LogQuery,
    (since, until): (Option<i64>, Option<i64>),
) -> Called<InstanceLogPart> {
    let mut path = format!("/containers/{}/logs?stdout=true&stderr=true&timestamps=true", in_path(container.id()));
    if query.after.is_none() && until.is_none() {
        path.push_str(&format!("&tail={}", query.lines));
    }
    for (name, time) in [("since", since), ("until", until)] {
        if let Some(time) = time.filter(|time| *time > 0) {
            path.push_str(&format!("&{name}={}.{:09}", time / 1_000_000_000, time % 1_000_000_000));
        }
    }
    let mut reader = LogReader::new(query, time);
    let answer = match engine.open(Method::GET, &path, None, None).await {
        Ok(answer) => answer,
        Err(failure) => match failure.refusal() {
            _ if failure.is_not_found() => return Ok(reader.finish(true)),
            // Such as a log driver that cannot be read.
            Some(words) => {
                reader.take(format!("[rollhook: Docker does not show the log: {words}]\n").as_bytes());
                return Ok(reader.finish(true));
            }
            None => return Err(failure),
        },
    };
    let (mut body, mut pieces) = (answer.into_body(), LogPieces::default());
    let has_terminal = container.object["Config"]["Tty"] == true;
    while !reader.is_full() {
        let Some(frame) = body.frame().await else { break };
        let frame = frame.map_err(|error| Failure::Broken(error.into()))?;
        match frame.data_ref() {
            Some(bytes) if has_terminal => reader.take(bytes),
            Some(bytes) => pieces.take(bytes, |text| reader.take(text)),
            None => {}
        }
    }
    Ok(reader.finish(until.is_some() || container.process() != Process::Running))
}

fn time(text: &str) -> Option<i64> {
    nanos(text.parse().ok()?)
}

fn nanos(time: Timestamp) -> Option<i64> {
    i64::try_from(time.as_nanosecond()).ok()
}
