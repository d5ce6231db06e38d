//! One app, driven.
