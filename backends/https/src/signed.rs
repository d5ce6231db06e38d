//! Messages with the signatures of Standard Webhooks.

use base64::{Engine, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use http::{Request, header::CONTENT_TYPE};
use rollhook_core::time::Timestamp;
use sha2::Sha256;

/// A message that a server is called with.
#[derive(Clone, Copy, Debug)]
pub struct SignedCall<'a> {
    /// The id, which stays the same when the message is sent again.
    pub id: &'a str,
    /// The time at which it is sent.
    pub sent_at: Timestamp,
    /// The type of the body.
    pub content_type: &'static str,
    /// The body.
    pub body: &'a str,
}

impl SignedCall<'_> {
    /// Returns the request that posts the message with a signature under this key.
    ///
    /// # Errors
    /// If the URL or the id cannot be sent.
    pub fn request(&self, url: &str, key: &[u8]) -> Result<Request<Vec<u8>>, http::Error> {
        Request::post(url)
            .header(CONTENT_TYPE, self.content_type)
            .header("webhook-id", self.id)
            .header("webhook-timestamp", self.seconds())
            .header("webhook-signature", self.signature(key))
            .body(self.body.as_bytes().to_vec())
    }

    fn seconds(&self) -> String {
        self.sent_at.as_millis().div_euclid(1000).to_string()
    }

    /// Returns the signature, `v1,<base64>`.
    fn signature(&self, key: &[u8]) -> String {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("a key");
        mac.update(format!("{}.{}.{}", self.id, self.seconds(), self.body).as_bytes());
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks libraries' own tests.
    #[test]
    fn standard_webhooks_published_vector() {
        let key = STANDARD.decode("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let message = SignedCall {
            id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
            sent_at: Timestamp::from_millis(1_614_265_330_999),
            content_type: "application/json",
            body: r#"{"test": 2432232314}"#,
        };
        let request = message.request("https://hooks.example.com/x", &key).unwrap();
        let header = |name| request.headers()[name].to_str().unwrap();
        assert_eq!(header("webhook-signature"), "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
        assert_eq!((header("webhook-id"), header("webhook-timestamp")), (message.id, "1614265330"));
        assert_eq!((header("content-type"), request.body().as_slice()), ("application/json", message.body.as_bytes()));
    }
}
