use rollhook_core::request::Refusal;
use serde_json::json;

use super::*;

fn parse(body: serde_json::Value) -> Result<ConfigureRequest, Refusal> {
    serde_json::from_value::<ConfigPatch>(body).unwrap().parse(None)
}

#[test]
fn values_are_secret_unless_they_are_plain() {
    let request = parse(json!({
        "set": { "A": "a", "B": { "value": "b", "plain": true }, "C": { "value": "c" } }, "unset": ["D"], "staged": true
    }))
    .unwrap();
    let set: Vec<_> = request.change.set.iter().map(|(name, it)| (name.as_str(), it.expose(), it.is_plain)).collect();
    assert_eq!(set, [("A", "a", false), ("B", "b", true), ("C", "c", false)]);
    assert!(request.staged && request.change.unset.len() == 1);
}

#[test]
fn wrong_shape_is_refused_by_the_name_and_never_by_the_value() {
    for value in [
        json!(7),
        json!(-7),
        json!(7.5),
        json!(true),
        json!(null),
        json!(["hunter2"]),
        json!({}),
        json!({ "hunter2": "hunter2" }),
        json!({ "value": ["hunter2"] }),
        json!({ "value": { "value": "hunter2" } }),
        json!({ "value": "hunter2", "plain": "hunter2" }),
        json!({ "value": "hunter2", "plain": true, "more": "hunter2" }),
    ] {
        let refused = parse(json!({ "set": { "A": value } })).unwrap_err().to_string();
        assert!(refused.starts_with("set: A must be") && !refused.contains("hunter2"), "{value}: {refused}");
    }
    for body in [
        json!({ "set": { "A=hunter2": "" } }),
        json!({ "set": { "hunter-2": 7 } }),
        json!({ "unset": ["A=hunter2"] }),
        json!({ "set": { "ROLLHOOK_hunter2": "" } }),
    ] {
        let refused = parse(body.clone()).unwrap_err().to_string();
        assert!(!refused.contains("hunter"), "{body}: {refused}");
    }
    assert!(parse(json!({})).unwrap_err().to_string().contains("name a variable"));
}

#[test]
fn name_that_is_there_twice_is_refused_and_debug_has_no_value() {
    let patch: ConfigPatch = serde_json::from_str(r#"{"set":{"A":"hunter2","A":"hunter3"}}"#).unwrap();
    assert!(!format!("{patch:?}").contains("hunter"), "{patch:?}");
    assert_eq!(patch.parse(None).unwrap_err().to_string(), "set: A is there more than once.");
}

#[test]
fn request_reads_back_as_it_was_written() {
    let body = json!({ "set": { "A": "a", "B": { "value": "b", "plain": true } }, "unset": ["C"], "if_current": 7 });
    let patch: ConfigPatch = serde_json::from_value(body.clone()).unwrap();
    assert_eq!(serde_json::to_value(&patch).unwrap(), body);
}

#[test]
fn difference_has_what_is_new_gone_and_changed() {
    let variable = |name: &str, fingerprint: &str| Variable {
        name: name.to_owned(),
        length: 1,
        fingerprint: fingerprint.to_owned(),
        value: None,
    };
    let (from, to) = (
        [variable("A", "1"), variable("B", "1"), variable("C", "1")],
        [variable("B", "2"), variable("C", "1"), variable("D", "1")],
    );
    let signed: Vec<_> = differences(&from, &to).iter().map(VariableDiff::signed).collect();
    assert_eq!(signed, ["-A", "~B", "+D"]);
}
