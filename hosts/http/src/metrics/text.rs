//! The two text formats: OpenMetrics for scrapers that ask for it, else Prometheus' own.

use prometheus_client::{encoding::text::encode, registry::Registry};

/// The media type of an answer.
pub(crate) type MediaType = &'static str;

/// The media type of OpenMetrics.
const OPEN_METRICS: MediaType = "application/openmetrics-text; version=1.0.0; charset=utf-8";
/// The media type of Prometheus' own format.
const PLAIN: MediaType = "text/plain; version=0.0.4; charset=utf-8";

/// Returns all metrics in the format that a scraper with this `Accept` header reads.
pub(super) fn render(registry: &Registry, accept: &str) -> (MediaType, String) {
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = encode(&mut text, registry);
    if accept.split(',').any(|range| range.trim_start().starts_with("application/openmetrics-text")) {
        (OPEN_METRICS, text)
    } else {
        (PLAIN, plain(&text))
    }
}

/// Returns a text in OpenMetrics as Prometheus' own format: there, a counter is named like its samples, and there is
/// neither a unit nor an end.
fn plain(open: &str) -> String {
    let counters: Vec<&str> =
        open.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut text = String::with_capacity(open.len());
    for line in open.lines().filter(|line| *line != "# EOF" && !line.starts_with("# UNIT ")) {
        let described = ["# HELP ", "# TYPE "].iter().find_map(|prefix| Some((prefix, line.strip_prefix(*prefix)?)));
        match described.and_then(|(prefix, rest)| Some((prefix, rest.split_once(' ')?))) {
            Some((prefix, (name, rest))) if counters.contains(&name) => {
                text.extend([prefix, name, "_total ", rest, "\n"]);
            }
            Some(_) | None => text.extend([line, "\n"]),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::{counter::Counter, gauge::Gauge};

    use super::*;

    #[test]
    fn a_scraper_gets_the_format_that_it_asks_for() {
        let mut registry = Registry::with_prefix("rollhook");
        registry.register("calls", "Calls", Counter::<u64>::default());
        registry.register("open", "Open calls", Gauge::<i64>::default());
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.4,*/*;q=0.1";
        let (media_type, text) = render(&registry, prometheus);
        assert_eq!(media_type, OPEN_METRICS);
        assert!(text.contains("# TYPE rollhook_calls counter\n") && text.ends_with("# EOF\n"), "{text}");
        let (media_type, text) = render(&registry, "*/*");
        assert_eq!(media_type, PLAIN);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "# HELP rollhook_calls_total Calls.",
                "# TYPE rollhook_calls_total counter",
                "rollhook_calls_total 0",
                "# HELP rollhook_open Open calls.",
                "# TYPE rollhook_open gauge",
                "rollhook_open 0",
            ]
        );
    }
}
