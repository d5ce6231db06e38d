//! `.dockerignore`: which files of a context are left out, by Docker's own rules. The engine reads it too late, once it
//! has all files; its clients apply it, as this does.

use std::fmt::Write as _;

use regex::{RegexBuilder, RegexSet, RegexSetBuilder};

/// The most patterns of a file.
pub(crate) const PATTERNS_MAX: usize = 1000;
/// The most memory of all patterns of a file, compiled together; and of what matching them keeps.
const COMPILED_MAX: usize = 8 << 20;
const MATCHING_MAX: usize = 2 << 20;

/// The patterns of a `.dockerignore`, in their order.
#[derive(Debug, Default)]
pub(crate) struct Ignored {
    patterns: RegexSet,
    /// Whether each pattern takes files back in (`!`).
    keep: Vec<bool>,
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
        let (mut expressions, mut lines, mut keep) = (Vec::new(), Vec::new(), Vec::new());
        for line in text.trim_start_matches('\u{feff}').lines() {
            let pattern = line.trim();
            if line.starts_with('#') || pattern.is_empty() {
                continue;
            }
            if keep.len() == PATTERNS_MAX {
                return Err(format!("has more than {PATTERNS_MAX} patterns"));
            }
            let (keeps, path) = match pattern.strip_prefix('!') {
                Some(rest) => (true, rest.trim()),
                None => (false, pattern),
            };
            expressions.push(expression(&cleaned(path)));
            lines.push(line);
            keep.push(keeps);
        }
        for path in never {
            expressions.push(format!("^{}$", regex::escape(path)));
            lines.push(path);
            keep.push(true);
        }
        let built = RegexSetBuilder::new(&expressions).size_limit(COMPILED_MAX).dfa_size_limit(MATCHING_MAX).build();
        let patterns = built.map_err(|_| fault(&expressions, &lines))?;
        Ok(Self { patterns, keep })
    }

    /// Returns what fits the context's own directory: nothing.
    pub(crate) fn top(&self) -> Fitting {
        Fitting(vec![false; self.keep.len()])
    }

    /// Returns what fits a directory, given what fits the one that it is in.
    pub(crate) fn fitting(&self, parent: &Fitting, path: &str) -> Fitting {
        let matched = self.patterns.matches(path);
        Fitting(parent.0.iter().enumerate().map(|(index, fits)| *fits || matched.matched(index)).collect())
    }

    /// Returns whether a path within the context is left out: the last pattern that fits it, or a directory that it is
    /// in, decides.
    pub(crate) fn has(&self, parent: &Fitting, path: &str) -> bool {
        let decides = self.fitting(parent, path).0.iter().rposition(|fits| *fits);
        decides.and_then(|index| self.keep.get(index)).is_some_and(|keeps| !keeps)
    }
}

/// Returns what is wrong with patterns that cannot be compiled together, as the end of a sentence.
fn fault(expressions: &[String], lines: &[&str]) -> String {
    for (expression, line) in expressions.iter().zip(lines) {
        let Err(error) = RegexBuilder::new(expression).size_limit(COMPILED_MAX).build() else { continue };
        let line: String = line.chars().take(100).collect();
        let too_long = matches!(error, regex::Error::CompiledTooBig(_));
        let what = if too_long { "too long a pattern" } else { "no pattern" };
        return format!("has a line that is {what}: {line:?}");
    }
    format!("has patterns that take more than {} MiB together: write fewer or shorter ones", COMPILED_MAX >> 20)
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
        // Each is short enough, and they are less than 64 KiB of text.
        let some = format!("{}\n", "?".repeat(600)).repeat(100);
        let refused = Ignored::parse(&some, &[]).unwrap_err();
        assert_eq!(refused, "has patterns that take more than 8 MiB together: write fewer or shorter ones");
        assert!(Ignored::parse(&format!("{}\n", "node_modules/**/a?b*.js").repeat(PATTERNS_MAX), &[]).is_ok());
    }
}
