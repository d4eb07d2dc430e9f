//! The metrics of a queue, on a paused clock.

use std::{sync::Arc, time::Duration};

use expect_test::{Expect, expect};
use prometheus_client::{encoding::text::encode, registry::Registry};
use tokio::time::sleep;

use super::{super::Next, QueueLabels, QueueMetrics, WorkQueue};

const S: Duration = Duration::from_secs(1);

struct Scraped {
    registry: Registry,
    metrics: QueueMetrics,
    queue: Arc<WorkQueue<&'static str>>,
}

fn labels() -> QueueLabels {
    QueueLabels { name: "Nodes", provider: "a".to_owned() }
}

impl Scraped {
    fn new() -> Self {
        let mut registry = Registry::default();
        let metrics = QueueMetrics::register(&mut registry);
        let queue = metrics.queue(Some(labels()));
        Self { registry, metrics, queue }
    }

    fn text(&self) -> String {
        let mut text = String::new();
        encode(&mut text, &self.registry).unwrap();
        text
    }

    /// Compares all samples except buckets, without the labels.
    #[track_caller]
    fn shows(&self, expected: Expect) {
        let text = self.text();
        let lines = text.lines().filter(|line| !line.starts_with('#') && !line.contains("_bucket"));
        let lines = lines.filter_map(|line| line.strip_prefix("workqueue_"));
        let shown: String = lines.map(|line| line.replace(r#"{name="Nodes",provider="a"}"#, "") + "\n").collect();
        expected.assert_eq(&shown);
    }
}

#[tokio::test(start_paused = true)]
async fn names_types_and_buckets_are_those_of_client_go() {
    let scraped = Scraped::new();
    let text = scraped.text();
    let types: String =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(|l| format!("{l}\n")).collect();
    expect![[r#"
        workqueue_adds counter
        workqueue_retries counter
        workqueue_queue_duration_seconds histogram
        workqueue_work_duration_seconds histogram
        workqueue_depth gauge
        workqueue_unfinished_work_seconds gauge
        workqueue_longest_running_processor_seconds gauge
    "#]]
    .assert_eq(&types);
    let buckets: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("workqueue_work_duration_seconds_bucket"))
        .filter_map(|line| line.split('"').nth(1))
        .collect();
    expect!["1e-8 1e-7 0.000001 0.00001 0.0001 0.001 0.01 0.1 1.0 10.0 +Inf"].assert_eq(&buckets.join(" "));
}

#[tokio::test(start_paused = true)]
async fn an_item_is_measured_from_its_add_to_its_end() {
    let scraped = Scraped::new();
    let queue = &scraped.queue;
    queue.add("a");
    sleep(S).await;
    queue.add("a");
    queue.add("b");
    scraped.shows(expect![[r#"
        adds_total 2
        retries_total 0
        queue_duration_seconds_sum 0.0
        queue_duration_seconds_count 0
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 2
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
    assert_eq!(queue.try_next(), Some("a"));
    sleep(2 * S).await;
    assert_eq!(queue.try_next(), Some("b"));
    sleep(4 * S).await;
    scraped.shows(expect![[r#"
        adds_total 2
        retries_total 0
        queue_duration_seconds_sum 3.0
        queue_duration_seconds_count 2
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 0
        unfinished_work_seconds 10.0
        longest_running_processor_seconds 6.0
    "#]]);
    queue.done("a", Next::OnChange);
    queue.done("b", Next::OnChange);
    scraped.shows(expect![[r#"
        adds_total 2
        retries_total 0
        queue_duration_seconds_sum 3.0
        queue_duration_seconds_count 2
        work_duration_seconds_sum 10.0
        work_duration_seconds_count 2
        depth 0
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
}

/// The item waits from the first add on; as client-go, it counts as waiting while it runs.
#[tokio::test(start_paused = true)]
async fn an_item_that_is_added_while_it_runs_waits_meanwhile() {
    let scraped = Scraped::new();
    let queue = &scraped.queue;
    queue.add("a");
    queue.next().await;
    queue.add("a");
    sleep(S).await;
    queue.add("a");
    scraped.shows(expect![[r#"
        adds_total 2
        retries_total 0
        queue_duration_seconds_sum 0.0
        queue_duration_seconds_count 1
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 1
        unfinished_work_seconds 1.0
        longest_running_processor_seconds 1.0
    "#]]);
    queue.done("a", Next::OnChange);
    assert_eq!(queue.try_next(), Some("a"));
    scraped.shows(expect![[r#"
        adds_total 2
        retries_total 0
        queue_duration_seconds_sum 1.0
        queue_duration_seconds_count 2
        work_duration_seconds_sum 1.0
        work_duration_seconds_count 1
        depth 0
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
}

/// A nudge counts as an add only if it leads to a run.
#[tokio::test(start_paused = true)]
async fn a_nudge_that_waits_for_a_backoff_is_no_add() {
    let scraped = Scraped::new();
    let queue = &scraped.queue;
    queue.add("a");
    for (next, adds) in [(Next::Within(S), 2), (Next::After(S), 2)] {
        queue.next().await;
        queue.nudge("a");
        queue.done("a", next);
        assert!(scraped.text().contains(&format!("workqueue_adds_total{{name=\"Nodes\",provider=\"a\"}} {adds}\n")));
    }
}

/// While all workers are busy, no worker takes the next item.
#[tokio::test(start_paused = true)]
async fn a_due_item_counts_as_waiting_although_no_worker_took_it() {
    let scraped = Scraped::new();
    let queue = &scraped.queue;
    queue.add_after("a", 5 * S);
    sleep(4 * S).await;
    scraped.shows(expect![[r#"
        adds_total 0
        retries_total 0
        queue_duration_seconds_sum 0.0
        queue_duration_seconds_count 0
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 0
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
    sleep(4 * S).await;
    scraped.shows(expect![[r#"
        adds_total 1
        retries_total 0
        queue_duration_seconds_sum 0.0
        queue_duration_seconds_count 0
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 1
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
    assert_eq!(queue.try_next(), Some("a"));
    scraped.shows(expect![[r#"
        adds_total 1
        retries_total 0
        queue_duration_seconds_sum 3.0
        queue_duration_seconds_count 1
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 0
        depth 0
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn only_runs_after_a_failure_count_as_retries() {
    let scraped = Scraped::new();
    let queue = &scraped.queue;
    queue.add("a");
    for counts in [true, false] {
        queue.next().await;
        queue.failed(&"a", counts, false);
        queue.done("a", Next::After(S));
    }
    queue.next().await;
    queue.forget(&"a");
    queue.done("a", Next::After(S));
    scraped.shows(expect![[r#"
        adds_total 3
        retries_total 2
        queue_duration_seconds_sum 0.0
        queue_duration_seconds_count 3
        work_duration_seconds_sum 0.0
        work_duration_seconds_count 3
        depth 0
        unfinished_work_seconds 0.0
        longest_running_processor_seconds 0.0
    "#]]);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_queue_is_not_shown_and_a_new_queue_of_its_name_continues_its_counters() {
    let Scraped { registry, metrics, queue } = Scraped::new();
    queue.add("a");
    drop(queue);
    let text = |registry: &Registry| {
        let mut text = String::new();
        encode(&mut text, registry).unwrap();
        text
    };
    assert!(!text(&registry).contains("workqueue_depth"));
    let queue = metrics.queue(Some(labels()));
    queue.add("b");
    let text = text(&registry);
    for line in [
        "workqueue_depth{name=\"Nodes\",provider=\"a\"} 1\n",
        "workqueue_adds_total{name=\"Nodes\",provider=\"a\"} 2\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(queue.next().await, "b");
}

/// As upstream's queue of routes without its feature gate.
#[tokio::test(start_paused = true)]
async fn a_queue_without_a_name_is_not_shown() {
    let mut registry = Registry::default();
    let queue = QueueMetrics::register(&mut registry).queue(None);
    queue.add("a");
    assert_eq!(queue.next().await, "a");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    assert_eq!(text, "# EOF\n");
}
