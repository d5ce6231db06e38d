//! What can be told of a private key before ssh is started with it.

use base64::{Engine, engine::general_purpose::STANDARD};

/// What a file is, to whoever wants a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A private key; whether it is a sound one is for ssh to say.
    Open,
    /// A private key behind a passphrase, of which ssh says nothing where it has nobody to ask.
    Locked,
    /// Something else: a password, a public key, a key of another program's.
    None,
}

/// What begins a key in OpenSSH's own format, before the name of what it is encrypted with (PROTOCOL.key).
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// The name where it is not encrypted, after its length.
const NOT_ENCRYPTED: &[u8] = b"\0\0\0\x04none";
/// As many digits of base64 hold both.
const DIGITS: usize = 32;

impl Kind {
    /// What this text is.
    pub(super) fn of(text: &str) -> Self {
        let mut lines = text.lines().map(str::trim_end);
        let Some(format) = lines.find_map(|line| line.strip_prefix("-----BEGIN ")?.strip_suffix("PRIVATE KEY-----"))
        else {
            return Self::None;
        };
        let locked = match format.trim_end() {
            "OPENSSH" => is_encrypted(lines),
            "ENCRYPTED" => true,
            _ => lines.any(|line| line.starts_with("Proc-Type:") && line.ends_with("ENCRYPTED")),
        };
        if locked { Self::Locked } else { Self::Open }
    }
}

fn is_encrypted<'a>(lines: impl Iterator<Item = &'a str>) -> bool {
    let digits: String = lines.flat_map(str::chars).take(DIGITS).collect();
    let bytes = STANDARD.decode(digits).unwrap_or_default();
    bytes.strip_prefix(MAGIC).is_some_and(|rest| !rest.starts_with(NOT_ENCRYPTED))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn openssh(cipher: &str) -> String {
        let length = u32::try_from(cipher.len()).unwrap().to_be_bytes();
        let mut bytes = [MAGIC, &length, cipher.as_bytes()].concat();
        bytes.resize(200, 7);
        let text = STANDARD.encode(bytes);
        let (first, rest) = text.split_at(70);
        format!("-----BEGIN OPENSSH PRIVATE KEY-----\n{first}\n{rest}\n-----END OPENSSH PRIVATE KEY-----\n")
    }

    #[test]
    fn a_passphrase_is_seen_in_every_format() {
        for cipher in ["aes256-ctr", "none-such", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"] {
            assert_eq!(Kind::of(&openssh(cipher)), Kind::Locked, "{cipher}");
        }
        assert_eq!(Kind::of("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n"), Kind::Locked);
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,9E7D\n\nMIIF\n";
        assert_eq!(Kind::of(pem), Kind::Locked);
    }

    #[test]
    fn a_key_without_one_is_left_to_ssh() {
        assert_eq!(Kind::of(&openssh("none")), Kind::Open);
        assert_eq!(Kind::of(&openssh("none").replace('\n', "\r\n")), Kind::Open);
        for text in ["RSA PRIVATE", "EC PRIVATE", "PRIVATE", "OPENSSH PRIVATE"] {
            assert_eq!(Kind::of(&format!("-----BEGIN {text} KEY-----\n!\n")), Kind::Open, "{text}");
        }
    }

    #[test]
    fn what_is_no_private_key_is_told() {
        for text in
            ["", "ada:hunter2", "ssh-ed25519 AAAAC3 ada", "-----BEGIN PUBLIC KEY-----", "PuTTY-User-Key-File-3: x"]
        {
            assert_eq!(Kind::of(text), Kind::None, "{text}");
        }
    }
}
