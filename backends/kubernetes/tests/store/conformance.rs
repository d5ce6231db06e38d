//! The suite of all stores.

use crate::{bed, harness::Fresh};

rollhook_conformance::stores!(bed::run, Fresh::store().await);
