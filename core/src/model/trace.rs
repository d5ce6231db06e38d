//! The place of a deploy in a trace that its caller began.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use crate::{app::InvalidName, text::checked_text};

/// The length of the header's part that every version has, in bytes.
const LENGTH: usize = 55;
/// The longest header of a later version, in bytes.
const LENGTH_MAX: usize = 512;

checked_text! {
    /// A caller's span: the header `traceparent` of W3C Trace Context, as its version 00 writes it.
    TraceParent, InvalidName, traceparent
}

impl TraceParent {
    /// The id of the trace.
    pub fn trace_id(&self) -> u128 {
        u128::from_str_radix(self.part(3..35), 16).unwrap_or_default()
    }

    /// The id of the caller's span.
    pub fn span_id(&self) -> u64 {
        u64::from_str_radix(self.part(36..52), 16).unwrap_or_default()
    }

    /// Whether the caller keeps the trace.
    pub fn is_sampled(&self) -> bool {
        u8::from_str_radix(self.part(53..55), 16).is_ok_and(|flags| flags & 1 == 1)
    }

    fn part(&self, range: std::ops::Range<usize>) -> &str {
        self.0.get(range).unwrap_or_default()
    }
}

fn traceparent(text: &str) -> Result<String, InvalidName> {
    let fail = || Err(InvalidName::new("traceparent", text, "must be one of W3C Trace Context"));
    if text.len() > LENGTH_MAX || !text.is_ascii() {
        return fail();
    }
    let (head, rest) = text.split_at(LENGTH.min(text.len()));
    let parts: Vec<_> = head.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { return fail() };
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    let is_id = |part: &str, length| part.len() == length && is_hex(part) && part.bytes().any(|byte| byte != b'0');
    let is_byte = |part: &str| part.len() == 2 && is_hex(part);
    // Later versions may append parts; version ff is none.
    let is_known = if version == "00" { rest.is_empty() } else { rest.is_empty() || rest.starts_with('-') };
    if !is_byte(version) || version == "ff" || !is_id(trace, 32) || !is_id(span, 16) || !is_byte(flags) || !is_known {
        return fail();
    }
    Ok(format!("00-{trace}-{span}-{flags}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traceparent_is_one_of_w3c() {
        let text = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let parent: TraceParent = text.parse().unwrap();
        assert_eq!(
            (parent.trace_id(), parent.span_id()),
            (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, 0x00f0_67aa_0ba9_02b7)
        );
        assert!(parent.is_sampled() && parent.to_string() == text);
        let unsampled = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00".parse::<TraceParent>().unwrap();
        assert!(!unsampled.is_sampled());
        let later = "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-what-comes";
        assert_eq!(later.parse::<TraceParent>().unwrap(), parent);
        for text in [
            "",
            "00",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-more",
            "cc-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01.more",
            "00-4bf92f3577b34da6a3ce929d0e0e473600f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0é",
        ] {
            assert!(text.parse::<TraceParent>().is_err(), "{text}");
        }
        assert!(format!("cc-{}", "a".repeat(LENGTH_MAX)).parse::<TraceParent>().is_err());
    }
}
