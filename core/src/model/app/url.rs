//! The address at which people reach an app.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{super::host, InvalidName};
use crate::text::checked_text;

checked_text! {
    /// The address at which people reach an app, such as `https://shop.example.com`: a link for them. The service never calls it.
    AppUrl, InvalidName, |text| check(text).map_err(|rule| InvalidName::new("URL", text, rule))
}

impl AppUrl {
    /// The longest one, in characters.
    pub const MAX: usize = 500;
}

fn check(text: &str) -> Result<String, &'static str> {
    if text.len() > AppUrl::MAX {
        return Err("must be at most 500 characters");
    }
    if text.bytes().any(|byte| !(b'!'..=b'~').contains(&byte) || matches!(byte, b'"' | b'<' | b'>' | b'\\' | b'`')) {
        return Err("must be printable ASCII without spaces and quotation marks (others percent-encoded)");
    }
    let rest = text.strip_prefix("https://").or_else(|| text.strip_prefix("http://"));
    let rest = rest.ok_or("must begin with https:// or http://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err("must be without a user");
    }
    let is_name = |host: &str| {
        !host.is_empty() && host.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_'))
    };
    host::check(authority, is_name)?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_links_of_the_web_without_secrets() {
        for url in ["https://shop.example.com", "http://10.0.0.7:8080/a?b=c#d", "https://[2001:db8::1]/", "https://a"] {
            assert_eq!(url.parse::<AppUrl>().map(|url| url.to_string()).as_deref(), Ok(url));
        }
        for url in [
            "",
            "shop.example.com",
            "javascript:alert(1)",
            "https://",
            "https:///x",
            "https://user:secret@shop.example.com",
            "https://shop.example.com/\"onclick",
            "https://shop example.com",
            "https://shop.example.com:99999",
        ] {
            assert!(url.parse::<AppUrl>().is_err(), "{url}");
        }
        assert!(format!("https://a.example/{}", "a".repeat(500)).parse::<AppUrl>().is_err());
    }
}
