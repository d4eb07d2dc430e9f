//! A probe that sends more headers than the host's map of headers holds.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Request, report, request, send};

skysail_probe::probe!("http-headers", attack);

fn attack() -> Result<String> {
    let headers = (0..25_000).map(|n| (format!("x-{n}"), "1".to_owned())).collect();
    Ok(report(&[send(&Request { headers, ..request() })]))
}
