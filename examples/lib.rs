//! The programs beside this file embed rollhook. The code of the book's chapter on embedding is compiled here.

#![doc = include_str!("../docs/embedding.md")]
