//! What git says when it cannot read a source, told by what a person can do about it.

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
    /// Anything else: it may be otherwise later.
    Unreachable,
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
const MOVED: [&str; 1] = ["error: 30"];

impl Complaint {
    /// What this text, from git's standard error, complains of.
    pub fn of(text: &str) -> Self {
        let says = |words: &[&str]| words.iter().any(|word| text.contains(word));
        if says(&NO_SUCH_COMMIT) {
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
            ("", Complaint::Unreachable),
        ] {
            assert_eq!(Complaint::of(text), complaint, "{text}");
        }
    }
}
