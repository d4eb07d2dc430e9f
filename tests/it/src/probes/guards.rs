//! Limits that end the call.

use std::{collections::BTreeSet, sync::Arc};

use skysail_host::{
    Allocation, CallRecorder, Engine, Fault, Limits, Profile, Release, Sandbox, SandboxOptions,
    admission::{digest_of, digest_text},
    describe, symbolized,
    symbols::{SymbolFiles, Symbols},
};
use skysail_provider::{Call, Clusters, Code, Limit, LimitHit};

use super::{Attack, Attacked, Setup, ended_by};
use crate::components::{built, hand_written, symbols, with, with_instances};

const MIB: u64 = 1 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn fuel_ends_a_guest_that_never_stops_computing() {
    let limits = Limits { fuel: 50_000_000, ..Limits::default() };
    let attacked = Attacked::new("fuel", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(record.fuel, 50_000_000);
            assert!(!record.guest.is_zero() && record.guest <= record.wall);
            let message = &result.as_ref().unwrap_err().message;
            assert!(message.contains("; in skysail_probe_fuel::attack"), "{message}");
            ended_by(Limit::Fuel, 50_000_000, 50_000_000)(result, record);
        })
        .await;
}

async fn cpu_time_ends(probe: &str) {
    // Almost unlimited fuel: with the default the same loops take up to fifteen seconds.
    let limits = Limits { fuel: 1_000_000_000_000, cpu_time_ms: 100, ..Limits::default() };
    let attacked = Attacked::with(&hand_written(probe), limits).await;
    attacked
        .run(Attack::List, |result, record| {
            let error = result.unwrap_err();
            let hit = error.limit.unwrap();
            assert_eq!((error.code, hit.limit, hit.max), (Code::LimitExceeded, Limit::CpuTime, 100), "{error}");
            assert!(hit.used >= 100 && record.cpu.as_millis() >= 100, "{record:?}");
            assert_eq!(record.limits_hit, [hit]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn memory_grow_ends_at_the_cpu_time() {
    cpu_time_ends("memory-grow").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn table_grow_ends_at_the_cpu_time() {
    cpu_time_ends("table-grow").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn resource_new_ends_at_the_cpu_time() {
    cpu_time_ends("resource-new").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn strings_between_inner_components_end_at_the_cpu_time() {
    cpu_time_ends("strings").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn host_calls_cost_fuel_even_if_they_do_nothing() {
    let limits = Limits { fuel: 20_000_000, ..Limits::default() };
    let attacked = Attacked::new("host-calls", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            // Each host call writes an empty line, and costs 2,000 fuel units.
            let calls = record.log_lines + record.log_lines_dropped;
            assert!((9_000..=10_000).contains(&calls), "{calls} calls");
            let error = result.unwrap_err();
            assert_eq!(
                error.limit,
                Some(LimitHit { limit: Limit::Fuel, used: 20_000_000, max: 20_000_000 }),
                "{error}"
            );
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn deadline_ends_a_guest_that_waits() {
    // The calls that do not wait have the same deadline, and meet it on a busy machine.
    let limits = Limits { deadline_ms: 2_000, http_time_ms: 2_000, ..Limits::default() };
    let attacked = Attacked::new("deadline", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            let error = result.unwrap_err();
            assert_eq!(error.code, Code::DeadlineExceeded);
            assert_eq!(error.message, "clusters.master did not end within 2000 ms (spec.limits.deadlineMs); check the cloud's latency, or raise the limit");
            assert!(record.wall.as_millis() >= 2_000 && record.guest < record.wall / 2, "{record:?}");
            assert_eq!(record.fault, Some(Fault::Machine), "no CPU time was used and no request was sent");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadline_ends_a_guest_that_computes_too() {
    // The calls that do not compute have the same deadline, and meet it on a busy machine.
    let limits = Limits { fuel: 1_000_000_000_000, deadline_ms: 1_500, http_time_ms: 1_500, ..Limits::default() };
    let attacked = Attacked::new("fuel", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            assert_eq!(result.unwrap_err().code, Code::DeadlineExceeded);
            assert!(record.guest.as_millis() >= 100 && record.limits_hit.is_empty(), "{record:?}");
            // A busy machine gives the guest less than half of the deadline as CPU time.
            let computed = record.cpu.as_millis() >= 750;
            assert_eq!(record.fault, Some(if computed { Fault::Release } else { Fault::Machine }), "{record:?}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn memory_ends_a_guest_that_allocates_too_much() {
    let limits = Limits { memory_bytes: 8 * MIB, ..Limits::default() };
    let attacked = Attacked::new("memory", limits).await;
    attacked
        .run(Attack::Master, |result, record| {
            let error = result.unwrap_err();
            let hit = error.limit.unwrap();
            assert_eq!((error.code, hit.limit, hit.max), (Code::LimitExceeded, Limit::Memory, 8 * MIB));
            assert!(hit.used > 8 * MIB && record.memory_peak <= 8 * MIB && record.memory_peak > 6 * MIB, "{record:?}");
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn memory_sum_counts_all_memories_together() {
    let limits = Limits { memory_bytes: 8 * MIB, ..Limits::default() };
    let attacked = Attacked::with(&hand_written("memory-sum"), limits).await;
    // Three memories of one page, and each time sixteen more: the eighth growth is one too many.
    let (page, step) = (64 << 10, MIB);
    attacked
        .run(Attack::List, |result, record| {
            assert_eq!(record.memory_peak, 3 * page + 7 * step);
            ended_by(Limit::Memory, 3 * page + 8 * step, 8 * MIB)(result, record);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn table_elements_end_a_guest_that_grows_its_tables() {
    let limits = Limits { table_elements: 1_000, ..Limits::default() };
    let attacked = Attacked::with(&hand_written("table"), limits).await;
    attacked
        .run(Attack::List, |result, record| {
            let hit = result.unwrap_err().limit.unwrap();
            assert_eq!((hit.limit, hit.max), (Limit::TableElements, 1_000));
            assert!((1_001..=1_100).contains(&hit.used), "{hit}");
            assert_eq!(record.limits_hit, [hit]);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn instances_beyond_the_limit_do_not_start() {
    let wasm = with_instances(&hand_written("instances"), 20);
    let engine = Engine::new().unwrap();
    let limits = Limits { instances: 10, ..Limits::default() };
    let options = SandboxOptions { name: "probe".to_owned(), limits, config: String::new(), http: None };
    let sandbox = Sandbox::new(&engine, CallRecorder::default(), options).unwrap();
    let release = Release::from_wasm(&sandbox, &wasm).unwrap();
    let error = describe(&sandbox, &release).await.unwrap_err();
    let hit = error.limit.unwrap();
    assert_eq!((error.code, hit.limit, hit.used, hit.max), (Code::LimitExceeded, Limit::Instances, 11, 10));
    // With the default the same component serves.
    Attacked::with(&wasm, Limits::default())
        .await
        .run(Attack::List, |result, _| assert_eq!(result, Ok("0".to_owned())))
        .await;
}

/// More than wasmtime's default for a pool allows. The vendors' providers for AWS and OpenStack in
/// Go have 33,000 and 70,000 functions in their tables. An imported function takes as much of the
/// host's records, and has no code to compile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guest_with_60_000_functions_runs_in_the_pool() {
    let each = |text: fn(usize) -> String| (0..60_000).map(text).collect::<String>();
    let imports = each(|n| format!(r#"(import "all" "{n}" (func))"#));
    let exports = each(|n| format!(r#"(export "{n}" (func $one "f"))"#));
    let wasm = with(
        &hand_written("instances"),
        &format!(
            r#"(core module $one (func (export "f"))) (core instance $one (instantiate $one))
               (core instance $all {exports})
               (core module $large {imports}) (core instance (instantiate $large (with "all" (instance $all))))"#
        ),
    );
    let engine = Engine::new().unwrap();
    assert_eq!(engine.allocation(), Allocation::Pooling);
    let serving = Setup::of("probe", &wasm).serve(&engine, &CallRecorder::default()).await;
    let answer = Clusters::list(&serving, &Call::default()).await;
    assert_eq!(answer.map(|clusters| clusters.len()), Ok(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn handles_end_a_guest_that_never_drops_them() {
    let attacked = Attacked::new("handles", Limits { handles: 50, ..Limits::default() }).await;
    attacked.run(Attack::Master, ended_by(Limit::Handles, 50, 50)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn host_call_bytes_end_a_guest_that_passes_too_much() {
    let attacked = Attacked::new("host-call-bytes", Limits { host_call_bytes: MIB, ..Limits::default() }).await;
    attacked.run(Attack::Master, ended_by(Limit::HostCallBytes, MIB, MIB)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn result_bytes_end_a_call_before_the_host_copies() {
    let attacked = Attacked::with(&hand_written("result-bytes"), Limits::default()).await;
    let before = resident_bytes();
    attacked
        .run(Attack::List, |result, record| {
            ended_by(Limit::ResultBytes, 8 * MIB, 8 * MIB)(result, record);
            // Other tests of this process use memory meanwhile. A copy would have a hundred GiB.
            assert!(resident_bytes() < before + 4_096 * MIB);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn stack_ends_a_guest_that_recurses() {
    let attacked = Attacked::new("stack", Limits::default()).await;
    attacked.run(Attack::Master, ended_by(Limit::Stack, 512 << 10, 512 << 10)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_provider_has_its_own_stack_size() {
    let engine = Engine::new().unwrap();
    let mut fuel = Vec::new();
    for stack_bytes in [128 << 10, 2 << 20] {
        let recorder = CallRecorder::default();
        let mut records = recorder.subscribe();
        let limits = Limits { stack_bytes, ..Limits::default() };
        let wasm = crate::components::built("probe-stack");
        let probe = Setup { limits, ..Setup::of("probe", &wasm) }.serve(&engine, &recorder).await;
        let error =
            skysail_provider::Clusters::master(&probe, &skysail_provider::Call::default(), "attack").await.unwrap_err();
        assert_eq!(error.limit.map(|hit| hit.max), Some(stack_bytes), "{error}");
        records.recv().await.unwrap();
        fuel.push(records.recv().await.unwrap().fuel);
    }
    assert!(fuel[1] > 8 * fuel[0], "sixteen times the stack is about sixteen times the depth: {fuel:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn trap_says_where_the_guest_panicked() {
    let attacked = Attacked::new("trap", Limits::default()).await;
    attacked
        .run(Attack::Master, |result, record| {
            let error = result.unwrap_err();
            assert_eq!((error.code, error.limit), (Code::Trapped, None));
            // The text by the SDK's panic hook; the functions without those of the standard library
            // that stand innermost.
            let expected = "the guest trapped: panicked at guests/probes/trap/src/lib.rs:12:9: a probe panics; in skysail_probe_trap::attack";
            assert_eq!(error.message.split(" ← ").next(), Some(expected), "{error}");
            assert_eq!((record.log_lines, record.limits_hit.len()), (1, 0));
        })
        .await;
}

/// A manager has numbers, from which the sidecar makes the names that an author sees. `status` of
/// an exit is of a function of WASI, whose own module has names.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sidecar_of_a_component_makes_names_of_the_numbers_in_an_error() {
    for name in ["trap", "fuel", "exit", "stack"] {
        let (built, limits) = (built(&format!("probe-{name}")), Limits { fuel: 50_000_000, ..Limits::default() });
        let named = Attacked::new(name, limits.clone()).await.attack(Attack::Master).await.unwrap_err();
        let numbered = Attacked::with(&built, limits).await.attack(Attack::Master).await.unwrap_err();
        let digest = digest_text(&digest_of(&built));
        let symbols = Symbols::read_of(&symbols(&format!("probe-{name}")), &digest).unwrap();
        let (_, component) = numbered.message.rsplit_once(" of component ").unwrap();
        assert_eq!(Some(component), digest.get(7..19), "{numbered}");
        assert!(!numbered.message.contains("::"), "{numbered}");
        let mut unknown = BTreeSet::new();
        assert_eq!(symbolized(&numbered.message, &[symbols], &mut unknown), named.message);
        assert!(unknown.is_empty());
    }
}

/// No unit of fuel is lost, and equal calls have equal profiles.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_profile_charges_the_function_that_burns_the_fuel() {
    let limits = Limits { fuel: 50_000_000, cpu_time_ms: 60_000, ..Limits::default() };
    let (wasm, names) = (built("probe-fuel"), Arc::new(SymbolFiles::new(vec![symbols("probe-fuel")])));
    let mut folded = Vec::new();
    for _ in 0..2 {
        let profile = Arc::new(Profile::new("clusters.master".to_owned()));
        let recorder = CallRecorder::default().with_symbols(Arc::clone(&names)).profiled(Arc::clone(&profile));
        let setup = Setup { limits: limits.clone(), ..Setup::of("probe", &wasm) };
        let probe = setup.serve(&Engine::new().unwrap(), &recorder).await;
        let error = probe.master(&Call::default(), "attack").await.unwrap_err();
        assert_eq!(error.limit.map(|hit| hit.limit), Some(Limit::Fuel), "{error}");
        let stacks = profile.by_stack();
        assert_eq!(stacks.iter().map(|(_, fuel)| fuel).sum::<u64>(), limits.fuel, "{stacks:?}");
        let (most, fuel) = stacks.iter().max_by_key(|(_, fuel)| fuel).unwrap();
        assert!(*fuel > 49_000_000 && most.last().unwrap() == "skysail_probe_fuel::attack", "{stacks:?}");
        assert_eq!(most.first().unwrap(), "clusters.master");
        folded.push(profile.folded());
    }
    assert_eq!(folded[0], folded[1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn exit_has_its_own_outcome() {
    let attacked = Attacked::new("exit", Limits::default()).await;
    attacked
        .run(Attack::Master, |result, _| {
            let error = result.unwrap_err();
            assert_eq!(error.code, Code::Trapped);
            let expected =
                "the guest exited with status 1 instead of returning a result; in skysail:legacy/clusters@0.1.0#master";
            assert_eq!(error.message, expected);
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn wasi_files_and_environment_are_empty() {
    assert!(std::env::vars().next().is_some() && std::env::args().next().is_some(), "this process has some");
    let attacked = Attacked::new("wasi-files", Limits::default()).await;
    attacked.run(Attack::Master, |result, _| assert_eq!(result, Ok(r#"[] ["provider"] None []"#.to_owned()))).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
pub(super) async fn wasi_handles_that_nothing_gave_end_the_call() {
    let wasm = built("probe-wasi-handles");
    // The first handle of a component is that of the stream, and the others do not exist.
    for handle in ["0", "1", "2", "1000", "4294967295"] {
        let attacked = Attacked::of(Setup { config: handle, ..Setup::of("probe", &wasm) }).await;
        attacked
            .run(Attack::Master, move |result, _| {
                let error = result.unwrap_err();
                assert_eq!(error.code, Code::Trapped, "handle {handle}: {error}");
            })
            .await;
    }
}

/// The resident memory of this process, from the kernel.
fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = status.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}
