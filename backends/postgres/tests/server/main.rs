//! On a real PostgreSQL, which `ROLLHOOK_TEST_POSTGRES` names: the directory of a server that `testbed/up.sh` has
//! started.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

mod bed;
mod conformance;
mod connections;
mod locks;
mod outage;
mod pooler;
mod read_only;
mod replicas;
mod schema;
mod secrets;
mod writes;
