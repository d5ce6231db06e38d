//! What is special to SQLite.
