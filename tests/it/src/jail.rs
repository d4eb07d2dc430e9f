//! Tests of the compile jail with its real child: good components are compiled, hostile ones are
//! refused within the limits.

use std::{fmt::Write as _, fs, path::PathBuf, process::Stdio, time::Duration};

use bytes::Bytes;
use skysail_host::{
    CallRecorder, Engine, Limits, Panics, Sandbox, SandboxOptions,
    admission::RefusalCode,
    engine_config,
    jail::{CompileError, CompileLimits, Compiled, Compiler, JailCommand, Stop},
    slot::{EarlierOffers, Offer, Offered, Refusal, Slot, SlotMetrics, SlotOptions, SlotServices, Stage},
};
use skysail_provider::{Limit, Provider as _};
use skysail_test_support::log::Log;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::Command,
};

use crate::components::{built, hand_written, marked, with, with_instances};

/// The path of one of this package's binaries: Cargo builds them before the tests, two folders
/// above the test.
fn binary(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(std::path::Path::parent).unwrap().join(name);
    assert!(program.exists(), "{} is missing: cargo test -p skysail-test-it builds it", program.display());
    program
}

/// The command of the child.
pub(crate) fn command() -> JailCommand {
    JailCommand { program: binary("compile-jail"), args: Vec::new() }
}

/// The command of the child on a simulated kernel that lacks a feature.
fn command_on_an_old_kernel(lacks: &str) -> JailCommand {
    JailCommand { program: binary("old-kernel"), args: vec![lacks.into(), binary("compile-jail").into()] }
}

fn leb(mut n: usize) -> Vec<u8> {
    let mut out = Vec::new();
    loop {
        let byte = u8::try_from(n & 0x7f).unwrap();
        n >>= 7;
        out.push(if n == 0 { byte } else { byte | 0x80 });
        if n == 0 {
            return out;
        }
    }
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

fn limits() -> CompileLimits {
    CompileLimits::from(&Limits::default())
}

async fn compile(component: Vec<u8>, limits: CompileLimits) -> Result<Compiled, CompileError> {
    let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    Compiler::jailed(command()).compile(&engine, (Bytes::from(component), [0; 32]), limits, || {}).await
}

#[tokio::test]
async fn a_provider_compiles_in_the_jail_and_its_cost_is_reported() {
    let compiled = compile(built("dummy"), limits()).await.unwrap();
    let cost = compiled.cost.unwrap();
    assert!(!compiled.cached && compiled.component.size() > 1000);
    assert!(cost.cpu > Duration::ZERO && cost.memory_bytes > 0, "{cost:?}");
    assert!(cost.memory_bytes < Limits::default().compile_memory_bytes, "{cost:?}");
}

/// `skysail inspect` and `skysail push` use the jail, a manager uses a slot.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_jail_and_a_slot_refuse_the_same_components() {
    let services = SlotServices {
        engine: Engine::new().unwrap(),
        recorder: CallRecorder::default(),
        compiler: Compiler::jailed(command()),
        metrics: SlotMetrics::default(),
        panics: Panics::default(),
    };
    let options =
        SandboxOptions { name: "probe".to_owned(), limits: Limits::default(), config: String::new(), http: None };
    let sandbox = Sandbox::new(&services.engine, CallRecorder::default(), options.clone()).unwrap();
    let slot = Slot::new(services.clone(), SlotOptions::new(options)).unwrap();
    let good = hand_written("instances");
    let module =
        |fields: &str| with(&good, &format!("(core module $more {fields}) (core instance (instantiate $more))"));
    let bad = [
        ("garbage collection", module("(type (struct (field i32))) (func (param anyref))")),
        ("exceptions", module("(tag $e) (func (throw $e))")),
        ("threads", module("(memory 1 1 shared)")),
        ("custom page sizes", module("(memory 1 (pagesize 1))")),
        ("five memories", module(&"(memory 1)".repeat(5))),
        ("a memory of 4 GiB", module("(memory 65536)")),
        ("33 tables", module(&"(table 1 funcref)".repeat(33))),
        ("a table of a million elements", module("(table 1000000 funcref)")),
        ("80 core instances", with_instances(&good, 80)),
        (
            "unknown functions of WASI",
            with(&good, r#"(import "wasi:random/random@0.2.0" (instance (export "choose" (func))))"#),
        ),
    ];
    for (what, component) in bad {
        let component = Bytes::from(component);
        let (inspection, _) = services.compiler.judge(&sandbox, component.clone(), "file x").await.unwrap();
        let refused = slot.offer(Offer { bytes: component, origin: "file x".to_owned() }).await.unwrap_err();
        let told: Vec<_> = inspection.refusals.iter().map(|refusal| refusal.code.category()).collect();
        assert_eq!(told, [refused.code], "{what}: {:?} {refused}", inspection.refusals);
    }
    let good = Bytes::from(good);
    let (inspection, cost) = services.compiler.judge(&sandbox, good.clone(), "file x").await.unwrap();
    assert!(inspection.is_admitted() && cost.is_some(), "{:?}", inspection.refusals);
    slot.offer(Offer { bytes: good, origin: "file x".to_owned() }).await.unwrap();
}

#[tokio::test]
async fn the_error_contains_the_refusals_of_the_child() {
    let mut component = built("dummy");
    component.truncate(component.len() / 2);
    let error = compile(component, limits()).await.err().unwrap();
    let CompileError::NotAdmitted { refusals } = &error else { panic!("{error}") };
    assert_eq!(refusals[0].code, RefusalCode::Truncated);
}

/// A valid component with one additional core module.
fn with_module(module: &[u8]) -> Vec<u8> {
    [built("dummy"), section(1, module)].concat()
}

/// A provider with one function of `tables` jump tables with as many targets each: every edge is
/// work for the compiler, and the component has about one edge for each byte.
fn slow_to_compile(tables: usize) -> Vec<u8> {
    let mut body = String::new();
    for _ in 0..tables {
        body.push_str("(block ");
    }
    for n in 0..tables {
        let (local, other) = (n % 60, (n * 7 + 3) % 60);
        let targets = (0..=tables - n).map(|depth| depth.to_string()).collect::<Vec<_>>().join(" ");
        write!(
            body,
            "(local.set {local} (i32.add (local.get {other}) (i32.mul (local.get {local}) (i32.const {n})))) \
             (block (br_table {targets} (local.get {other}))))"
        )
        .unwrap();
    }
    let locals = "(local i32)".repeat(60);
    let text = format!("(module (func (export \"f\") (param i32) {locals} {body}))");
    with_module(&wat::parse_str(text).unwrap())
}

#[tokio::test]
async fn a_component_that_compiles_for_very_long_is_stopped_by_its_cpu_time_and_the_reason_names_the_limit() {
    let hostile = slow_to_compile(350);
    assert!(hostile.len() - built("dummy").len() < 100 << 10, "{} bytes are enough", hostile.len());
    let limits = CompileLimits { time: Duration::from_secs(30), memory_bytes: 4 << 30, ..limits() };
    compile(built("dummy"), limits).await.expect("a good component must compile within the limit");
    // The limit of wall time is 20 s, so that the child meets this one with a tenth of a core.
    let limits = CompileLimits { time: Duration::from_secs(1), ..limits };
    let error = compile(hostile, limits).await.err().expect("this one has not");
    let CompileError::Limit { hit, stop: Stop::Cpu } = &error else { panic!("{error}") };
    assert_eq!((hit.limit, hit.max), (Limit::CompileTime, 1000));
    assert!(hit.used >= 1000, "{hit}");
    assert!(error.to_string().contains("compileTimeMs"), "{error}");
}

/// The machine decides which of the limits is reached first: on a busy machine the wall time, which
/// is ten times the CPU time and ten seconds.
#[tokio::test]
async fn the_default_limits_stop_a_component_that_would_compile_for_minutes() {
    let hostile = slow_to_compile(600);
    assert!(hostile.len() - built("dummy").len() < 320 << 10, "{} bytes are enough", hostile.len());
    let error = compile(hostile, limits()).await.err().expect("it needs minutes, and gigabytes");
    let CompileError::Limit { hit, stop: Stop::Cpu | Stop::Memory | Stop::Wall } = &error else { panic!("{error}") };
    assert!(matches!(hit.limit, Limit::CompileTime | Limit::CompileMemory), "{hit}");
}

/// The size of a head of the protocol, in bytes.
const HEAD: usize = 64;

/// The request in the format of the parent: a head with the magic, the task, and the limits
/// (length, seconds and nanoseconds of CPU time, bytes of memory); then the component.
fn request(component: &[u8], seconds: usize) -> Vec<u8> {
    let limits = [component.len(), seconds, 0, 4 << 30].map(leb).concat();
    let mut request = [b"SKYJAIL5\x01", limits.as_slice()].concat();
    request.resize(HEAD, 0);
    [request.as_slice(), component].concat()
}

/// A child of a killed manager must not continue to use CPU time.
#[tokio::test]
async fn a_child_whose_parent_was_killed_ends() {
    // The shell is the parent that is killed. The child inherits its pipes.
    let mut shell = Command::new("sh");
    shell.args(["-c", r#"exec 3<&0; "$0" <&3 & wait"#]).arg(command().program);
    let mut parent = shell.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn().unwrap();
    let (mut stdin, mut answers) = (parent.stdin.take().unwrap(), parent.stdout.take().unwrap());
    stdin.write_all(&request(&slow_to_compile(350), 60)).await.unwrap();
    // The head of the examination: from here on the child compiles.
    answers.read_exact(&mut [0; HEAD]).await.unwrap();
    parent.kill().await.unwrap();
    // Only the child holds the other end of this pipe.
    let mut rest = Vec::new();
    let ended = answers.read_to_end(&mut rest);
    tokio::time::timeout(Duration::from_secs(20), ended)
        .await
        .expect("the child must end after its parent was killed")
        .unwrap();
}

/// A provider with one large data segment.
fn large(bytes: usize) -> Vec<u8> {
    let memory = section(5, &[&[1, 0][..], &leb(bytes / (64 << 10) + 1)].concat());
    let data = section(11, &[&[1, 0, 0x41, 0, 0x0b][..], &leb(bytes), &vec![7; bytes]].concat());
    let module = [b"\0asm\x01\0\0\0", memory.as_slice(), data.as_slice()].concat();
    with_module(&module)
}

#[tokio::test]
async fn a_component_that_needs_more_memory_than_allowed_is_stopped_and_the_reason_names_the_limit() {
    let limits = CompileLimits { component_bytes: 64 << 20, time: Duration::from_secs(60), memory_bytes: 64 << 20 };
    compile(large(1 << 20), limits).await.expect("a small component must compile within the limit");
    let error = compile(large(48 << 20), limits).await.err().expect("a large one does not");
    let CompileError::Limit { hit, stop: Stop::Memory } = &error else { panic!("{error}") };
    assert_eq!((hit.limit, hit.max), (Limit::CompileMemory, 64 << 20));
    assert!(error.to_string().contains("compileMemoryBytes"), "{error}");
}

const HEADER: &[u8] = b"\0asm\x0d\0\x01\0";

/// A type section of nested instance types: three bytes for each level.
fn nested_types(levels: usize) -> Vec<u8> {
    let types = [leb(1), [0x42, 1, 1].repeat(levels), vec![0x42, 0]].concat();
    [HEADER, section(7, &types).as_slice()].concat()
}

/// Nested components: about ten bytes for each level.
fn nested_components(levels: usize) -> Vec<u8> {
    let mut length = HEADER.len();
    let mut heads = Vec::new();
    for _ in 0..levels {
        let head = [HEADER, &[4], &leb(length)].concat();
        length += head.len();
        heads.push(head);
    }
    heads.into_iter().rev().flatten().chain(HEADER.iter().copied()).collect()
}

fn services() -> SlotServices {
    SlotServices {
        engine: Engine::on_demand().unwrap(),
        recorder: CallRecorder::default(),
        compiler: Compiler::jailed(command()),
        metrics: SlotMetrics::default(),
        panics: Panics::default(),
    }
}

fn slot(services: &SlotServices, limits: Limits) -> Slot {
    Slot::new(services.clone(), slot_options(limits)).unwrap()
}

fn slot_options(limits: Limits) -> SlotOptions {
    SlotOptions::new(SandboxOptions { name: "cloud".to_owned(), limits, config: String::new(), http: None })
}

/// A slot with the real jail, in which the example provider serves.
async fn serving(limits: Limits) -> Slot {
    let slot = slot(&services(), limits);
    assert_eq!(offer(&slot, built("dummy")).await, Ok(Offered::Activated));
    slot
}

/// A limit of CPU time, in milliseconds, that the example provider keeps on a slow machine and that
/// a hostile component exceeds on a fast one: twice the time of the example provider, measured now.
async fn compile_time_ms() -> u64 {
    let cost = compile(built("dummy"), limits()).await.unwrap().cost.unwrap();
    u64::try_from(cost.cpu.as_millis() * 2).unwrap().max(1_000)
}

async fn offer(slot: &Slot, bytes: Vec<u8>) -> Result<Offered, Refusal> {
    slot.offer(Offer { bytes: bytes.into(), origin: "file x".to_owned() }).await
}

#[tokio::test]
async fn nested_types_are_refused_and_the_manager_survives() {
    let slot = serving(Limits::default()).await;
    // Deeper than the stack of any thread here can follow.
    for levels in [5_000, 1_000_000] {
        let refusal = offer(&slot, nested_types(levels)).await.unwrap_err();
        assert_eq!(
            (refusal.stage, refusal.code, refusal.lasting),
            (Stage::Offered, "CompileFailed", true),
            "{refusal}"
        );
        assert!(refusal.reason.contains("deeper than 8 MiB of stack"), "{refusal}");
        assert!(slot.info().is_some(), "the previous release must keep serving");
    }
    let inspected = Compiler::jailed(command()).inspect(nested_types(5_000).into(), "file x", limits()).await;
    assert!(matches!(inspected, Err(CompileError::TooDeep)), "{inspected:?}");
}

/// The manager can be started with any stack limit; the jail sets its own limit.
#[tokio::test]
async fn nested_types_are_refused_even_with_an_unlimited_stack() {
    let script = r#"ulimit -s "$(ulimit -H -s)" && exec "$0""#;
    let command =
        JailCommand { program: "sh".into(), args: vec!["-c".into(), script.into(), binary("compile-jail").into()] };
    let inspected = Compiler::jailed(command).inspect(nested_types(1_000_000).into(), "file x", limits()).await;
    assert!(matches!(inspected, Err(CompileError::TooDeep)), "{inspected:?}");
}

#[tokio::test]
async fn nested_components_exceed_the_cpu_time_of_the_jail() {
    let slot = serving(Limits { compile_time_ms: compile_time_ms().await, ..Limits::default() }).await;
    let refusal = offer(&slot, nested_components(100_000)).await.unwrap_err();
    assert_eq!((refusal.stage, refusal.code, refusal.lasting), (Stage::Offered, "CompileLimit", true), "{refusal}");
    assert!(refusal.reason.contains("compileTimeMs"), "{refusal}");
    assert!(slot.info().is_some(), "the previous release must keep serving");
}

/// A stopped compilation does not affect the serving release.
#[tokio::test]
async fn a_release_that_exceeds_a_compile_limit_does_not_affect_the_serving_release() {
    let patient = Limits { component_bytes: 64 << 20, compile_time_ms: 60_000, ..Limits::default() };
    let short = Limits { compile_time_ms: compile_time_ms().await, ..patient.clone() };
    for (hostile, limits, limit) in [
        (slow_to_compile(350), short, "compileTimeMs"),
        (large(48 << 20), Limits { compile_memory_bytes: 64 << 20, ..patient.clone() }, "compileMemoryBytes"),
        (wide_types(20_000), Limits { compile_memory_bytes: 64 << 20, ..patient.clone() }, "compileMemoryBytes"),
    ] {
        let slot = serving(limits).await;
        let refusal = offer(&slot, hostile).await.unwrap_err();
        assert_eq!((refusal.code, refusal.lasting), ("CompileLimit", true), "{refusal}");
        assert!(refusal.reason.contains(limit), "{refusal}");
        assert!(slot.info().is_some() && slot.status().borrow().swaps == 1, "the previous release must keep serving");
    }
}

/// A type section with different functions of a thousand parameters each.
fn wide_types(functions: usize) -> Vec<u8> {
    let mut types = leb(functions);
    for number in 0..functions {
        types.extend([&[0x60][..], &leb(1000)].concat());
        types.extend((0..1000).map(|bit| if bit < 32 && number >> bit & 1 == 1 { 0x7e } else { 0x7f }));
        types.push(0);
    }
    with_module(&[&b"\0asm\x01\0\0\0"[..], &section(1, &types)].concat())
}

#[tokio::test]
async fn a_cancelled_check_blocks_nothing() {
    let slot = serving(Limits { compile_time_ms: 60_000, ..Limits::default() }).await;
    let mut status = slot.status();
    let under_way = async { drop(status.wait_for(|status| status.candidate.is_some()).await.unwrap()) };
    tokio::select! {
        outcome = offer(&slot, nested_components(1_000_000)) => panic!("{outcome:?}"),
        () = under_way => {}
    }
    // The slot accepts new offers, and the child has been killed.
    assert_eq!(offer(&slot, built("dummy")).await, Ok(Offered::AlreadyActive));
}

/// The log messages about the jail while it compiles two components and refuses a third.
async fn logged(command: JailCommand) -> String {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_writer(move || writer.clone()).with_ansi(false).without_time();
    let _logging = tracing::subscriber::set_default(subscriber.with_target(false).finish());
    let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    let compiler = Compiler::jailed(command);
    for (n, provider) in [(0, "dummy"), (1, "simcloud")] {
        let compiled = compiler.compile(&engine, (Bytes::from(built(provider)), [n; 32]), limits(), || {}).await;
        assert!(compiled.unwrap().component.size() > 1000);
    }
    let error = compiler.compile(&engine, (nested_types(5_000).into(), [2; 32]), limits(), || {}).await.err().unwrap();
    assert!(error.to_string().contains("deeper than 8 MiB of stack"), "{error}");
    assert!(!error.to_string().contains("Landlock"), "a missing kernel feature must not be the reason: {error}");
    log.take()
}

#[tokio::test]
async fn the_serving_release_is_loaded_under_new_settings_while_the_jail_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("compile-jail");
    std::os::unix::fs::symlink(binary("compile-jail"), &program).unwrap();
    let services = SlotServices {
        compiler: Compiler::jailed(JailCommand { program: program.clone(), args: Vec::new() }),
        ..services()
    };
    let slot = slot(&services, Limits::default());
    assert_eq!(offer(&slot, built("dummy")).await, Ok(Offered::Activated));
    // More components than the cache holds.
    let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    for n in 0..17 {
        let other = (Bytes::from(marked("dummy", n)), [n; 32]);
        services.compiler.compile(&engine, other, limits(), || {}).await.unwrap();
    }
    fs::remove_file(program).unwrap();
    let options = slot_options(Limits { deadline_ms: 25_000, ..Limits::default() });
    slot.prepare(options, EarlierOffers::Stand).await.unwrap().commit().await;
    assert!(slot.info().is_some(), "{:?}", slot.status().borrow().refused);
    assert_eq!(offer(&slot, marked("dummy", 18)).await.unwrap_err().code, "CompileUnavailable");
}

#[tokio::test]
async fn nothing_is_logged_on_a_kernel_with_all_features() {
    assert_eq!(logged(command()).await, "");
}

#[tokio::test]
async fn a_kernel_without_landlock_is_logged_once() {
    assert_eq!(
        logged(command_on_an_old_kernel("landlock")).await,
        " WARN compile jail: without Landlock (the kernel has none, or the container's seccomp profile refuses it); \
         seccomp still denies the child files, sockets, processes and signals\n"
    );
}

#[tokio::test]
async fn a_kernel_without_landlock_and_seccomp_is_logged_once() {
    assert_eq!(
        logged(command_on_an_old_kernel("both")).await,
        " WARN compile jail: without Landlock (the kernel has none, or the container's seccomp profile refuses it); \
         seccomp (Error calling `seccomp`: Function not implemented (os error 38)); hostile input that takes over the child can do \
         everything that the manager's user may do\n"
    );
}
