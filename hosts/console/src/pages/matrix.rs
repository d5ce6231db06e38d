//! The matrix of a project: its apps with the environments side by side, and what lags behind.

use std::collections::{BTreeMap, BTreeSet};

use rollhook_api::{
    App, Deploy, promotion,
    words::{mark_with_reason, short_image},
};
use rollhook_core::{app::Source, deploy::Status, text::escaped, time::Timestamp};

use crate::view::{Frame, Image, Mark, When, app_path};

/// Names of environments in the order in which versions usually pass them; others come between, by name.
const FIRST: [&str; 6] = ["dev", "development", "ci", "test", "testing", "int"];
const LAST: [&str; 6] = ["qa", "stage", "staging", "preprod", "prod", "production"];

/// A project with its apps.
pub(crate) struct Project {
    pub(crate) name: String,
    pub(crate) environments: Vec<Column>,
    pub(crate) rows: Vec<Row>,
}

/// An environment of a project.
pub(crate) struct Column {
    pub(crate) name: String,
    /// The page that promotes to it, if there is another environment and the caller may promote.
    pub(crate) promote: Option<String>,
}

/// An app in the environments of its project.
pub(crate) struct Row {
    pub(crate) name: String,
    pub(crate) cells: Vec<Option<Cell>>,
}

/// An app in one environment.
pub(crate) struct Cell {
    pub(crate) environment: String,
    pub(crate) href: String,
    pub(crate) label: String,
    pub(crate) image: Option<Image>,
    pub(crate) mark: Mark,
    pub(crate) when: Option<When>,
    pub(crate) notes: Vec<Mark>,
    pub(crate) lag: Option<Lag>,
}

/// The difference of an app from the environment before.
pub(crate) struct Lag {
    pub(crate) mark: Mark,
    pub(crate) title: String,
    /// The page that promotes what the environment before runs, if the caller may.
    pub(crate) promote: Option<String>,
    pub(crate) label: String,
}

impl Project {
    /// The page that promotes between environments of the project, if the caller may promote to one of them.
    pub(crate) fn promote(&self) -> Option<&String> {
        self.environments.iter().rev().find_map(|column| column.promote.as_ref())
    }
}

/// The maker of the matrices of one page.
pub(crate) struct Matrix<'a> {
    /// All apps of each project and name, in the order of promotion: also those that a search leaves out.
    stages: BTreeMap<(&'a str, &'a str), Vec<&'a App>>,
    now: Timestamp,
    /// The word for the place that is deployed to.
    platform: &'static str,
    may_promote_to: &'a dyn Fn(&App) -> bool,
}

impl<'a> Matrix<'a> {
    pub(crate) fn new(all: &'a [App], frame: &Frame, may_promote_to: &'a dyn Fn(&App) -> bool) -> Self {
        let mut stages: BTreeMap<_, Vec<&App>> = BTreeMap::new();
        for app in all {
            stages.entry((app.project.as_str(), app.app.as_str())).or_default().push(app);
        }
        for apps in stages.values_mut() {
            apps.sort_by_key(|app| stage(&app.environment));
        }
        Self { stages, now: frame.now, platform: frame.targets.platform, may_promote_to }
    }

    /// Returns the matrix of these apps of a project.
    pub(crate) fn project(&self, name: &str, apps: &[&App]) -> Project {
        let all = self.stages.range((name, "")..).take_while(|((project, _), _)| *project == name);
        let all = all.flat_map(|(_, apps)| apps);
        let are_several = environments(all.copied()).len() > 1;
        let environments = environments(apps.iter().copied());
        let names: BTreeSet<&str> = apps.iter().map(|app| app.app.as_str()).collect();
        let places: BTreeMap<_, &App> =
            apps.iter().map(|app| ((app.app.as_str(), app.environment.as_str()), *app)).collect();
        let found = |app: &str, environment: &str| places.get(&(app, environment)).copied();
        let row = |app: &&str| Row {
            name: escaped(app),
            cells: environments.iter().map(|environment| found(app, environment).map(|app| self.cell(app))).collect(),
        };
        let may_promote = |environment: &str| {
            are_several && apps.iter().any(|app| app.environment == environment && (self.may_promote_to)(app))
        };
        let column = |environment: &&str| Column {
            name: escaped(environment),
            promote: may_promote(environment).then(|| format!("/projects/{name}/promote?to={environment}")),
        };
        Project {
            name: escaped(name),
            rows: names.iter().map(row).collect(),
            environments: environments.iter().map(column).collect(),
        }
    }

    fn cell(&self, app: &App) -> Cell {
        let running = app.current.as_ref();
        let last = app.beside_current();
        Cell {
            environment: escaped(&app.environment),
            href: app_path(app),
            label: escaped(&format!("{} in {}", app.app, app.environment)),
            image: running.and_then(|deploy| deploy.image.as_deref()).map(Image::new),
            mark: mark(app, self.platform),
            when: last.or(running).or(app.ended_off_cluster()).map(|deploy| When::new(deploy.created_at, self.now)),
            notes: notes(app),
            lag: self.lag(app),
        }
    }

    /// Returns how the app differs from the nearest environment before that runs something.
    fn lag(&self, app: &App) -> Option<Lag> {
        let stages = self.stages.get(&(app.project.as_str(), app.app.as_str()))?;
        let place = stages.iter().position(|known| known.environment == app.environment)?;
        let before = stages[..place].iter().rev().find(|known| known.current.is_some())?;
        if app.source != Source::Image || promotion::run_the_same(Some(before), Some(app)) {
            return None;
        }
        let (theirs, ours) = (before.current.as_ref()?, app.current.as_ref());
        let (from, to) = (&before.environment, &app.environment);
        // What was deployed here later, such as a repair, is no older version.
        let is_behind = ours.is_none_or(|ours| ours.created_at < theirs.created_at);
        let word = if is_behind { format!("behind {}", escaped(from)) } else { format!("not as in {}", escaped(from)) };
        let image = theirs.image.as_deref().map(short_image).unwrap_or_default();
        let path = format!("/projects/{}/promote?from={from}&to={to}&app={}", app.project, app.app);
        Some(Lag {
            mark: Mark::behind(word),
            title: escaped(&format!("{from} runs {image}")),
            promote: (self.may_promote_to)(app).then_some(path),
            label: escaped(&format!("{} from {from} to {to}", app.app)),
        })
    }
}

/// Returns the first apps of a project, by name, whose table has at most so many cells, and how many it has. An app is
/// shown in all of its environments, or left out.
pub(crate) fn within<'a>(apps: &[&'a App], most: usize) -> (Vec<&'a App>, usize) {
    let mut by_name: BTreeMap<&str, Vec<&App>> = BTreeMap::new();
    for app in apps {
        by_name.entry(app.app.as_str()).or_default().push(app);
    }
    let (mut shown, mut columns, mut rows) = (Vec::new(), BTreeSet::new(), 0);
    for (_, apps) in by_name {
        let more = apps.iter().filter(|app| !columns.contains(app.environment.as_str())).count();
        if (rows + 1) * (columns.len() + more) > most {
            break;
        }
        rows += 1;
        columns.extend(apps.iter().map(|app| app.environment.as_str()));
        shown.extend(apps);
    }
    (shown, rows * columns.len())
}

/// Returns the names of the environments of these apps, in the order of promotion.
pub(crate) fn environments<'a>(apps: impl IntoIterator<Item = &'a App>) -> Vec<&'a str> {
    let mut names: Vec<&str> = apps.into_iter().map(|app| app.environment.as_str()).collect();
    names.sort_by_key(|name| stage(name));
    names.dedup();
    names
}

/// Returns an environment's place in the order of promotion.
fn stage(environment: &str) -> (usize, &str) {
    let first = FIRST.iter().position(|name| *name == environment);
    let last = LAST.iter().position(|name| *name == environment).map(|place| FIRST.len() + 1 + place);
    (first.or(last).unwrap_or(FIRST.len()), environment)
}

fn mark(app: &App, platform: &str) -> Mark {
    let running = app.current.as_ref();
    let last = app.beside_current();
    let beside =
        app.unfinished.iter().filter(|revision| Some(**revision) != last.map(|deploy| deploy.revision)).count();
    match (last, running) {
        (Some(last), _) => {
            let mark = Mark::of(last);
            let place = if last.status == Status::Failed { format!(" on {platform}") } else { String::new() };
            Mark { word: format!("#{} {}{place}", last.revision, mark.word), ..mark }
        }
        (None, _) if beside > 0 => Mark::busy(match app.unfinished.last() {
            Some(revision) => format!("#{revision} on its way"),
            None => "on its way".to_owned(),
        }),
        (None, Some(running)) => Mark { word: format!("#{} current", running.revision), ..Mark::of(running) },
        (None, None) => app.ended_off_cluster().map_or_else(|| Mark::nothing("never deployed"), ended),
    }
}

/// Returns the mark of an entry that ended without success, with its number and its reason.
fn ended(deploy: &Deploy) -> Mark {
    let word = mark_with_reason(deploy).unwrap_or_default();
    Mark { word: escaped(&format!("#{} {word}", deploy.revision)), ..Mark::of(deploy) }
}

/// Returns what keeps an app from running what was deployed last, or from being deployed.
pub(crate) fn notes(app: &App) -> Vec<Mark> {
    // Where nothing else is to be told, the mark of the cell tells it.
    let is_told = app.on_cluster.is_none() && app.unfinished.is_empty();
    let failed = app.ended_off_cluster().filter(|_| !is_told).map(ended);
    let drift = app.drift.as_ref().map(|drift| {
        Mark::warning(match drift.image.as_deref() {
            Some(image) => format!("drift: {} runs", Image::new(&short_image(image)).name),
            None => "drift: changed by another".to_owned(),
        })
    });
    let degraded =
        app.degraded.as_ref().map(|degraded| Mark::warning(escaped(&format!("degraded: {}", degraded.reason))));
    let restored = app.is_restored().then(|| Mark::warning("restored after a failure"));
    let locked = (!app.locks.is_empty()).then(|| Mark::held("locked"));
    let hold = (!app.holds.is_empty()).then(|| Mark::held("hold"));
    failed.into_iter().chain(restored).chain(drift).chain(degraded).chain(locked).chain(hold).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::pages::tests::{app, deploy};

    const NOW: Timestamp = Timestamp::from_millis(1_767_323_045_678);

    fn in_environment(name: &str, environment: &str, more: Value) -> App {
        let namespace = format!("shop-{environment}");
        let mut fields = json!({ "app": name, "environment": environment, "namespace": namespace });
        fields.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        app(fields)
    }

    fn runs(environment: &str, tag: &str, minute: u32) -> App {
        let (image, at) = (format!("r.example.com/api:{tag}"), format!("2026-01-02T03:{minute:02}:00.000Z"));
        let current = deploy(1, json!({ "image": image, "created_at": at, "current": true, "on_cluster": true }));
        in_environment("api", environment, json!({ "current": current, "on_cluster": current }))
    }

    fn matrix(apps: &[App], may: bool) -> Project {
        Matrix::new(apps, &Frame::signed_out(NOW), &|_| may).project("shop", &apps.iter().collect::<Vec<_>>())
    }

    /// The words of the lags of the only row, and whether each offers a promotion.
    fn lags(apps: &[App], may: bool) -> Vec<Option<(String, bool)>> {
        let row = matrix(apps, may).rows.remove(0);
        let lag = |lag: Lag| (lag.mark.word, lag.promote.is_some());
        row.cells.into_iter().map(|cell| cell.and_then(|cell| cell.lag).map(lag)).collect()
    }

    #[test]
    fn environments_stand_side_by_side_in_the_order_of_promotion() {
        let names = ["prod", "eu-west", "test", "staging", "dev"];
        let others = names.iter().map(|name| in_environment("api", name, json!({})));
        let apps: Vec<App> = others.chain([in_environment("web", "prod", json!({}))]).collect();
        let project = matrix(&apps, true);
        let columns: Vec<&str> = project.environments.iter().map(|column| column.name.as_str()).collect();
        assert_eq!(columns, ["dev", "test", "eu-west", "staging", "prod"]);
        let present: Vec<Vec<bool>> =
            project.rows.iter().map(|row| row.cells.iter().map(Option::is_some).collect()).collect();
        assert_eq!(present, [vec![true; 5], vec![false, false, false, false, true]]);
    }

    #[test]
    fn table_has_a_bounded_number_of_cells() {
        let at = |name: &str, environment: &str| in_environment(name, environment, json!({}));
        let apps = [at("a", "dev"), at("b", "dev"), at("b", "test"), at("c", "prod"), at("d", "dev")];
        let all: Vec<&App> = apps.iter().collect();
        let shown = |most| {
            let (shown, cells) = within(&all, most);
            let project = Matrix::new(&apps, &Frame::signed_out(NOW), &|_| true).project("shop", &shown);
            let made: usize = project.rows.iter().map(|row| row.cells.len()).sum();
            assert_eq!(made, cells, "{most}");
            (project.rows.into_iter().map(|row| row.name).collect::<String>(), cells)
        };
        for (most, expected) in [
            (0, ("", 0)),
            (1, ("a", 1)),
            (3, ("a", 1)),
            (4, ("ab", 4)),
            (8, ("ab", 4)),
            (9, ("abc", 9)),
            (12, ("abcd", 12)),
        ] {
            assert_eq!(shown(most), (expected.0.to_owned(), expected.1), "{most}");
        }
    }

    #[test]
    fn a_cell_says_behind_which_environment_it_is() {
        let behind = |word: &str| Some((word.to_owned(), true));
        let stages = [runs("dev", "3", 30), runs("test", "2", 20), runs("prod", "2", 10)];
        assert_eq!(lags(&stages, true), [None, behind("behind dev"), None]);
        let repaired = [runs("test", "2", 10), runs("prod", "1.1", 20)];
        assert_eq!(lags(&repaired, true), [None, behind("not as in test")], "what is newer is not behind");
        let gap = [runs("dev", "3", 30), in_environment("api", "test", json!({})), runs("prod", "2", 10)];
        assert_eq!(lags(&gap, true), [None, behind("behind dev"), behind("behind dev")], "test runs nothing");
        assert_eq!(lags(&stages, false)[1], Some(("behind dev".to_owned(), false)), "a viewer sees it, and no button");
    }

    #[test]
    fn the_newest_deploy_is_told_also_when_it_failed_in_its_build() {
        let failed = deploy(2, json!({ "status": "failed", "reason": "build-failed", "image": null }));
        let cell = |app: &App| Matrix::new(&[], &Frame::signed_out(NOW), &|_| true).cell(app);
        let never = cell(&in_environment("api", "test", json!({ "newest": failed })));
        assert_eq!((never.mark.word.as_str(), never.mark.tone), ("#2 failed: build-failed", "bad"));
        assert!(never.notes.is_empty() && never.when.is_some(), "once is enough");
        let behind = cell(&App { newest: Some(failed.clone()), ..runs("test", "1", 10) });
        assert_eq!((behind.mark.word.as_str(), behind.mark.tone), ("#1 current", "good"));
        let notes: Vec<_> = behind.notes.iter().map(|note| (note.word.as_str(), note.tone)).collect();
        assert_eq!(notes, [("#2 failed: build-failed", "bad")]);
        let under_way = cell(&in_environment("api", "test", json!({ "newest": failed, "unfinished": [1] })));
        assert_eq!((under_way.mark.word.as_str(), under_way.notes.len()), ("#1 on its way", 1));
    }

    #[test]
    fn app_whose_last_deploy_was_put_right_is_marked() {
        let restore = deploy(4, json!({ "current": true, "trigger": "rollback", "actor": "auto" }));
        let restored = in_environment("api", "test", json!({ "current": restore }));
        let told: Vec<_> = notes(&restored).into_iter().map(|note| (note.word, note.tone)).collect();
        assert_eq!(told, [("restored after a failure".to_owned(), Mark::warning("").tone)]);
        assert!(notes(&runs("test", "1", 10)).is_empty());
    }

    #[test]
    fn the_same_digest_is_no_lag_and_a_git_app_gets_no_promotion() {
        let with_digest = |environment, tag, digest: &str| {
            let app = runs(environment, tag, 10);
            let current = app.current.map(|deploy| rollhook_api::Deploy { digest: Some(digest.to_owned()), ..deploy });
            App { current, ..app }
        };
        let stages = [with_digest("test", "2", "sha256:aa"), with_digest("prod", "latest", "sha256:aa")];
        assert_eq!(lags(&stages, true), [None, None]);
        let git: rollhook_core::app::Source = serde_json::from_value(json!({
            "kind": "git", "url": "https://git.example.com/api.git", "branch": "main", "dockerfile": "Dockerfile",
            "context": ".", "image_repository": "r.example.com/api"
        }))
        .unwrap();
        assert_eq!(lags(&[runs("test", "2", 20), App { source: git, ..runs("prod", "1", 10) }], true), [None, None]);
    }

    #[test]
    fn promotion_is_offered_where_there_is_another_environment_and_the_role_allows_it() {
        let offered = |apps: &[App], may| {
            let project = matrix(apps, may);
            project.environments.iter().map(|column| column.promote.is_some()).collect::<Vec<_>>()
        };
        let stages = [runs("test", "2", 20), runs("prod", "1", 10)];
        assert_eq!(offered(&stages, true), [true, true]);
        assert_eq!(offered(&stages, false), [false, false]);
        assert_eq!(offered(&stages[..1], true), [false]);
        let frame = Frame::signed_out(NOW);
        let all = &Matrix::new(&stages, &frame, &|_| true);
        let searched = all.project("shop", &[&stages[1]]);
        assert!(searched.environments[0].promote.is_some(), "a search for prod leaves test out, and hides nothing");
        assert!(searched.rows[0].cells[0].as_ref().unwrap().lag.is_some());
    }
}
