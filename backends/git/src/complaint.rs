//! What git says when it cannot read a source, told by what a person can do about it.

use rollhook_core::source::GitSource;

/// Why a source cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Complaint {
    /// The source has no such commit or branch, or does not hand it out.
    NoSuchCommit,
    /// It does not let git in.
    Denied,
    /// There is no repository at the URL, or none that these credentials may know of: hosts do not say which.
    NoRepository,
    /// The URL leads elsewhere, where git does not follow.
    Moved,
    /// ssh goes no further, for a reason on this side.
    Refused(Refusal),
    /// Anything else: it may be otherwise later.
    Unreachable,
}

/// Why ssh goes no further on its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It knows no key of the host, or none of the kind that the host shows.
    UnknownHost,
    /// It knows another key of the host.
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
/// What ssh says of a private key before it goes on without it.
const KEY_NOT_LOADED: &str = "Load key \"";
const OPEN_KEY: &str = "\": bad permissions";
/// What it says in the end, where no key is left.
const NOT_LET_IN: &str = "Permission denied (";
/// What git adds to what ssh said.
const ADVICE: [&str; 3] = [
    "fatal: Could not read from remote repository.",
    "Please make sure you have the correct access rights",
    "and the repository exists.",
];
const MOVED: [&str; 1] = ["error: 30"];

impl Complaint {
    /// What this text, from git's standard error, complains of.
    pub fn of(text: &str) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if let Some(refusal) = Refusal::of(text) {
            Self::Refused(refusal)
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

    /// The last of these lines that says something of this failure: git follows whatever ssh says with the same advice.
    pub fn last_word(lines: &[String]) -> Option<&str> {
        lines.iter().map(String::as_str).rfind(|line| !line.is_empty() && !ADVICE.contains(line))
    }
}

impl Refusal {
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

    /// What to do about it, in a sentence.
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
    fn what_git_says_is_understood() {
        for (text, complaint) in [
            ("fatal: remote error: upload-pack: not our ref 0123", Complaint::NoSuchCommit),
            ("fatal: couldn't find remote ref refs/heads/main", Complaint::NoSuchCommit),
            (
                "fatal: could not read Username for 'https://git.example.com': terminal prompts disabled",
                Complaint::Denied,
            ),
            (
                "remote: HTTP Basic: Access denied\nfatal: Authentication failed for 'https://g/a.git/'",
                Complaint::Denied,
            ),
            ("fatal: unable to access 'https://g/a.git/': The requested URL returned error: 403", Complaint::Denied),
            ("git@git.example.com: Permission denied (publickey).", Complaint::Denied),
            ("fatal: repository 'https://git.example.com/a.git/' not found", Complaint::NoRepository),
            ("fatal: '/srv/a' does not appear to be a git repository", Complaint::NoRepository),
            ("fatal: unable to access 'https://g/a.git/': The requested URL returned error: 301", Complaint::Moved),
            (
                "fatal: unable to access 'https://g/a.git/': Failed to connect to g port 443: Connection refused",
                Complaint::Unreachable,
            ),
            (
                "fatal: unable to access 'https://g/a.git/': The requested URL returned error: 503",
                Complaint::Unreachable,
            ),
            (
                "kex_exchange_identification: Connection closed by remote host\r\nConnection closed by 192.0.2.7 port 22",
                Complaint::Unreachable,
            ),
            ("Connection timed out during banner exchange", Complaint::Unreachable),
            ("", Complaint::Unreachable),
        ] {
            assert_eq!(Complaint::of(text), complaint, "{text}");
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
    fn what_ssh_refuses_is_told_with_what_to_do() {
        let mut source = rollhook_conformance::samples::git_source();
        source.url = "ssh://git@git.example.com:2222/api.git".parse().unwrap();
        source.credentials = Some("deploy".parse().unwrap());
        for (text, refusal, told) in [
            (UNKNOWN, Refusal::UnknownHost, "(ssh-keyscan -p 2222 git.example.com), after checking it."),
            (CHANGED, Refusal::ChangedHost, "(ssh-keyscan -p 2222 git.example.com), after checking it."),
            (OPEN, Refusal::OpenKey, "The private key of the credentials deploy may be read by others"),
            (BROKEN, Refusal::BrokenKey, "The private key of the credentials deploy cannot be read by ssh"),
            ("No user exists for uid 12345\r\n", Refusal::NamelessUser, "in its machine's /etc/passwd"),
        ] {
            assert_eq!(Complaint::of(text), Complaint::Refused(refusal), "{text}");
            let sentence = refusal.sentence(&source);
            assert!(sentence.contains(told) && !sentence.contains("/etc/rollhook"), "{sentence}");
        }
        source.url = "git@git.example.com:api.git".parse().unwrap();
        assert!(Refusal::UnknownHost.sentence(&source).contains("(ssh-keyscan git.example.com)"));
    }

    #[test]
    fn a_key_that_was_not_needed_is_no_reason() {
        let text = "Load key \"/root/.ssh/id_rsa\": error in libcrypto\r\nERROR: Repository not found.";
        assert_eq!(Complaint::of(text), Complaint::NoRepository);
    }

    #[test]
    fn gits_advice_is_not_what_ssh_said() {
        let lines: Vec<String> = UNKNOWN.lines().map(str::to_owned).collect();
        assert_eq!(Complaint::last_word(&lines), Some("Host key verification failed."));
        assert_eq!(Complaint::last_word(&lines[2..]), None);
    }
}
