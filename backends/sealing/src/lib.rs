//! Seals tokens at rest with a ring of keys.
