//! The log lines about failures: how many there are, and what they say about the next try.

use std::time::Duration;

use rstest::rstest;
use serde_json::{Value, json};
use skysail_provider::{Code, Error};
use skysail_test_conformance::{
    log::Log,
    world::{Cloud, S, World, pass},
};

/// Nodes of one page, which share a call.
const NODES: u64 = 500;

/// Controller, object, time of the next try, and number of omitted lines.
fn shown(failures: &[Value]) -> Vec<String> {
    let text = |line: &Value, field: &str| line[field].as_str().map_or("-".to_owned(), str::to_owned);
    let line = |line: &Value| {
        let [controller, kind, next] =
            ["controller.name", "object.kind", "controller.next_try"].map(|field| text(line, field));
        format!("{controller} {kind} next={next} omitted={}", line["controller.omitted"])
    };
    let mut lines: Vec<String> = failures.iter().map(line).collect();
    lines.sort();
    lines
}

/// Each node of the page fails in each pass, for the same reason.
#[tokio::test(start_paused = true)]
async fn a_failing_page_of_500_nodes_is_one_log_line_of_each_controller_in_a_minute() {
    let world = World::new();
    for n in 0..NODES {
        let name = format!("n{n}");
        world.add_raw_node(&name, json!({ "providerID": format!("fake://{n}") })).await;
        world.heartbeat(&name, "Unknown").await;
    }
    world.fake().fail_always("describe", Some(Error::new(Code::Unavailable, "500 Internal Server Error")));
    let log = Log::collect();
    let _world = world.start().await;
    pass(58 * S).await;
    let first = log.failures();
    assert_eq!(
        shown(&first),
        ["cloud-node-controller Node next=300s omitted=0", "cloud-node-lifecycle-controller Node next=5s omitted=0"]
    );
    for line in first {
        assert_eq!(line["controller.outcome"], "Unavailable");
        assert!(line["reason"].as_str().unwrap().ends_with(": 500 Internal Server Error"), "{line}");
    }
    pass(4 * S).await;
    let omitted = 12 * NODES - 1;
    assert_eq!(shown(&log.failures()), [format!("cloud-node-lifecycle-controller Node next=5s omitted={omitted}")]);
}

/// The route controller decides after a pass when the next one begins.
#[rstest]
#[case::periodic(false, "60s")]
// Only this mode counts failed passes: two failed before, and each doubles the wait of 60 s.
#[case::watch_based(true, "240s")]
#[tokio::test(start_paused = true)]
async fn a_failure_of_the_routes_is_logged_with_the_time_of_the_next_pass(
    #[case] watch_based: bool,
    #[case] after_denial: &str,
) {
    let clouds = vec![Cloud::new("fake").default_of_all()];
    let world = World::routing(clouds).set(|settings| settings.watch_based_routes = watch_based).start().await;
    world.add_routed("a 10.0.0.1 10.120.0.0/24").await;
    pass(60 * S).await;
    let log = Log::collect();
    world.fake().fail_always("create-route 10.120.1.0/24", Some(Error::new(Code::Internal, "no")));
    world.add_routed("b 10.0.0.2 10.120.1.0/24").await;
    pass(12 * S).await;
    assert_eq!(shown(&log.failures()), ["route_controller Node next=10s omitted=0"]);

    // The provider rejects all calls for a time.
    let rest = Error::new(Code::Denied, "the token expired");
    world.fake().fail_always("list-routes", Some(rest));
    pass(Duration::from_secs(12)).await;
    let failures = log.failures();
    assert_eq!(shown(&failures), [format!("route_controller Namespace next={after_denial} omitted=0")]);
    assert!(failures[0]["reason"].as_str().unwrap().ends_with("the token expired"));
}
