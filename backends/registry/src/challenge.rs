//! The header `WWW-Authenticate`: pure.

use http::{HeaderMap, header::WWW_AUTHENTICATE};

/// The way in which a registry wants a login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Challenge {
    /// A token of this server.
    Bearer {
        /// The server's URL.
        realm: String,
        /// The name by which it knows the registry.
        service: Option<String>,
    },
    /// The login itself.
    Basic,
}

/// Returns the challenge of an answer; of several, that of a token.
pub(crate) fn of(headers: &HeaderMap) -> Option<Challenge> {
    let texts = headers.get_all(WWW_AUTHENTICATE).iter().filter_map(|value| value.to_str().ok());
    let mut challenges: Vec<Challenge> = texts.flat_map(read).collect();
    let bearer = challenges.iter().position(|challenge| *challenge != Challenge::Basic);
    (!challenges.is_empty()).then(|| challenges.swap_remove(bearer.unwrap_or(0)))
}

/// Returns the challenges of one header that can be met.
fn read(text: &str) -> Vec<Challenge> {
    let mut schemes: Vec<(String, Vec<(String, String)>)> = Vec::new();
    for part in parts(text) {
        // A scheme is a word of its own, or one before its first parameter.
        let before_value = part.split('=').next().unwrap_or_default();
        let (scheme, parameter) = match before_value.trim().split_once(' ') {
            Some((scheme, _)) => (Some(scheme), part.trim()[scheme.len()..].trim()),
            None if part.contains('=') => (None, part.trim()),
            None => (Some(part.trim()), ""),
        };
        if let Some(scheme) = scheme.filter(|scheme| !scheme.is_empty()) {
            schemes.push((scheme.to_ascii_lowercase(), Vec::new()));
        }
        if let (Some((_, parameters)), Some((name, value))) = (schemes.last_mut(), parameter.split_once('=')) {
            parameters.push((name.trim().to_ascii_lowercase(), unquoted(value.trim())));
        }
    }
    schemes.into_iter().filter_map(|(scheme, parameters)| challenge(&scheme, &parameters)).collect()
}

fn challenge(scheme: &str, parameters: &[(String, String)]) -> Option<Challenge> {
    let value = |name: &str| parameters.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    match scheme {
        "bearer" => Some(Challenge::Bearer { realm: value("realm")?, service: value("service") }),
        "basic" => Some(Challenge::Basic),
        _ => None,
    }
}

/// Returns the parts between commas that stand outside of quotation marks.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut is_quoted, mut is_escaped) = (Vec::new(), 0, false, false);
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            b'"' => is_quoted = !is_quoted,
            b',' if !is_quoted => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn unquoted(value: &str) -> String {
    let Some(inner) = value.strip_prefix('"') else { return value.to_owned() };
    let inner = inner.strip_suffix('"').unwrap_or(inner);
    let mut text = String::with_capacity(inner.len());
    let mut characters = inner.chars();
    while let Some(character) = characters.next() {
        text.extend(if character == '\\' { characters.next() } else { Some(character) });
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn challenge(texts: &[&str]) -> Option<Challenge> {
        let mut headers = HeaderMap::new();
        for text in texts {
            headers.append(WWW_AUTHENTICATE, HeaderValue::from_str(text).unwrap());
        }
        of(&headers)
    }

    fn bearer(realm: &str, service: Option<&str>) -> Option<Challenge> {
        Some(Challenge::Bearer { realm: realm.to_owned(), service: service.map(str::to_owned) })
    }

    /// Headers as registries send them.
    #[test]
    fn challenges_of_registries_are_read() {
        let hub = r#"Bearer realm="https://auth.docker.io/token",service="registry.docker.io",scope="repository:library/nginx:pull""#;
        assert_eq!(challenge(&[hub]), bearer("https://auth.docker.io/token", Some("registry.docker.io")));
        let listed =
            r#"Bearer realm="https://r.example/t?a=b,c", service="r", scope="repository:a:pull,push", error="x""#;
        assert_eq!(challenge(&[listed]), bearer("https://r.example/t?a=b,c", Some("r")));
        assert_eq!(challenge(&["bearer realm=https://r.example/t"]), bearer("https://r.example/t", None));
        assert_eq!(challenge(&[r#"Basic realm="Registry Realm""#]), Some(Challenge::Basic));
        assert_eq!(challenge(&["Basic"]), Some(Challenge::Basic));
        let escaped = r#"Bearer realm="https://r.example/\"t\"""#;
        assert_eq!(challenge(&[escaped]), bearer(r#"https://r.example/"t""#, None));
    }

    #[test]
    fn token_is_preferred_where_a_registry_has_several_ways() {
        let wanted = bearer("https://r.example/t", Some("r"));
        let bearer = r#"Bearer realm="https://r.example/t",service="r""#;
        assert_eq!(challenge(&["Basic realm=\"r\"", bearer]), wanted);
        assert_eq!(challenge(&[&format!("Basic realm=\"r\", {bearer}")]), wanted);
        assert_eq!(challenge(&[&format!("{bearer}, Basic realm=\"r\"")]), wanted);
        assert_eq!(challenge(&["Negotiate", bearer]), wanted);
    }

    #[test]
    fn what_cannot_be_met_is_no_challenge() {
        for text in ["", "Negotiate", "Bearer", r#"Bearer service="r""#, "Digest realm=\"r\", nonce=\"Basic\"", ",,=,"]
        {
            assert_eq!(challenge(&[text]), None, "{text}");
        }
        assert_eq!(challenge(&[]), None);
    }
}
