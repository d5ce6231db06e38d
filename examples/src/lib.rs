//! rollhook embedded in other programs.
