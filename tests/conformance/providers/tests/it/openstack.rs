//! OpenStack: the feature `openstack` of this crate, as `make test-openstack` sets it.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use skysail_provider::Service;
use skysail_test_providers::{
    cloud::Balancers as _,
    clouds::openstack::{OpenStack, WithApplicationCredential},
    leaks,
    proxy::{Reply, Request, Verdict},
    published,
    suite::{
        balancers, deletions, faults, inventory,
        judged::{balancers as judged_balancers, machines as judged_machines, routes as judged_routes},
        machines, routes, same,
    },
    world::World,
};

mod traffic;

mod password {
    use anyhow::Result;

    instances!(OpenStack);
    load_balancers!(OpenStack);
    routes!(OpenStack);
}

mod application_credential {
    use anyhow::Result;

    judged_instances!(WithApplicationCredential);
    judged_load_balancers!(WithApplicationCredential);
    judged_routes!(WithApplicationCredential);
    suite!(WithApplicationCredential:
        balancers::a_shared_load_balancer_lives_until_its_last_service,
        judged_balancers::the_component_shares_as_the_vendors_provider_does,
        machines::machines_are_found_by_id_and_by_name,
        machines::a_refused_credential_is_denied,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_floating_ip_that_is_kept_stays_as_the_vendors_provider_leaves_it() -> Result<()> {
    let keep = |service: &mut Service| {
        service.annotations.insert("loadbalancer.openstack.org/keep-floatingip".to_owned(), "true".to_owned());
    };
    judged_balancers::a_deletion_leaves_what_the_vendors_provider_leaves::<WithApplicationCredential>(keep).await?;
    leaks::none()
}

fn token(request: &Request) -> Option<String> {
    Some(request.headers.get("x-auth-token")?.to_str().ok()?.to_owned())
}

fn is_login(request: &Request) -> bool {
    request.method == "POST" && request.path.starts_with("/v3/auth/tokens")
}

/// The host replaces a token that the cloud refuses after half a minute, and the next one later.
async fn until_the_host_may_replace_the_token() {
    tokio::time::sleep(Duration::from_secs(31)).await;
}

/// From the n-th request on, the services refuse the token that the request has: the host logs in
/// once, and the call goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_token_that_expires_during_a_call_is_renewed_once() -> Result<()> {
    // Of the nine requests of a new load balancer.
    for place in [0, 3, 6] {
        token_expires_at(place).await.with_context(|| format!("the token expires at request {place}"))?;
    }
    leaks::none()
}

async fn token_expires_at(place: usize) -> Result<()> {
    const REFUSAL: &str = r#"{"error": {"code": 401, "message": "The request you have made requires authentication.",
        "title": "Unauthorized"}}"#;
    let world = World::<OpenStack>::start().await?;
    let nodes = world.nodes(&["node-a"]).await?;
    let service = balancers::web(&world.cloud, "web");
    world.ensure(&service, &nodes).await?;
    let whole = world.cloud.balancers().await?;
    world.ensure_deleted(&service).await?;
    until_the_host_may_replace_the_token().await;
    // The token that has expired, as soon as the request at the place has shown it.
    let old = Arc::new(Mutex::new(None));
    let expired = Arc::clone(&old);
    world.proxy.decide(move |request| {
        let Some(token) = token(request).filter(|_| !is_login(request)) else { return Verdict::Pass };
        let mut old = old.lock().unwrap_or_else(PoisonError::into_inner);
        if old.is_none() && request.number >= place {
            *old = Some(token.clone());
        }
        if *old == Some(token) { Verdict::Answer(Reply::new(401, REFUSAL)) } else { Verdict::Pass }
    });
    world.ensure(&service, &nodes).await?;
    let logins = world.proxy.take().iter().filter(|request| is_login(request)).count();
    ensure!(expired.lock().unwrap_or_else(PoisonError::into_inner).is_some(), "the call has fewer requests");
    ensure!(logins == 1, "the host logs in {logins} times because of one token");
    same("the cloud after the login", &world.cloud.balancers().await?, &whole)
}
