//! The time of one provider call in the host with every limit, compared with the bare engine in the
//! same run; and what `ensure` costs over two thousand nodes for a guest that reads their names.
//!
//! `cargo bench -p skysail-test-bench --bench call`. `make bench` runs it.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing else to do")]

use std::{sync::Arc, time::Duration};

use criterion::{Criterion, criterion_group, criterion_main};
use skysail_host::{
    CallRecorder, CompiledComponent, Engine, Limits, Release, Sandbox, SandboxOptions, SandboxedProvider, describe,
    engine_config,
};
use skysail_provider::{
    AddressKind, Call, Clusters as _, LoadBalancers as _, Node, NodeAddress, NodeSet, Service, StringMap,
};
use skysail_test_bench::component;
use tokio::{runtime::Runtime, time::Instant};

use self::bindings::exports::skysail::legacy::clusters::GuestIndices;

mod bindings {
    wasmtime::component::bindgen!({
        path: ["../../wit/v0.1.0", "../../wit/legacy-v0.1.0"],
        world: "skysail:legacy/complete-provider@0.1.0",
        exports: { default: async },
    });
}

async fn serve(engine: &Engine, wasm: &[u8]) -> SandboxedProvider {
    let options =
        SandboxOptions { name: "bench".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(engine, CallRecorder::default(), options).unwrap();
    let release = Arc::new(Release::from_wasm(&sandbox, wasm).unwrap());
    let info = Arc::new(describe(&sandbox, &release).await.unwrap());
    SandboxedProvider::new(sandbox, release, info)
}

/// The same component without the host: pre-instantiated, pooled, no fuel, no epoch, no limiter, a
/// fresh store for each call.
struct Bare {
    engine: wasmtime::Engine,
    pre: wasmtime::component::InstancePre<()>,
    indices: GuestIndices,
}

impl Bare {
    fn new(wasm: &[u8]) -> Self {
        let mut config = wasmtime::Config::new();
        config.concurrency_support(false);
        config.allocation_strategy(wasmtime::InstanceAllocationStrategy::Pooling(
            wasmtime::PoolingAllocationConfig::new(),
        ));
        let engine = wasmtime::Engine::new(&config).unwrap();
        let component = wasmtime::component::Component::new(&engine, wasm).unwrap();
        let mut linker = wasmtime::component::Linker::new(&engine);
        // The call that is measured uses no import.
        linker.define_unknown_imports_as_traps(&component).unwrap();
        let pre = linker.instantiate_pre(&component).unwrap();
        let indices = GuestIndices::new(&pre).unwrap();
        Self { engine, pre, indices }
    }

    async fn master(&self, cluster: &str) -> String {
        let mut store = wasmtime::Store::new(&self.engine, ());
        let instance = self.pre.instantiate_async(&mut store).await.unwrap();
        let guest = self.indices.load(&mut store, &instance).unwrap();
        guest.call_master(&mut store, cluster).await.unwrap().unwrap()
    }
}

fn one_call(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let wasm = component("probe-fuel").unwrap();
    let engine = Engine::new().unwrap();
    let provider = runtime.block_on(serve(&engine, &wasm));
    let bare = Bare::new(&wasm);
    let mut group = criterion.benchmark_group("one call");
    group.bench_function("bare engine", |bencher| bencher.to_async(&runtime).iter(|| bare.master("good")));
    group.bench_function("host, all limits", |bencher| {
        bencher.to_async(&runtime).iter(|| async { provider.master(&Call::default(), "good").await.unwrap() });
    });
    group.finish();
    runtime.block_on(print_ratio(&bare, &provider));
}

/// Pairs of measurements, and calls of each measurement.
const PAIRS: usize = 400;
const CALLS: u32 = 100;

/// Measures the two in turns, because the speed of a machine changes while one of them is measured.
#[expect(clippy::print_stdout, reason = "a benchmark prints what it measured")]
async fn print_ratio(bare: &Bare, provider: &SandboxedProvider) {
    let mut ratios = Vec::with_capacity(PAIRS);
    for pair in 0..PAIRS {
        let of_bare = async || time_of(async || drop(bare.master("good").await)).await;
        let of_host = async || time_of(async || drop(provider.master(&Call::default(), "good").await.unwrap())).await;
        let (host, bare) = if pair.is_multiple_of(2) {
            let bare = of_bare().await;
            (of_host().await, bare)
        } else {
            (of_host().await, of_bare().await)
        };
        ratios.push(host.as_secs_f64() / bare.as_secs_f64());
    }
    ratios.sort_by(f64::total_cmp);
    let quantile = |percent: usize| ratios.get((PAIRS - 1) * percent / 100).copied().unwrap_or_default();
    println!(
        "one call/host divided by bare engine, in turns: median {:.2}, quartiles {:.2} and {:.2}",
        quantile(50),
        quantile(25),
        quantile(75)
    );
}

async fn time_of(mut call: impl AsyncFnMut()) -> Duration {
    let start = Instant::now();
    for _ in 0..CALLS {
        call().await;
    }
    start.elapsed()
}

fn ensure_over_nodes(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let engine = Engine::new().unwrap();
    let provider = runtime.block_on(serve(&engine, &component("probe-names").unwrap()));
    let service = service();
    let mut group = criterion.benchmark_group("ensure over 2000 nodes, names read");
    for (name, nodes) in [("nodes of names alone", nodes(false)), ("whole nodes", nodes(true))] {
        group.bench_function(name, |bencher| {
            bencher
                .to_async(&runtime)
                .iter(|| async { provider.ensure(&Call::default(), "kubernetes", &service, &nodes).await.unwrap() });
        });
    }
    group.finish();
}

fn compile(criterion: &mut Criterion) {
    let wasm = component("simcloud").unwrap();
    let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    let mut group = criterion.benchmark_group("compile");
    group.sample_size(10);
    group.bench_function(format!("simcloud, {} bytes", wasm.len()), |bencher| {
        bencher.iter(|| CompiledComponent::in_process(&engine, &wasm).unwrap());
    });
    group.finish();
}

fn nodes(whole: bool) -> NodeSet {
    let pairs = |kind: &str, count: usize| -> StringMap {
        (0..count).map(|n| (format!("example.com/{kind}-{n}"), "a value of some length".to_owned())).collect()
    };
    let node = |n: usize| {
        let name = format!("node-{n:04}");
        let node = if whole {
            Node {
                provider_id: Some(format!("sim:///{n}")),
                addresses: vec![NodeAddress {
                    kind: AddressKind::InternalIp,
                    address: format!("10.0.{}.{}", n / 250, n % 250),
                }],
                labels: pairs("label", 12),
                annotations: pairs("annotation", 4),
                ..Node::default()
            }
        } else {
            Node::default()
        };
        Arc::new(Node { name, ..node })
    };
    NodeSet::new((0..2000).map(node))
}

fn service() -> Service {
    Service::new("default", "web", "9c1f")
}

criterion_group!(benches, one_call, ensure_over_nodes, compile);
criterion_main!(benches);
