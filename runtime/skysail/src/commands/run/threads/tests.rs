//! Tests of the control runtime while every thread of the work runtime is blocked.

use std::{
    net::Ipv4Addr,
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use prometheus_client::registry::Registry;
use serde_json::json;
use skysail_controllers::EnabledControllers;
use skysail_dev::api::{ApiOptions, ApiServer};
use skysail_election::ElectionMetrics;
use skysail_serving::{
    Endpoints, Guard, HealthChecks, NoDocument, Reviewers, SecureServer,
    options::{AuthenticationOptions, AuthorizationOptions, SecureServingOptions},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::{Instant, advance, sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{BEAT, Beats, Control, SILENCE_MAX, Threads, within};
use crate::{
    args::{Args, Command, RunArgs},
    commands::run::{lead, serving::Servers},
    leadership,
};

/// Nothing takes this long on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

fn run_args() -> RunArgs {
    match Args::try_parse_from(["skysail", "run", "--provider-file=x"]).unwrap().command {
        Command::Run(args) => *args,
        _ => unreachable!("the command line says run"),
    }
}

/// Blocks every thread of the work runtime until the lock is free.
fn block_all(threads: &Threads, lock: &Arc<Mutex<()>>) {
    // More tasks than threads: each thread takes one and never gives it back.
    for _ in 0..threads.work.metrics().num_workers() * 2 {
        let lock = Arc::clone(lock);
        threads.work.spawn(async move { drop(lock.lock()) });
    }
}

/// The time of the last renewal.
async fn renewed(leases: &Api<Lease>) -> Option<k8s_openapi::jiff::Timestamp> {
    let lease = leases.get("cloud-controller-manager").await.ok()?;
    lease.spec.and_then(|spec| spec.renew_time).map(|time| time.0)
}

/// The endpoints of the manager, on a port of this machine.
async fn endpoints() -> SecureServer {
    let options = SecureServingOptions {
        bind_address: Ipv4Addr::LOCALHOST.into(),
        secure_port: skysail_test_support::ports::free().unwrap(),
        ..SecureServingOptions::endpoints()
    };
    let (authentication, authorization) = (AuthenticationOptions::default(), AuthorizationOptions::default());
    let guard = Guard::new(&authentication, authorization, Reviewers::default()).await.unwrap();
    let endpoints = Endpoints {
        healthz: HealthChecks::default(),
        livez: HealthChecks::default(),
        readyz: HealthChecks::default(),
        registry: Arc::new(Registry::default()),
        configuration: Arc::new(|| json!({})),
        providers: Arc::new(|| json!({})),
        services: Arc::new(|_, name| Err(NoDocument::NotFound(name.to_owned()))),
        verbosity: None,
    };
    SecureServer::endpoints(&options, endpoints, guard).unwrap().unwrap()
}

/// The tasks are spawned by the functions that the manager uses, on a thread of the work runtime.
#[test]
fn the_lease_is_renewed_and_the_port_is_served_while_all_other_threads_are_blocked() {
    let threads = Threads::beside(Control::start().unwrap().runtime).unwrap();
    let control = threads.control.handle();
    let (server, stop) = (ApiServer::new(&ApiOptions::default()), CancellationToken::new());
    let mut tasks = JoinSet::new();
    let (elections, address) = threads.work.block_on(within(control, async {
        let metrics = ElectionMetrics::register(&mut Registry::default());
        let leadership = leadership::of(&run_args(), &server.client(), EnabledControllers::default(), metrics);
        let endpoints = endpoints().await;
        let address = endpoints.local_addr();
        let servers = Servers { endpoints: Some(endpoints), webhooks: None };
        servers.spawn(&mut tasks, &stop, control);
        (leadership.unwrap().elections, address)
    }));
    let lock = Arc::new(Mutex::new(()));
    let held = lock.lock().unwrap();
    block_all(&threads, &lock);
    let observer = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    std::thread::scope(|scope| {
        // A failed assertion ends the scope too.
        let _stop = stop.clone().drop_guard();
        let controllers = async {
            stop.cancelled().await;
            Ok(())
        };
        let leading = scope.spawn(|| threads.work.block_on(lead(elections, controllers, control)));
        observer.block_on(async {
            let leases: Api<Lease> = Api::namespaced(server.client(), "kube-system");
            let (begun, mut last, mut renewals) = (Instant::now(), None, 0);
            while renewals < 3 {
                let now = renewed(&leases).await;
                renewals += usize::from(now.is_some() && now != last);
                last = now.or(last);
                assert!(!leading.is_finished() && begun.elapsed() < PATIENCE, "{renewals} renewals");
                sleep(Duration::from_millis(50)).await;
            }
            // A client that does not speak TLS gets an alert, or the end of the connection.
            let mut client = TcpStream::connect(address).await.unwrap();
            client.write_all(b"GET /livez HTTP/1.1\r\n\r\n").await.unwrap();
            let answered = timeout(PATIENCE, client.read_to_end(&mut Vec::new())).await;
            assert!(answered.is_ok(), "the port is not served");
        });
    });
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn threads_that_run_no_task_fail_the_check_until_they_run_again() {
    let beats = Beats::new();
    let mut beating = JoinSet::new();
    beating.spawn(beats.clone().run());
    sleep(SILENCE_MAX * 3).await;
    assert_eq!(beats.check(), Ok(()));
    beating.shutdown().await;
    advance(SILENCE_MAX + BEAT).await;
    assert!(beats.check().unwrap_err().starts_with("the threads of the controllers have run no task for 6"));
    beating.spawn(beats.clone().run());
    sleep(BEAT).await;
    assert_eq!(beats.check(), Ok(()));
}
