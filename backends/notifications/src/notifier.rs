//! The notifier: one call of a receiver for each notification.

use async_trait::async_trait;
use http::{Request, Response};
use rollhook_https::Fetch;
use rollhook_management::{
    notifications::{Destination, DestinationUrl, Notification, ReceiverSecret},
    ports::{Delivered, DeliveryFailure, Notifier},
};
use serde_json::Value;

use crate::{
    answer::{failure, judge, unanswered},
    cd_event, cloud_event, github, gitlab,
    hosts::AllowedReceivers,
    slack,
};

/// The flag by which the operator allows local receivers.
const FLAG: &str = "--allow-local-receivers";

/// Tells receivers over https.
pub struct HttpNotifier {
    fetch: Fetch,
    allowed: AllowedReceivers,
}

impl HttpNotifier {
    /// Returns a notifier that calls the receivers that the operator allows.
    pub fn new(allowed: AllowedReceivers) -> Self {
        Self { fetch: Fetch::new(allowed.local, FLAG), allowed }
    }

    fn check_url(&self, url: &str) -> Result<(), String> {
        self.fetch.check(url).map_err(|error| error.to_string())?;
        if !self.allowed.names(url) {
            return Err("is on none of the hosts that the operator allows (--receiver-host)".to_owned());
        }
        Ok(())
    }

    /// Makes a call, and returns the host and the head of its answer.
    async fn call(&self, request: Request<Vec<u8>>) -> Result<(String, Response<()>), DeliveryFailure> {
        let host = self.allowed_host(&request)?;
        match self.fetch.send_for_head(request).await {
            Ok(answer) => Ok((host, answer)),
            Err(error) => Err(unanswered(&host, &error)),
        }
    }

    /// Makes a call, and returns the host and its whole answer.
    pub(crate) async fn exchange(
        &self,
        request: Request<Vec<u8>>,
    ) -> Result<(String, Response<Vec<u8>>), DeliveryFailure> {
        let host = self.allowed_host(&request)?;
        match self.fetch.send(request).await {
            Ok(answer) => Ok((host, answer)),
            Err(error) => Err(unanswered(&host, &error)),
        }
    }

    /// Returns the host of a call that the operator allows, now as when the receiver was added.
    fn allowed_host(&self, request: &Request<Vec<u8>>) -> Result<String, DeliveryFailure> {
        let host = request.uri().host().unwrap_or_default().to_owned();
        let checked = self.check_url(&request.uri().to_string());
        checked.map_err(|why| failure(format!("{host} is not called: its address {why}")))?;
        Ok(host)
    }

    /// Returns whether people may read what a host says.
    pub(crate) fn may_be_repeated(&self, host: &str) -> bool {
        self.allowed.may_be_repeated(host)
    }

    /// Posts an event, with a signature.
    async fn post(
        &self,
        url: &DestinationUrl,
        secret: &ReceiverSecret,
        notification: &Notification,
        event: &Value,
    ) -> Result<Delivered, DeliveryFailure> {
        let (host, answer) = self.call(cloud_event::request(url.as_str(), secret, notification, event)?).await?;
        Ok(Delivered { reference: None, answer: judge(&host, &answer)? })
    }

    async fn tell(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        match destination {
            Destination::Webhook { url } => {
                self.post(url, secret, notification, &cloud_event::event(notification)).await
            }
            Destination::CdEvents { url } => match cd_event::event(notification) {
                Ok(event) => self.post(url, secret, notification, &event).await,
                Err(why) => Ok(untold(why)),
            },
            Destination::Slack { api, channel } => {
                slack::tell((self, api), channel, secret, notification, reference).await
            }
            Destination::GitHub { api, repository } => {
                github::tell((self, api), repository, secret, notification, reference).await
            }
            Destination::GitLab { api, project } => {
                gitlab::tell((self, api), project, secret, notification, reference).await
            }
            other => Err(failure(format!("this notifier does not know the kind {}", other.kind()))),
        }
    }
}

/// Returns the delivery of a notification that the service has no place for.
pub(crate) fn untold(why: &str) -> Delivered {
    Delivered { reference: None, answer: format!("nothing to tell: {why}") }
}

#[async_trait]
impl Notifier for HttpNotifier {
    fn check(&self, destination: &Destination) -> Result<(), String> {
        self.check_url(destination.url())
    }

    async fn send(
        &self,
        destination: &Destination,
        secret: &ReceiverSecret,
        notification: &Notification,
        reference: Option<&str>,
    ) -> Result<Delivered, DeliveryFailure> {
        let told = self.tell(destination, secret, notification, reference).await;
        // A service may repeat the token that it refuses.
        told.map_err(|failure| DeliveryFailure {
            message: failure.message.replace(secret.expose(), "(secret)"),
            ..failure
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io::{Read, Write},
        net::{TcpListener, TcpStream},
        thread,
        time::Duration,
    };

    use rollhook_core::deploy::Deploy;
    use rollhook_testing::fixtures::Receiver;

    use super::*;
    use crate::{facts::NamedCommit, samples};

    const SHA: &str = "def456abc0def456abc0def456abc0def456abc0";

    /// Returns the outcomes of the notification of a deploy to GitHub and to GitLab, both at this receiver.
    async fn sent_to_git_hosts(receiver: &Receiver, deploy: Deploy) -> [Result<Delivered, DeliveryFailure>; 2] {
        let notifier = HttpNotifier::new(AllowedReceivers { local: true, ..AllowedReceivers::default() });
        let secret = "hunter2-token".parse().unwrap();
        let notification = samples::notification(samples::of(deploy));
        let repository = "shop/api".parse().unwrap();
        let project = "shop/api".parse().unwrap();
        let github = Destination::GitHub { api: receiver.url.parse().unwrap(), repository };
        let gitlab = Destination::GitLab { api: receiver.url.parse().unwrap(), project };
        let github = notifier.send(&github, &secret, &notification, None).await;
        [github, notifier.send(&gitlab, &secret, &notification, None).await]
    }

    #[tokio::test]
    async fn git_hosts_find_a_deploy_by_the_commit_of_the_label_if_none_was_posted() {
        let receiver = Receiver::start();
        receiver.serve(|sent| {
            let body = match &sent.request {
                request if request.contains("/repository/commits/") => format!(r#"{{"id":"{SHA}"}}"#),
                request if request.contains("/commits/") => SHA.to_owned(),
                request if request.starts_with("GET ") => "[]".to_owned(),
                _ => r#"{"id":7}"#.to_owned(),
            };
            ("200 OK".to_owned(), body)
        });
        let [github, gitlab] = sent_to_git_hosts(&receiver, samples::found(SHA)).await;
        assert_eq!(github.unwrap().reference, Some(format!("7 {SHA}")));
        assert_eq!(gitlab.unwrap().reference.as_deref(), Some("7"));
    }

    #[tokio::test]
    async fn labelled_commit_that_the_repository_does_not_have_is_no_failure() {
        let receiver = Receiver::start();
        receiver.serve(|_| ("404 Not Found".to_owned(), String::new()));
        for answer in sent_to_git_hosts(&receiver, samples::found(SHA)).await {
            assert_eq!(answer, Ok(untold(NamedCommit::UNKNOWN)));
        }
        let posted = Deploy { commit: SHA.parse().ok(), ..samples::found(SHA) };
        for answer in sent_to_git_hosts(&receiver, posted).await {
            let failure = answer.unwrap_err();
            assert!(failure.message.contains("knows no commit"), "{failure:?}");
        }
        let calls = receiver.sent().len();
        for answer in sent_to_git_hosts(&receiver, samples::found("main")).await {
            assert_eq!(answer, Ok(untold("the deploy names no commit")), "a host reads it as a branch");
        }
        assert_eq!(receiver.sent().len(), calls);
    }

    /// Returns the URL of a server that answers its first call in this way.
    fn server(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while request.last() != Some(&b'}') {
                let mut part = [0; 4096];
                let length = stream.read(&mut part).unwrap();
                assert_ne!(length, 0, "the call was torn");
                request.extend_from_slice(&part[..length]);
            }
            answer(&mut stream);
        });
        url
    }

    async fn answered(answer: impl FnOnce(&mut TcpStream) + Send + 'static) -> Result<String, DeliveryFailure> {
        answered_to(&Destination::Webhook { url: server(answer).parse().unwrap() }).await
    }

    async fn answered_to(destination: &Destination) -> Result<String, DeliveryFailure> {
        let notifier = HttpNotifier::new(AllowedReceivers { local: true, ..AllowedReceivers::default() });
        let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw".parse().unwrap();
        let notification = samples::notification(samples::failed());
        let sent = notifier.send(destination, &secret, &notification, None);
        let sent = tokio::time::timeout(Duration::from_secs(5), sent).await.expect("it hung on the body");
        sent.map(|delivered| delivered.answer)
    }

    #[tokio::test]
    async fn answer_is_decided_by_its_head() {
        let large = |stream: &mut TcpStream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
            let _ = stream.write_all(&[b'x'; 1_000_000]);
        };
        let slow = |stream: &mut TcpStream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx");
            // Until the caller goes away.
            let _ = stream.read_to_end(&mut Vec::new());
        };
        let torn = |stream: &mut TcpStream| {
            let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx");
        };
        assert_eq!(answered(large).await, Ok("200 OK".to_owned()));
        assert_eq!(answered(slow).await, Ok("200 OK".to_owned()));
        assert_eq!(answered(torn).await, Ok("200 OK".to_owned()));
        let refused = |stream: &mut TcpStream| drop(write!(stream, "HTTP/1.1 500 No\r\nContent-Length: 9\r\n\r\n"));
        assert!(answered(refused).await.is_err());
    }

    #[tokio::test]
    async fn answer_of_very_many_values_is_refused_before_it_is_read() {
        let slack = |values: usize| {
            let blocks = format!("[0{}]", ",0".repeat(values));
            let body = format!(r#"{{"ok":true,"channel":"C0123","ts":"1503435956.000247","message":{blocks}}}"#);
            let url = server(move |stream| {
                let _ = write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            });
            Destination::Slack { api: url.parse().unwrap(), channel: "C0123".parse().unwrap() }
        };
        assert_eq!(answered_to(&slack(5_000)).await, Ok("ok".to_owned()));
        let refused = answered_to(&slack(100_000)).await.unwrap_err();
        assert!(refused.message.contains("JSON values") && refused.is_final, "{refused:?}");
    }
}
