//! A probe that panics after a request, whatever the answer.

use skysail_guest_sdk::Result;
use skysail_probe::http::{report, request, send};

skysail_probe::probe!("request-then-trap", attack);

fn attack() -> Result<String> {
    let report = report(&[send(&request())]);
    #[expect(clippy::panic, reason = "this is the probe")]
    {
        panic!("{report}")
    }
}
