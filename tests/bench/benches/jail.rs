//! The overhead of the compile jail: the same component is checked and compiled in the jail, and
//! compiled in this process with as many threads.
//!
//! `cargo bench -p skysail-test-bench --bench jail`; `make bench` runs it. The bound for the
//! difference of the two medians is 100 ms; `deploy/docs/figures.md` has the measured value.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing else to do")]

use std::process::ExitCode;

use bytes::Bytes;
use criterion::{BatchSize, Criterion};
use skysail_host::{
    CompiledComponent, Limits, engine_config,
    jail::{CompileLimits, Compiler, child_main},
};
use skysail_sources::Digest;
use skysail_test_bench::{JAIL, component, own_jail};
use tokio::runtime::Runtime;
use wasmtime::Engine;

/// The size of the component for which the bound applies.
const COMPONENT: &str = "simcloud-basic";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(JAIL) {
        return child_main();
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    bench(&mut criterion);
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn bench(criterion: &mut Criterion) {
    let runtime = Runtime::new().unwrap();
    let (component, limits) = (component(COMPONENT).unwrap(), Limits::default());
    let engine = Engine::new(&engine_config(limits.stack_bytes)).unwrap();
    let mut group = criterion.benchmark_group(format!("compile {COMPONENT}, {} bytes", component.len()));
    group.bench_function("in this process", |bencher| {
        bencher.iter(|| CompiledComponent::in_process(&engine, &component).unwrap());
    });
    let compiler = Compiler::jailed(own_jail().unwrap());
    let mut round = 0_u64;
    group.bench_function("in the jail", |bencher| {
        let another = || {
            // A new digest each time, so that the cache of machine code is not used.
            round += 1;
            (Bytes::from(component.clone()), *Digest::of(&round.to_le_bytes()).as_bytes())
        };
        let compile = |component| {
            let compiled = compiler.compile(&engine, component, CompileLimits::from(&limits), || {});
            runtime.block_on(compiled).map(|compiled| assert!(!compiled.cached)).unwrap();
        };
        bencher.iter_batched(another, compile, BatchSize::PerIteration);
    });
    group.finish();
}
