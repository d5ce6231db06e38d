//! A stand-in for what serves a site: it looks at the site's files now and then, and says what it does. What a release
//! makes it do stands in the release's file `behaviour`.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use rollhook_core::image::{Digest, ImageRef};

use crate::site::now_millis;

/// The server of one site.
pub(crate) struct Server {
    site: PathBuf,
    /// The deploy and the release that it serves.
    serves: Option<(String, PathBuf)>,
    ticks: u32,
    restarts: u32,
    /// The time at which it began to serve the release, and at which it ended last, in milliseconds.
    first_start: u64,
    last_end: u64,
    /// The number of releases that it has begun to serve: each in a process of its own.
    pub(crate) processes: u32,
}

impl Server {
    pub(crate) fn new(site: &Path) -> Self {
        Self { site: site.to_owned(), serves: None, ticks: 0, restarts: 0, first_start: 0, last_end: 0, processes: 0 }
    }

    /// Lets a moment pass: begins with what is to be served now, or goes on.
    pub(crate) fn tick(&mut self) -> io::Result<()> {
        let record = fs::read_to_string(self.site.join("deploy")).unwrap_or_default();
        let deploy = match record.split_whitespace().collect::<Vec<_>>()[..] {
            [deploy, _, "switched"] => deploy,
            // A restore keeps what runs.
            [_, _, state] if state.starts_with("kept=") => &state["kept=".len()..],
            // A deploy has begun, and nothing is switched: the old release goes on.
            [_, _, _] => self.serves.as_ref().map_or("-", |(deploy, _)| deploy.as_str()),
            _ => "-",
        };
        let next = (deploy.to_owned(), fs::canonicalize(self.site.join("current"))?);
        self.ticks += 1;
        if self.serves.as_ref() != Some(&next) {
            (self.serves, self.ticks, self.restarts) = (Some(next.clone()), 0, 0);
            (self.first_start, self.last_end) = (now_millis(), 0);
            self.processes += 1;
            fs::write(self.site.join("log"), "")?;
        }
        let behaviour = fs::read_to_string(next.1.join("behaviour"))?;
        let ready = match (behaviour.as_str(), self.ticks) {
            ("crash", _) => self.ends("crash: no database")?,
            ("dies", 8..) => self.ends("dies: out of memory")?,
            ("heals", ..12) => self.ends("heals: no database yet")?,
            ("hang", _) | (_, 0) => false,
            _ => true,
        };
        let state = if ready { "ready" } else { "starting" };
        let new = self.site.join("served.new");
        let (restarts, start, end) = (self.restarts, self.first_start, self.last_end);
        fs::write(&new, format!("{} {state} {restarts} {start} {end} {}\n", next.0, next.1.display()))?;
        fs::rename(new, self.site.join("served"))
    }

    /// Ends, and is started again by whoever looks after it.
    fn ends(&mut self, last_word: &str) -> io::Result<bool> {
        self.restarts += 1;
        self.last_end = now_millis();
        let mut log = OpenOptions::new().create(true).append(true).open(self.site.join("log"))?;
        writeln!(log, "{last_word}")?;
        Ok(false)
    }
}

/// Uploads a release that behaves so, as CI does, and makes its tag mean it.
pub(crate) fn upload(root: &Path, image: &ImageRef, behaviour: &str) -> io::Result<()> {
    let tag = image.tag().unwrap_or("latest");
    let repository = root.join("images").join(image.canonical_repository());
    let release = repository.join(format!("{tag}@{}", digest(&format!("{behaviour} {tag}"))));
    fs::create_dir_all(&release)?;
    fs::write(release.join("behaviour"), behaviour)?;
    let link = repository.join(tag);
    if link.symlink_metadata().is_ok() {
        fs::remove_file(&link)?;
    }
    symlink(release, link)
}

/// A digest that follows from a word; a real one follows from the release's content.
#[expect(clippy::expect_used, reason = "64 hexadecimal digits are a digest")]
fn digest(word: &str) -> Digest {
    let hex: String = word.bytes().cycle().take(32).map(|byte| format!("{byte:02x}")).collect();
    format!("sha256:{hex}").parse().expect("64 hexadecimal digits are a digest")
}
