//! A probe that sends a large body.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Request, report, request, send};

skysail_probe::probe!("http-request-bytes", attack);

fn attack() -> Result<String> {
    let large = Request { method: "POST".to_owned(), body: Some(vec![0; 2 << 20]), ..request() };
    Ok(report(&[send(&large)]))
}
