//! A probe that sends its requests through `wasi:http`, where the operator's rules must also apply.

use skysail_guest_sdk::{Result, config};
use skysail_probe::wasi::fetch;

skysail_probe::probe!("wasi-http", attack);

/// More than the test allows.
const TOO_MUCH: usize = 100_000;

fn attack() -> Result<String> {
    let url = config::text();
    let api = [("skysail-credential", "api"), ("accept-encoding", "gzip")];
    let mut said = vec![
        format!("with a credential: {:?}", fetch(&url, &api, None)),
        format!("a body: {:?}", fetch(&url, &[], Some(10_000))),
        format!("too large a body: {:?}", fetch(&url, &[], Some(TOO_MUCH))),
        format!("another origin: {:?}", fetch("http://127.0.0.2:1/", &[], None)),
        format!("metadata: {:?}", fetch("http://169.254.169.254/latest/", &[], None)),
        format!("unknown credential: {:?}", fetch(&url, &[("skysail-credential", "root")], None)),
    ];
    for header in ["host", "proxy-authorization", "cookie", "transfer-encoding", "x-http-method-override"] {
        said.push(format!("{:?}", fetch(&url, &[(header, "x")], None)));
    }
    said.push(format!("one request too many: {:?}", fetch(&url, &[], None)));
    Ok(said.join(" | "))
}
