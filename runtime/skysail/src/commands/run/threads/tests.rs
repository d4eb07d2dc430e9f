//! Tests of the control runtime while every thread of the work runtime is blocked.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    time::Duration,
};

use clap::Parser as _;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use prometheus_client::registry::Registry;
use skysail_controllers::EnabledControllers;
use skysail_dev::api::{ApiOptions, ApiServer};
use skysail_election::ElectionMetrics;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::advance,
};
use tokio_util::sync::CancellationToken;

use super::{BEAT, Beats, SILENCE_MAX, Threads, within};
use crate::{
    args::{Args, Command, RunArgs},
    leadership,
};

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

#[test]
fn the_lease_is_renewed_and_a_port_is_served_while_all_other_threads_are_blocked() {
    let threads = Threads::start().unwrap();
    let control = threads.control.handle();
    let (server, stop) = (ApiServer::new(&ApiOptions::default()), CancellationToken::new());
    let mut tasks = JoinSet::new();
    // The work runtime prepares the tasks, as in the manager.
    let address = threads.work.block_on(within(control, async {
        let metrics = ElectionMetrics::register(&mut Registry::default());
        let election = leadership::of(&run_args(), &server.client(), EnabledControllers::default(), metrics);
        tasks.spawn_on(election.unwrap().elections.run(stop.clone()), control);
        let listener = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = tokio::net::TcpListener::from_std(listener).unwrap();
        let address = listener.local_addr().unwrap();
        tasks.spawn_on(
            async move {
                loop {
                    let (mut connection, _) = listener.accept().await?;
                    connection.write_all(b"ok").await?;
                }
            },
            control,
        );
        address
    }));
    let lock = Arc::new(Mutex::new(()));
    let _held = lock.lock().unwrap();
    block_all(&threads, &lock);
    let observer = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    observer.block_on(async {
        let leases: Api<Lease> = Api::namespaced(server.client(), "kube-system");
        let (mut last, mut renewals) = (None, 0);
        while renewals < 3 {
            let now = renewed(&leases).await;
            renewals += usize::from(now.is_some() && now != last);
            last = now.or(last);
            assert!(tasks.try_join_next().is_none(), "the lease is lost");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut answer = String::new();
        TcpStream::connect(address).await.unwrap().read_to_string(&mut answer).await.unwrap();
        assert_eq!(answer, "ok");
    });
}

#[tokio::test(start_paused = true)]
async fn threads_that_run_no_task_fail_the_check_until_they_run_again() {
    let beats = Beats::new();
    let mut beating = JoinSet::new();
    beating.spawn(beats.clone().run());
    tokio::time::sleep(SILENCE_MAX * 3).await;
    assert_eq!(beats.check(), Ok(()));
    beating.shutdown().await;
    advance(SILENCE_MAX + BEAT).await;
    assert!(beats.check().unwrap_err().starts_with("the threads of the controllers have run no task for 6"));
    beating.spawn(beats.clone().run());
    tokio::time::sleep(BEAT).await;
    assert_eq!(beats.check(), Ok(()));
}
