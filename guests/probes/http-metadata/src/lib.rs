//! A probe that requests the credentials of its machine: at the configured URLs, whose names may
//! resolve to the metadata service, then with several spellings of the service's address.

use skysail_guest_sdk::Result;
use skysail_probe::http::{Failure, Request, request, send};

skysail_probe::probe!("http-metadata", attack);

const HOSTS: [&str; 6] = [
    "169.254.169.254",
    "2852039166",
    "0xa9fea9fe",
    "0251.0376.0251.0376",
    "[::ffff:169.254.169.254]",
    "[fd00:ec2::254]",
];

/// How many were answered, how many refused because of the address, and the other results.
fn attack() -> Result<String> {
    let configured = request().url;
    let spelt = HOSTS.map(|host| format!("http://{host}/latest/meta-data/iam/security-credentials/"));
    let urls = configured.split_whitespace().map(str::to_owned).chain(spelt);
    let asked: Vec<_> = urls.map(|url| (send(&Request { url: url.clone(), ..request() }), url)).collect();
    let answered = asked.iter().filter(|(result, _)| result.is_ok()).count();
    let failures: Vec<_> = asked.iter().filter_map(|(result, url)| Some((url, result.as_ref().err()?))).collect();
    let others: Vec<_> = failures.iter().filter(|(_, failure)| !is_about_the_address(failure)).collect();
    let refused = failures.len() - others.len();
    let first = failures.first().map(|(_, failure)| failure);
    Ok(format!("{answered} answered, {refused} refused for their address, others: {others:?}, first: {first:?}"))
}

fn is_about_the_address(failure: &Failure) -> bool {
    matches!(failure, Failure::Forbidden(why) if why.contains("the metadata service"))
}
