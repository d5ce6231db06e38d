//! Lists of tags: their pages, and the places at which they go on. Pure.
//!
//! A registry names the next page in a `Link`. Others, older than that, know the parameters `n` and `last` without one, or
//! know no pages at all: after a page that is as long as was asked for, the list is asked for what comes after its last
//! tag, and has ended when that is empty or begins anew.

use form_urlencoded::Serializer;
use http::{HeaderMap, header::LINK};
use rollhook_core::{
    image::Tag,
    ports::{TagCursor, TagPage, TagQuery},
};
use serde::Deserialize;

/// The most tags that are asked for at once.
const LIMIT_MAX: usize = 1000;
/// The longest text of a place in bytes.
const CURSOR_MAX: usize = 2048;

/// The place at which a list goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The query of a registry's own link.
    Link(String),
    /// After the last tag so far, of a list with this first tag.
    After { first: Tag, last: Tag },
}

#[derive(Deserialize)]
struct Answer {
    tags: Option<Vec<String>>,
}

impl Place {
    /// Reads a place; `None` if it is none of this backend's.
    pub(crate) fn read(cursor: &TagCursor) -> Option<Self> {
        let (kind, text) = cursor.0.split_once(':')?;
        match kind {
            "link" if is_query(text) => Some(Self::Link(text.to_owned())),
            "after" => {
                let (first, last) = text.split_once(':')?;
                Some(Self::After { first: first.parse().ok()?, last: last.parse().ok()? })
            }
            _ => None,
        }
    }

    fn cursor(&self) -> TagCursor {
        TagCursor(match self {
            Self::Link(query) => format!("link:{query}"),
            Self::After { first, last } => format!("after:{first}:{last}"),
        })
    }
}

/// Returns the number of tags that are asked for.
pub(crate) fn limit(query: &TagQuery) -> usize {
    query.limit.clamp(1, LIMIT_MAX)
}

/// Returns the query of a page's URL.
pub(crate) fn query(limit: usize, place: Option<&Place>) -> String {
    if let Some(Place::Link(query)) = place {
        return query.clone();
    }
    let mut query = Serializer::new(String::new());
    query.append_pair("n", &limit.to_string());
    if let Some(Place::After { last, .. }) = place {
        query.append_pair("last", last.as_str());
    }
    query.finish()
}

/// Reads a page that was asked for at this place.
///
/// # Errors
/// The reason why it is none, as the end of a sentence about it.
pub(crate) fn page(
    limit: usize,
    place: Option<&Place>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<TagPage, &'static str> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| "is no list of tags")?;
    let names = answer.tags.unwrap_or_default();
    let count = names.len();
    // Registries may keep what no reference can name.
    let tags: Vec<Tag> = names.into_iter().filter_map(|name| name.parse().ok()).collect();
    if let Some(query) = link(headers)? {
        let next = Place::Link(query);
        let is_same = place == Some(&next);
        return if is_same {
            Err("leads from a page to itself")
        } else {
            Ok(TagPage { tags, next: Some(next.cursor()) })
        };
    }
    let first = match place {
        Some(Place::After { first, last }) => {
            if tags.contains(first) || tags.contains(last) {
                return Ok(TagPage { tags: Vec::new(), next: None });
            }
            Some(first)
        }
        // A registry that has linked this page would have linked another one.
        Some(Place::Link(_)) => return Ok(TagPage { tags, next: None }),
        None => tags.first(),
    };
    let next = match (first, tags.last()) {
        // A registry that returned more than was asked for knows no pages.
        (Some(first), Some(last)) if count == limit => {
            Some(Place::After { first: first.clone(), last: last.clone() }.cursor())
        }
        _ => None,
    };
    Ok(TagPage { tags, next })
}

/// Returns the query of the next page's link. Only that: the page is asked for at the registry that was called, whatever
/// stands before it.
pub(crate) fn link(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    for header in headers.get_all(LINK) {
        let text = header.to_str().map_err(|_| "has a link that cannot be read")?;
        for part in text.split(", <").map(|part| part.trim_start_matches('<')) {
            let Some((target, parameters)) = part.split_once('>') else { continue };
            let is_next = parameters.split(';').any(|parameter| {
                let (name, value) = parameter.split_once('=').unwrap_or_default();
                name.trim().eq_ignore_ascii_case("rel") && value.trim().trim_matches('"').eq_ignore_ascii_case("next")
            });
            if is_next {
                let query = target.split_once('?').map(|(_, query)| query).filter(|query| is_query(query));
                return query.map(|query| Some(query.to_owned())).ok_or("has a link that cannot be read");
            }
        }
    }
    Ok(None)
}

/// Returns whether a text can stand behind the question mark of a URL.
fn is_query(text: &str) -> bool {
    !text.is_empty() && text.len() <= CURSOR_MAX && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn tag(text: &str) -> Tag {
        text.parse().unwrap()
    }

    fn read(limit: usize, place: Option<&Place>, link: Option<&str>, tags: &[&str]) -> Result<TagPage, &'static str> {
        let mut headers = HeaderMap::new();
        headers.extend(link.map(|link| (LINK, link.parse().unwrap())));
        page(limit, place, &headers, json!({ "name": "api", "tags": tags }).to_string().as_bytes())
    }

    /// The tags that are read of a registry, page by page.
    fn all(registry: impl Fn(&str) -> Vec<&'static str>, limit: usize) -> Vec<String> {
        let (mut found, mut place) = (Vec::new(), None);
        for _ in 0..20 {
            let page = read(limit, place.as_ref(), None, &registry(&query(limit, place.as_ref()))).unwrap();
            found.extend(page.tags.iter().map(ToString::to_string));
            match page.next {
                Some(next) => place = Some(Place::read(&next).unwrap()),
                None => return found,
            }
        }
        panic!("the list has no end: {found:?}");
    }

    #[test]
    fn link_names_the_next_page() {
        let link = r#"</v2/api/tags/list?last=b&n=2>; rel="next""#;
        let page = read(2, None, Some(link), &["a", "b"]).unwrap();
        let place = Place::read(&page.next.unwrap()).unwrap();
        assert_eq!(query(2, Some(&place)), "last=b&n=2");
        // GitLab's and Quay's links have places of their own, and may name another host.
        let other = r#"<http://10.0.0.7/internal?x>; rel="prev", <https://quay.example/v2/api/tags/list?next_page=gAA%3D>; rel=next"#;
        let page = read(2, Some(&place), Some(other), &["c"]).unwrap();
        let place = Place::read(&page.next.unwrap()).unwrap();
        assert_eq!(query(2, Some(&place)), "next_page=gAA%3D");
        let end = read(2, Some(&place), None, &["d", "e"]).unwrap();
        assert_eq!((end.tags, end.next), (vec![tag("d"), tag("e")], None));
    }

    #[test]
    fn link_that_leads_nowhere_is_refused() {
        for link in ["</v2/api/tags/list>; rel=next", "<?>; rel=next", "<?a#b>; rel=next"] {
            assert!(read(1, None, Some(link), &["a"]).is_err(), "{link}");
        }
        let place = Place::Link("last=a".to_owned());
        assert!(read(1, Some(&place), Some("<?last=a>; rel=next"), &["a"]).is_err());
        assert!(page(1, None, &HeaderMap::new(), b"<html>").is_err());
    }

    #[test]
    fn list_without_links_is_read_to_its_end_and_no_further() {
        const TAGS: [&str; 4] = ["B", "a", "c", "d"];
        let after = |query: &str| {
            let last = query.split_once("last=").map_or("", |(_, last)| last);
            TAGS.iter().position(|tag| *tag == last).map_or(0, |at| at + 1)
        };
        for limit in 1..6 {
            // One that knows the parameters.
            let pages = |query: &str| TAGS[after(query)..].iter().copied().take(limit).collect();
            assert_eq!(all(pages, limit), TAGS, "{limit}");
            // One that begins anew behind its end.
            let anew = |query: &str| {
                let begin = if after(query) == TAGS.len() { 0 } else { after(query) };
                TAGS[begin..].iter().copied().take(limit).collect()
            };
            assert_eq!(all(anew, limit), TAGS, "{limit}");
            // One that knows none.
            assert_eq!(all(|_| TAGS.to_vec(), limit), TAGS, "{limit}");
        }
    }

    #[test]
    fn repository_without_tags_has_an_empty_page() {
        for body in [r#"{"name": "api", "tags": null}"#, r#"{"name": "api", "tags": []}"#, r#"{"name": "api"}"#] {
            let page = page(5, None, &HeaderMap::new(), body.as_bytes()).unwrap();
            assert_eq!(page, TagPage { tags: Vec::new(), next: None }, "{body}");
        }
    }

    #[test]
    fn place_of_another_backend_is_none() {
        for text in ["", "7", "link:", "link:a b", "link:a#b", "after:a", "after:a:b c", "other:a"] {
            assert_eq!(Place::read(&TagCursor(text.to_owned())), None, "{text}");
        }
        assert_eq!(Place::read(&TagCursor(format!("link:{}", "x".repeat(CURSOR_MAX + 1)))), None);
    }
}
