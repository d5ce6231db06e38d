//! Placeholders such as `{{app}}`, and the texts that stand in their place.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rollhook_core::ports::MeasureSpec;

/// The characters of a path's segment and of a query's value that stand for something else.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// The values of a measurement's placeholders.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    namespace: String,
    app: String,
    revision: String,
    workload: String,
    window: String,
}

impl Values {
    pub(crate) fn of(spec: &MeasureSpec) -> Self {
        let workload = spec.target.settings.get("name").and_then(serde_json::Value::as_str);
        Self {
            namespace: spec.app.namespace.to_string(),
            app: spec.app.name.to_string(),
            revision: spec.deploy.revision.to_string(),
            workload: workload.unwrap_or(spec.app.name.as_str()).to_owned(),
            window: format!("{}s", spec.window.as_secs().max(1)),
        }
    }

    /// Returns values by which a text with placeholders is checked before anything is measured.
    pub(crate) fn sample() -> Self {
        let text = |text: &str| text.to_owned();
        Self {
            namespace: text("shop-test"),
            app: text("api"),
            revision: text("1"),
            workload: text("api"),
            window: text("60s"),
        }
    }
}

/// Returns the name at the beginning of a text, and what follows its placeholder; `text` follows `{{`.
fn name(text: &str) -> Result<(&str, &str), String> {
    let (name, rest) = text.split_once("}}").ok_or("has {{ without }}.")?;
    Ok((name.trim(), rest))
}

/// Returns a URL with its placeholders filled in, percent-encoded. They stand in its path and query only, so that the host
/// is always the one that was checked.
///
/// # Errors
/// The end of a sentence that begins with the setting's name.
pub(crate) fn url(template: &str, values: &Values) -> Result<String, String> {
    let authority = template.find("://").map_or(0, |scheme| scheme + 3);
    let path = template[authority..].find(['/', '?', '#']).map_or(template.len(), |path| authority + path);
    let (head, mut rest) = template.split_at(path);
    if head.contains("{{") {
        return Err("may have placeholders in its path and its query only.".to_owned());
    }
    let mut filled = head.to_owned();
    while let Some((before, after)) = rest.split_once("{{") {
        let (name, after) = name(after)?;
        let value = match name {
            "namespace" => &values.namespace,
            "app" => &values.app,
            "revision" => &values.revision,
            _ => {
                return Err(format!(
                    "has {{{{{name}}}}}, and knows {{{{namespace}}}}, {{{{app}}}} and {{{{revision}}}}."
                ));
            }
        };
        filled.push_str(before);
        filled.extend(utf8_percent_encode(value, RESERVED));
        rest = after;
    }
    filled.push_str(rest);
    Ok(filled)
}

/// Returns a query in PromQL with its placeholders filled in: names within the quotes of a label's value, where they are
/// escaped, and the window outside of any.
///
/// # Errors
/// The end of a sentence that begins with the setting's name.
pub(crate) fn promql(template: &str, values: &Values) -> Result<String, String> {
    let mut filled = String::with_capacity(template.len());
    let mut quote = None;
    let mut rest = template;
    while let Some(next) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("{{") {
            let (name, after) = name(after)?;
            filled.push_str(&promql_value(name, quote, values)?);
            rest = after;
            continue;
        }
        let mut length = next.len_utf8();
        match (quote, next) {
            (None, '"' | '\'' | '`') => quote = Some(next),
            (None, '#') => length = rest.find('\n').unwrap_or(rest.len()),
            (Some('"' | '\''), '\\') => length += rest[length..].chars().next().map_or(0, char::len_utf8),
            (Some(open), _) if open == next => quote = None,
            _ => {}
        }
        let (taken, after) = rest.split_at(length);
        filled.push_str(taken);
        rest = after;
    }
    match quote {
        Some(open) => Err(format!("has a text without its closing {open}.")),
        None => Ok(filled),
    }
}

fn promql_value(name: &str, quote: Option<char>, values: &Values) -> Result<String, String> {
    let value = match name {
        "namespace" => &values.namespace,
        "app" => &values.app,
        "workload" => &values.workload,
        // Digits are themselves anywhere.
        "revision" => return Ok(values.revision.clone()),
        "window" if quote.is_none() => return Ok(values.window.clone()),
        "window" => return Err("must have {{window}} outside of quotes, such as in [{{window}}].".to_owned()),
        _ => {
            return Err(format!(
                "has {{{{{name}}}}}, and knows {{{{namespace}}}}, {{{{app}}}}, {{{{revision}}}}, {{{{workload}}}} and {{{{window}}}}."
            ));
        }
    };
    let Some(open @ ('"' | '\'')) = quote else {
        return Err(format!("must have {{{{{name}}}}} in quotes, such as in {name}=\"{{{{{name}}}}}\"."));
    };
    let mut escaped = String::with_capacity(value.len());
    for character in value.chars() {
        match character {
            '\n' => escaped.push_str("\\n"),
            '\\' => escaped.push_str("\\\\"),
            _ if character == open => escaped.extend(['\\', open]),
            _ => escaped.push(character),
        }
    }
    Ok(escaped)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_of_a_url_are_encoded_and_never_its_host() {
        let values = Values { app: "a/b?c=d&é".to_owned(), ..Values::sample() };
        let filled = |template| url(template, &values);
        assert_eq!(
            filled("https://h.example/{{namespace}}/{{ app }}?r={{revision}}"),
            Ok("https://h.example/shop-test/a%2Fb%3Fc%3Dd%26%C3%A9?r=1".to_owned())
        );
        assert_eq!(filled("https://h.example"), Ok("https://h.example".to_owned()));
        assert!(filled("https://h.example?a={{app}}").unwrap().starts_with("https://h.example?a=a%2F"));
        for template in [
            "https://{{app}}.example/",
            "https://h.example:{{revision}}/",
            "{{app}}://h.example/",
            "https://h.example/{{window}}",
            "https://h.example/{{app}",
        ] {
            assert!(filled(template).is_err(), "{template}");
        }
    }

    #[test]
    fn placeholders_of_a_query_are_values_of_labels() {
        let evil = r#"a"} or vector(1) #\"#.to_owned();
        let values = Values { workload: evil, ..Values::sample() };
        let filled = |template| promql(template, &values);
        assert_eq!(
            filled(r#"rate(x{w="{{workload}}", n='{{namespace}}'}[{{window}}]) # {{app}}"#),
            Ok(r#"rate(x{w="a\"} or vector(1) #\\", n='shop-test'}[60s]) # {{app}}"#.to_owned())
        );
        assert_eq!(filled(r#"x{w='{{workload}}'}"#), Ok(r#"x{w='a"} or vector(1) #\\'}"#.to_owned()));
        // A quote that is escaped closes nothing.
        assert_eq!(
            filled(r#"x{a="\"{{app}}", r="{{revision}}"} > {{revision}}"#).as_deref(),
            Ok(r#"x{a="\"api", r="1"} > 1"#)
        );
        for template in [
            "{{workload}}",
            "x{w={{workload}}}",
            "x{w=`{{workload}}`}",
            r#"x{w="\\"{{workload}}"}"#,
            r#"x{w="{{window}}"}"#,
            r#"x{w="{{instance}}"}"#,
            r#"x{w="{{app"}"#,
            r#"x{w="api}"#,
        ] {
            assert!(filled(template).is_err(), "{template}");
        }
    }
}
