//! The ring: the key that seals, the keys that open, and the format of sealed values.

use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, PoisonError, RwLock},
    time::SystemTime,
};

use zeroize::Zeroizing;

use crate::{
    directory,
    error::Error,
    key::{KEY_BYTES, Key, KeyId, NONCE_BYTES},
};

const VERSION: u8 = 1;

/// Keys by their ids: the last in the order of ids seals, every one opens.
///
/// A ring of a directory reads it again when it meets a value sealed with a key that it does not know: a process that
/// runs while keys are replaced need not be restarted.
pub struct KeyRing {
    directory: Option<PathBuf>,
    keys: RwLock<Arc<Keys>>,
}

/// The keys at one time; never none.
struct Keys {
    primary: KeyId,
    all: BTreeMap<KeyId, Key>,
}

impl Keys {
    fn of(all: BTreeMap<KeyId, Key>) -> Option<Arc<Self>> {
        let primary = all.keys().next_back()?.clone();
        Some(Arc::new(Self { primary, all }))
    }

    fn get(&self, id: &KeyId) -> Result<&Key, Error> {
        self.all.get(id).ok_or_else(|| Error::UnknownKey(id.clone()))
    }
}

impl KeyRing {
    /// Reads every `<id>.key` file of a directory.
    ///
    /// # Errors
    /// [`Error::NoKey`] if there is no key, [`Error::Exposed`] if others can read one, [`Error::NotAKey`],
    /// [`Error::Io`].
    pub fn load(directory: &Path) -> Result<Self, Error> {
        Ok(Self { directory: Some(directory.to_owned()), keys: RwLock::new(keys_of(directory)?) })
    }

    /// Reads a directory's keys; if there is none yet, makes the directory (mode 0700) and a key (mode 0600) first.
    /// Processes that do so at the same time end up with the same key.
    ///
    /// # Errors
    /// As [`KeyRing::load`] does, [`Error::NoKey`] excepted.
    pub fn load_or_create(directory: &Path) -> Result<Self, Error> {
        directory::make(directory)?;
        if directory::read(directory)?.is_empty() {
            // Whichever process gets to the name first: all read what stands there then.
            directory::add(directory, &KeyId::first(), &Key::random()?)?;
        }
        Self::load(directory)
    }

    /// Adds a key that seals from the next load on, making the directory if it is missing; the others still open.
    ///
    /// # Errors
    /// As [`KeyRing::load`] does, [`Error::NoKey`] excepted.
    pub fn create_key(directory: &Path) -> Result<KeyId, Error> {
        directory::make(directory)?;
        let key = Key::random()?;
        loop {
            let newest = directory::read(directory)?.into_iter().next_back().map(|(id, _)| id);
            let id = match &newest {
                Some(newest) => following(newest)?,
                None => KeyId::numbered(1)?,
            };
            if directory::add(directory, &id, &key)? {
                return Ok(id);
            }
        }
    }

    /// Returns a ring of one key, from wherever the caller keeps it. [`KeyRing::from_keys`] replaces it, under the id
    /// `k0001` for this one and a higher id for the next.
    pub fn of_key(key: [u8; KEY_BYTES]) -> Self {
        let (primary, key) = (KeyId::first(), Key::new(Zeroizing::new(key)));
        let keys = Keys { primary: primary.clone(), all: BTreeMap::from([(primary, key)]) };
        Self { directory: None, keys: RwLock::new(Arc::new(keys)) }
    }

    /// Returns a ring of keys from elsewhere than a directory; `None` if there are no keys.
    pub fn from_keys(keys: impl IntoIterator<Item = (KeyId, Zeroizing<[u8; KEY_BYTES]>)>) -> Option<Self> {
        let keys = Keys::of(keys.into_iter().map(|(id, bytes)| (id, Key::new(bytes))).collect())?;
        Some(Self { directory: None, keys: RwLock::new(keys) })
    }

    fn keys(&self) -> Arc<Keys> {
        Arc::clone(&self.keys.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the keys, read anew if they come from a directory.
    fn reloaded(&self) -> Result<Arc<Keys>, Error> {
        let Some(directory) = &self.directory else { return Ok(self.keys()) };
        let keys = keys_of(directory)?;
        *self.keys.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&keys);
        Ok(keys)
    }

    /// Returns the key that seals.
    pub fn primary(&self) -> KeyId {
        self.keys().primary.clone()
    }

    /// Returns the time at which the file of the key that seals was written; `None` if it is not known.
    pub fn primary_written(&self) -> Option<SystemTime> {
        directory::written(self.directory.as_deref()?, &self.primary())
    }

    /// Returns whether there is a key of this id.
    pub fn has(&self, id: &KeyId) -> bool {
        self.keys().get(id).is_ok()
    }

    /// Seals a text for the purpose that `associated_data` names.
    ///
    /// # Errors
    /// [`Error::NoRandomness`].
    pub fn seal(&self, plaintext: &[u8], associated_data: &[u8]) -> Result<Vec<u8>, Error> {
        let keys = self.keys();
        let mut nonce = [0; NONCE_BYTES];
        getrandom::fill(&mut nonce).map_err(|_| Error::NoRandomness)?;
        let mut sealed = header(&keys.primary);
        let ciphertext = keys.get(&keys.primary)?.encrypt(&nonce, plaintext, &bound(&sealed, associated_data))?;
        sealed.extend_from_slice(&nonce);
        sealed.extend_from_slice(&ciphertext);
        Ok(sealed)
    }

    /// Opens a value that was sealed for the same purpose with any key of the ring.
    ///
    /// # Errors
    /// [`Error::UnknownKey`] if it was sealed with a key that the ring lacks; [`Error::Corrupt`] if it was changed,
    /// cut, or sealed for another purpose.
    pub fn open(&self, sealed: &[u8], associated_data: &[u8]) -> Result<Zeroizing<Vec<u8>>, Error> {
        let id = Self::key_of(sealed)?;
        let mut keys = self.keys();
        if keys.get(&id).is_err() {
            keys = self.reloaded()?;
        }
        let (head, rest) = sealed.split_at_checked(2 + id.as_str().len()).ok_or(Error::Corrupt)?;
        let (nonce, ciphertext) = rest.split_first_chunk::<NONCE_BYTES>().ok_or(Error::Corrupt)?;
        keys.get(&id)?.decrypt(nonce, ciphertext, &bound(head, associated_data))
    }

    /// Seals a value anew for the same purpose; returns `None` if it is sealed with the newest key.
    ///
    /// # Errors
    /// As [`KeyRing::open`], also if the value is sealed with the newest key.
    pub fn reseal(&self, sealed: &[u8], associated_data: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let text = self.open(sealed, associated_data)?;
        let is_newest = Self::key_of(sealed)? == self.primary();
        Ok(if is_newest { None } else { Some(self.seal(&text, associated_data)?) })
    }

    /// Returns the key that a value names; the value itself may be damaged.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the value does not begin like a sealed one.
    pub fn key_of(sealed: &[u8]) -> Result<KeyId, Error> {
        let (&[version, length], rest) = sealed.split_first_chunk::<2>().ok_or(Error::Corrupt)?;
        if version != VERSION {
            return Err(Error::Corrupt);
        }
        let id = rest.get(..usize::from(length)).ok_or(Error::Corrupt)?;
        std::str::from_utf8(id).map_err(|_| Error::Corrupt)?.parse()
    }
}

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = self.keys();
        let ids: Vec<&str> = keys.all.keys().map(KeyId::as_str).collect();
        f.debug_struct("KeyRing").field("primary", &keys.primary.as_str()).field("keys", &ids).finish()
    }
}

fn keys_of(directory: &Path) -> Result<Arc<Keys>, Error> {
    Keys::of(directory::read(directory)?).ok_or_else(|| Error::NoKey { directory: directory.to_owned() })
}

fn header(id: &KeyId) -> Vec<u8> {
    let mut header = vec![VERSION, u8::try_from(id.as_str().len()).unwrap_or(u8::MAX)];
    header.extend_from_slice(id.as_str().as_bytes());
    header
}

/// Returns the data that is authenticated with the text. The header has a known length, so that no two pairs are joined
/// to the same.
fn bound(header: &[u8], associated_data: &[u8]) -> Vec<u8> {
    [header, associated_data].concat()
}

/// Returns the next numbered id that sorts after the newest.
fn following(newest: &KeyId) -> Result<KeyId, Error> {
    let next = KeyId::numbered(newest.number() + 1)?;
    if next > *newest { Ok(next) } else { format!("{newest}-1").parse() }
}
