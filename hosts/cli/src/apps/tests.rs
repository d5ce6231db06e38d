use rollhook_api::Workload;
use rollhook_core::{
    app::WorkloadKind,
    deploy::{Revision, Status},
};

use super::*;
use crate::history::tests::{NOW, entry};

pub(crate) fn app() -> App {
    App {
        namespace: "shop-test".to_owned(),
        app: "api".to_owned(),
        project: "shop".to_owned(),
        environment: "test".to_owned(),
        uid: "0123456789abcdef0123456789abcdef".to_owned(),
        source: Source::Image,
        workload: Workload {
            kind: WorkloadKind::Deployment,
            name: "api".to_owned(),
            containers: vec!["api".to_owned(), "worker".to_owned()],
        },
        policy: Policy::of(&rollhook_core::app::Policy::default()),
        holds: vec![Hold {
            by: Revision::new(3).unwrap(),
            image: Some("registry.example.com/api:badbad1".to_owned()),
            digest: None,
            commit: None,
        }],
        current: Some(rollhook_api::Deploy { current: true, ..entry(3, "abc123f", Status::Succeeded, 7200) }),
        on_cluster: Some(rollhook_api::Deploy { on_cluster: true, ..entry(4, "def456a", Status::Failed, 600) }),
        unfinished: vec![Revision::new(5).unwrap(), Revision::new(6).unwrap()],
        created_at: NOW,
    }
}

#[test]
fn lists_and_details() {
    let well =
        App { app: "web".to_owned(), on_cluster: app().current, unfinished: Vec::new(), holds: Vec::new(), ..app() };
    let fresh = App { app: "new".to_owned(), current: None, on_cluster: None, ..app() };
    let apps = [app(), well, fresh];
    insta::assert_snapshot!("list", table(&apps, NOW, false));
    insta::assert_snapshot!("list_wide", wide(&apps, false));
    insta::assert_snapshot!("details", details(&apps[0], NOW));
}

#[test]
fn documents() {
    insta::assert_snapshot!("json", crate::output::json(&app()).unwrap());
    insta::assert_snapshot!("yaml", crate::output::yaml(&app()).unwrap());
}
