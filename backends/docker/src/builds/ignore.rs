//! `.dockerignore`: which files of a context are left out, by Docker's own rules. The engine reads it too late, once it
//! has all files; its clients apply it, as this does.

use std::fmt::Write as _;

use regex::Regex;

/// The patterns of a `.dockerignore`, in their order.
#[derive(Debug, Default)]
pub(crate) struct Ignored(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    matches: Regex,
    /// Whether the pattern takes files back in (`!`).
    keeps: bool,
}

impl Ignored {
    /// Reads the file. These paths are never left out: the Dockerfile, and the file itself.
    ///
    /// # Errors
    /// The line that is no pattern.
    pub(crate) fn parse(text: &str, never: &[&str]) -> Result<Self, String> {
        let mut patterns = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let pattern = line.trim();
            if line.starts_with('#') || pattern.is_empty() {
                continue;
            }
            let (keeps, path) = match pattern.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, pattern),
            };
            let matches = Regex::new(&expression(&cleaned(path)));
            let matches = matches.map_err(|_| line.chars().take(100).collect::<String>())?;
            patterns.push(Pattern { matches, keeps });
        }
        for path in never {
            let matches = Regex::new(&format!("^{}$", regex::escape(path))).map_err(|_| (*path).to_owned())?;
            patterns.push(Pattern { matches, keeps: true });
        }
        Ok(Self(patterns))
    }

    /// Returns whether a path within the context is left out: the last pattern that fits it, or a directory that it is
    /// in, decides.
    pub(crate) fn has(&self, path: &str) -> bool {
        let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
        let places: Vec<&str> = parents.chain([path]).collect();
        self.0.iter().fold(false, |ignored, pattern| {
            if ignored == pattern.keeps && places.iter().any(|place| pattern.matches.is_match(place)) {
                !pattern.keeps
            } else {
                ignored
            }
        })
    }
}

/// Returns a path without `.`, `..` and doubled or outer slashes, as the context's paths are written.
fn cleaned(path: &str) -> String {
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    if parts.is_empty() { ".".to_owned() } else { parts.join("/") }
}

/// Returns the regular expression of a pattern: `**` is any number of directories, `*` and `?` stay within a name.
fn expression(pattern: &str) -> String {
    let mut expression = "^".to_owned();
    let mut rest = pattern.chars().peekable();
    while let Some(character) = rest.next() {
        match character {
            '*' if rest.next_if_eq(&'*').is_some() => {
                rest.next_if_eq(&'/');
                expression.push_str(if rest.peek().is_some() { "(.*/)?" } else { ".*" });
            }
            '*' => expression.push_str("[^/]*"),
            '?' => expression.push_str("[^/]"),
            '[' | ']' | '^' | '-' => expression.push(character),
            '\\' => expression.push_str(&regex::escape(&rest.next().unwrap_or('\\').to_string())),
            other => {
                let _ = write!(expression, "{}", regex::escape(&other.to_string()));
            }
        }
    }
    expression.push('$');
    expression
}

#[cfg(test)]
mod tests {
    use super::*;

    fn left_out(text: &str, paths: &[&'static str]) -> Vec<&'static str> {
        let ignored = Ignored::parse(text, &["Dockerfile", ".dockerignore"]).unwrap();
        paths.iter().filter(|path| ignored.has(path)).copied().collect()
    }

    #[test]
    fn patterns_are_read_as_docker_reads_them() {
        let paths = ["Dockerfile", "README.md", "docs/a.md", "docs/b/c.md", "src/main.c", "node_modules/x/y.js", "a b"];
        for (text, expected) in [
            ("", &[][..]),
            ("# *\n\n", &[]),
            ("*.md", &["README.md"]),
            ("**/*.md", &["README.md", "docs/a.md", "docs/b/c.md"]),
            ("/docs/", &["docs/a.md", "docs/b/c.md"]),
            ("docs/*\n!docs/b", &["docs/a.md"]),
            ("!docs/b\ndocs", &["docs/a.md", "docs/b/c.md"]),
            ("./src/../docs/?.md", &["docs/a.md"]),
            ("**/y.js\n  a b  ", &["node_modules/x/y.js", "a b"]),
            ("[a-b] b", &["a b"]),
            ("docs/[^a].md", &[]),
            ("node_modules/**", &["node_modules/x/y.js"]),
        ] {
            assert_eq!(left_out(text, &paths), expected, "{text:?}");
        }
    }

    #[test]
    fn dockerfile_is_sent_whatever_the_patterns_say() {
        assert_eq!(left_out("*\n**", &["Dockerfile", ".dockerignore", "x", "sub/Dockerfile"]), ["x", "sub/Dockerfile"]);
    }

    #[test]
    fn line_that_is_no_pattern_is_named() {
        assert_eq!(Ignored::parse("ok\na[b\n", &[]).unwrap_err(), "a[b");
    }
}
