//! Which disk the engine keeps images on, and the words for one that is nearly full.

use std::path::{Path, PathBuf};

use rollhook_command::{Bytes, DiskLimits};
use rollhook_core::disk::DiskSpace;
use serde_json::Value;

/// The socket of the machine's own containerd, and the directory that it keeps images in.
const CONTAINERD: (&str, &str) = ("/run/containerd/containerd.sock", "/var/lib/containerd");
/// The kind of an image store that is containerd's in place of the engine's.
const SNAPSHOTTER: &str = "io.containerd.snapshotter.v1";

/// The directories of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Directories {
    /// The directory with all that the engine keeps.
    pub(crate) root: PathBuf,
    /// The directory of images.
    pub(crate) images: PathBuf,
}

/// Returns the directories that the engine's description names; `None` if it names none.
pub(crate) fn directories(info: &Value) -> Option<Directories> {
    let root = info["DockerRootDir"].as_str().map(PathBuf::from).filter(|root| root.is_absolute())?;
    let status = info["DriverStatus"].as_array().into_iter().flatten();
    let is_containerds = status.into_iter().any(|entry| entry[0] == "driver-type" && entry[1] == SNAPSHOTTER);
    let is_shared = info["Containerd"]["Address"] == CONTAINERD.0;
    let images = if is_containerds && is_shared { CONTAINERD.1.into() } else { root.clone() };
    Some(Directories { root, images })
}

/// The container that a process runs in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnContainer {
    pub(crate) id: String,
    /// A file that the engine keeps in its directory, as the container sees it.
    pub(crate) file: PathBuf,
}

/// Returns the container that a process with these mounts (`/proc/self/mountinfo`) runs in: its engine mounts the
/// container's `hostname` from its own directory.
pub(crate) fn own_container(mounts: &str) -> Option<OwnContainer> {
    mounts.lines().find_map(|line| {
        let mut fields = line.split(' ').skip(3);
        let (source, file) = (Path::new(fields.next()?), fields.next()?);
        let id = source.parent()?.file_name()?.to_str()?;
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let is_hostname = source.ends_with("hostname") && file == "/etc/hostname";
        (is_id && is_hostname).then(|| OwnContainer { id: id.to_owned(), file: file.into() })
    })
}

/// Returns why nothing more is put on a disk; `None` if it has room.
pub(crate) fn refusal(space: DiskSpace, limits: DiskLimits) -> Option<String> {
    limits.is_scarce(space).then(|| {
        let (free, size, least) = (Bytes(space.free), Bytes(space.size), Bytes(limits.least(space.size)));
        format!(
            "the disk with Docker's images is nearly full ({free} of {size} free), and the last {least} are left for what runs: remove \
             what is not needed (docker system df), then deploy again"
        )
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_are_in_the_engines_directory_or_in_containerds() {
        let images = |info: Value| directories(&info).map(|found| found.images);
        let overlay = json!({ "DockerRootDir": "/srv/docker", "DriverStatus": [["Backing Filesystem", "extfs"]] });
        assert_eq!(images(overlay), Some("/srv/docker".into()));
        let containerd = |address: &str| {
            let status = [["driver-type", SNAPSHOTTER]];
            json!({ "DockerRootDir": "/srv/docker", "DriverStatus": status, "Containerd": { "Address": address } })
        };
        assert_eq!(images(containerd("/run/containerd/containerd.sock")), Some("/var/lib/containerd".into()));
        assert_eq!(images(containerd("/var/run/docker/containerd/containerd.sock")), Some("/srv/docker".into()));
        assert_eq!(images(json!({ "DriverStatus": null })), None);
    }

    #[test]
    fn own_container_is_the_one_whose_hostname_is_mounted() {
        let id = "0f".repeat(32);
        let mounts = format!(
            "711 650 0:52 / / ro,relatime - overlay overlay rw\n\
             720 711 8:1 /var/lib/docker/containers/{id}/resolv.conf /etc/resolv.conf rw - ext4 /dev/sda1 rw\n\
             721 711 8:1 /var/lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n"
        );
        assert_eq!(own_container(&mounts), Some(OwnContainer { id: id.clone(), file: "/etc/hostname".into() }));
        let shorter =
            format!("731 720 8:1 /lib/docker/containers/{id}/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n");
        assert_eq!(own_container(&shorter).unwrap().id, id, "another root of the engine");
        assert_eq!(own_container("9 1 8:1 /srv/containers/web/data /data rw - ext4 /dev/sda1 rw\n"), None);
        let machine =
            "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 8:1 /srv/hostname /etc/hostname rw - ext4 /dev/sda1 rw\n\n";
        assert_eq!(own_container(machine), None);
    }

    #[test]
    fn full_disk_is_refused_in_numbers() {
        let space = |free: u64| DiskSpace { free, size: 20 << 30, device: 1 };
        assert_eq!(refusal(space(1 << 30), DiskLimits::default()), None);
        let told = refusal(space(300 << 20), DiskLimits::default()).unwrap();
        assert!(told.contains("(300 MiB of 20 GiB free)") && told.contains("last 512 MiB"), "{told}");
    }
}
