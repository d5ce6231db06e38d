//! The history, and one entry of it, as people read them.

use rollhook_api::{Deploy, TakenFrom};
use rollhook_core::{
    deploy::Status,
    image::{Digest, ImageRef},
    text::escaped,
    time::Timestamp,
};

use crate::{
    table::{self, Cell, Colour, Column, Tint},
    when,
};

/// As wide as the longest revision, commit and trigger usually are, so that two histories line up.
const COLUMNS: [Column; 5] =
    [Column("#", 2), Column("IMAGE", 0), Column("COMMIT", 8), Column("TRIGGER", 9), Column("WHEN", 0)];
const MORE: [Column; 5] =
    [Column("STATUS", 0), Column("REASON", 0), Column("ACTOR", 0), Column("DIGEST", 0), Column("FROM", 0)];

/// The history as a table.
pub(crate) fn table(deploys: &[Deploy], now: Timestamp, colour: Colour) -> String {
    let rows: Vec<_> = deploys.iter().map(|deploy| row(deploy, &when::ago(deploy.created_at, now), &SHORT)).collect();
    table::render(&COLUMNS, &rows, colour)
}

/// The history with all columns, and times and commits in full.
pub(crate) fn wide(deploys: &[Deploy], colour: Colour) -> String {
    let columns: Vec<Column> = COLUMNS.iter().chain(&MORE).copied().collect();
    let rows: Vec<_> = deploys
        .iter()
        .map(|deploy| {
            let mut row = row(deploy, &when::absolute(deploy.created_at), &FULL);
            row.extend([
                Cell::new(deploy.status.as_str()),
                Cell::optional(deploy.reason.as_deref()),
                Cell::new(&deploy.actor),
                Cell::optional(deploy.digest.as_deref()),
                Cell::optional(deploy.from.as_ref().map(origin)),
            ]);
            row
        })
        .collect();
    table::render(&columns, &rows, colour)
}

/// How images and commits are written.
struct Words {
    image: fn(&str) -> String,
    commit: fn(&str) -> String,
}

const SHORT: Words = Words { image: short_image, commit: short_commit };
const FULL: Words = Words { image: str::to_owned, commit: str::to_owned };

fn row(deploy: &Deploy, when: &str, words: &Words) -> Vec<Cell> {
    let when = match mark(deploy) {
        Some(mark) => format!("{when} ({mark})"),
        None => when.to_owned(),
    };
    vec![
        Cell::new(deploy.revision.to_string()),
        Cell::optional(deploy.image.as_deref().map(words.image)),
        Cell::optional(deploy.commit.as_deref().map(words.commit)),
        Cell::new(deploy.trigger.as_str()),
        Cell::new(when).tinted(tint(deploy)),
    ]
}

/// What a person must know of an entry beside what it deployed; nothing for a good one that has been replaced.
pub(crate) fn mark(deploy: &Deploy) -> Option<String> {
    let word = match deploy.status {
        Status::Succeeded => return deploy.current.then(|| "current".to_owned()),
        Status::Queued => return Some("queued".to_owned()),
        Status::Building => return Some("building".to_owned()),
        Status::RollingOut => return Some("rolling out".to_owned()),
        Status::Failed => "failed",
        Status::Superseded => "superseded",
        Status::Cancelled => "cancelled",
    };
    Some(if deploy.on_cluster { format!("{word}, on cluster") } else { word.to_owned() })
}

/// What colour an entry's mark has.
pub(crate) fn tint(deploy: &Deploy) -> Option<Tint> {
    match deploy.status {
        Status::Succeeded => deploy.current.then_some(Tint::Good),
        Status::Queued | Status::Building | Status::RollingOut => Some(Tint::Busy),
        Status::Failed => Some(Tint::Bad),
        Status::Superseded | Status::Cancelled => deploy.on_cluster.then_some(Tint::Bad),
    }
}

/// A commit as people say it: seven digits of a full hash, and anything else as it is.
pub(crate) fn short_commit(commit: &str) -> String {
    let hash = matches!(commit.len(), 40 | 64) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if hash { commit[..7].to_owned() } else { commit.to_owned() }
}

/// An image as people say it: its tag without the digest, else the digest's first twelve digits.
pub(crate) fn short_image(image: &str) -> String {
    let Ok(parsed) = image.parse::<ImageRef>() else { return image.to_owned() };
    match (parsed.tag(), parsed.digest().map(Digest::as_str).and_then(|digest| digest.split_once(':'))) {
        (Some(tag), _) => format!("{}:{tag}", parsed.repository()),
        (None, Some((algorithm, hex))) => format!("{}@{algorithm}:{}", parsed.repository(), &hex[..12]),
        (None, None) => image.to_owned(),
    }
}

fn origin(from: &TakenFrom) -> String {
    match (&from.namespace, &from.app) {
        (Some(namespace), Some(app)) => format!("{namespace}/{app} {}", from.revision),
        (Some(_) | None, _) => from.revision.to_string(),
    }
}

/// What an entry deploys, in a word.
pub(crate) fn what(deploy: &Deploy) -> String {
    match (&deploy.image, &deploy.commit) {
        (Some(image), _) => escaped(&short_image(image)),
        (None, Some(commit)) => format!("commit {}", escaped(&short_commit(commit))),
        (None, None) => "nothing".to_owned(),
    }
}

/// How an entry stands and why, in one line.
pub(crate) fn summary(deploy: &Deploy) -> String {
    let reason = deploy.reason.as_deref().map(|reason| format!(" ({})", escaped(reason))).unwrap_or_default();
    let message = deploy.message.as_deref().map(|message| format!(": {}", escaped(message))).unwrap_or_default();
    format!("Revision {} {}{reason}{message}", deploy.revision, said(deploy.status))
}

/// Why an entry did not succeed, with what was seen, one line each.
pub(crate) fn ending(deploy: &Deploy) -> Vec<String> {
    let mut lines = vec![summary(deploy)];
    let Some(evidence) = &deploy.evidence else { return lines };
    let named = [("pod", &evidence.pod), ("container", &evidence.container), ("state", &evidence.state)];
    lines.extend(
        named.iter().filter_map(|(name, value)| value.as_ref().map(|value| format!("  {name}: {}", escaped(value)))),
    );
    for (name, given) in [("events", &evidence.events), ("log", &evidence.log)] {
        if !given.is_empty() {
            lines.push(format!("  {name}:"));
            lines.extend(given.iter().map(|line| format!("    {}", escaped(line))));
        }
    }
    lines
}

/// A status as a sentence goes on.
pub(crate) const fn said(status: Status) -> &'static str {
    match status {
        Status::Queued => "is queued",
        Status::Building => "is being built",
        Status::RollingOut => "rolls out",
        Status::Succeeded => "succeeded",
        Status::Failed => "failed",
        Status::Superseded => "was superseded",
        Status::Cancelled => "was cancelled",
    }
}

#[cfg(test)]
pub(crate) mod tests;
