//! A probe that requests a large response.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("http-response-bytes", attack);

fn attack() -> Result<String> {
    Ok(report(&[send(&request())]))
}
