//! Both managers on a small cluster: they create the same load balancers for the same machines and
//! Services.

use std::time::Duration;

use skysail_test_bench::side_by_side::{
    Contestant, Figures, Programs, Record, Scenario, Size, Task, markdown, measure, measure_replacement,
};

const SIZE: Size = Size { nodes: 12, services: 5 };
const TASK: Task = Task { latency: Duration::from_millis(1), idle: Duration::ZERO, limit: Duration::from_secs(300) };

fn created(figures: &Figures, path: &str) -> u64 {
    figures.cloud_requests.get(&format!("POST /v1/{path}")).copied().unwrap_or_default()
}

/// `measure` itself checks the cloud: every Service has a load balancer whose backends are exactly
/// the machines of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn both_managers_create_the_same_load_balancers() {
    let programs = Programs::prepare().unwrap();
    let mut records = Vec::new();
    for contestant in [Contestant::GoTuned, Contestant::SkysailTuned] {
        let figures = measure(&programs, contestant, SIZE, &TASK).await.unwrap();
        assert_eq!((created(&figures, "elastic-ips"), created(&figures, "virtual-servers")), (5, 5), "{contestant}");
        assert!(
            figures.load_balancer_calls() >= 5 && figures.instance_calls() >= 1,
            "{contestant}: {:?}",
            figures.provider_calls
        );
        assert_eq!(figures.api_writes("nodes"), 24, "{contestant}: {:?}", figures.api_requests);
        assert!(figures.resident_mib > 1.0 && figures.cpu_s > 0.0, "{contestant}: {figures:?}");
        records.push(Record { scenario: Scenario::Start, contestant, size: SIZE, round: 1, figures });
    }
    let table = markdown(&records);
    assert!(table.contains("| Go, tuned | Skysail, tuned | ratio, tuned |"), "{table}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_are_replaced_leave_the_load_balancers() {
    let programs = Programs::prepare().unwrap();
    let figures = measure_replacement(&programs, Contestant::SkysailTuned, (SIZE, 4), &TASK).await.unwrap();
    assert!(figures.backends_s >= figures.nodes_s && figures.provider_calls.contains_key("update"), "{figures:?}");
}
