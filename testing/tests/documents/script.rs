//! A page as a script, and the reader who pastes it.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use rollhook_testing::{
    Ended,
    documents::{self, root, shell_blocks, statements},
    free_address,
    process::program,
};
use tempfile::TempDir;

use crate::{
    elsewhere::is_elsewhere,
    pages::{Block, Page, Place},
};

/// A server that a page starts runs in the foreground of another terminal: the reader goes on once it listens.
const TERMINAL: &str = r#"
serve() {
  : > server.log
  "$@" > server.log 2>&1 & served=$!
  until grep -q '^listening on' server.log; do
    kill -0 $served || { cat server.log >&2; return 1; }
    sleep 0.1
  done
}
fails() { if "$@"; then echo "$*: succeeds" >&2; return 1; fi; }
trap 'jobs -p | xargs -r kill 2> /dev/null || :; wait' EXIT
"#;

/// A person with a terminal, in a checkout of the repository, with the programs in the path.
pub(crate) struct Reader {
    /// The address of servers that a page starts.
    pub(crate) address: String,
    directory: TempDir,
    /// Names of examples in the pages, each with the reader's own.
    names: Vec<(String, String)>,
    variables: Vec<(String, String)>,
    functions: String,
}

impl Reader {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let bin = directory.path().join("bin");
        let server = program("rollhook-server", "rollhook-server");
        fs::create_dir(&bin).unwrap();
        symlink(program("rollhook-cli", "rollhook"), bin.join("rollhook")).unwrap();
        symlink(&server, bin.join("rollhook-server")).unwrap();
        symlink(root().join("packaging"), directory.path().join("packaging")).unwrap();
        let address = free_address().to_string();
        // Servers that a page starts listen here.
        let variables = vec![("ROLLHOOK_LISTEN".to_owned(), address.clone())];
        Self { directory, names: Vec::new(), variables, address, functions: TERMINAL.to_owned() }
    }

    /// Puts a program into the path.
    pub(crate) fn program(self, name: &str, program: &Path) -> Self {
        symlink(program, self.path("bin").join(name)).unwrap();
        self
    }

    /// Knows further functions of the shell.
    pub(crate) fn knows(mut self, functions: &str) -> Self {
        self.functions.push_str(functions);
        self
    }

    /// Reads an example's name as another one.
    pub(crate) fn reads(mut self, example: &str, own: &str) -> Self {
        self.names.push((example.to_owned(), own.to_owned()));
        self
    }

    /// Has a variable.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// A file of the reader's directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Pastes the blocks of a page that are run at this place, from top to bottom. Each command must succeed.
    /// Returns the failure, if one does not.
    pub(crate) fn pastes(&self, page: &Page, place: Place) -> Option<String> {
        let text = documents::page(page.path);
        for command in page.blocks.iter().flat_map(|block| block.around) {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(words.contains(&format!("`{command}`")), "{} has no `{command}`", page.path);
        }
        let here = page.blocks.iter().zip(shell_blocks(&text)).filter(|(block, _)| block.place == place);
        let script: Vec<_> = here.map(|(block, text)| self.script(page.path, block, text)).collect();
        let script = [&*self.functions, &script.concat()].concat();
        let mut shell = Command::new("timeout");
        shell.args(["600", "bash", "-xeuo", "pipefail", "-c", &script]).current_dir(self.directory.path());
        shell.env_clear().envs(self.variables.iter().map(|(name, value)| (name, value)));
        let path = format!("{}:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin", self.path("bin").display());
        shell.env("PATH", path).env("HOME", self.directory.path()).env("USER", "ada").env("LANG", "C.UTF-8");
        let Ended { code, out, err } = shell.stdin(Stdio::null()).output().unwrap().into();
        let log = fs::read_to_string(self.path("server.log")).unwrap_or_default();
        let told = format!("=== {}, {place:?}: {code}\n{out}\n--- commands\n{err}\n", page.path);
        if code == 0 {
            println!("{told}");
            return None;
        }
        Some(format!("{told}--- its server\n{log}"))
    }

    fn script(&self, page: &str, block: &Block, text: &str) -> String {
        let text = match block.file {
            Some(file) => format!("cat > {file} <<'FILE'\n{text}FILE\nchmod +x {file}\n"),
            None => runnable(page, text),
        };
        let text = [&text, &*block.around.join("\n"), "\n"].concat();
        let named = self.names.iter().fold(text, |text, (example, own)| replace_word(&text, example, own));
        format!("{}\n{named}\n{}\n", block.given, block.then)
    }
}

/// The commands of a block without those that are run elsewhere.
fn runnable(page: &str, block: &str) -> String {
    let here = statements(block).into_iter().filter(|statement| !is_elsewhere(page, statement));
    here.map(|statement| if starts_server(&statement) { format!("serve {statement}\n") } else { statement + "\n" })
        .collect()
}

/// Returns whether a command is the server itself, and not one of its tools.
fn starts_server(statement: &str) -> bool {
    let mut words = statement.split_whitespace();
    words.next() == Some("rollhook-server") && words.next().is_none_or(|word| word.starts_with(['-', '#']))
}

/// Replaces a name where it stands as a word of its own.
fn replace_word(text: &str, from: &str, to: &str) -> String {
    let is_part =
        |character: Option<char>| character.is_some_and(|character| character.is_alphanumeric() || character == '_');
    let (mut replaced, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once(from) {
        replaced.push_str(before);
        let whole = !is_part(replaced.chars().last()) && !is_part(after.chars().next());
        replaced.push_str(if whole { to } else { from });
        rest = after;
    }
    replaced + rest
}

#[test]
fn names_are_replaced_as_whole_words() {
    assert_eq!(replace_word("POD in PODS, A_POD, x/POD.", "POD", "p"), "p in PODS, A_POD, x/p.");
}
