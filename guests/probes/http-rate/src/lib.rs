//! A probe that sends requests faster than the rate limit of its provider.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("http-rate", attack);

fn attack() -> Result<String> {
    let results: Vec<_> = (0..20).map(|_| send(&request())).collect();
    Ok(report(&results))
}
