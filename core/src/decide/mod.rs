//! Decisions, pure: what is read goes in, what is to be done comes out.
