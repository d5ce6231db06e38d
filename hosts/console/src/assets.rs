//! Static files, embedded in the program. Each one's path holds its hash, so that browsers may keep it for ever.

use std::{fmt::Write as _, sync::LazyLock};

use bytes::Bytes;
use flate2::Compression;
use http::{
    HeaderMap, HeaderValue, StatusCode,
    header::{CACHE_CONTROL, CONTENT_ENCODING, VARY},
};
use sha2::{Digest, Sha256};

use crate::reply::{self, Reply};

/// The paths of the files, as pages name them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Paths {
    pub(crate) style: &'static str,
    pub(crate) script: &'static str,
    pub(crate) icon: &'static str,
}

/// A file, ready to be sent.
struct Asset {
    path: String,
    media_type: &'static str,
    plain: Bytes,
    gzip: Option<Bytes>,
}

static STYLE: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")));
/// One file: htmx begins its work in the first pause between two scripts, and an extension in a file of its own may
/// come after that.
static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let parts = [
        include_str!("../assets/vendor/htmx.min.js"),
        include_str!("../assets/vendor/hx-sse.min.js"),
        include_str!("../assets/console.js"),
    ];
    Asset::new("console.js", "text/javascript; charset=utf-8", parts.join(";\n").into_bytes())
});
static ICON: LazyLock<Asset> =
    LazyLock::new(|| Asset::new("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")));

impl Asset {
    fn new(name: &str, media_type: &'static str, file: impl Into<Bytes>) -> Self {
        let file: Bytes = file.into();
        let hash = Sha256::digest(&file);
        let mut hex = String::new();
        for byte in &hash[..8] {
            let _ = write!(hex, "{byte:02x}");
        }
        Self {
            path: format!("/assets/{hex}/{name}"),
            media_type,
            gzip: reply::gzip(&file, Compression::best()),
            plain: file,
        }
    }
}

/// Returns the paths of the files.
pub(crate) fn paths() -> Paths {
    Paths { style: &STYLE.path, script: &SCRIPT.path, icon: &ICON.path }
}

/// Returns the file of a path; of another version's path, nothing.
pub(crate) fn find(path: &str, accepted: &HeaderMap) -> Option<Reply> {
    let all: [&Asset; 3] = [&STYLE, &SCRIPT, &ICON];
    let asset = all.into_iter().find(|asset| asset.path == path)?;
    let (text, is_small) = match &asset.gzip {
        Some(small) if reply::takes_gzip(accepted) => (small, true),
        Some(_) | None => (&asset.plain, false),
    };
    let mut reply = reply::whole(StatusCode::OK, asset.media_type, text.clone());
    let headers = reply.headers_mut();
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("public, max-age=31536000, immutable"));
    headers.insert(VARY, HeaderValue::from_static("Accept-Encoding"));
    if is_small {
        headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    }
    Some(reply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vendored_files_are_those_of_the_manifest() {
        let manifest = include_str!("../assets/vendor/MANIFEST");
        let files: [(&str, &[u8]); 3] = [
            ("htmx.min.js", include_bytes!("../assets/vendor/htmx.min.js")),
            ("hx-sse.min.js", include_bytes!("../assets/vendor/hx-sse.min.js")),
            ("LICENSE-htmx", include_bytes!("../assets/vendor/LICENSE-htmx")),
        ];
        let lines: Vec<Vec<&str>> = manifest
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), files.len());
        for (line, (name, file)) in lines.iter().zip(files) {
            let hex = rollhook_core::text::hex(&Sha256::digest(file));
            assert_eq!((line[0], line[1]), (hex.as_str(), name));
        }
    }

    #[test]
    fn files_are_kept_for_ever_and_other_paths_are_nothing() {
        let mut gzip = HeaderMap::new();
        gzip.insert("accept-encoding", HeaderValue::from_static("gzip, deflate, br"));
        for path in [paths().style, paths().script, paths().icon] {
            let file = find(path, &gzip).unwrap();
            assert_eq!(file.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
            assert_eq!(file.headers()[CONTENT_ENCODING], "gzip");
            assert!(find(path, &HeaderMap::new()).unwrap().headers().get(CONTENT_ENCODING).is_none());
        }
        assert!(find("/assets/0000000000000000/console.css", &gzip).is_none());
    }

    #[test]
    fn all_files_together_are_small() {
        let all: [&Asset; 3] = [&STYLE, &SCRIPT, &ICON];
        let bytes: usize = all.iter().map(|asset| asset.gzip.as_ref().map_or(asset.plain.len(), Bytes::len)).sum();
        assert!(bytes < 40 * 1024, "{bytes} bytes");
    }
}
