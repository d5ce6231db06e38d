//! Puts rollhook's backends together for its hosts.
