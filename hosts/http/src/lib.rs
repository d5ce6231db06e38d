//! rollhook's HTTP host.
