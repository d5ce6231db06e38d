//! The progress of a pull, as the engine tells it.

use std::collections::HashMap;

use serde_json::Value;

use crate::error::shortened;

/// The layers of an image that is pulled.
#[derive(Default)]
pub(crate) struct Layers {
    seen: HashMap<String, bool>,
    bytes: HashMap<String, u64>,
}

impl Layers {
    /// Takes one line of the engine's answer.
    ///
    /// # Errors
    /// The reason why the image cannot be pulled.
    pub(crate) fn take(&mut self, event: &Value) -> Result<(), String> {
        if let Some(error) = event["error"].as_str() {
            return Err(shortened(error));
        }
        let Some(id) = event["id"].as_str() else { return Ok(()) };
        let status = event["status"].as_str().unwrap_or_default();
        // The first line names the image; it is no layer.
        if status.starts_with("Pulling from") {
            return Ok(());
        }
        let is_done = matches!(status, "Pull complete" | "Already exists" | "Download complete");
        *self.seen.entry(id.to_owned()).or_default() |= is_done;
        if let Some(bytes) = event["progressDetail"]["current"].as_u64().filter(|_| status == "Downloading") {
            self.bytes.insert(id.to_owned(), bytes);
        }
        Ok(())
    }
}

impl std::fmt::Display for Layers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let done = self.seen.values().filter(|done| **done).count();
        let megabytes = self.bytes.values().sum::<u64>() / 1_000_000;
        write!(f, "{done} of {} layers, {megabytes} MB", self.seen.len())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_counts_layers_and_megabytes() {
        let mut layers = Layers::default();
        let downloading = json!({"current": 5_000_000, "total": 9_000_000});
        for event in [
            json!({"status": "Pulling from shop/api", "id": "v1"}),
            json!({"status": "Already exists", "id": "a"}),
            json!({"status": "Downloading", "id": "b", "progressDetail": downloading}),
            json!({"status": "Extracting", "id": "b", "progressDetail": {"current": 1}}),
            json!({"status": "Digest: sha256:1"}),
        ] {
            layers.take(&event).unwrap();
        }
        assert_eq!(layers.to_string(), "1 of 2 layers, 5 MB");
        assert_eq!(layers.take(&json!({"error": "manifest unknown"})), Err("manifest unknown".to_owned()));
        let long = layers.take(&json!({"error": format!("denied\n{}", "x".repeat(1 << 20))})).unwrap_err();
        assert!(long.starts_with("denied x") && long.len() < 3_000, "{} bytes", long.len());
    }
}
