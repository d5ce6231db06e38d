//! What a Dockerfile needs of its builder: the classic one says so late, or calls it an unknown instruction.

use std::iter::Peekable;

/// The instructions with options, and those that the classic builder takes.
const OPTIONS: [(&str, &[&str]); 3] = [("RUN", &[]), ("COPY", &["from", "chown"]), ("ADD", &["chown"])];

/// The first part of a Dockerfile that only BuildKit builds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NeedsBuildKit {
    /// The line, from 1.
    pub(crate) line: usize,
    /// The part, such as `RUN --mount`.
    pub(crate) part: String,
}

/// Returns the first part that needs BuildKit; `None` if there is none that is known.
pub(crate) fn needs_buildkit(text: &str) -> Option<NeedsBuildKit> {
    let escape = escape(text);
    let mut lines = text.lines().enumerate().peekable();
    while let Some((index, first)) = lines.next() {
        let instruction = joined(first, &mut lines, escape);
        let mut words = instruction.split_whitespace();
        let name = words.next().unwrap_or_default().to_uppercase();
        let Some((name, known)) = OPTIONS.iter().find(|(known, _)| *known == name) else { continue };
        let options = words.clone().map_while(|word| word.strip_prefix("--"));
        let mut options = options.map(|option| option.split('=').next().unwrap_or_default());
        let part = match options.find(|option| !option.is_empty() && !known.contains(option)) {
            Some(option) => Some(format!("{name} --{option}")),
            None => {
                let ends = |delimiter: &str| lines.clone().any(|(_, line)| line.trim_start_matches('\t') == delimiter);
                words.filter_map(delimiter).find(|word| ends(word)).map(|word| format!("{name} <<{word}"))
            }
        };
        if let Some(part) = part {
            return Some(NeedsBuildKit { line: index + 1, part });
        }
    }
    None
}

/// The character that joins lines: of the directive `# escape=`, which stands before all else.
fn escape(text: &str) -> char {
    let directives =
        text.lines().map_while(|line| line.trim().strip_prefix('#')).filter_map(|line| line.split_once('='));
    let mut given = directives.filter(|(name, _)| name.trim().eq_ignore_ascii_case("escape"));
    given.next().and_then(|(_, value)| value.trim().chars().next()).unwrap_or('\\')
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

#[cfg(test)]
mod tests {
    use super::*;

    fn found(text: &str) -> Option<(usize, String)> {
        needs_buildkit(text).map(|needs| (needs.line, needs.part))
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
}
