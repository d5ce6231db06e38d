//! The needs of a Dockerfile: the classic builder says late that it lacks a part, or calls it an unknown instruction, and
//! BuildKit pulls no images here.

use std::{
    collections::{HashMap, HashSet},
    iter::Peekable,
};

/// The instructions with options, and those that the classic builder takes.
const OPTIONS: [(&str, &[&str]); 3] = [("RUN", &[]), ("COPY", &["from", "chown"]), ("ADD", &["chown"])];
/// The most images that are looked for.
const IMAGES_MAX: usize = 50;
/// The longest name of an image, with the values of its arguments.
const NAME_MAX: usize = 1000;

/// The needs of a Dockerfile, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Needs {
    /// The first part that only BuildKit builds.
    pub(crate) buildkit: Option<Part>,
    /// The first here-document, unless the Dockerfile names its syntax: the BuildKit of old engines knows none by itself.
    pub(crate) here_document: Option<Part>,
    /// The images that it is built from, and that of its syntax.
    pub(crate) images: Vec<String>,
}

/// A part of a Dockerfile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The part, such as `RUN --mount`.
    pub(crate) part: String,
}

impl Needs {
    /// Reads a Dockerfile.
    pub(crate) fn of(text: &str) -> Self {
        let mut needs = Self::default();
        let mut images = Images::default();
        let syntax = directive(text, "syntax");
        images.add(syntax.unwrap_or_default());
        for instruction in instructions(text) {
            let found = |part| Part { line: instruction.line, part };
            let here_document = instruction.here_document().filter(|_| syntax.is_none());
            needs.buildkit = needs.buildkit.or_else(|| instruction.buildkit().map(found));
            needs.here_document = needs.here_document.or_else(|| here_document.map(found));
            images.take(&instruction);
        }
        Self { images: images.found, ..needs }
    }
}

/// An instruction, with the lines that continue it and without the text of here-documents.
struct Instruction<'a> {
    line: usize,
    /// In upper case.
    name: String,
    text: String,
    /// The delimiter of its first here-document.
    delimiter: Option<&'a str>,
}

impl Instruction<'_> {
    /// Returns the options and their values.
    fn options(&self) -> impl Iterator<Item = (&str, &str)> {
        let words = self.text.split_whitespace().skip(1);
        let options = words.map_while(|word| word.strip_prefix("--"));
        options.map(|option| option.split_once('=').unwrap_or((option, "")))
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split_whitespace().skip(1).skip_while(|word| word.starts_with("--"))
    }

    /// Returns the part that only BuildKit builds.
    fn buildkit(&self) -> Option<String> {
        let (name, known) = OPTIONS.iter().find(|(name, _)| *name == self.name)?;
        let option = self.options().find(|(option, _)| !option.is_empty() && !known.contains(option));
        option.map(|(option, _)| format!("{name} --{option}")).or_else(|| self.here_document())
    }

    fn here_document(&self) -> Option<String> {
        self.delimiter.map(|delimiter| format!("{} <<{delimiter}", self.name))
    }
}

/// Returns the instructions of a Dockerfile.
fn instructions(text: &str) -> impl Iterator<Item = Instruction<'_>> {
    let escape = directive(text, "escape").and_then(|value| value.chars().next()).unwrap_or('\\');
    let numbered = || text.lines().enumerate();
    // The last line with each text: whether a here-document ends is known without a search for each.
    let last: HashMap<&str, usize> = numbered().map(|(index, line)| (line.trim_start_matches('\t'), index)).collect();
    let mut lines = numbered().peekable();
    std::iter::from_fn(move || {
        let (index, first) = lines.next()?;
        let text = joined(first, &mut lines, escape);
        let name = text.split_whitespace().next().unwrap_or_default().to_uppercase();
        let mut first_delimiter = None;
        if OPTIONS.iter().any(|(known, _)| *known == name) {
            for word in text.split_whitespace().filter_map(delimiter) {
                let next = lines.peek().map_or(usize::MAX, |(next, _)| *next);
                let Some((word, _)) = last.get_key_value(word).filter(|(_, last)| **last >= next) else { continue };
                first_delimiter = first_delimiter.or(Some(*word));
                lines.by_ref().find(|(_, line)| line.trim_start_matches('\t') == *word);
            }
        }
        Some(Instruction { line: index + 1, name, text, delimiter: first_delimiter })
    })
}

/// The value of a directive such as `# escape=`, which stands before all else.
fn directive<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let directives =
        text.lines().map_while(|line| line.trim().strip_prefix('#')).filter_map(|line| line.split_once('='));
    let mut given = directives.filter(|(given, _)| given.trim().eq_ignore_ascii_case(name));
    given.next().map(|(_, value)| value.trim())
}

/// An instruction with the lines that continue it, without comments between them.
fn joined<'a>(first: &str, lines: &mut Peekable<impl Iterator<Item = (usize, &'a str)>>, escape: char) -> String {
    let mut all = first.trim().to_owned();
    while all.ends_with(escape) && !all.starts_with('#') {
        all.pop();
        all.push(' ');
        while lines.next_if(|(_, line)| line.trim_start().starts_with('#')).is_some() {}
        let Some((_, next)) = lines.next() else { break };
        all.push_str(next.trim());
    }
    all
}

/// The delimiter of a here-document that a word begins: `<<EOF`, `<<-"EOF"`, `3<<EOF`.
fn delimiter(word: &str) -> Option<&str> {
    let (_, rest) = word.split_once("<<").filter(|(file, _)| file.bytes().all(|byte| byte.is_ascii_digit()))?;
    let name = rest.trim_start_matches('-').trim_matches(['"', '\'']);
    (!name.is_empty() && !name.contains('<')).then_some(name)
}

/// The images that a Dockerfile names.
#[derive(Default)]
struct Images {
    found: Vec<String>,
    /// The names of the stages so far, in lower case.
    stages: HashSet<String>,
    /// The arguments before the first stage, with their values.
    arguments: HashMap<String, String>,
    began: bool,
}

impl Images {
    fn take(&mut self, instruction: &Instruction<'_>) {
        let mut words = instruction.words();
        match instruction.name.as_str() {
            "ARG" if !self.began => {
                for (name, value) in words.filter_map(|word| word.split_once('=')) {
                    if let Some(value) = self.expanded(value.trim_matches(['"', '\''])) {
                        self.arguments.insert(name.to_owned(), value);
                    }
                }
            }
            "FROM" => {
                self.began = true;
                self.add(words.next().unwrap_or_default());
                if words.next().is_some_and(|word| word.eq_ignore_ascii_case("as")) {
                    self.stages.extend(words.next().map(str::to_lowercase));
                }
            }
            "COPY" => {
                let from = instruction.options().filter(|(option, _)| *option == "from");
                from.for_each(|(_, image)| self.add(image));
            }
            "RUN" => {
                let mounts = instruction.options().filter(|(option, _)| *option == "mount");
                let from = mounts.flat_map(|(_, mount)| mount.split(',')).filter_map(|part| part.strip_prefix("from="));
                from.for_each(|image| self.add(image));
            }
            _ => {}
        }
    }

    /// Adds what may be an image, and is neither a stage nor empty.
    fn add(&mut self, name: &str) {
        let Some(name) = self.expanded(name) else { return };
        let is_stage = self.stages.contains(&name.to_lowercase()) || name.bytes().all(|byte| byte.is_ascii_digit());
        if !is_stage && name != "scratch" && !self.found.contains(&name) && self.found.len() < IMAGES_MAX {
            self.found.push(name);
        }
    }

    /// Returns a text with the values of its arguments, `$NAME`, `${NAME}` and `${NAME:-value}`; `None` if one is unknown.
    fn expanded(&self, text: &str) -> Option<String> {
        let mut parts = text.split('$');
        let mut all = parts.next()?.to_owned();
        for part in parts {
            let (name, default, rest) = if let Some(braced) = part.strip_prefix('{') {
                let (inner, rest) = braced.split_once('}')?;
                let (name, default) = inner.split_once(":-").map_or((inner, None), |(name, value)| (name, Some(value)));
                (name, default, rest)
            } else {
                let end = part.find(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
                let (name, rest) = part.split_at(end.unwrap_or(part.len()));
                (name, None, rest)
            };
            let value = self.arguments.get(name).map(String::as_str).filter(|value| !value.is_empty()).or(default)?;
            all.push_str(value);
            all.push_str(rest);
            if all.len() > NAME_MAX {
                return None;
            }
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(usize, String)> {
        Needs::of(text).buildkit.map(|part| (part.line, part.part))
    }

    #[test]
    fn part_that_needs_buildkit_is_named_with_its_line() {
        for (text, line, part) in [
            ("FROM a\nRUN --mount=type=cache,target=/c make", 2, "RUN --mount"),
            ("FROM a\n\nrun \\\n  # cached\n  --mount=type=cache,target=/c \\\n  make\n", 3, "RUN --mount"),
            ("FROM a\nCOPY --chown=1 --chmod=755 a /a", 2, "COPY --chmod"),
            ("FROM a\nADD --checksum=sha256:1 https://example.com/a /a", 2, "ADD --checksum"),
            ("FROM a\nCOPY <<-'EOF' /motd\n\thello\n\tEOF\n", 2, "COPY <<EOF"),
            ("FROM a\nRUN cat <<EOF > /motd\nhello\nEOF\n", 2, "RUN <<EOF"),
            ("# escape=`\nFROM a\nRUN `\n--network=none make", 3, "RUN --network"),
        ] {
            assert_eq!(found(text), Some((line, part.to_owned())), "{text}");
        }
    }

    #[test]
    fn what_the_classic_builder_builds_is_left_to_it() {
        for text in [
            "",
            "# syntax=docker/dockerfile:1\nFROM --platform=linux/amd64 a AS b\nRUN make --mount x",
            "FROM a\nCOPY --from=b --chown=1 /a /a\nADD --chown=1 a /a",
            "FROM a\nRUN echo $((1<<2)) && cat <<< x && cat <<EOF\nRUN true",
            "FROM a\n# RUN --mount=type=cache make\nRUN true",
            "FROM a\nRUN true \\",
        ] {
            assert_eq!(found(text), None, "{text}");
        }
    }

    #[test]
    fn images_are_those_that_are_no_stages() {
        let images = |text: &str| Needs::of(text).images;
        let text = "# syntax=docker/dockerfile:1\nARG V=20\nARG NODE=node:${V}-alpine\nFROM --platform=linux/amd64 $NODE AS Web\n\
                    FROM web AS api\nCOPY --from=web /a /a\nCOPY --from=0 /a /a\nCOPY --from=tools:v1 /a /a\nFROM scratch\n\
                    RUN --mount=type=bind,from=cache:v2,target=/c --mount=from=api,target=/a <<EOF\nFROM users\nEOF\nFROM tools:v1";
        assert_eq!(images(text), ["docker/dockerfile:1", "node:20-alpine", "tools:v1", "cache:v2"]);
        for (text, expected) in [
            ("FROM ${BASE:-debian}:${TAG:-12}", "debian:12"),
            ("ARG BASE=\"debian:12\"\nFROM $BASE", "debian:12"),
            ("ARG BASE\nFROM ${BASE:-debian}", "debian"),
        ] {
            assert_eq!(images(text), [expected], "{text}");
        }
        for none in ["FROM $BASE", "FROM ${BASE", "FROM a$", "FROM", "FROM a:${V:-1}$V\nARG V=1", "RUN --mount=from="] {
            assert!(images(none).is_empty(), "{none}");
        }
    }

    #[test]
    fn here_document_is_looked_for_where_no_syntax_is_named() {
        let found = |text: &str| Needs::of(text).here_document.map(|part| (part.line, part.part));
        let text = "FROM a\nRUN --mount=type=cache,target=/c <<A <<B\nRUN <<C\nA\nB\nRUN true\nCOPY <<C /c\nC\n";
        assert_eq!(found(text), Some((2, "RUN <<A".to_owned())));
        assert_eq!(found(&format!("#syntax = docker/dockerfile:1\n{text}")), None);
        assert_eq!(found("FROM a\nRUN --mount=type=cache,target=/c cat <<A\n"), None, "it has no end");
    }

    #[test]
    fn arguments_that_grow_and_many_words_are_bounded() {
        let doubled: String = (1..100).map(|n| format!("ARG A{n}=$A{}$A{}\n", n - 1, n - 1)).collect();
        assert_eq!(Needs::of(&format!("ARG A0=aa\n{doubled}FROM $A3\nFROM $A99")).images, ["a".repeat(16)]);
        let words = "<<a ".repeat(100_000);
        assert_eq!(found(&format!("RUN {words}\n{}", "RUN <<b\n".repeat(100_000))), None);
        let many: String = (0..1000).map(|n| format!("FROM image-{n}\n")).collect();
        assert_eq!(Needs::of(&many).images.len(), IMAGES_MAX);
    }
}
