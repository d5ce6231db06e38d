//! Answers of Prometheus' HTTP API.

use std::time::Duration;

use rollhook_core::{check::PastValue, time::Timestamp};
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
    let data = data(status, body)?;
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
    let text = sample.get(1).and_then(Value::as_str).ok_or_else(|| unreadable(status))?;
    let number = finite(text).ok_or_else(|| format!("found {text}, which is no finite number"))?;
    Ok((text.to_owned(), number))
}

/// Returns the numbers of an answer over a range at these times, which are `every` apart, as they were written: from the first
/// time on that has one.
///
/// # Errors
/// Why there are none, as the end of a sentence about the query.
pub(crate) fn numbers(
    status: u16,
    body: &[u8],
    times: &[Timestamp],
    every: Duration,
) -> Result<Vec<PastValue>, String> {
    let data = data(status, body)?;
    let samples = match (data.result_type.as_str(), &data.result) {
        ("matrix", Value::Array(series)) => match series.as_slice() {
            [] => return Err("found no data".to_owned()),
            [one] => one.get("values").and_then(Value::as_array).ok_or("found a histogram")?,
            more => return Err(format!("found {} series, where one is needed", more.len())),
        },
        (other, _) => return Err(format!("found a {other}, where numbers over a time are needed")),
    };
    let number = |sample: &Value| {
        let at = sample.get(0)?.as_f64()? * 1000.0;
        let text = sample.get(1)?.as_str().filter(|text| finite(text).is_some())?;
        Some((at, text.to_owned()))
    };
    let known: Vec<(f64, String)> = samples.iter().filter_map(number).collect();
    // Some servers move the times of a range to whole steps: a number is of the time that it is nearest to.
    let near = every.as_secs_f64() * 500.0;
    let value_at = |at: &Timestamp| {
        let is_near = |(of, _): &&(f64, String)| {
            let apart = of - at.as_millis() as f64;
            -near <= apart && apart < near
        };
        PastValue { at: *at, value: known.iter().find(is_near).map(|(_, text)| text.clone()) }
    };
    Ok(times.iter().map(value_at).skip_while(|past| past.value.is_none()).collect())
}

fn unreadable(status: u16) -> String {
    format!("was answered with status {status} and a body that cannot be read")
}

/// Returns the data of an answer that is whole.
fn data(status: u16, body: &[u8]) -> Result<Data, String> {
    let answer: Answer = serde_json::from_slice(body).map_err(|_| unreadable(status))?;
    if answer.status != "success" || !(200..300).contains(&status) {
        let error = answer.error.map(|error| format!(": {error}")).unwrap_or_default();
        return Err(format!("failed with status {status}{error}"));
    }
    if let Some(warning) = answer.warnings.iter().find(|warning| !warning.starts_with(INFO)) {
        return Err(format!("was answered with a warning: {warning}"));
    }
    answer.data.ok_or_else(|| unreadable(status))
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
    fn numbers_over_a_time_are_those_of_the_nearest_times() {
        let times: Vec<_> = [1_000_500, 1_015_500, 1_030_500, 1_045_500].map(Timestamp::from_millis).into();
        let read = |result: &str| {
            let body = format!(r#"{{"status":"success","data":{{"resultType":"matrix","result":{result}}}}}"#);
            let read = numbers(200, body.as_bytes(), &times, Duration::from_secs(15));
            read.map(|all| all.into_iter().map(|past| (past.at.as_millis(), past.value)).collect::<Vec<_>>())
        };
        let text = |text: &str| Some(text.to_owned());
        // As Prometheus 3 answers; and with times of whole steps, as VictoriaMetrics does.
        let asked = r#"[{"metric":{},"values":[[1015.5,"0.5"],[1030.5,"NaN"],[1045.5,"1e-3"]]}]"#;
        let expected = vec![(1_015_500, text("0.5")), (1_030_500, None), (1_045_500, text("1e-3"))];
        assert_eq!(read(asked), Ok(expected));
        let moved = r#"[{"metric":{},"values":[[1005,"1"],[1020,"2"],[1035,"3"],[1050,"4"]]}]"#;
        let values: Vec<_> = read(moved).unwrap().into_iter().map(|(_, value)| value.unwrap()).collect();
        assert_eq!(values, ["1", "2", "3", "4"]);
        assert_eq!(read(r#"[{"metric":{},"values":[[1015.5,"NaN"],[9999,"1"]]}]"#), Ok(Vec::new()));
        for (result, reason) in [
            ("[]", "no data"),
            (r#"[{"metric":{},"histograms":[[1,{}]]}]"#, "histogram"),
            (r#"[{"metric":{},"values":[]},{"metric":{},"values":[]}]"#, "2 series"),
        ] {
            assert!(read(result).unwrap_err().contains(reason), "{result}");
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
