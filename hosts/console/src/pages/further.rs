//! The further workloads of an app, as lines of a form.

use rollhook_api::App;
use rollhook_core::{app::Settings, ports::TargetDescription};
use serde_json::Value;

/// The setting that lists them, and its name in forms and refusals.
const ALSO: &str = "also";
pub(super) const FIELD: &str = "workload.also";
/// The member of a listed workload that goes together with the one before it, and the mark of its line.
const TOGETHER: &str = "together";
const MARK: char = '+';

/// Returns the lines of an app's further workloads, and what they say; `None` if what is deployed to has none.
pub(super) fn lines(app: &App, described: &TargetDescription) -> Option<(String, &'static str)> {
    let setting = described.settings.iter().find(|setting| setting.name == ALSO)?;
    Some((listed(app).map(line).collect::<Vec<_>>().join("\n"), setting.help))
}

/// Returns the list that these lines ask for. A workload that is listed already keeps its settings, of which a line has not all.
pub(super) fn list(app: &App, lines: &str) -> Vec<Value> {
    let known = |line: &str| {
        let name = line.trim_start_matches(MARK);
        let mut settings = listed(app).find(|settings| self::line(settings).trim_start_matches(MARK) == name)?.clone();
        settings.remove(TOGETHER);
        if line.starts_with(MARK) {
            settings.insert(TOGETHER.to_owned(), true.into());
        }
        Some(Value::Object(settings))
    };
    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
    lines.map(|line| known(line).unwrap_or_else(|| line.into())).collect()
}

fn listed(app: &App) -> impl Iterator<Item = &Settings> {
    let also = app.workload.get(ALSO).and_then(Value::as_array);
    also.into_iter().flatten().filter_map(Value::as_object)
}

/// Returns the line of a workload: `KIND/NAME:CONTAINER,…`.
fn line(settings: &Settings) -> String {
    let text = |name: &str| settings.get(name).and_then(Value::as_str).unwrap_or_default();
    let mark = if settings.get(TOGETHER) == Some(&Value::Bool(true)) { "+" } else { "" };
    let containers = settings.get("containers").and_then(Value::as_array);
    let containers: Vec<&str> = containers.into_iter().flatten().filter_map(Value::as_str).collect();
    let containers = if containers.is_empty() { String::new() } else { format!(":{}", containers.join(",")) };
    format!("{mark}{}/{}{containers}", text("kind"), text("name"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::pages::tests::app;

    #[test]
    fn lines_that_stay_keep_the_settings_that_they_do_not_show() {
        let worker = json!({ "kind": "Deployment", "name": "worker", "containers": ["app", "side"], "x": 1 });
        let nightly = json!({ "kind": "CronJob", "name": "nightly", "together": true });
        let app = app(json!({ "workload": { "kind": "Deployment", "name": "web", "also": [worker, nightly] } }));
        let text = listed(&app).map(line).collect::<Vec<_>>().join("\n");
        assert_eq!(text, "Deployment/worker:app,side\n+CronJob/nightly");
        assert_eq!(Value::from(list(&app, &text)), app.workload["also"]);
        let changed = list(&app, " CronJob/nightly\r\n\r\n+Deployment/worker:app,side\r\nDeployment/worker:app");
        let plain = json!({ "kind": "CronJob", "name": "nightly" });
        let together = json!({
            "kind": "Deployment", "name": "worker", "containers": ["app", "side"], "x": 1, "together": true
        });
        assert_eq!(changed, [plain, together, json!("Deployment/worker:app")]);
        assert!(list(&app, " \r\n").is_empty());
        assert_eq!(lines(&app, &TargetDescription::UNKNOWN), None);
    }
}
