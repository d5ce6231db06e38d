//! Recognizes private keys, and those with a passphrase, before ssh is started with them.

use base64::{Engine, engine::general_purpose::STANDARD};

/// The kind of a file that should be a private key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A private key without a passphrase; ssh judges whether it is sound.
    Open,
    /// A private key with a passphrase, which ssh passes over silently if there is no terminal.
    Locked,
    /// Something else: a password, a public key, a key of another program.
    None,
}

/// The beginning of a key in OpenSSH's own format, before the name of its cipher (PROTOCOL.key).
const MAGIC: &[u8] = b"openssh-key-v1\0";
/// The length and name of the cipher of a key that is not encrypted.
const NOT_ENCRYPTED: &[u8] = b"\0\0\0\x04none";
/// The number of base64 digits that hold both.
const DIGITS: usize = 32;

impl Kind {
    /// Returns the kind of this text.
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
    fn passphrase_is_recognized_in_every_format() {
        for cipher in ["aes256-ctr", "none-such", "aes256-gcm@openssh.com", "chacha20-poly1305@openssh.com"] {
            assert_eq!(Kind::of(&openssh(cipher)), Kind::Locked, "{cipher}");
        }
        assert_eq!(Kind::of("-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n"), Kind::Locked);
        let pem = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\r\nDEK-Info: AES-128-CBC,9E7D\n\nMIIF\n";
        assert_eq!(Kind::of(pem), Kind::Locked);
    }

    #[test]
    fn key_without_passphrase_is_open() {
        assert_eq!(Kind::of(&openssh("none")), Kind::Open);
        assert_eq!(Kind::of(&openssh("none").replace('\n', "\r\n")), Kind::Open);
        for text in ["RSA PRIVATE", "EC PRIVATE", "PRIVATE", "OPENSSH PRIVATE"] {
            assert_eq!(Kind::of(&format!("-----BEGIN {text} KEY-----\n!\n")), Kind::Open, "{text}");
        }
    }

    #[test]
    fn other_texts_are_no_keys() {
        for text in
            ["", "ada:hunter2", "ssh-ed25519 AAAAC3 ada", "-----BEGIN PUBLIC KEY-----", "PuTTY-User-Key-File-3: x"]
        {
            assert_eq!(Kind::of(text), Kind::None, "{text}");
        }
    }
}
