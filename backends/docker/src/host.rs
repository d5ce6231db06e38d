//! The socket of the engine.

use std::path::{Path, PathBuf};

use rollhook_core::{Error, Result};

/// The place of Docker's socket where nothing else is said.
const DEFAULT: &str = "/var/run/docker.sock";

/// The environment of the process, as far as it says where the engine is.
#[derive(Clone, Debug, Default)]
pub(crate) struct Environment {
    pub(crate) docker_host: Option<String>,
    pub(crate) runtime_directory: Option<PathBuf>,
}

impl Environment {
    /// Reads the environment of this process.
    pub(crate) fn of_process() -> Self {
        Self {
            docker_host: std::env::var("DOCKER_HOST").ok().filter(|host| !host.is_empty()),
            runtime_directory: std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()).map(PathBuf::from),
        }
    }

    /// Returns the socket that `DOCKER_HOST` names, or the first one that exists: Docker's, rootless Docker's,
    /// Podman's; if there is none, the place where Docker's will be.
    ///
    /// # Errors
    /// `Invalid` if `DOCKER_HOST` names something other than a socket of this machine.
    pub(crate) fn socket(&self, exists: impl Fn(&Path) -> bool) -> Result<PathBuf> {
        if let Some(host) = &self.docker_host {
            let path = host.strip_prefix("unix://").filter(|path| path.starts_with('/'));
            return path.map(PathBuf::from).ok_or_else(|| {
                let rule = "the docker driver deploys to this machine, by a socket: unix:///PATH; to deploy to another \
                            machine, run rollhook there";
                Error::invalid(format!("DOCKER_HOST={host}: {rule}"))
            });
        }
        let in_runtime = |name| self.runtime_directory.as_ref().map(|directory| directory.join(name));
        let places = [
            Some(PathBuf::from(DEFAULT)),
            in_runtime("docker.sock"),
            Some(PathBuf::from("/run/podman/podman.sock")),
            in_runtime("podman/podman.sock"),
        ];
        Ok(places.into_iter().flatten().find(|place| exists(place)).unwrap_or_else(|| DEFAULT.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(docker_host: Option<&str>) -> Environment {
        Environment { docker_host: docker_host.map(str::to_owned), runtime_directory: Some("/run/user/7".into()) }
    }

    #[test]
    fn socket_is_found_where_engines_put_it() {
        let found = |there: &'static str| environment(None).socket(|path| path == Path::new(there)).unwrap();
        for socket in ["/var/run/docker.sock", "/run/user/7/docker.sock", "/run/user/7/podman/podman.sock"] {
            assert_eq!(found(socket), Path::new(socket));
        }
        assert_eq!(found("/nowhere"), Path::new("/var/run/docker.sock"));
    }

    #[test]
    fn docker_host_names_a_socket_of_this_machine() {
        let socket = environment(Some("unix:///srv/docker.sock")).socket(|_| true).unwrap();
        assert_eq!(socket, Path::new("/srv/docker.sock"));
        for host in ["tcp://10.0.0.1:2376", "ssh://deploy@host", "unix://relative", "/var/run/docker.sock"] {
            let error = environment(Some(host)).socket(|_| true).unwrap_err();
            assert!(error.to_string().contains(host), "{error}");
        }
    }
}
