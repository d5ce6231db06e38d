//! Whether a history keeps the rules.
