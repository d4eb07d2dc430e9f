//! A probe that sends a request to a server that never answers.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("http-time", attack);

fn attack() -> Result<String> {
    Ok(report(&[send(&request())]))
}
