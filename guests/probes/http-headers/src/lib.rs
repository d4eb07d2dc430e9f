//! A probe that sends many headers.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Request, report, request, send};

skysail_probe::probe!("http-headers", attack);

fn attack() -> Result<String> {
    let headers = (0..500).map(|n| (format!("x-{n}"), "1".to_owned())).collect();
    Ok(report(&[send(&Request { headers, ..request() })]))
}
