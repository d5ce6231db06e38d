//! Reports over all apps: in JSON, or as tables for spreadsheets.

use http::{HeaderMap, StatusCode, header::ACCEPT};
use rollhook_api::{
    Local, Operation,
    operations::{ListActivity, ReportDelivery},
    report::csv,
};

use crate::{
    answer,
    call::Call,
    error_reply::ErrorReply,
    reply::{self, Reply},
};

/// Answers `GET /activity`.
pub(crate) async fn activity(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    answered::<ListActivity>(call, caller, |list| csv::activity(&list.deploys)).await
}

/// Answers `GET /report`.
pub(crate) async fn delivery(call: &Call, caller: Local) -> Result<Reply, ErrorReply> {
    answered::<ReportDelivery>(call, caller, csv::report).await
}

async fn answered<O: Operation<Subject = ()>>(
    call: &Call,
    caller: Local,
    table: fn(&O::Answer) -> String,
) -> Result<Reply, ErrorReply> {
    let report = O::perform(&caller, &(), call.input()?).await?;
    if accepts_csv(&call.headers) {
        return Ok(reply::whole(StatusCode::OK, csv::MEDIA_TYPE, table(&report).into()));
    }
    Ok(answer::of::<O>(&report))
}

/// Returns whether the caller asks for CSV by name.
fn accepts_csv(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(ACCEPT).iter().filter_map(|line| line.to_str().ok());
    let mut ranges = lines.flat_map(|line| line.split(','));
    ranges.any(|range| {
        let mut parts = range.split(';').map(str::trim);
        let is_csv = parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case("text/csv"));
        is_csv && !parts.any(|parameter| matches!(parameter, "q=0" | "q=0.0"))
    })
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn csv_is_asked_for_by_name() {
        let accepts = |lines: &[&str]| {
            let mut headers = HeaderMap::new();
            for line in lines {
                headers.append(ACCEPT, HeaderValue::from_str(line).unwrap());
            }
            accepts_csv(&headers)
        };
        assert!(
            accepts(&["text/csv"]) && accepts(&["Text/CSV; header=present"]) && accepts(&["text/html, text/csv;q=0.5"])
        );
        assert!(accepts(&["application/json", "text/csv"]));
        assert!(!accepts(&[]) && !accepts(&["*/*"]) && !accepts(&["text/*"]) && !accepts(&["text/csv;q=0"]));
    }
}
