//! Effects, performed only through ports.
