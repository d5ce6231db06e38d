//! The URLs of stores and drivers.

use std::{fmt, path::PathBuf, str::FromStr, time::Duration};

use zeroize::Zeroizing;

/// The error of a text that names no store, or no driver.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidBackendUrl(&'static str);

/// The store of registrations, secrets and history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory`: gone when the process ends.
    Memory,
    /// `sqlite:FILE`: one file.
    Sqlite(PathBuf),
    /// `postgres://USER@HOST/DATABASE`: a database.
    Postgres(DatabaseUrl),
    /// `kubernetes`: custom resources and Secrets of the cluster that the process runs in, or that its kubeconfig
    /// names.
    Kubernetes,
}

impl StoreUrl {
    /// Returns whether processes on several machines share the store, so that none of them may make keys.
    pub const fn is_shared(&self) -> bool {
        match self {
            Self::Memory | Self::Sqlite(_) => false,
            Self::Postgres(_) | Self::Kubernetes => true,
        }
    }

    /// Returns whether the store outlives the process.
    pub const fn is_durable(&self) -> bool {
        match self {
            Self::Memory => false,
            Self::Sqlite(_) | Self::Postgres(_) | Self::Kubernetes => true,
        }
    }

    /// Returns the store's file, if it is one of this machine.
    pub fn file(&self) -> Option<PathBuf> {
        match self {
            Self::Sqlite(file) => Some(file.clone()),
            Self::Memory | Self::Postgres(_) | Self::Kubernetes => None,
        }
    }

    /// Returns the store's kind.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Sqlite(_) => "sqlite",
            Self::Postgres(_) => "postgres",
            Self::Kubernetes => "kubernetes",
        }
    }
}

/// A database's URL, which may hold a password; `Display` and `Debug` leave the password out.
#[derive(Clone, PartialEq, Eq)]
pub struct DatabaseUrl(Zeroizing<String>);

impl DatabaseUrl {
    /// Returns the URL with its password.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = self.0.split_once("://").map_or("", |(_, rest)| rest);
        // A password may stand before the `@`, and among the options. If these overlap, because one holds the other's
        // sign unescaped, nothing is shown.
        let shown = match (rest.rfind('@'), rest.find(['?', '#'])) {
            (Some(at), Some(options)) if options < at => "…",
            (at, options) => &rest[at.map_or(0, |at| at + 1)..options.unwrap_or(rest.len())],
        };
        write!(f, "postgres://{shown}")
    }
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for StoreUrl {
    type Err = InvalidBackendUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBackendUrl> {
        match text.split_once(':') {
            None if text == "memory" => Ok(Self::Memory),
            Some(("sqlite", file)) if !file.is_empty() && !file.starts_with("//") => Ok(Self::Sqlite(file.into())),
            Some(("sqlite", "")) => Err(InvalidBackendUrl("name the file: sqlite:FILE")),
            Some(("sqlite", _)) => Err(InvalidBackendUrl("write the file's path right after the colon: sqlite:FILE")),
            Some(("postgres" | "postgresql", rest)) if rest.len() > 2 && rest.starts_with("//") => {
                Ok(Self::Postgres(DatabaseUrl(Zeroizing::new(text.to_owned()))))
            }
            Some(("postgres" | "postgresql", _)) => {
                Err(InvalidBackendUrl("name the database: postgres://USER@HOST/DATABASE"))
            }
            None if text == "kubernetes" => Ok(Self::Kubernetes),
            // The text may hold a password, and is not repeated.
            Some(_) | None => {
                Err(InvalidBackendUrl("must be memory, sqlite:FILE, postgres://USER@HOST/DATABASE or kubernetes"))
            }
        }
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => f.write_str("memory"),
            Self::Sqlite(file) => write!(f, "sqlite:{}", file.display()),
            Self::Postgres(url) => url.fmt(f),
            Self::Kubernetes => f.write_str("kubernetes"),
        }
    }
}

/// The rollout driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DriverUrl {
    /// `simulated` or `simulated:DELAY`: rollouts are simulated, and take this time.
    Simulated(Duration),
    /// `kubernetes`: the cluster that the process runs in, or that its kubeconfig names.
    Kubernetes,
    /// `docker`: the containers of this machine, by the engine's socket.
    Docker,
}

impl DriverUrl {
    /// The time of a simulated rollout by default.
    pub const SIMULATED_DELAY: Duration = Duration::from_secs(1);
}

impl Default for DriverUrl {
    fn default() -> Self {
        Self::Simulated(Self::SIMULATED_DELAY)
    }
}

impl FromStr for DriverUrl {
    type Err = InvalidBackendUrl;

    fn from_str(text: &str) -> Result<Self, InvalidBackendUrl> {
        let unknown =
            || InvalidBackendUrl("must be simulated, simulated:DELAY (such as simulated:500ms), kubernetes or docker");
        match text.split_once(':') {
            None if text == "simulated" => Ok(Self::default()),
            None if text == "kubernetes" => Ok(Self::Kubernetes),
            None if text == "docker" => Ok(Self::Docker),
            Some(("simulated", delay)) => delay_of(delay).map(Self::Simulated).ok_or_else(unknown),
            Some(_) | None => Err(unknown()),
        }
    }
}

fn delay_of(text: &str) -> Option<Duration> {
    let (number, length) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => (text.strip_suffix('s')?, 1000),
    };
    let digits = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let millis = digits.then(|| number.parse::<u64>().ok()).flatten()?.checked_mul(length)?;
    Some(Duration::from_millis(millis))
}

impl fmt::Display for DriverUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Simulated(delay) => write!(f, "simulated:{}ms", delay.as_millis()),
            Self::Kubernetes => f.write_str("kubernetes"),
            Self::Docker => f.write_str("docker"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named() {
        assert_eq!("memory".parse(), Ok(StoreUrl::Memory));
        assert_eq!("sqlite:/var/lib/r.db".parse(), Ok(StoreUrl::Sqlite("/var/lib/r.db".into())));
        assert_eq!("sqlite:r.db".parse(), Ok(StoreUrl::Sqlite("r.db".into())));
        for text in ["", "sqlite", "sqlite:", "sqlite://r.db", "Memory", "memory:", "mysql://x"] {
            assert!(text.parse::<StoreUrl>().is_err(), "{text}");
        }
    }

    #[test]
    fn shared_stores_are_named_and_show_no_password() {
        assert_eq!("kubernetes".parse(), Ok(StoreUrl::Kubernetes));
        for (text, shown) in [
            ("postgres://u:hunter2@db/r", "postgres://db/r"),
            ("postgresql://u:hunter2@db:5432/r?sslmode=require", "postgres://db:5432/r"),
            ("postgres://u:hunt/er2@db/r", "postgres://db/r"),
            ("postgres://u:hunt?er2@db/r", "postgres://…"),
            ("postgres:///r?host=/run/postgresql&password=hunter2", "postgres:///r"),
        ] {
            let store: StoreUrl = text.parse().unwrap();
            assert!(store.is_shared() && store.is_durable());
            assert_eq!(store.to_string(), shown);
            assert!(!format!("{store:?}").contains("hunt"), "{store:?}");
        }
        for text in
            ["postgres:", "postgres://", "postgres:u:hunter2@db", "mysql://u:hunter2@db/r", "sqlite://u:hunter2@db"]
        {
            let told = text.parse::<StoreUrl>().unwrap_err().to_string();
            assert!(!told.contains("hunter2"), "{text}");
        }
    }

    #[test]
    fn drivers_are_named() {
        assert_eq!("simulated".parse(), Ok(DriverUrl::Simulated(Duration::from_secs(1))));
        assert_eq!("simulated:0ms".parse(), Ok(DriverUrl::Simulated(Duration::ZERO)));
        assert_eq!("simulated:2s".parse(), Ok(DriverUrl::Simulated(Duration::from_secs(2))));
        assert_eq!("kubernetes".parse(), Ok(DriverUrl::Kubernetes));
        assert_eq!("docker".parse(), Ok(DriverUrl::Docker));
        for text in ["", "simulated:", "simulated:5", "simulated:-1s", "simulated:ms", "docker:x", "kubernetes:x"] {
            assert!(text.parse::<DriverUrl>().is_err(), "{text}");
        }
    }
}
