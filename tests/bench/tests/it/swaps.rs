//! A few swaps from each source, and a restart: every figure is measured, and no call fails.

use std::time::Duration;

use skysail_test_bench::swaps::{Figures, RunOptions, Source, markdown, restart, swaps};

const SWAPS: u32 = 2;

/// Few calls, because the test build is not optimised and other tests use the machine.
async fn figures(source: Source) -> anyhow::Result<Figures> {
    let options = RunOptions {
        components: vec!["simcloud".to_owned()],
        swaps: SWAPS,
        calls_per_second: 5,
        latency: Duration::from_millis(1),
        keep: false,
        reference: env!("CARGO_BIN_EXE_swaps").into(),
    };
    swaps(source, &options, |_| {}).await
}

#[tokio::test(flavor = "multi_thread")]
async fn every_release_of_each_source_serves_and_no_call_fails() {
    let mut all = Vec::new();
    for source in [Source::File, Source::ConfigMap, Source::Oci, Source::Memory] {
        let figures = figures(source).await.unwrap();
        assert!(figures.calls > 0 && figures.failed.is_empty(), "{figures:?}");
        assert!(figures.component_bytes > 300 << 10 && figures.code_bytes > figures.component_bytes, "{figures:?}");
        assert!(figures.compile_ms > 0.0 && figures.resident_mib.len() > 1, "{figures:?}");
        // Sources that compile report a compile time; the other sources cannot compile, because the
        // jail is removed: on a busy machine they take a while, too, but less than a compilation
        // took in the same run.
        let took = figures.shares.compiled_ms + figures.shares.judged_ms;
        let known = source == Source::Memory;
        assert!(if known { took < figures.compile_ms } else { took > 10.0 }, "{figures:?}");
        assert!(figures.serving_ms.max > 0.0 && figures.serving_ms.max <= figures.written_ms.max, "{figures:?}");
        all.push(figures);
    }
    let tables = markdown(&all, None);
    assert!(tables.contains("| OCI tag | simcloud, ") && tables.contains(" KiB | 2 |"), "{tables}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manager_that_was_killed_serves_again_without_its_registry() {
    let figures = restart("simcloud", 2, |_| {}).await.unwrap();
    let (request, node) = (figures.first_request_ms, figures.first_node_ms);
    assert!(request.min > 0.0 && request.min <= node.min && request.max <= node.max, "{figures:?}");
    assert!(figures.alone_ms.min > 0.0, "{figures:?}");
}
