//! A probe that sends large headers.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Request, report, request, send};

skysail_probe::probe!("http-header-bytes", attack);

fn attack() -> Result<String> {
    let headers = (0..10).map(|n| (format!("x-{n}"), "1".repeat(9_997))).collect();
    Ok(report(&[send(&Request { headers, ..request() })]))
}
