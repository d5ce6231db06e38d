//! rollhook's stores on SQLite.
