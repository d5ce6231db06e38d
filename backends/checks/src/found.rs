//! The outcome of a measurement before it has a time.

use rollhook_core::{
    check::{Measurement, Verdict},
    ports::Measured,
    text::escaped,
    time::Timestamp,
};

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    pub(crate) verdict: Verdict,
    /// What was measured, as people read it.
    pub(crate) value: Option<String>,
    /// The number of samples that it was made of.
    pub(crate) samples: Option<u64>,
    /// What was expected and seen, as a sentence.
    pub(crate) message: String,
}

impl Found {
    pub(crate) fn new(verdict: Verdict, message: impl Into<String>) -> Self {
        Self { verdict, value: None, samples: None, message: message.into() }
    }

    /// Returns the outcome where there is nothing to judge by.
    pub(crate) fn none(message: impl Into<String>) -> Self {
        Self::new(Verdict::None, message)
    }

    pub(crate) fn of(self, value: impl Into<String>) -> Self {
        Self { value: Some(value.into()), ..self }
    }

    /// Returns the measurement. What comes from others has its control characters escaped.
    pub(crate) fn measured(self, at: Timestamp, request: String, condition: String) -> Measured {
        let measurement = Measurement::new(at, self.verdict, &escaped(&self.message));
        let measurement = match self.value {
            Some(value) => measurement.of(&escaped(&value)),
            None => measurement,
        };
        let measurement = measurement.with(|measurement| measurement.samples = self.samples);
        Measured { request: escaped(&request), condition: escaped(&condition), measurement }
    }
}
