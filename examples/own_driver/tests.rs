//! The driver keeps every promise of the port: the conformance suite, on a directory of its own per case.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use async_trait::async_trait;
use rollhook_conformance::{Can, Clusters, Instance, Sample, samples};
use rollhook_core::{
    app::{AppId, Settings, Target},
    image::{Digest, ImageRef},
    ports::RolloutDriver,
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    driver::Sites,
    server::{Server, upload},
};

struct Place {
    root: TempDir,
    sites: Arc<Sites>,
    servers: Mutex<BTreeMap<PathBuf, Server>>,
}

impl Place {
    fn fresh() -> Can<Self> {
        let root = tempfile::tempdir().unwrap();
        let place = Self { sites: Arc::new(Sites::new(root.path())), servers: Mutex::default(), root };
        for sample in [Sample::Good, Sample::Another, Sample::Crashing, Sample::Hanging, Sample::Dying, Sample::Healing]
        {
            place.upload(&place.image(sample)?, sample);
        }
        Ok(place)
    }

    fn upload(&self, image: &ImageRef, sample: Sample) {
        let behaviour = match sample {
            Sample::Good | Sample::Missing => "good",
            Sample::Another => "another",
            Sample::Crashing => "crash",
            Sample::Hanging => "hang",
            Sample::Dying => "dies",
            Sample::Healing => "heals",
        };
        upload(self.root.path(), image, behaviour).unwrap();
    }

    /// The release that a tag means now.
    fn release(&self, image: &ImageRef) -> PathBuf {
        let images = self.root.path().join("images").join(image.canonical_repository());
        fs::canonicalize(images.join(image.tag().unwrap())).unwrap()
    }

    fn site(&self, app: &AppId) -> PathBuf {
        self.root.path().join("sites").join(app.to_string())
    }

    /// Every site that is there has a server.
    fn tick(&self) {
        let mut servers = self.servers.lock().unwrap();
        for namespace in fs::read_dir(self.root.path().join("sites")).into_iter().flatten().flatten() {
            for site in fs::read_dir(namespace.path()).unwrap().flatten().map(|site| site.path()) {
                if site.join("current").exists() {
                    servers.entry(site.clone()).or_insert_with(|| Server::new(&site)).tick().unwrap();
                }
            }
        }
    }
}

fn text(site: &Path, file: &str) -> String {
    fs::read_to_string(site.join(file)).unwrap_or_default()
}

#[async_trait]
impl Clusters for Place {
    fn rollouts(&self) -> Arc<dyn RolloutDriver> {
        self.sites.clone()
    }

    async fn another(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(Sites::new(self.root.path())))
    }

    async fn away(&self) -> Can<Arc<dyn RolloutDriver>> {
        Ok(Arc::new(Sites::new(&self.root.path().join("not-mounted"))))
    }

    fn app(&self, name: &str) -> AppId {
        samples::app("shop", "test", name).id
    }

    fn image(&self, sample: Sample) -> Can<ImageRef> {
        Ok(samples::image(match sample {
            Sample::Good => "v1",
            Sample::Another => "v2",
            Sample::Missing => "missing",
            Sample::Crashing => "crash",
            Sample::Hanging => "hang",
            Sample::Dying => "dies",
            Sample::Healing => "heals",
        }))
    }

    fn settings(&self, _app: &AppId) -> Settings {
        Settings::new()
    }

    fn invalid_settings(&self) -> Can<(Settings, &'static str)> {
        Ok((samples::settings(json!({ "directory": "../etc" })), "workload.directory"))
    }

    async fn prepare(&self, app: &AppId) -> Can {
        let (site, image) = (self.site(app), self.image(Sample::Good)?);
        fs::create_dir_all(&site).unwrap();
        fs::write(site.join("config"), "workers = 3\n").unwrap();
        symlink(self.release(&image), site.join("current")).unwrap();
        self.tick();
        self.tick();
        Ok(())
    }

    async fn push(&self, image: &ImageRef, sample: Sample) -> Can {
        self.upload(image, sample);
        Ok(())
    }

    async fn meddle(&self, app: &AppId, _target: &Target, image: &ImageRef) -> Can {
        let current = self.site(app).join("current");
        fs::remove_file(&current).unwrap();
        symlink(self.release(image), current).unwrap();
        Ok(())
    }

    async fn remove(&self, app: &AppId, _target: &Target) -> Can {
        fs::remove_dir_all(self.site(app)).unwrap();
        Ok(())
    }

    async fn fingerprint(&self, app: &AppId, _target: &Target) -> String {
        let site = self.site(app);
        format!("{:?} {} {}", fs::read_link(site.join("current")), text(&site, "deploy"), text(&site, "config"))
    }

    async fn configuration(&self, app: &AppId, _target: &Target) -> Can<String> {
        Ok(text(&self.site(app), "config"))
    }

    async fn instances(&self, app: &AppId, _target: &Target) -> Can<Vec<Instance>> {
        let site = self.site(app);
        let served = text(&site, "served");
        let version = served.rsplit('/').next().unwrap();
        let image: ImageRef = format!("registry.example.com/shop/api:{}", version.trim_end()).parse().unwrap();
        let process = self.servers.lock().unwrap()[&site].processes;
        Ok(vec![Instance { id: process.to_string(), digest: image.digest().cloned(), image }])
    }

    async fn digest(&self, image: &ImageRef) -> Can<Digest> {
        let release = self.release(image);
        Ok(release.to_str().unwrap().rsplit_once('@').unwrap().1.parse().unwrap())
    }

    async fn logged(&self, _app: &AppId, _target: &Target) -> Can<String> {
        Ok("no database".to_owned())
    }

    fn container(&self) -> Option<&'static str> {
        None
    }

    async fn pause(&self) {
        self.tick();
    }
}

fn run<T>(case: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(case)
}

rollhook_conformance::rollouts!(run, Place::fresh());
