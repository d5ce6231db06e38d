//! Links from a commit to its page at the git host, as far as the source's URL shows it.

use rollhook_core::app::Source;

/// The paths of pages within a repository, which labels name where an image is built from a part of one.
const PARTS: [&str; 3] = ["/tree/", "/blob/", "/-/"];

/// The hosts of which a label may name a repository: it is the words of the image's builder, and a link is what readers trust.
const OF_LABELS: [&str; 4] = ["github.com", "gitlab.com", "bitbucket.org", "codeberg.org"];

/// Returns the address of a commit's page; `None` for a host whose addresses are unknown, and a commit that is no hash.
///
/// The source of an image app's commit is the one that its image's label names, if there is one.
pub(crate) fn commit(source: &Source, label: Option<&str>, commit: &str) -> Option<String> {
    let url = match source {
        Source::Git(source) => source.url.to_string(),
        Source::Image => label?.to_owned(),
    };
    let is_hash = (7..=64).contains(&commit.len()) && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hash {
        return None;
    }
    let (host, path) = repository(&url)?;
    if *source == Source::Image && !OF_LABELS.contains(&host.as_str()) {
        return None;
    }
    let page = match host.as_str() {
        "bitbucket.org" => "commits",
        host if host.contains("gitlab") => "-/commit",
        // GitHub, Gitea, Forgejo and their own installations.
        host if ["github", "gitea", "forgejo", "codeberg"].iter().any(|name| host.contains(name)) => "commit",
        _ => return None,
    };
    Some(format!("https://{host}/{path}/{page}/{commit}"))
}

/// Returns host and path of `https://host/path.git` or `ssh://git@host:22/path.git`.
fn repository(url: &str) -> Option<(String, String)> {
    let (scheme, rest) = url.split_once("://")?;
    let (authority, path) = rest.split_once('/')?;
    let host = authority.rsplit('@').next()?;
    let host = match scheme {
        "https" => host,
        // The port is ssh's own.
        "ssh" => host.split(':').next()?,
        _ => return None,
    };
    let path = path.trim_end_matches('/');
    let path = path.strip_suffix(".git").unwrap_or(path);
    let is_plain = |text: &str, more: &str| {
        text.chars().all(|character| character.is_ascii_alphanumeric() || more.contains(character))
    };
    let is_part = PARTS.iter().any(|part| path.contains(part));
    (is_plain(host, ".-:") && is_plain(path, "._-/~") && !path.is_empty() && !is_part)
        .then(|| (host.to_lowercase(), path.to_owned()))
}

#[cfg(test)]
mod tests {
    use rollhook_core::source::GitSource;

    use super::*;

    fn link(url: &str, sha: &str) -> Option<String> {
        let source = GitSource {
            url: url.parse().unwrap(),
            branch: "main".parse().unwrap(),
            dockerfile: "Dockerfile".parse().unwrap(),
            context: ".".parse().unwrap(),
            image_repository: "registry.example.com/shop/api".parse().unwrap(),
            credentials: None,
        };
        commit(&Source::Git(source), None, sha)
    }

    #[test]
    fn known_hosts_have_pages() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        for (url, page) in [
            ("https://github.com/shop/api.git", "https://github.com/shop/api/commit/"),
            ("ssh://git@github.com/shop/api.git", "https://github.com/shop/api/commit/"),
            ("ssh://git@gitlab.example.com:2222/shop/web/api.git", "https://gitlab.example.com/shop/web/api/-/commit/"),
            ("https://bitbucket.org/shop/api", "https://bitbucket.org/shop/api/commits/"),
            ("https://codeberg.org/shop/api.git", "https://codeberg.org/shop/api/commit/"),
        ] {
            assert_eq!(link(url, sha), Some(format!("{page}{sha}")), "{url}");
        }
        assert_eq!(link("https://git.example.com/shop/api.git", sha), None, "its addresses are unknown");
        for label in ["v1.2.3", "abc", "javascript:x", "0123456789abcdef\"onclick=x"] {
            assert_eq!(link("https://github.com/shop/api.git", label), None, "{label}");
        }
    }

    #[test]
    fn commit_of_an_image_app_has_the_page_of_the_source_that_its_label_names() {
        let sha = "0123456789abcdef0123456789abcdef01234567";
        let page = Some(format!("https://github.com/shop/api/commit/{sha}"));
        assert_eq!(commit(&Source::Image, Some("https://github.com/shop/api"), sha), page);
        assert_eq!(commit(&Source::Image, None, sha), None);
        for label in [
            "https://github.com/shop/api/tree/main/images",
            "https://gitlab.com/shop/api/-/tree/main",
            "https://github.com/shop/api?x=\"onclick=x",
            "http://github.com/shop/api",
            "https://github.evil.example/shop/api",
            "javascript://github.com/shop/api",
            "shop/api",
        ] {
            assert_eq!(commit(&Source::Image, Some(label), sha), None, "{label}");
        }
    }
}
