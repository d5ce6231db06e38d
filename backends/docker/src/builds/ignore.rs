//! `.dockerignore`: which files of a context are left out, by Docker's own rules. The engine reads it too late, once it
//! has all files; its clients apply it, as this does.

use std::fmt::Write as _;

use regex::{Regex, RegexBuilder};

/// The most patterns of a file.
pub(crate) const PATTERNS_MAX: usize = 1000;
/// The most memory of one pattern, compiled; and of what matching it keeps.
const COMPILED_MAX: usize = 1 << 20;
const MATCHING_MAX: usize = 32 << 10;

/// The patterns of a `.dockerignore`, in their order.
#[derive(Debug, Default)]
pub(crate) struct Ignored(Vec<Pattern>);

#[derive(Debug)]
struct Pattern {
    matches: Regex,
    /// Whether the pattern takes files back in (`!`).
    keeps: bool,
}

/// The patterns that fit a directory, or one that it is in, by their places in the file. They fit all that is in it.
#[derive(Debug)]
pub(crate) struct Fitting(Vec<bool>);

impl Ignored {
    /// Reads the file. These paths are never left out: the Dockerfile, and the file itself.
    ///
    /// # Errors
    /// What is wrong with the file, as the end of a sentence.
    pub(crate) fn parse(text: &str, never: &[&str]) -> Result<Self, String> {
        let mut patterns = Vec::new();
        for line in text.trim_start_matches('\u{feff}').lines() {
            let pattern = line.trim();
            if line.starts_with('#') || pattern.is_empty() {
                continue;
            }
            if patterns.len() == PATTERNS_MAX {
                return Err(format!("has more than {PATTERNS_MAX} patterns"));
            }
            let (keeps, path) = match pattern.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, pattern),
            };
            patterns.push(Pattern { matches: compiled(&expression(&cleaned(path)), line)?, keeps });
        }
        for path in never {
            patterns.push(Pattern { matches: compiled(&format!("^{}$", regex::escape(path)), path)?, keeps: true });
        }
        Ok(Self(patterns))
    }

    /// Returns what fits the context's own directory: nothing.
    pub(crate) fn top(&self) -> Fitting {
        Fitting(vec![false; self.0.len()])
    }

    /// Returns what fits a directory, given what fits the one that it is in.
    pub(crate) fn fitting(&self, parent: &Fitting, path: &str) -> Fitting {
        let fit = |(pattern, fits): (&Pattern, &bool)| *fits || pattern.matches.is_match(path);
        Fitting(self.0.iter().zip(&parent.0).map(fit).collect())
    }

    /// Returns whether a path within the context is left out: the last pattern that fits it, or a directory that it is
    /// in, decides.
    pub(crate) fn has(&self, parent: &Fitting, path: &str) -> bool {
        let mut last_first = self.0.iter().zip(&parent.0).rev();
        let decides = last_first.find(|(pattern, fits)| **fits || pattern.matches.is_match(path));
        decides.is_some_and(|(pattern, _)| !pattern.keeps)
    }
}

fn compiled(expression: &str, line: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(expression).size_limit(COMPILED_MAX).dfa_size_limit(MATCHING_MAX).build();
    built.map_err(|error| {
        let line: String = line.chars().take(100).collect();
        let too_long = matches!(error, regex::Error::CompiledTooBig(_));
        let what = if too_long { "too long a pattern" } else { "no pattern" };
        format!("has a line that is {what}: {line:?}")
    })
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
                expression.push_str(if rest.peek().is_some() { "(?:.*/)?" } else { ".*" });
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
        let parent = |path: &str| {
            let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            parents.fold(ignored.top(), |above, parent| ignored.fitting(&above, parent))
        };
        paths.iter().filter(|path| ignored.has(&parent(path), path)).copied().collect()
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
        assert_eq!(Ignored::parse("ok\na[b\n", &[]).unwrap_err(), "has a line that is no pattern: \"a[b\"");
    }

    #[test]
    fn patterns_without_bound_are_refused() {
        assert!(Ignored::parse(&"a\n".repeat(PATTERNS_MAX), &["Dockerfile"]).is_ok());
        let refused = Ignored::parse(&"a\n".repeat(PATTERNS_MAX + 1), &[]).unwrap_err();
        assert!(refused.contains("more than 1000 patterns"), "{refused}");
        let refused = Ignored::parse(&"?".repeat(64 << 10), &[]).unwrap_err();
        assert!(refused.contains("too long a pattern"), "{refused}");
    }
}
