//! What an app's driver does next.
