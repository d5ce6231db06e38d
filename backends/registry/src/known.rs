//! What was read of images with a digest, which never changes. It is kept by the repository as well: a registry that names
//! the digest of another one's image is not shown what is known of that.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use rollhook_core::{image::Digest, ports::Resolved};

/// The most images that are kept, of one to four kilobytes each: as many apps may follow a repository without an image being read
/// at each poll.
const MOST: usize = 2048;

/// The repository in full, and the digest.
type Key = (String, Digest);

/// The images that were read last.
#[derive(Default)]
pub(crate) struct Known(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    images: BTreeMap<Key, (u64, Resolved)>,
    /// Grows with each use.
    uses: u64,
}

impl Known {
    /// Returns the image of a digest, if it was read at this repository.
    pub(crate) fn get(&self, repository: &str, digest: &Digest) -> Option<Resolved> {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        let (used, image) = kept.images.get_mut(&(repository.to_owned(), digest.clone()))?;
        *used = now;
        Some(image.clone())
    }

    /// Keeps an image; the one that was used least lately makes room.
    pub(crate) fn put(&self, repository: &str, image: &Resolved) {
        let mut kept = self.lock();
        kept.uses += 1;
        let now = kept.uses;
        kept.images.insert((repository.to_owned(), image.digest.clone()), (now, image.clone()));
        if kept.images.len() > MOST {
            let oldest = kept.images.iter().min_by_key(|(_, (used, _))| *used).map(|(key, _)| key.clone());
            oldest.and_then(|key| kept.images.remove(&key));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn image_that_was_used_least_lately_makes_room() {
        let image = |number: usize| Resolved::new(format!("sha256:{number:064x}").parse().unwrap(), "m");
        let known = Known::default();
        for number in 0..MOST {
            known.put("r.example.com/api", &image(number));
        }
        assert_eq!(known.get("r.example.com/api", &image(0).digest), Some(image(0)));
        known.put("r.example.com/api", &image(MOST));
        assert_eq!(known.get("r.example.com/api", &image(1).digest), None);
        assert_eq!(known.get("r.example.com/api", &image(0).digest), Some(image(0)));
        assert_eq!(known.lock().images.len(), MOST);
        assert_eq!(known.get("evil.example/api", &image(0).digest), None, "another repository's");
    }
}
