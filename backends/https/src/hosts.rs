//! The hosts that an operator names.

use rollhook_core::source::HostPattern;

/// Returns whether one of the patterns covers a host, which may be an IPv6 address in brackets.
pub fn covers(patterns: &[HostPattern], host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    patterns.iter().any(|pattern| pattern.covers(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_covered_with_and_without_brackets() {
        let patterns: Vec<HostPattern> = ["*.corp.example", "::1"].iter().map(|text| text.parse().unwrap()).collect();
        for host in ["a.corp.example", "[::1]", "::1"] {
            assert!(covers(&patterns, host), "{host}");
        }
        for host in ["corp.example", "[::2]", ""] {
            assert!(!covers(&patterns, host), "{host}");
        }
        assert!(!covers(&[], "a.corp.example"));
    }
}
