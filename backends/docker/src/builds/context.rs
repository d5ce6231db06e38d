//! The build context: the files of a checkout that are sent to the engine, as a tar. Links are sent as links, so that
//! they lead nowhere but within the engine's copy.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    pin::Pin,
    sync::atomic::AtomicBool,
    task::{Context as Waker, Poll},
};

use bytes::Bytes;
use http_body::Frame;
use rollhook_command::CheckoutLimits;
use rollhook_core::source::GitSource;
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{
    dockerfile::Needs,
    ignore::Ignored,
    listing::{Listing, unreadable},
};

/// The largest Dockerfile that is looked at.
const DOCKERFILE_MAX: u64 = 1 << 20;
/// The largest `.dockerignore`.
const IGNORE_MAX: u64 = 64 << 10;
/// The size of a part of the tar, and how many parts wait for the engine.
const PART: usize = 64 << 10;
const PARTS: usize = 8;

/// The files of a build.
#[derive(Debug)]
pub(crate) struct Context {
    directory: PathBuf,
    listing: Listing,
    needs: Needs,
}

impl Context {
    /// Lists the files of a source's context in a checkout, until it is told to stop.
    ///
    /// # Errors
    /// A sentence that says what is wrong with the repository.
    pub(crate) fn of(checkout: &Path, source: &GitSource, stop: &AtomicBool) -> Result<Self, String> {
        let directory = within(checkout, source.context.as_str())
            .filter(|directory| directory.is_dir())
            .ok_or_else(|| format!("The commit has no directory {}, which is the app's context.", source.context))?;
        let dockerfile = source.dockerfile.as_str();
        if fs::symlink_metadata(directory.join(dockerfile)).is_err() {
            return Err(format!("The context {} has no {dockerfile}.", source.context));
        }
        let needs = needs(&directory, dockerfile);
        let ignored = ignored(&directory, dockerfile)?;
        let listing = Listing::of(&directory, &ignored, CheckoutLimits::default(), stop)?;
        Ok(Self { directory, listing, needs })
    }

    /// Returns the needs of the Dockerfile.
    pub(crate) fn needs(&self) -> &Needs {
        &self.needs
    }

    /// Returns the size of all files.
    pub(crate) fn bytes(&self) -> u64 {
        self.listing.bytes
    }

    /// Returns the tar, which a task of its own reads while it is sent.
    pub(crate) fn into_body(self) -> Body {
        let (parts, body) = channel(PARTS);
        tokio::task::spawn_blocking(move || {
            let writer = io::BufWriter::with_capacity(PART, Parts(parts.clone()));
            if let Err(error) = self.write(writer) {
                // The receiver is gone if the engine has ended the build.
                let _ = parts.blocking_send(Err(error));
            }
        });
        Body(body)
    }

    fn write(&self, writer: impl Write) -> io::Result<()> {
        let mut tar = tar::Builder::new(writer);
        for path in &self.listing.entries {
            let place = self.directory.join(path);
            let found = fs::symlink_metadata(&place)?;
            let mut header = tar::Header::new_gnu();
            header.set_metadata(&found);
            // As Docker's client does: the builder's users mean nothing in the image.
            header.set_uid(0);
            header.set_gid(0);
            if found.is_symlink() {
                header.set_size(0);
                tar.append_link(&mut header, path, fs::read_link(&place)?)?;
            } else if found.is_dir() {
                header.set_size(0);
                tar.append_data(&mut header, format!("{path}/"), io::empty())?;
            } else if found.is_file() {
                // A file that changes meanwhile must not change the tar's structure.
                let exactly = io::Read::take(File::open(&place)?, found.len());
                tar.append_data(&mut header, path, exactly)?;
            }
        }
        tar.into_inner()?.flush()
    }
}

/// Returns the needs of a Dockerfile, as far as it can be read here; the engine checks the rest.
fn needs(directory: &Path, dockerfile: &str) -> Needs {
    let place = within(directory, dockerfile);
    let place =
        place.filter(|place| fs::metadata(place).is_ok_and(|found| found.is_file() && found.len() <= DOCKERFILE_MAX));
    let text = place.and_then(|place| fs::read_to_string(place).ok());
    text.map(|text| Needs::of(&text)).unwrap_or_default()
}

/// Returns a directory of the checkout; `None` if a link is on the way, which may lead out of it.
fn within(checkout: &Path, path: &str) -> Option<PathBuf> {
    let mut place = checkout.to_owned();
    for part in path.split('/').filter(|part| *part != ".") {
        place.push(part);
        if fs::symlink_metadata(&place).ok()?.is_symlink() {
            return None;
        }
    }
    Some(place)
}

/// Reads the `.dockerignore` of the Dockerfile, or else that of the context. A link is not followed.
fn ignored(directory: &Path, dockerfile: &str) -> Result<Ignored, String> {
    for name in [format!("{dockerfile}.dockerignore"), ".dockerignore".to_owned()] {
        let Some(place) = within(directory, &name) else { continue };
        match fs::symlink_metadata(&place) {
            Ok(found) if !found.is_file() => continue,
            Ok(found) if found.len() > IGNORE_MAX => {
                return Err(format!("{name} is larger than {} KiB.", IGNORE_MAX >> 10));
            }
            Ok(_) => {}
            Err(_) => continue,
        }
        let text = fs::read(&place).map_err(|error| unreadable(&error))?;
        return Ignored::parse(&String::from_utf8_lossy(&text), &[dockerfile, &name])
            .map_err(|wrong| format!("{name} {wrong}."));
    }
    Ok(Ignored::default())
}

/// Hands on what is written to it.
struct Parts(Sender<io::Result<Bytes>>);

impl Write for Parts {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let sent = self.0.blocking_send(Ok(Bytes::copy_from_slice(bytes)));
        sent.map(|()| bytes.len()).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A tar that is being written.
#[derive(Debug)]
pub(crate) struct Body(Receiver<io::Result<Bytes>>);

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, waker: &mut Waker<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        self.0.poll_recv(waker).map(|part| part.map(|part| part.map(Frame::data)))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    fn source(context: &str, dockerfile: &str) -> GitSource {
        GitSource {
            context: context.parse().unwrap(),
            dockerfile: dockerfile.parse().unwrap(),
            ..rollhook_conformance::samples::git_source()
        }
    }

    fn context(checkout: &Path, of: &GitSource) -> Result<Context, String> {
        Context::of(checkout, of, &AtomicBool::new(false))
    }

    /// Returns what a tar holds: paths, and where links lead.
    fn listed(context: &Context) -> Vec<String> {
        let mut bytes = Vec::new();
        context.write(&mut bytes).unwrap();
        let mut archive = tar::Archive::new(&bytes[..]);
        let entries = archive.entries().unwrap().map(|entry| {
            let entry = entry.unwrap();
            let path = entry.path().unwrap().display().to_string();
            entry.link_name().unwrap().map_or(path.clone(), |to| format!("{path} -> {}", to.display()))
        });
        entries.collect()
    }

    #[test]
    fn context_has_the_files_that_are_not_ignored() {
        let checkout = tempfile::tempdir().unwrap();
        let long = "x".repeat(120);
        let web = checkout.path().join("web");
        fs::create_dir_all(web.join("docs")).unwrap();
        for (name, text) in [("Dockerfile", "FROM a"), ("docs/a", "a"), ("docs/b", "b"), (&long, "long"), ("../x", "x")]
        {
            fs::write(web.join(name), text).unwrap();
        }
        fs::write(web.join(".dockerignore"), "docs\n!docs/b\nDockerfile\n").unwrap();
        let found = context(checkout.path(), &source("web", "Dockerfile")).unwrap();
        assert_eq!(listed(&found), [".dockerignore", "Dockerfile", "docs/b", &long]);
        assert_eq!(found.bytes(), 35);
        fs::write(web.join("Dockerfile.dockerignore"), "*\n").unwrap();
        let found = context(checkout.path(), &source("web", "Dockerfile")).unwrap();
        assert_eq!(listed(&found), ["Dockerfile", "Dockerfile.dockerignore"], "that of the Dockerfile goes before");
    }

    #[test]
    fn links_are_sent_as_links_and_never_followed() {
        let secrets = tempfile::tempdir().unwrap();
        fs::write(secrets.path().join("key"), "hunter2").unwrap();
        let checkout = tempfile::tempdir().unwrap();
        let place = |name: &str| checkout.path().join(name);
        fs::write(place("Dockerfile"), "FROM a").unwrap();
        symlink(secrets.path(), place("web")).unwrap();
        symlink(secrets.path().join("key"), place(".dockerignore")).unwrap();
        let found = context(checkout.path(), &source(".", "Dockerfile")).unwrap();
        let to = secrets.path().display();
        let expected = [format!(".dockerignore -> {to}/key"), "Dockerfile".to_owned(), format!("web -> {to}")];
        assert_eq!(listed(&found), expected);
        let mut bytes = Vec::new();
        found.write(&mut bytes).unwrap();
        assert!(!bytes.windows(7).any(|window| window == b"hunter2"));
        for place in ["web", "web/sub", "nowhere", "Dockerfile"] {
            assert!(context(checkout.path(), &source(place, "key")).unwrap_err().contains("no directory"));
        }
        assert!(context(checkout.path(), &source(".", "Other")).unwrap_err().contains("has no Other"));
    }

    #[test]
    fn dockerignore_that_is_too_large_is_refused() {
        let checkout = tempfile::tempdir().unwrap();
        fs::write(checkout.path().join("Dockerfile"), "FROM a").unwrap();
        fs::write(checkout.path().join(".dockerignore"), "#".repeat((64 << 10) + 1)).unwrap();
        let refused = context(checkout.path(), &source(".", "Dockerfile")).unwrap_err();
        assert_eq!(refused, ".dockerignore is larger than 64 KiB.");
        fs::write(checkout.path().join(".dockerignore"), "a\n".repeat(1001)).unwrap();
        let refused = context(checkout.path(), &source(".", "Dockerfile")).unwrap_err();
        assert_eq!(refused, ".dockerignore has more than 1000 patterns.");
    }
}
