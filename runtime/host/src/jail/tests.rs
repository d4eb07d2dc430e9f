//! Tests of the parent with children that misbehave. Tests with the real child and hostile
//! components are in `tests/it`.

use std::{env, ffi::OsString, fs, process::Command, time::Duration};

use bytes::Bytes;
use expect_test::{Expect, expect};

use super::{CompileError, CompileLimits, Compiler, JailCommand, Stop, stand_in};
use crate::{Limits, engine_config};

const LIMITS: CompileLimits =
    CompileLimits { component_bytes: 2 << 20, time: Duration::from_secs(2), memory_bytes: 64 << 20 };

async fn child(script: &str) -> CompileError {
    let args = ["-c", script].map(OsString::from).to_vec();
    compile(JailCommand { program: "/bin/sh".into(), args }).await
}

async fn compile(command: JailCommand) -> CompileError {
    compile_with(&engine(), &Compiler::jailed(command)).await
}

fn engine() -> wasmtime::Engine {
    wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap()
}

async fn compile_with(engine: &wasmtime::Engine, compiler: &Compiler) -> CompileError {
    compile_within(engine, compiler, LIMITS).await
}

async fn compile_within(engine: &wasmtime::Engine, compiler: &Compiler, limits: CompileLimits) -> CompileError {
    let compiled = compiler.compile(engine, (component(), [0; 32]), limits, || {}).await;
    compiled.err().expect("a fake child must compile nothing")
}

/// The first bytes are those of a component; the child checks the rest.
fn component() -> Bytes {
    Bytes::from([b"\0asm\x0d\0\x01\0".as_slice(), &[0; 1 << 20]].concat())
}

#[track_caller]
fn check(error: &CompileError, of_the_component: bool, expected: Expect) {
    expected.assert_eq(&error.to_string());
    assert_eq!(error.is_of_the_component(), of_the_component);
}

#[tokio::test]
async fn a_child_that_the_kernel_ends_for_its_cpu_time_exceeded_that_limit() {
    let error = child("kill -XCPU $$").await;
    check(
        &error,
        true,
        expect![
            "checking and compiling the component exceeded its limit of CPU time in milliseconds (compileTimeMs: 2000 of 2000); build a smaller component, or raise compileTimeMs"
        ],
    );
}

#[tokio::test]
async fn a_child_that_cannot_allocate_exceeded_its_memory_limit() {
    let error = child("echo 'memory allocation of 12345 bytes failed' >&2; kill -ABRT $$").await;
    check(
        &error,
        true,
        expect![
            "checking and compiling the component exceeded its limit of memory in bytes (compileMemoryBytes: 67108864 of 67108864); build a smaller component, or raise compileMemoryBytes"
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_child_that_neither_answers_nor_ends_is_killed_at_its_wall_time() {
    let error = child("exec sleep 3600").await;
    check(
        &error,
        false,
        expect![
            "checking and compiling the component exceeded its limit of wall time in milliseconds (compileTimeMs: 30000 of 30000); build a smaller component, or raise compileTimeMs"
        ],
    );
}

#[tokio::test]
async fn a_child_that_crashes_or_answers_nonsense_is_an_error_and_no_machine_code() {
    let error = child("echo 'thread main panicked' >&2; exit 101").await;
    check(
        &error,
        true,
        expect![
            "the compile jail crashed while it checked or compiled the component (exit status: 101): thread main panicked; build it with a current toolchain"
        ],
    );
    let error = child("exec cat").await;
    assert!(matches!(error, CompileError::Crashed { .. }), "{error}");
    let error = child("cat >/dev/null; yes 'noise' | head -c 1000000 >&2; exit 3").await;
    assert!(error.to_string().len() < 1000, "the message of a child must be bounded");
}

#[tokio::test]
async fn a_child_that_the_system_kills_is_not_the_fault_of_the_component() {
    let error = child("kill -KILL $$").await;
    assert!(matches!(error, CompileError::Jail { .. }) && !error.is_of_the_component(), "{error}");
}

/// The hard limit on CPU time ends a process with SIGKILL, which the kernel also sends when memory
/// is short.
#[tokio::test(start_paused = true)]
async fn a_child_that_is_killed_after_its_cpu_time_exceeded_that_limit() {
    // The paused clock stands while a blocking task runs: on a busy machine the child may need
    // longer for its CPU time than its limit of wall time.
    let (_ends, waits) = std::sync::mpsc::channel::<()>();
    let _blocking = tokio::task::spawn_blocking(move || waits.recv());
    let script = "trap '' XCPU; ulimit -t 1; while :; do :; done";
    let limits = CompileLimits { time: Duration::from_millis(500), ..LIMITS };
    let compiler =
        Compiler::jailed(JailCommand { program: "/bin/sh".into(), args: ["-c", script].map(OsString::from).to_vec() });
    let error = compile_within(&engine(), &compiler, limits).await;
    assert!(
        matches!(error, CompileError::Limit { stop: Stop::Cpu, hit } if hit.used > 500 && hit.max == 500),
        "{error}"
    );
    assert!(error.is_of_the_component());
}

#[tokio::test]
async fn a_missing_jail_is_a_fault_of_the_machine() {
    let error = compile(JailCommand { program: "/nonexistent/skysail".into(), args: Vec::new() }).await;
    check(
        &error,
        false,
        expect![
            "the compile jail /nonexistent/skysail could not be run; check that the executable exists and is executable"
        ],
    );
}

#[tokio::test]
async fn a_child_does_not_inherit_the_environment() {
    // The shell may set `PATH` itself; variables of this process must be absent.
    let error = child("/usr/bin/env | /bin/grep -c CARGO >&2; exit 1").await;
    check(
        &error,
        true,
        expect![
            "the compile jail crashed while it checked or compiled the component (exit status: 1): 0; build it with a current toolchain"
        ],
    );
}

#[tokio::test]
async fn missing_kernel_features_are_no_part_of_the_reason_of_a_crash() {
    let error =
        child("echo 'compile jail: without Landlock (x); y' >&2; echo 'thread main panicked' >&2; exit 101").await;
    check(
        &error,
        true,
        expect![
            "the compile jail crashed while it checked or compiled the component (exit status: 101): thread main panicked; build it with a current toolchain"
        ],
    );
}

/// In the environment of the process that takes machine code.
const TAKES_CODE: &str = "SKYSAIL_TEST_TAKES_CODE";
const CODE_BYTES: u64 = 40 << 20;

/// Regression: a copy was made for the folder, also of machine code that the folder has no place
/// for. The memory is measured in a process of its own, in which no other test runs.
#[test]
fn machine_code_is_in_memory_once_when_it_is_stored_and_when_it_is_too_large_for_the_folder() {
    if let Some(bytes_max) = env::var_os(TAKES_CODE) {
        let bytes_max = bytes_max.into_string().unwrap().parse().unwrap();
        return tokio::runtime::Runtime::new().unwrap().block_on(take_code(bytes_max));
    }
    let name = "jail::tests::machine_code_is_in_memory_once_when_it_is_stored_and_when_it_is_too_large_for_the_folder";
    for bytes_max in [CODE_BYTES / 2, CODE_BYTES * 2] {
        let mut process = Command::new(env::current_exe().unwrap());
        let output = process.args(["--exact", name]).env(TAKES_CODE, bytes_max.to_string()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "a folder of {bytes_max} bytes: {said}");
    }
}

async fn take_code(bytes_max: u64) {
    let (folder, kept) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let engine = engine();
    let compiler = stand_in::saying_code_of(folder.path(), &engine, CODE_BYTES);
    let compiler = compiler.keeping(kept.path().to_owned(), bytes_max, &[7; 32]).unwrap();
    let limits = CompileLimits { time: Duration::from_mins(1), ..LIMITS };
    let before = peak_memory();
    let compiled = compiler.compile(&engine, (component(), [0; 32]), limits, || {}).await.ok().unwrap();
    let added = peak_memory() - before;
    assert_eq!(compiled.component.size() as u64, CODE_BYTES);
    assert_eq!(fs::read_dir(kept.path()).unwrap().count(), usize::from(bytes_max > CODE_BYTES));
    assert!(added < CODE_BYTES * 3 / 2, "{added} bytes of memory for {CODE_BYTES} bytes of machine code");
}

/// The most memory that this process had at once, in bytes.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    peak.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}
