//! rollhook's command line.
