//! The causes for which git cannot read a source, by what a person can do about them.

use rollhook_core::source::GitSource;

/// A cause for which a source cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GitError {
    /// The source has no such commit or branch, or does not hand it out.
    NoSuchCommit,
    /// The source does not let git in.
    Denied,
    /// There is no repository at the URL, or none that these credentials may know of: hosts do not say which.
    NoRepository,
    /// The URL leads elsewhere, where git does not follow.
    Moved,
    /// ssh refuses the connection, for a reason on this side.
    Ssh(SshError),
    /// Any other cause, which may be gone later.
    Unreachable,
}

/// A cause for which ssh refuses the connection itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SshError {
    /// No key of the host is known, or none of the kind that the host shows.
    UnknownHost,
    /// Another key of the host is known.
    ChangedHost,
    /// Others may read the private key.
    OpenKey,
    /// The private key cannot be read as one.
    BrokenKey,
    /// The user that the server runs as is only a number.
    NamelessUser,
}

const NO_SUCH_COMMIT: [&str; 4] =
    ["not our ref", "unadvertised object", "couldn't find remote ref", "no such remote ref"];
const DENIED: [&str; 7] = [
    "could not read Username",
    "could not read Password",
    "Authentication failed",
    "Permission denied",
    "error: 401",
    "error: 403",
    "Host key verification failed",
];
const NO_REPOSITORY: [&str; 3] = ["' not found", "does not appear to be a git repository", "Repository not found"];
const UNKNOWN_HOST: &str = "host key is known for";
const CHANGED_HOST: &str = "REMOTE HOST IDENTIFICATION HAS CHANGED";
const NAMELESS_USER: &str = "No user exists for uid";
/// ssh's words for a private key that it goes on without.
const KEY_NOT_LOADED: &str = "Load key \"";
const OPEN_KEY: &str = "\": bad permissions";
/// ssh's words if no key is left.
const NOT_LET_IN: &str = "Permission denied (";
/// The words of git, curl and ssh for causes that are none of a host's answers.
const CAUSES: [(&str, &str); 11] = [
    ("Could not resolve host", "its host's name cannot be resolved"),
    ("Connection refused", "its host refused the connection"),
    ("Operation too slow", "its host was silent for too long"),
    ("timed out", "its connection timed out"),
    ("Timed out", "its connection timed out"),
    ("Connection reset", "its host closed the connection"),
    ("Connection closed", "its host closed the connection"),
    ("No route to host", "its host cannot be reached from here"),
    ("Network is unreachable", "its host cannot be reached from here"),
    ("certificate", "the certificate of its host is not valid for it, or not known here"),
    ("' not found", "its host has no such repository, or shows it to others only"),
];
const MOVED: [&str; 1] = ["error: 30"];

impl GitError {
    /// Returns whether git itself, rather than the host whose words it repeats, has had no memory.
    pub fn is_out_of_memory(stderr: &str) -> bool {
        stderr.lines().any(|line| line.starts_with("fatal: Out of memory"))
    }

    /// Returns the cause that this text, from git's standard error, tells of.
    pub fn of(text: &str) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if let Some(error) = SshError::of(text) {
            Self::Ssh(error)
        } else if says(&NO_SUCH_COMMIT) {
            Self::NoSuchCommit
        } else if says(&DENIED) {
            Self::Denied
        } else if says(&NO_REPOSITORY) {
            Self::NoRepository
        } else if says(&MOVED) {
            Self::Moved
        } else {
            Self::Unreachable
        }
    }

    /// Returns why a source cannot be read, in words of our own: those of git and ssh may hold the answer of a host
    /// that is no git host.
    pub fn cause(lines: &[String]) -> String {
        let says = |words: &str| lines.iter().any(|line| line.contains(words));
        let status = lines.iter().find_map(|line| line.split_once("returned error: ")?.1.get(..3)?.parse::<u16>().ok());
        match (status, CAUSES.iter().find(|(words, _)| says(words))) {
            (Some(status), _) => format!("its host answered with the HTTP status {status}"),
            (None, Some((_, cause))) => (*cause).to_owned(),
            (None, None) => "its host did not answer as a git host does".to_owned(),
        }
    }
}

impl SshError {
    fn of(text: &str) -> Option<Self> {
        if text.contains(CHANGED_HOST) {
            Some(Self::ChangedHost)
        } else if text.contains(UNKNOWN_HOST) {
            Some(Self::UnknownHost)
        } else if text.contains(NAMELESS_USER) {
            Some(Self::NamelessUser)
        } else if !(text.contains(KEY_NOT_LOADED) && text.contains(NOT_LET_IN)) {
            None
        } else if text.contains(OPEN_KEY) {
            Some(Self::OpenKey)
        } else {
            Some(Self::BrokenKey)
        }
    }

    /// Returns a sentence that says what to do.
    pub fn sentence(self, source: &GitSource) -> String {
        let host = source.url.host().unwrap_or_default();
        let scan = match source.url.port() {
            Some(port) => format!("ssh-keyscan -p {port} {host}"),
            None => format!("ssh-keyscan {host}"),
        };
        let key = match &source.credentials {
            Some(name) => format!("The private key of the credentials {name}"),
            None => "A private key of the server's user".to_owned(),
        };
        match self {
            Self::UnknownHost => format!(
                "{host} is not known to ssh: put its host key into known_hosts beside the credentials ({scan}), after \
                 checking it."
            ),
            Self::ChangedHost => format!(
                "{host} shows another host key than the one in known_hosts, which may be somebody else's: if its \
                 operators did change it, put the new one into known_hosts beside the credentials ({scan}), after \
                 checking it."
            ),
            Self::OpenKey => format!(
                "{key} may be read by others on the machine, so that ssh does not take it: give its file the mode 0400."
            ),
            Self::BrokenKey => format!(
                "{key} cannot be read by ssh: it must be whole, with a line end at its end and no carriage returns."
            ),
            Self::NamelessUser => {
                "ssh wants the user that this server runs as to have a name, in its machine's /etc/passwd.".to_owned()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_are_told_apart() {
        for (text, error) in [
            ("fatal: remote error: upload-pack: not our ref 0123", GitError::NoSuchCommit),
            ("fatal: couldn't find remote ref refs/heads/main", GitError::NoSuchCommit),
            (
                "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
                GitError::Denied,
            ),
            (
                "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://g/a.git/'",
                GitError::Denied,
            ),
            ("fatal: unable to access 'https://g/a.git/': The requested URL returned error: 403", GitError::Denied),
            ("git@git.example.com: Permission denied (publickey).", GitError::Denied),
            ("fatal: repository 'https://git.example.com/a.git/' not found", GitError::NoRepository),
            ("fatal: '/srv/a' does not appear to be a git repository", GitError::NoRepository),
            ("fatal: unable to access 'https://g/a.git/': The requested URL returned error: 301", GitError::Moved),
            (
                "fatal: unable to access 'https://g/a.git/': Failed to connect to g port 443: Connection refused",
                GitError::Unreachable,
            ),
            (
                "fatal: unable to access 'https://g/a.git/': The requested URL returned error: 503",
                GitError::Unreachable,
            ),
            (
                "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 192.0.2.7 port 22",
                GitError::Unreachable,
            ),
            ("Connection timed out during banner exchange", GitError::Unreachable),
            ("", GitError::Unreachable),
        ] {
            assert_eq!(GitError::of(text), error, "{text}");
        }
    }

    const UNKNOWN: &str =
        "No ED25519 host key is known for [git.example.com]:2222 and you have requested strict checking.\r
Host key verification failed.\r
fatal: Could not read from remote repository.

Please make sure you have the correct access rights
and the repository exists.";

    const CHANGED: &str = "@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
@    WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!     @\r
@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@@\r
IT IS POSSIBLE THAT SOMEONE IS DOING SOMETHING NASTY!\r
Someone could be eavesdropping on you right now (man-in-the-middle attack)!\r
It is also possible that a host key has just been changed.\r
The fingerprint for the ED25519 key sent by the remote host is\r
SHA256:oF/rBxQEeah6JyWq8Y0srBuYwecPEpdwgsLYJyNba9k.\r
Please contact your system administrator.\r
Add correct host key in /etc/rollhook/credentials/known_hosts to get rid of this message.\r
Offending ED25519 key in /etc/rollhook/credentials/known_hosts:1\r
  remove with:\r
  ssh-keygen -f \"/etc/rollhook/credentials/known_hosts\" -R \"git.example.com\"\r
Host key for git.example.com has changed and you have requested strict checking.\r
Host key verification failed.\r
fatal: Could not read from remote repository.";

    const OPEN: &str = "@         WARNING: UNPROTECTED PRIVATE KEY FILE!          @\r
Permissions 0644 for '/etc/rollhook/credentials/deploy' are too open.\r
It is required that your private key files are NOT accessible by others.\r
This private key will be ignored.\r
Load key \"/etc/rollhook/credentials/deploy\": bad permissions\r
git@git.example.com: Permission denied (publickey).\r
fatal: Could not read from remote repository.";

    const BROKEN: &str = "Load key \"/etc/rollhook/credentials/deploy\": error in libcrypto\r
git@git.example.com: Permission denied (publickey).\r
fatal: Could not read from remote repository.";

    #[test]
    fn ssh_errors_say_what_to_do() {
        let mut source = rollhook_conformance::samples::git_source();
        source.url = "ssh://git@git.example.com:2222/api.git".parse().unwrap();
        source.credentials = Some("deploy".parse().unwrap());
        for (text, error, expected) in [
            (UNKNOWN, SshError::UnknownHost, "(ssh-keyscan -p 2222 git.example.com), after checking it."),
            (CHANGED, SshError::ChangedHost, "(ssh-keyscan -p 2222 git.example.com), after checking it."),
            (OPEN, SshError::OpenKey, "The private key of the credentials deploy may be read by others"),
            (BROKEN, SshError::BrokenKey, "The private key of the credentials deploy cannot be read by ssh"),
            ("No user exists for uid 12345\r\n", SshError::NamelessUser, "in its machine's /etc/passwd"),
        ] {
            assert_eq!(GitError::of(text), GitError::Ssh(error), "{text}");
            let sentence = error.sentence(&source);
            assert!(sentence.contains(expected) && !sentence.contains("/etc/rollhook"), "{sentence}");
        }
        source.url = "git@git.example.com:api.git".parse().unwrap();
        assert!(SshError::UnknownHost.sentence(&source).contains("(ssh-keyscan git.example.com)"));
    }

    #[test]
    fn key_that_was_not_needed_is_no_cause() {
        let text = "Load key \"/root/.ssh/id_rsa\": error in libcrypto\r\nERROR: Repository not found.";
        assert_eq!(GitError::of(text), GitError::NoRepository);
    }

    #[test]
    fn answers_of_an_unknown_host_are_not_repeated() {
        let cause = |text: &str| GitError::cause(&text.lines().map(str::to_owned).collect::<Vec<_>>());
        for text in [
            "remote: secret of an internal service\nfatal: unable to access 'https://g/a.git/': The requested URL returned \
             error: 500",
            "fatal: invalid server response; got 'secret'",
            "fatal: remote error: secret",
            "Bad remote protocol version identification: 'secret'\r",
            "kex_exchange_identification: banner line contains invalid characters\nsecret",
            "fatal: unable to access 'https://g/a.git/': Failed to connect to g port 443 after 2 ms: Connection refused",
            "fatal: unable to access 'https://g/a.git/': SSL certificate problem: secret",
            "",
        ] {
            let cause = cause(text);
            assert!(!cause.contains("secret") && !cause.contains("://"), "{cause}");
        }
        assert_eq!(
            cause("fatal: …: The requested URL returned error: 503"),
            "its host answered with the HTTP status 503"
        );
        assert_eq!(cause("Connection timed out during banner exchange"), "its connection timed out");
        assert_eq!(cause("fatal: invalid server response"), "its host did not answer as a git host does");
    }
}
