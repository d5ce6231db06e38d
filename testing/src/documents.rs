//! The commands that the documents show, so that tests can hold the documents to what the programs take.

use std::{env, fs, path::PathBuf};

/// The root of the repository. Tests run in their package's directory; a path that is compiled in may be that of another
/// checkout.
pub fn root() -> PathBuf {
    let here = env::current_dir().unwrap();
    here.ancestors().find(|directory| directory.join("Cargo.lock").exists()).unwrap().to_owned()
}

/// The README and the pages of the book, with their paths from the root of the repository.
pub fn pages() -> Vec<(String, String)> {
    let mut found = vec!["README.md".to_owned()];
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if path.ends_with(".md") {
                found.push(path);
            }
        }
    }
    found.sort();
    found.into_iter().map(|path| (path.clone(), fs::read_to_string(root().join(path)).unwrap())).collect()
}

/// A page: the README, or one of the book.
///
/// # Panics
/// If there is none at this path.
pub fn page(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The shell blocks of a page, in order.
pub fn shell_blocks(page: &str) -> Vec<&str> {
    blocks(page, "sh")
}

/// The blocks of a page that are in this language, in order.
pub fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("```{language}\n");
    page.split(&*begin).skip(1).map(|after| after.split("```").next().unwrap_or_default()).collect()
}

/// The statements of a shell block: its lines, those that a backslash continues as one.
pub fn statements(block: &str) -> Vec<String> {
    let mut statements = vec![String::new()];
    for line in block.lines() {
        let open = statements.last_mut().unwrap();
        if !open.is_empty() {
            open.push('\n');
        }
        open.push_str(line);
        if !line.ends_with('\\') {
            statements.push(String::new());
        }
    }
    statements.retain(|statement| !statement.trim().is_empty());
    statements
}

/// The commands of a program in the shell blocks of all pages, as words, each with the page that shows it.
pub fn commands(program: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (path, text) in pages() {
        for block in shell_blocks(&text) {
            let block = block.replace("\\\n", " ");
            let simple = block.lines().flat_map(simple_commands);
            let ours = simple.filter(|words| words.first().is_some_and(|word| word == program));
            found.extend(ours.map(|words| (path.clone(), words)));
        }
    }
    found
}

/// The commands of a program in the text of all pages, as words, each with the page that has it. Names in capitals are
/// filled in; arguments may be missing, where a page only names a command.
pub fn mentions(program: &str) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for (path, text) in pages() {
        let prose: Vec<_> = text.split("```").step_by(2).collect();
        for span in prose.iter().flat_map(|prose| prose.split('`').skip(1).step_by(2)) {
            // In a table a stroke is escaped, and stands between alternatives.
            let span = span.replace(['[', ']'], "").replace('\n', " ").replace("\\|", "/");
            let ours =
                simple_commands(&span).into_iter().filter(|words| words.first().is_some_and(|word| word == program));
            found.extend(ours.flat_map(|words| alternatives(&words)).map(|words| (path.clone(), filled_in(&words))));
        }
    }
    found
}

/// The commands that a command with alternatives, `enable/disable`, stands for.
fn alternatives(words: &[String]) -> Vec<Vec<String>> {
    let is_choice = |word: &&String| {
        word.contains('/') && word.chars().all(|character| character.is_ascii_lowercase() || "-/".contains(character))
    };
    let Some(choice) = words.iter().find(is_choice) else { return vec![words.to_vec()] };
    let chosen = |one: &str| words.iter().map(|word| if word == choice { one } else { word }.to_owned()).collect();
    choice.split('/').map(chosen).collect()
}

/// A command with examples in place of names in capitals and of ellipses, which take what stands for them elsewhere.
fn filled_in(words: &[String]) -> Vec<String> {
    let mut filled: Vec<String> = Vec::new();
    for word in words {
        let example = match (word.as_str(), filled.last().map(String::as_str)) {
            ("…", Some("--store")) => "sqlite:rollhook.db",
            ("…", Some("--driver")) => "simulated",
            ("…", Some(flag)) if flag.starts_with("--") => "keys",
            ("…", _) => continue,
            ("APP", _) => "api",
            ("N" | "REVISION", _) => "1",
            ("SHA", _) => "1a2b3c4",
            ("E", _) => "test",
            ("F", _) => "prod",
            ("IMAGE", _) => "registry.example.com/api:v2",
            ("URL", _) => "https://rollhook.example.com",
            (word, _) => word,
        };
        filled.push(example.to_owned());
    }
    filled
}

/// Returns the simple commands of a line of shell, as words without quotes, up to a redirection or a comment.
fn simple_commands(line: &str) -> Vec<Vec<String>> {
    let (mut commands, mut words, mut word) = (Vec::new(), Vec::new(), None::<String>);
    let mut quote = None;
    let mut end = |words: &mut Vec<String>| commands.push(std::mem::take(words));
    for character in line.chars() {
        match (quote, character) {
            (Some(open), _) if character == open => quote = None,
            (Some(_), _) => word.get_or_insert_default().push(character),
            (None, '"' | '\'') => {
                word.get_or_insert_default();
                quote = Some(character);
            }
            (None, '#') if word.is_none() => break,
            (None, '>') => {
                // What is left is the name of a file.
                word = None;
                break;
            }
            (None, '|' | ';' | '&') => {
                words.extend(word.take());
                end(&mut words);
            }
            (None, _) if character.is_whitespace() => words.extend(word.take()),
            (None, _) => word.get_or_insert_default().push(character),
        }
    }
    words.extend(word);
    end(&mut words);
    commands.retain(|words| !words.is_empty());
    commands
}

#[cfg(test)]
mod tests {
    use super::{alternatives, filled_in, simple_commands};

    #[test]
    fn commands_are_split_as_a_shell_splits_them() {
        let of = |line: &str| simple_commands(line).iter().map(|words| words.join("·")).collect::<Vec<_>>();
        assert_eq!(
            of("rollhook app lock api --reason \"the fair\" # why"),
            ["rollhook·app·lock·api·--reason·the fair"]
        );
        assert_eq!(
            of("rollhook-server manifests | kubectl apply -f -"),
            ["rollhook-server·manifests", "kubectl·apply·-f·-"]
        );
        assert_eq!(of("rollhook-server > server.log 2>&1 &  # comment"), ["rollhook-server"]);
        let words = simple_commands("app enable/disable APP --store … …").remove(0);
        let all: Vec<_> = alternatives(&words).iter().map(|words| filled_in(words).join(" ")).collect();
        assert_eq!(all, ["app enable api --store sqlite:rollhook.db", "app disable api --store sqlite:rollhook.db"]);
        assert_eq!(of("# nothing"), Vec::<String>::new());
    }
}
