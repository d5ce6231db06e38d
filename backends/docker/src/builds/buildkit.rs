//! Builds by the BuildKit inside the engine, of Dockerfiles that the classic builder cannot build.
//!
//! It takes the files as the classic builder does, and needs no gRPC session for them. Without one, it has no login of any
//! registry, and most engines pull no image at all that a registry gives only after a token was asked for, as Docker Hub
//! does ("no active sessions"): images are pulled first, by the engine's own pull. The engine hands it no limit of the call,
//! neither of memory and processors nor a control group's name.

use http::{HeaderMap, Method};
use rollhook_command::{Checkout, Log};
use rollhook_core::image::ImageRef;

use super::{
    BuildLimits,
    dockerfile::{Needs, Part},
    image_and_dockerfile,
};
use crate::{
    engine::{Called, Engine},
    pulls,
};

/// The first version of the API whose engines have a BuildKit that is not experimental.
const HAS_BUILDKIT: (u32, u32) = (1, 39);
/// The first version of the API whose engines have a BuildKit that knows here-documents by itself.
const KNOWS_HERE_DOCUMENTS: (u32, u32) = (1, 42);

/// The BuildKit that an engine offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    builds: bool,
    knows_here_documents: bool,
}

impl Offer {
    /// Asks the engine.
    pub(crate) async fn of(engine: &Engine) -> Called<Self> {
        Ok(Self::from_headers(engine.open(Method::GET, "/_ping", None, None).await?.headers()))
    }

    /// Reads the headers of `/_ping`. Engines before 23.0 name their builder only where their configuration does.
    fn from_headers(headers: &HeaderMap) -> Self {
        let value = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let version = value("api-version").and_then(|version| version.split_once('.'));
        let version = version.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        let is_since = |first: (u32, u32)| version.is_some_and(|version| version >= first);
        let is_podman = headers.contains_key("libpod-api-version");
        let builds = value("builder-version").map_or_else(|| is_since(HAS_BUILDKIT), |version| version == "2");
        Self { builds: builds && !is_podman, knows_here_documents: is_since(KNOWS_HERE_DOCUMENTS) }
    }

    /// Returns why this BuildKit cannot build a Dockerfile of this name with that part.
    pub(crate) fn refusal(self, needs: &Needs, part: &Part, dockerfile: &str) -> Option<String> {
        if !self.builds {
            return Some(format!(
                "{}, which Docker on this machine does not offer (docker version). Write it without that, or build it with \
                 a program (--build-command) or in CI.",
                place(part, dockerfile)
            ));
        }
        let Part { line, part } = needs.here_document.as_ref().filter(|_| !self.knows_here_documents)?;
        Some(format!(
            "Line {line} of {dockerfile} has a here-document ({part}), which BuildKit of a Docker older than 23.0 does not know. \
             Write it without that, upgrade Docker, or build it with a program (--build-command) or in CI."
        ))
    }
}

/// Returns why a Dockerfile with that part is not built: its steps would have none of the limits that were set.
pub(crate) fn refusal(limits: &BuildLimits, part: &Part, dockerfile: &str) -> Option<String> {
    let flags = limits.flags()?;
    Some(format!(
        "{}, and Docker limits neither memory nor processors of its steps (set: {flags}). Start the server without \
         that, or build it with a program (--build-command) or in CI.",
        place(part, dockerfile)
    ))
}

fn place(Part { line, part }: &Part, dockerfile: &str) -> String {
    format!("Line {line} of {dockerfile} needs BuildKit ({part})")
}

/// Returns the line that says which builder builds, and why.
pub(crate) fn announcement(Part { line, part }: &Part, dockerfile: &str) -> String {
    format!(
        "Docker's BuildKit builds it, which line {line} of {dockerfile} needs ({part}): the memory and processors of its steps \
         are not limited"
    )
}

/// Returns the call that builds.
pub(crate) fn path(checkout: &Checkout<'_>) -> String {
    format!("/build?version=2&{}", image_and_dockerfile(checkout))
}

/// Pulls the images that are not on the machine, and returns a sentence for the first that cannot be pulled. A stage that is
/// not built may name it, so that its absence is no failure by itself.
pub(crate) async fn pull(engine: &Engine, images: &[String], log: &mut Log) -> Called<Option<String>> {
    let mut missing = None;
    for image in images.iter().filter_map(|image| image.parse::<ImageRef>().ok()) {
        if pulls::find(engine, &image.to_string()).await?.is_some() {
            continue;
        }
        log.say(&format!("pulling {image}"));
        if let Err(cause) = pulls::download(engine, &image, |_| ()).await {
            let cause = format!("{image} cannot be pulled: {}", cause.trim().trim_end_matches('.'));
            log.say(&cause);
            missing.get_or_insert(cause);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn offer(headers: &[(&'static str, &'static str)]) -> Offer {
        let headers = headers.iter().map(|(name, value)| (name.parse().unwrap(), HeaderValue::from_static(value)));
        Offer::from_headers(&headers.collect())
    }

    #[test]
    fn engine_offers_buildkit_unless_it_says_otherwise() {
        for (headers, builds, knows_here_documents) in [
            (&[("api-version", "1.41")][..], true, false),
            (&[("api-version", "1.41"), ("builder-version", "2")], true, false),
            (&[("api-version", "1.51"), ("builder-version", "2")], true, true),
            (&[("api-version", "1.51"), ("builder-version", "1")], false, true),
            (&[("api-version", "1.41"), ("builder-version", ""), ("libpod-api-version", "5.0.0")], false, false),
            (&[("api-version", "1.41"), ("libpod-api-version", "4.0.0")], false, false),
            (&[("api-version", "1.38")], false, false),
            (&[("api-version", "new")], false, false),
            (&[], false, false),
        ] {
            assert_eq!(offer(headers), Offer { builds, knows_here_documents }, "{headers:?}");
        }
    }

    #[test]
    fn refusal_names_the_line_and_the_ways_on() {
        let needs = |text: &str| Needs::of(text);
        let of = |offer: Offer, text: &str| {
            let needs = needs(text);
            offer.refusal(&needs, needs.buildkit.as_ref().unwrap(), "Dockerfile")
        };
        let (old, new) =
            (offer(&[("api-version", "1.41")]), offer(&[("api-version", "1.51"), ("builder-version", "2")]));
        let here = "FROM a\nRUN --mount=type=cache,target=/c true\nCOPY <<EOF /motd\nhello\nEOF";
        assert_eq!(of(new, here), None);
        let refused = of(old, here).unwrap();
        assert!(refused.starts_with("Line 3 of Dockerfile has a here-document (COPY <<EOF)"), "{refused}");
        assert_eq!(of(old, &format!("# syntax=example/own:1\n{here}")), None, "the syntax may know them");
        let refused = of(offer(&[]), here).unwrap();
        assert!(refused.starts_with("Line 2 of Dockerfile needs BuildKit (RUN --mount)"), "{refused}");
        assert!(refused.contains("--build-command"), "{refused}");

        let part = needs(here).buildkit.unwrap();
        let limited = |memory, processors| {
            refusal(&BuildLimits::parse(memory, processors).unwrap(), &part, "Dockerfile").unwrap_or_default()
        };
        assert_eq!(limited(None, None), "");
        for (refused, flags) in [
            (limited(Some("2g"), None), "(set: --build-memory)"),
            (limited(None, Some("2")), "(set: --build-cpu)"),
            (limited(Some("2g"), Some("2")), "(set: --build-memory and --build-cpu)"),
        ] {
            assert!(refused.starts_with("Line 2 of Dockerfile needs BuildKit (RUN --mount)"), "{refused}");
            assert!(refused.contains(flags) && refused.contains("--build-command"), "{refused}");
        }
    }
}
