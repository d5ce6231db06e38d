//! The list of a context's files. A repository chooses their number, names and depth, so that each is limited, as in the
//! whole commit. What is left out counts too, except for the bytes of its files: it is looked at.

use std::{
    fs, io,
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
};

use rollhook_command::CheckoutLimits;

use super::ignore::{Fitting, Ignored};

/// The files and directories of a context.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// The paths within the context; each directory stands before what is in it.
    pub(crate) entries: Vec<String>,
    /// The size of all files.
    pub(crate) bytes: u64,
}

struct Walk<'a> {
    directory: &'a Path,
    ignored: &'a Ignored,
    limits: CheckoutLimits,
    stop: &'a AtomicBool,
    /// The entries so far, and the bytes of their paths, with those that are left out.
    seen: usize,
    paths: usize,
    listing: Listing,
}

impl Listing {
    /// Lists a directory, until it is told to stop.
    ///
    /// # Errors
    /// A sentence that says which limit is passed, or why the directory cannot be read.
    pub(crate) fn of(
        directory: &Path,
        ignored: &Ignored,
        limits: CheckoutLimits,
        stop: &AtomicBool,
    ) -> Result<Self, String> {
        let listing = Self::default();
        let mut walk = Walk { directory, ignored, limits, stop, seen: 0, paths: 0, listing };
        walk.list("", &ignored.top(), 0)?;
        Ok(walk.listing)
    }
}

impl Walk<'_> {
    fn list(&mut self, parent: &str, fitting: &Fitting, depth: usize) -> Result<(), String> {
        if depth > self.limits.depth {
            return Err(format!("The context has more than {} directories in one another.", self.limits.depth));
        }
        for path in self.paths_in(parent)? {
            if self.stop.load(Ordering::Relaxed) {
                return Err("The build was ended.".to_owned());
            }
            let kind = fs::symlink_metadata(self.directory.join(&path)).map_err(|error| unreadable(&error))?;
            // A pattern may take files back in that are in a directory which is left out.
            let below = kind.is_dir().then(|| (self.ignored.fitting(fitting, &path), path.clone()));
            if !self.ignored.has(fitting, &path) {
                self.add(path, if kind.is_file() { kind.len() } else { 0 })?;
            }
            if let Some((fitting, path)) = below {
                self.list(&path, &fitting, depth + 1)?;
            }
        }
        Ok(())
    }

    /// Returns the sorted paths of what is in a directory, and counts them before they take memory.
    fn paths_in(&mut self, parent: &str) -> Result<Vec<String>, String> {
        let mut paths = Vec::new();
        for found in fs::read_dir(self.directory.join(parent)).map_err(|error| unreadable(&error))? {
            let name = found.map_err(|error| unreadable(&error))?.file_name();
            let Some(name) = name.to_str() else {
                return Err(format!("The name of a file in {parent:?} is no UTF-8: rename it, or build it elsewhere."));
            };
            let path = if parent.is_empty() { name.to_owned() } else { format!("{parent}/{name}") };
            self.seen += 1;
            self.paths += path.len();
            self.check()?;
            paths.push(path);
        }
        paths.sort_unstable();
        Ok(paths)
    }

    fn check(&self) -> Result<(), String> {
        let CheckoutLimits { entries, paths, .. } = self.limits;
        if self.seen > entries {
            let rule = "those that .dockerignore leaves out among them: build from a directory with fewer";
            return Err(format!("The context has more than {entries} files, {rule}."));
        }
        if self.paths > paths {
            let rule = "build from a directory with fewer files, or with shorter paths";
            return Err(format!(
                "The paths of the context's files are longer than {} MiB together: {rule}.",
                paths >> 20
            ));
        }
        Ok(())
    }

    fn add(&mut self, path: String, bytes: u64) -> Result<(), String> {
        self.listing.bytes = self.listing.bytes.saturating_add(bytes);
        self.listing.entries.push(path);
        let most = self.limits.bytes;
        if self.listing.bytes > most {
            let rule = "leave out what the image does not need, in .dockerignore";
            return Err(format!("The context is larger than {} GiB: {rule}.", most >> 30));
        }
        Ok(())
    }
}

pub(crate) fn unreadable(error: &io::Error) -> String {
    format!("The checkout cannot be read: {error}.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(directory: &Path, limits: CheckoutLimits) -> Result<Vec<String>, String> {
        let ignored = Ignored::parse("docs\n", &[]).unwrap();
        Listing::of(directory, &ignored, limits, &AtomicBool::new(false)).map(|listing| listing.entries)
    }

    #[test]
    fn each_limit_of_a_context_is_told() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir_all(directory.path().join("docs/a/b")).unwrap();
        fs::write(directory.path().join("docs/a/b/text"), "text").unwrap();
        fs::write(directory.path().join("app"), "app").unwrap();
        // Paths: app, docs, docs/a, docs/a/b, docs/a/b/text.
        let fits = CheckoutLimits { bytes: 3, entries: 5, paths: 34, depth: 3, ..CheckoutLimits::default() };
        assert_eq!(listed(directory.path(), fits).unwrap(), ["app"]);
        for (limits, told) in [
            (CheckoutLimits { bytes: 2, ..fits }, "larger than"),
            (CheckoutLimits { entries: 4, ..fits }, "more than 4 files"),
            (CheckoutLimits { paths: 33, ..fits }, "paths of the context's files"),
            (CheckoutLimits { depth: 2, ..fits }, "more than 2 directories in one another"),
        ] {
            let refused = listed(directory.path(), limits).unwrap_err();
            assert!(refused.contains(told), "{refused}");
        }
    }

    #[test]
    fn listing_ends_once_the_build_has() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("app"), "app").unwrap();
        let stop = AtomicBool::new(true);
        let ended = Listing::of(directory.path(), &Ignored::default(), CheckoutLimits::default(), &stop);
        assert_eq!(ended.unwrap_err(), "The build was ended.");
    }
}
