//! A probe that sends more requests than a call may.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("http-requests", attack);

fn attack() -> Result<String> {
    let results: Vec<_> = (0..20).map(|_| send(&request())).collect();
    Ok(report(&results))
}
