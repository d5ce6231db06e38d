//! A client whose calls are counted.

use std::sync::{Arc, Mutex};

use http::Request;
use kube::{
    Client, Config,
    client::{Body, ClientBuilder},
};
use tower::util::MapRequestLayer;

/// The calls that were made.
#[derive(Clone, Default)]
pub(crate) struct Calls(Arc<Mutex<Vec<String>>>);

impl Calls {
    /// A client whose calls are noted here.
    pub(crate) fn client(&self, config: Config) -> Client {
        let calls = self.clone();
        let layer = MapRequestLayer::new(move |request: Request<Body>| {
            calls.note(&request);
            request
        });
        ClientBuilder::try_from(config).unwrap().with_layer(&layer).build()
    }

    fn note(&self, request: &Request<Body>) {
        let query = request.uri().query().unwrap_or_default();
        // What feeds the cache goes on with or without calls: lists, and the watches after them.
        if !query.contains("watch=") && !query.contains("limit=") {
            self.0.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        }
    }

    /// Those since this was asked last.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}
