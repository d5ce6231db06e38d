//! Answers of Prometheus' HTTP API.

use serde::Deserialize;
use serde_json::Value;

use crate::condition::finite;

#[derive(Deserialize)]
struct Answer {
    status: String,
    data: Option<Data>,
    error: Option<String>,
    #[serde(default)]
    warnings: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data {
    result_type: String,
    result: Value,
}

/// What older versions put before an annotation that is no warning.
const INFO: &str = "PromQL info:";

/// Returns the one number of an answer, as it was written and as it is compared.
///
/// # Errors
/// Why there is nothing to judge by, as the end of a sentence about the query.
pub(crate) fn number(status: u16, body: &[u8]) -> Result<(String, f64), String> {
    let unreadable = || format!("was answered with status {status} and a body that cannot be read");
    let answer: Answer = serde_json::from_slice(body).map_err(|_| unreadable())?;
    if answer.status != "success" || !(200..300).contains(&status) {
        let error = answer.error.map(|error| format!(": {error}")).unwrap_or_default();
        return Err(format!("failed with status {status}{error}"));
    }
    if let Some(warning) = answer.warnings.iter().find(|warning| !warning.starts_with(INFO)) {
        return Err(format!("was answered with a warning: {warning}"));
    }
    let data = answer.data.ok_or_else(unreadable)?;
    let sample = match (data.result_type.as_str(), &data.result) {
        ("scalar", sample) => sample,
        ("vector", Value::Array(elements)) => match elements.as_slice() {
            [] => return Err("found no data".to_owned()),
            [element] => element.get("value").ok_or("found a histogram, where a number is needed")?,
            more => {
                return Err(format!(
                    "found {} series, where one is needed: aggregate them, such as by sum",
                    more.len()
                ));
            }
        },
        (other, _) => return Err(format!("found a {other}, where one number is needed")),
    };
    let text = sample.get(1).and_then(Value::as_str).ok_or_else(unreadable)?;
    let number = finite(text).ok_or_else(|| format!("found {text}, which is no finite number"))?;
    Ok((text.to_owned(), number))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers as Prometheus 3 has given them.
    #[test]
    fn one_finite_number_is_read() {
        for (body, expected) in [
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{},"value":[1435781451.781,"0.013"]}]}}"#,
                "0.013",
            ),
            (r#"{"status":"success","data":{"resultType":"scalar","result":[1435781451.781,"1"]}}"#, "1"),
            (
                r#"{"status":"success","data":{"resultType":"vector","result":[{"metric":{"job":"a"},"value":[1,"1.5e-05"]}]},"infos":["PromQL info: metric might not be a counter"]}"#,
                "1.5e-05",
            ),
            (
                r#"{"status":"success","warnings":["PromQL info: metric might not be a counter, name does not end in _total"],"data":{"resultType":"scalar","result":[1,"2"]}}"#,
                "2",
            ),
        ] {
            assert_eq!(number(200, body.as_bytes()).map(|(text, _)| text).as_deref(), Ok(expected), "{body}");
        }
    }

    #[test]
    fn anything_else_is_nothing_to_judge_by() {
        let vector =
            |result: &str| format!(r#"{{"status":"success","data":{{"resultType":"vector","result":[{result}]}}}}"#);
        let sample = |value: &str| vector(&format!(r#"{{"metric":{{}},"value":[1435781451.781,"{value}"]}}"#));
        let element = r#"{"metric":{"instance":"a"},"value":[1,"0"]}"#;
        let warned = r#"{"status":"success","warnings":["2 of 3 stores did not answer"],"data":{"resultType":"scalar","result":[1,"0"]}}"#;
        for (status, body, reason) in [
            (200, vector(""), "no data"),
            (200, vector(&format!("{element},{element}")), "2 series"),
            (200, vector(r#"{"metric":{},"histogram":[1,{"count":"3","sum":"3","buckets":[]}]}"#), "a histogram"),
            (200, sample("NaN"), "NaN, which is no finite number"),
            (200, sample("+Inf"), "+Inf"),
            (200, sample("x"), "x"),
            (200, r#"{"status":"success","data":{"resultType":"matrix","result":[]}}"#.to_owned(), "a matrix"),
            (200, r#"{"status":"success","data":{"resultType":"string","result":[1,"1"]}}"#.to_owned(), "a string"),
            (200, r#"{"status":"success"}"#.to_owned(), "cannot be read"),
            (200, r#"{"status":"success","data":{"resultType":"scalar","result":["1"]}}"#.to_owned(), "cannot be read"),
            (200, warned.to_owned(), "2 of 3 stores did not answer"),
            (
                400,
                r#"{"status":"error","errorType":"bad_data","error":"parse error: unexpected end"}"#.to_owned(),
                "parse error",
            ),
            (503, r#"{"status":"error","errorType":"timeout","error":"query timed out"}"#.to_owned(), "status 503"),
            (500, sample("0"), "status 500"),
            (200, "<html>".to_owned(), "cannot be read"),
            (401, String::new(), "status 401"),
        ] {
            let why = number(status, body.as_bytes()).unwrap_err();
            assert!(why.contains(reason), "{body}: {why}");
        }
    }
}
