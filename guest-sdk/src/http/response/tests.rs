//! What statuses, headers and bodies become.

use std::time::Duration;

use super::{Response, http_date_seconds};
use crate::Error;

fn response(status: u16, headers: &[(&str, &str)], body: &str) -> Response {
    Response::new("GET http://cloud/x", status, headers, body)
}

#[test]
fn each_status_has_its_reaction() {
    let reaction = |status| match response(status, &[], "").check() {
        Ok(_) => "ok",
        Err(Error::Denied(_)) => "denied",
        Err(Error::NotFound(_)) => "not-found",
        Err(Error::Invalid(_)) => "invalid",
        Err(Error::Exhausted(_)) => "exhausted",
        Err(Error::RetryAfter(_)) => "retry-after",
        Err(Error::Unavailable(_)) => "unavailable",
        Err(Error::Internal(_)) => "internal",
        Err(error) => panic!("{error:?}"),
    };
    let table = [
        (200, "ok"),
        (204, "ok"),
        (301, "internal"),
        (400, "invalid"),
        (401, "denied"),
        (402, "exhausted"),
        (403, "denied"),
        (404, "not-found"),
        (405, "internal"),
        (408, "unavailable"),
        (409, "retry-after"),
        (410, "not-found"),
        (413, "invalid"),
        (422, "invalid"),
        (423, "retry-after"),
        (429, "retry-after"),
        (500, "unavailable"),
        (502, "unavailable"),
        (503, "unavailable"),
        (507, "exhausted"),
    ];
    for (status, expected) in table {
        assert_eq!(reaction(status), expected, "{status}");
    }
}

#[test]
fn the_message_says_what_was_tried_and_what_the_cloud_said() {
    let message = |body: &str| response(422, &[], body).check().unwrap_err().message().to_owned();
    assert_eq!(message(r#"{"error":{"message":"no such zone"}}"#), "GET http://cloud/x: status 422: no such zone");
    let neutron = r#"{"NeutronError":{"type":"OverQuota","message":"Quota exceeded"}}"#;
    assert_eq!(message(neutron), "GET http://cloud/x: status 422: Quota exceeded");
    let octavia = r#"{"faultcode":"Client","faultstring":"no such flavor","debuginfo":null}"#;
    assert_eq!(message(octavia), "GET http://cloud/x: status 422: no such flavor");
    assert_eq!(message(r#"{"message":"m"}"#), "GET http://cloud/x: status 422: m");
    assert_eq!(message(r#"{"error":"text"}"#), "GET http://cloud/x: status 422: text");
    assert_eq!(message("plain\n"), "GET http://cloud/x: status 422: plain");
    assert_eq!(message(""), "GET http://cloud/x: status 422");
    assert!(message(&"é".repeat(10_000)).len() < 400);
}

#[test]
fn retry_after_is_read_as_seconds_and_as_a_date() {
    let after = |headers: &[(&str, &str)]| response(429, headers, "").retry_after();
    assert_eq!(after(&[("retry-after", "7")]), Some(Duration::from_secs(7)));
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(after(&[date, ("retry-after", "Sun, 06 Nov 1994 08:50:07 GMT")]), Some(Duration::from_secs(30)));
    assert_eq!(after(&[date, ("retry-after", "Sun, 06 Nov 1994 08:00:00 GMT")]), Some(Duration::ZERO));
    assert_eq!(after(&[("retry-after", "soon")]), None);
    assert_eq!(after(&[]), None);
    let error = response(503, &[("retry-after", "2")], "").check().unwrap_err();
    assert!(matches!(error, Error::RetryAfter(retry) if retry.after_ms == 2_000));
}

#[test]
fn a_rate_limit_says_when_it_ends() {
    let after = |status, headers: &[(&str, &str)]| response(status, headers, "").retry_after();
    let date = ("date", "Sun, 06 Nov 1994 08:49:37 GMT");
    assert_eq!(after(429, &[("ratelimit-reset", "17")]), Some(Duration::from_secs(17)));
    assert_eq!(after(429, &[("x-ratelimit-reset", "9"), ("retry-after", "3")]), Some(Duration::from_secs(3)));
    let now = ("date", "Tue, 29 Feb 2028 12:00:00 GMT");
    assert_eq!(after(429, &[now, ("ratelimit-reset", "1835438460")]), Some(Duration::from_secs(60)));
    assert_eq!(after(429, &[now, ("x-ratelimit-reset", "1835438460001")]), Some(Duration::from_secs(61)));
    assert_eq!(after(429, &[("x-ratelimit-reset", "1835438460")]), None, "measured from nothing");
    assert_eq!(after(429, &[date, ("ratelimit-reset", "never")]), None);
    assert_eq!(after(409, &[("ratelimit-reset", "3600")]), None, "a conflict ends before the hour");
    let error = response(429, &[("ratelimit-reset", "17")], "").check().unwrap_err();
    assert!(matches!(error, Error::RetryAfter(retry) if retry.after_ms == 17_000));
}

#[test]
fn dates_are_seconds_since_1970() {
    assert_eq!(http_date_seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
    assert_eq!(http_date_seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
    assert_eq!(http_date_seconds("Tue, 29 Feb 2028 12:00:00 GMT"), Some(1_835_438_400));
    for text in
        ["", "x", "Sun, 06 Now 1994 08:49:37 GMT", "Sun, 06 Nov 1994 08:49 GMT", "Sun, 99 Nov 1994 08:49:37 GMT"]
    {
        assert_eq!(http_date_seconds(text), None, "{text}");
    }
}

#[test]
fn the_next_page_is_found_among_the_links() {
    let header = r#"<http://cloud/x?page=1>; rel="prev", <http://cloud/x?page=3>; rel="next""#;
    assert_eq!(response(200, &[("link", header)], "").next_link(), Some("http://cloud/x?page=3"));
    assert_eq!(response(200, &[("link", r#"<http://cloud/x>; rel="last""#)], "").next_link(), None);
}

#[test]
fn a_body_of_another_shape_is_internal_and_a_body_that_is_no_json_is_unavailable() {
    assert!(matches!(response(200, &[], "{}").json::<Vec<u8>>(), Err(Error::Internal(_))));
    assert!(matches!(response(200, &[], "[1").json::<Vec<u8>>(), Err(Error::Unavailable(_))));
    assert_eq!(response(200, &[], "[1]").json::<Vec<u8>>(), Ok(vec![1]));
    assert_eq!(response(204, &[], "").json::<Option<u8>>(), Ok(None));
}

#[test]
fn a_judge_sees_each_response_before_the_status_is_checked() {
    fn judge(response: &Response) -> Option<Error> {
        let quota = response.body.starts_with(b"quota");
        quota.then(|| Error::Exhausted(response.message("the quota is used up")))
    }
    for status in [200, 403] {
        let message = format!("GET http://cloud/x: status {status}: the quota is used up");
        assert_eq!(response(status, &[], "quota").judged(Some(judge)), Err(Error::Exhausted(message)));
    }
    assert!(response(200, &[], "fine").judged(Some(judge)).is_ok());
    assert!(matches!(response(403, &[], "no").judged(Some(judge)), Err(Error::Denied(_))));
    assert!(matches!(response(403, &[], "quota").judged(None), Err(Error::Denied(_))));
}

#[test]
fn a_rate_limit_that_is_reported_as_413_is_a_wait() {
    let error = response(413, &[("retry-after", "7")], "").check().unwrap_err();
    assert!(matches!(error, Error::RetryAfter(retry) if retry.after_ms == 7_000));
}

/// A gateway that is in maintenance, and a proxy with a login page: a deletion was not done, and a
/// machine is not gone.
#[test]
fn a_page_in_html_is_no_answer_of_the_api() {
    let html = [("content-type", "text/html; charset=utf-8")];
    for status in [200, 204, 404, 410, 502] {
        assert!(matches!(response(status, &html, "<html>").check(), Err(Error::Unavailable(_))), "{status}");
    }
    assert!(matches!(response(401, &html, "<html>").check(), Err(Error::Denied(_))));
}
