//! Slack: one message per deploy in a channel, which is changed as the deploy goes on (`chat.postMessage`,
//! `chat.update`).

use http::{StatusCode, header::AUTHORIZATION};
use rollhook_core::{deploy::Deploy, image::ImageLabels, text::escaped};
use rollhook_management::{
    notifications::{ApiUrl, Content, EventKind, Notification, ReceiverSecret, SlackChannel},
    ports::{Delivered, DeliveryFailure},
};
use serde_json::{Value, json};

use crate::{
    answer::failure,
    api::{Answer, Api},
    notifier::HttpNotifier,
    phrases,
};

/// The most characters of an image's version that are shown.
const VERSION_MAX: usize = 64;
/// The errors of a change after which a new message is sent: the one before is gone, or cannot be changed any more.
const GONE: [&str; 3] = ["message_not_found", "cant_update_message", "edit_window_closed"];

/// A message that was sent: the channel's id, and the message's time, which is its id there.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Message {
    channel: String,
    ts: String,
}

impl Message {
    /// Returns the message that these texts name.
    fn new(channel: &str, ts: &str) -> Option<Self> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.';
        let is_id = |text: &str| (1..=64).contains(&text.len()) && text.bytes().all(is_plain);
        (is_id(channel) && is_id(ts)).then(|| Self { channel: channel.to_owned(), ts: ts.to_owned() })
    }

    fn of_reference(reference: &str) -> Option<Self> {
        let (channel, ts) = reference.split_once(' ')?;
        Self::new(channel, ts)
    }

    fn reference(&self) -> String {
        format!("{} {}", self.channel, self.ts)
    }
}

/// The outcome of a call of Slack.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    /// The message was sent or changed.
    Sent(Message),
    /// The message is gone: a new one is to be sent.
    Gone,
}

/// Sends a message, or changes the one before; one that is gone is sent anew.
pub(crate) async fn tell(
    (notifier, url): (&HttpNotifier, &ApiUrl),
    channel: &SlackChannel,
    token: &ReceiverSecret,
    notification: &Notification,
    reference: Option<&str>,
) -> Result<Delivered, DeliveryFailure> {
    let api = Api { notifier, url, headers: vec![(AUTHORIZATION, format!("Bearer {}", token.expose()))] };
    let text = text(notification);
    if let Some(Message { channel, ts }) = reference.and_then(Message::of_reference) {
        let body = json!({ "channel": channel, "ts": ts, "text": text });
        if let Outcome::Sent(message) = outcome(&api.post("/chat.update", &body).await?)? {
            return Ok(delivered(&message));
        }
    }
    let body = json!({ "channel": channel.as_str(), "text": text, "unfurl_links": false, "unfurl_media": false });
    match outcome(&api.post("/chat.postMessage", &body).await?)? {
        Outcome::Sent(message) => Ok(delivered(&message)),
        Outcome::Gone => Err(failure("Slack says of a new message that it is gone")),
    }
}

fn delivered(message: &Message) -> Delivered {
    Delivered { reference: Some(message.reference()), answer: "ok".to_owned() }
}

/// Returns the outcome in an answer: Slack answers 200 to failures as well, and says `ok`.
fn outcome(answer: &Answer) -> Result<Outcome, DeliveryFailure> {
    if answer.status != StatusCode::OK {
        return Err(answer.failure("a message"));
    }
    let (host, body) = (&answer.host, answer.json());
    let text = |name: &str| body[name].as_str().unwrap_or_default();
    let foreign = || failure(format!("{host} gave an answer that is none of Slack's"));
    if body["ok"] == Value::Bool(true) {
        return Message::new(text("channel"), text("ts")).map(Outcome::Sent).ok_or_else(foreign);
    }
    match text("error") {
        "" => Err(foreign()),
        error if GONE.contains(&error) => Ok(Outcome::Gone),
        error => {
            let error = match answer.may_be_repeated {
                true => escaped(error).chars().take(100).collect::<String>(),
                false => "that it has not taken the message".to_owned(),
            };
            Err(DeliveryFailure {
                retry_after: rollhook_https::retry_after(&answer.headers),
                ..failure(format!("{host} answered {error}"))
            })
        }
    }
}

/// Returns the text of the message.
fn text(notification: &Notification) -> String {
    match &notification.content {
        Content::Deploy { app, deploy, event } => {
            let page = phrases::page(notification, app, Some(deploy));
            let app = link(page, &format!("{} #{}", app.id, deploy.revision));
            format!("{} {app} {}{}", icon(*event), emphasised(*event), details(deploy, *event))
        }
        Content::Revoked { app, deploy, fail } => {
            let (event, page) = (EventKind::VerificationRevoked, phrases::page(notification, app, Some(deploy)));
            let app = link(page, &format!("{} #{}", app.id, deploy.revision));
            // The message may repeat what a service answered, and a channel has other readers than the app.
            format!("{} {app} {}: {}", icon(event), emphasised(event), quoted(fail.check.as_str()))
        }
        Content::Drift { app, drift } => {
            let (event, page) = (EventKind::Drift, phrases::page(notification, app, None));
            let app = link(page, &app.id.to_string());
            format!("{} {app} {}: {}", icon(event), phrases::happened(event), quoted(&drift.message))
        }
        Content::Degraded { app, degraded } => {
            let (event, page) = (EventKind::Degraded, phrases::page(notification, app, None));
            let app = link(page, &app.id.to_string());
            // The message may repeat a container's output, and a channel has other readers than the app.
            format!("{} {app} {}: {}", icon(event), emphasised(event), quoted(degraded.reason.as_str()))
        }
        Content::Test => "A test of this receiver.".to_owned(),
    }
}

fn emphasised(event: EventKind) -> String {
    let text = phrases::happened(event);
    if matches!(
        event,
        EventKind::AwaitingDecision | EventKind::Failed | EventKind::VerificationRevoked | EventKind::Degraded
    ) {
        format!("*{text}*")
    } else {
        text.to_owned()
    }
}

fn details(deploy: &Deploy, event: EventKind) -> String {
    let image = deploy.image.as_ref().map(|image| format!(" `{}`", quoted(&image.to_string()))).unwrap_or_default();
    let by = quoted(&deploy.actor.to_string());
    let why = phrases::explanation(deploy, event).map(|why| format!("\n{}", quoted(&why)));
    let workloads: String =
        phrases::workloads(deploy, event).iter().map(|workload| format!("\n• {}", quoted(workload))).collect();
    format!(":{image}{} by {by}{}{workloads}", built_from(deploy), why.unwrap_or_default())
}

/// Returns the commit of a deploy and the version of its image, with links to the addresses in the image's labels.
fn built_from(deploy: &Deploy) -> String {
    let labels = deploy.labels();
    let commit = deploy.shown_commit().map(|commit| {
        // Labels that do not name the commit may be those of a base image, from another repository.
        let is_same = labels.and_then(ImageLabels::commit).is_some_and(|labelled| commit.may_be(&labelled));
        let source = labels.and_then(|labels| labels.source.as_deref()).filter(|_| is_same);
        let remark = if deploy.commit.is_none() { " as the image says" } else { "" };
        format!("commit {}{remark}", labelled_link(source, commit.as_str()))
    });
    let version = labels.and_then(|labels| {
        let version = labels.version.as_deref().filter(|version| is_version(version))?;
        Some(format!("version {}", labelled_link(labels.url.as_deref(), version)))
    });
    let parts: Vec<String> = commit.into_iter().chain(version).collect();
    if parts.is_empty() { String::new() } else { format!(" ({})", parts.join(", ")) }
}

/// Returns whether a label can be shown as a version: it is its builder's words.
fn is_version(label: &str) -> bool {
    label.len() <= VERSION_MAX && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._+-".contains(&byte))
}

const fn icon(event: EventKind) -> &'static str {
    match event {
        EventKind::Accepted => ":inbox_tray:",
        EventKind::Building => ":hammer_and_wrench:",
        EventKind::Releasing => ":card_file_box:",
        EventKind::RollingOut => ":hourglass_flowing_sand:",
        EventKind::Verifying => ":mag:",
        EventKind::AwaitingDecision => ":raised_hand:",
        EventKind::Succeeded => ":white_check_mark:",
        EventKind::Failed | EventKind::VerificationRevoked | EventKind::Degraded => ":x:",
        EventKind::Superseded => ":fast_forward:",
        EventKind::Cancelled => ":no_entry_sign:",
        EventKind::PutRight => ":adhesive_bandage:",
        EventKind::RolledBack => ":rewind:",
        EventKind::Drift => ":warning:",
    }
}

/// Returns a text as a link to the address that a label is, or as it is.
fn labelled_link(label: Option<&str>, text: &str) -> String {
    link(label.and_then(ImageLabels::link).map(|url| url.to_string()), text)
}

fn link(url: Option<String>, text: &str) -> String {
    // The first bar ends the address.
    let address = |url: String| quoted(&url).replace('|', "%7C");
    url.map_or_else(|| quoted(text), |url| format!("<{}|{}>", address(url), quoted(text)))
}

/// Returns the text as Slack takes it: three characters are escaped, and so no text from outside mentions anyone.
fn quoted(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests;
