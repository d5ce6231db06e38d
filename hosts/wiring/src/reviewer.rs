//! Callers who prove themselves by tokens of the cluster.

use std::{fmt, str::FromStr, sync::Arc};

use rollhook_management::{keyless::is_audience, ports::AccessReviewer};

use crate::Error;

/// The audience that tokens of the cluster must be made for: `--kubernetes-identity`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewAudience(String);

/// Words that one would write to switch something on or off, and not to name an audience.
const SWITCHES: [&str; 8] = ["true", "false", "on", "off", "yes", "no", "1", "0"];

impl FromStr for ReviewAudience {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, &'static str> {
        if SWITCHES.contains(&text.to_ascii_lowercase().as_str()) || !is_audience(text) {
            return Err(
                "must be the audience of the cluster's tokens, such as rollhook; leave it out to switch it off",
            );
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for ReviewAudience {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl ReviewAudience {
    /// Returns the audience as tokens name it.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Connects to the cluster that knows callers. Nothing is sent yet.
    ///
    /// # Errors
    /// If there is no configuration of a cluster, or this binary lacks Kubernetes.
    #[cfg(feature = "kubernetes")]
    pub async fn reviewer(&self) -> Result<Arc<dyn AccessReviewer>, Error> {
        let clock = Arc::new(crate::TokioClock::start());
        let reviewer = rollhook_kubernetes::KubernetesReviewer::connect(&self.0, clock).await;
        Ok(Arc::new(reviewer.map_err(|error| Error::backend("cluster for --kubernetes-identity")(error.into()))?))
    }

    /// Connects to the cluster that knows callers. Nothing is sent yet.
    ///
    /// # Errors
    /// If there is no configuration of a cluster, or this binary lacks Kubernetes.
    #[cfg(not(feature = "kubernetes"))]
    pub async fn reviewer(&self) -> Result<Arc<dyn AccessReviewer>, Error> {
        Err(Error::NotBuilt("kubernetes identity"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_is_named_and_not_switched_on() {
        for text in ["rollhook", "https://rollhook.example.com"] {
            assert_eq!(text.parse::<ReviewAudience>().unwrap().to_string(), text);
        }
        for text in ["", "true", "TRUE", "1", "off", "a b", "a\n"] {
            assert!(text.parse::<ReviewAudience>().is_err(), "{text:?}");
        }
    }
}
