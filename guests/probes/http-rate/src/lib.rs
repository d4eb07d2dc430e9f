//! A probe that sends faster than its provider may.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("http-rate", attack);

fn attack() -> Result<String> {
    let results: Vec<_> = (0..20).map(|_| send(&request())).collect();
    Ok(report(&results))
}
