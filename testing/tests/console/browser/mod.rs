//! The console in a real browser, and the programs of these tests, which `.ci/setup` installs.

mod console;
mod rollout;
mod sign_in;

use std::{
    env,
    path::{Path, PathBuf},
};

use rollhook_testing::documents::root;

/// The programs by which Debian and others name the browser.
const BROWSERS: [&str; 3] = ["chromium", "chromium-browser", "google-chrome"];

/// The programs, and the directory of the npm packages.
pub(crate) struct Programs {
    /// The browser.
    pub(crate) browser: PathBuf,
    /// The program that runs the scripts.
    pub(crate) node: PathBuf,
    /// The directory of the npm packages.
    pub(crate) modules: PathBuf,
}

impl Programs {
    /// Returns the programs, if this npm package is installed too.
    ///
    /// # Errors
    /// The reason why the test cannot run.
    pub(crate) fn find(package: &str) -> Result<Self, &'static str> {
        Ok(Self {
            browser: program(&BROWSERS).ok_or("chromium is not installed")?,
            node: program(&["node"]).ok_or("node is not installed")?,
            modules: packages(package).ok_or("the npm packages are not installed: run .ci/setup")?,
        })
    }
}

fn program(names: &[&str]) -> Option<PathBuf> {
    let path = env::var_os("PATH")?;
    let paths: Vec<PathBuf> = env::split_paths(&path).collect();
    names.iter().find_map(|name| paths.iter().map(|path| path.join(name)).find(|program| program.is_file()))
}

/// Returns the directory into which `.ci/setup` has installed the npm packages.
fn packages(package: &str) -> Option<PathBuf> {
    let cache = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&env::var_os("HOME")?).join(".cache")))?;
    let packages = cache.join("rollhook-tools/browser");
    packages.join("node_modules").join(package).is_dir().then_some(packages)
}

/// Returns the script of this name in `testing/browser`.
pub(crate) fn script(name: &str) -> PathBuf {
    root().join("testing/browser").join(name)
}

/// Returns the directory in which the pictures of pages are kept.
pub(crate) fn pictures() -> PathBuf {
    env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from).join("console-screenshots")
}
