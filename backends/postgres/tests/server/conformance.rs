//! The stores keep what the ports promise.

use crate::bed::fresh::{Fresh, block_on};

rollhook_conformance::stores!(block_on, Fresh::direct().await);
