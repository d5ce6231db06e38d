//! Sentences of the cluster about a call that carried variables: admission webhooks and policies may quote what they refuse.

use std::collections::HashSet;

use k8s_openapi::ByteString;
use rollhook_core::{Error, configuration::Configuration};
use serde_json::json;

/// The sentence in place of one that quotes a value.
pub(crate) const QUOTES: &str = "its reason quotes a value of the app's configuration";

/// The shortest value that is looked for as a whole: a shorter one is a mere digit or word.
const SHORTEST: usize = 4;
/// The number of bytes in a row that a sentence may not share with a value: it may have been cut anywhere.
const SHARED: usize = 16;

/// Whether a text has a value or a part of one, as it is, in base64 as Secrets have it, or as a string of JSON.
pub(crate) fn quotes(text: &str, configuration: &Configuration) -> bool {
    let parts: HashSet<&[u8]> = text.as_bytes().windows(SHARED).collect();
    let secret = configuration.variables.entries.values().filter(|variable| !variable.is_plain);
    secret.map(|variable| variable.expose()).any(|value| {
        let in_base64 = json!(ByteString(value.as_bytes().to_vec()));
        let in_json = json!(value).to_string();
        let forms = [value, in_base64.as_str().unwrap_or_default(), in_json.trim_matches('"')];
        value.len() >= SHORTEST
            && forms
                .iter()
                .any(|form| text.contains(form) || form.as_bytes().windows(SHARED).any(|part| parts.contains(part)))
    })
}

/// The sentence, or what stands in place of one that quotes a value.
pub(crate) fn without_values(why: String, whole: &str, configuration: &Configuration) -> String {
    if quotes(whole, configuration) { QUOTES.to_owned() } else { why }
}

/// The error without the cluster's own words if they quote a value.
pub(crate) fn error_without_values(error: Error, whole: &str, configuration: &Configuration) -> Error {
    if !quotes(whole, configuration) {
        return error;
    }
    let what = QUOTES.to_owned();
    match error {
        Error::Unavailable { .. } => Error::Unavailable { what, cause: None },
        Error::Denied { .. } => Error::Denied { what, cause: None },
        Error::NotFound(entity) => Error::NotFound(entity),
        Error::Conflict(entity) => Error::Conflict(entity),
        Error::Invalid { .. } | Error::Corrupt { .. } => Error::Invalid { what, cause: None },
    }
}

#[cfg(test)]
mod tests {
    use rollhook_core::configuration::{ConfigurationId, Variables};

    use super::*;

    #[test]
    fn value_is_found_in_each_form_and_in_parts() {
        let value = "postgres://store:s3cr3t-\"pass\"@db.example.com/store";
        let variables = json!({"salt": vec![0; 16], "variables": [["URL", value, false], ["N", "1", false], ["PIN", "4711", false]]});
        let variables = Variables::from_text(&variables.to_string()).unwrap();
        let configuration = Configuration::of(ConfigurationId(7)).with(|all| all.variables = variables);
        let base64 = json!(ByteString(value.as_bytes().to_vec()));
        let base64 = base64.as_str().unwrap();
        for text in [
            format!("denied: {value}"),
            format!("denied: {base64}"),
            format!("denied: {}", &base64[8..30]),
            format!("denied: {}", &value[..20]),
            format!("denied: {}", json!({"a": value})),
            "denied: 4711".to_owned(),
            "denied: NDcxMQ==".to_owned(),
        ] {
            assert!(quotes(&text, &configuration), "{text}");
        }
        assert!(!quotes("denied the request: 1 label of secrets \"api-config-1\" is missing", &configuration));
    }
}
