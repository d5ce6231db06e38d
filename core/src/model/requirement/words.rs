//! The words of a requirement: `name=value`, between commas or spaces.

use super::{InvalidRequirement, PublicKey, Signer, pattern::checked};

/// The names of words. A comma, or a space, begins a word only before one of them: values may have both.
const NAMES: [&str; 4] = ["key", "issuer", "subject", "builder"];

/// The words of a text that are not taken yet.
pub(super) struct Words<'a> {
    text: &'a str,
    words: Vec<(&'static str, &'a str)>,
}

impl<'a> Words<'a> {
    /// Reads the words of a text.
    pub(super) fn read(text: &'a str) -> Result<Self, InvalidRequirement> {
        let text = text.trim();
        let begins = |at: usize| {
            let name = |name: &&&str| text[at..].strip_prefix(**name).is_some_and(|rest| rest.starts_with('='));
            let is_start = at == 0 || text[..at].ends_with([',', ' ']);
            is_start.then(|| NAMES.iter().find(name)).flatten().map(|name| (at, *name))
        };
        let starts: Vec<(usize, &'static str)> = text.char_indices().filter_map(|(at, _)| begins(at)).collect();
        if !text.is_empty() && starts.first().is_none_or(|(at, _)| *at != 0) {
            return Err(InvalidRequirement::new(text, "must be of words such as key=FILE or issuer=URL"));
        }
        let ends = starts.iter().skip(1).map(|(at, _)| at - 1).chain([text.len()]);
        let word = |((at, name), end): (&(usize, &'static str), usize)| {
            (*name, text[at + name.len() + 1..end].trim_matches([',', ' ', '\n', '\r']))
        };
        let words: Vec<_> = starts.iter().zip(ends).map(word).collect();
        let is_twice = |(at, (name, _)): (usize, &(&str, &str))| words[..at].iter().any(|(other, _)| other == name);
        if words.iter().enumerate().any(is_twice) {
            return Err(InvalidRequirement::new(text, "names a word twice"));
        }
        Ok(Self { text, words })
    }

    /// Takes the value of a name.
    pub(super) fn take(&mut self, name: &str) -> Option<&'a str> {
        let at = self.words.iter().position(|(known, _)| *known == name)?;
        Some(self.words.remove(at).1)
    }

    /// Takes the words of a signer, if there are any.
    pub(super) fn signer(&mut self) -> Result<Option<Signer>, InvalidRequirement> {
        let (key, issuer, subject) = (self.take("key"), self.take("issuer"), self.take("subject"));
        match (key, issuer, subject) {
            (None, None, None) => Ok(None),
            (Some(key), None, None) => Ok(Some(Signer::Key(key.parse::<PublicKey>()?))),
            (None, Some(issuer), Some(subject)) => {
                Ok(Some(Signer::Identity { issuer: checked(issuer)?, subject: subject.parse()? }))
            }
            _ => Err(InvalidRequirement::new(self.text, "must be key=FILE, or issuer=URL,subject=PATTERN")),
        }
    }

    /// Returns `Ok` if all words were taken.
    pub(super) fn end(self) -> Result<(), InvalidRequirement> {
        if self.words.is_empty() {
            Ok(())
        } else {
            Err(InvalidRequirement::new(self.text, "has a word of another setting"))
        }
    }
}
