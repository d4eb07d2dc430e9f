//! A probe that sends many requests at once.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send_all};

skysail_probe::probe!("http-concurrency", attack);

fn attack() -> Result<String> {
    let requests: Vec<_> = (0..20).map(|_| request()).collect();
    Ok(report(&send_all(&requests)))
}
