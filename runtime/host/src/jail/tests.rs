//! The parent against children that misbehave. The real child, and hostile components, are in
//! `tests/it`.

use std::{ffi::OsString, time::Duration};

use bytes::Bytes;
use expect_test::{Expect, expect};

use super::{CompileError, CompileLimits, Compiler, JailCommand, Stop};
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
    // By its first bytes it is a component: the rest is for the child to judge.
    let component = Bytes::from([b"\0asm\x0d\0\x01\0".as_slice(), &[0; 1 << 20]].concat());
    let compiled = compiler.compile(engine, (component, [0; 32]), limits, || {}).await;
    compiled.err().expect("such a child compiles nothing")
}

#[track_caller]
fn check(error: &CompileError, of_the_component: bool, expected: Expect) {
    expected.assert_eq(&error.to_string());
    assert_eq!(error.is_of_the_component(), of_the_component);
}

#[tokio::test]
async fn a_child_that_the_kernel_ends_for_its_cpu_time_met_that_limit() {
    let error = child("kill -XCPU $$").await;
    check(
        &error,
        true,
        expect![
            "judging and compiling it was stopped by its CPU time in milliseconds (compileTimeMs: 2000 of 2000): build a smaller component, or raise compileTimeMs"
        ],
    );
}

#[tokio::test]
async fn a_child_that_cannot_allocate_met_its_memory_limit() {
    let error = child("echo 'memory allocation of 12345 bytes failed' >&2; kill -ABRT $$").await;
    check(
        &error,
        true,
        expect![
            "judging and compiling it was stopped by its memory in bytes (compileMemoryBytes: 67108864 of 67108864): build a smaller component, or raise compileMemoryBytes"
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
            "judging and compiling it was stopped by its wall time in milliseconds (compileTimeMs: 16000 of 16000): build a smaller component, or raise compileTimeMs"
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
            "the compile jail crashed over it (exit status: 101): thread main panicked: build it with a current toolchain"
        ],
    );
    let error = child("exec cat").await;
    assert!(matches!(error, CompileError::Crashed { .. }), "{error}");
    let error = child("cat >/dev/null; yes 'noise' | head -c 1000000 >&2; exit 3").await;
    assert!(error.to_string().len() < 1000, "what a child says is bounded");
}

#[tokio::test]
async fn a_child_that_the_system_kills_is_no_fault_of_the_component() {
    let error = child("kill -KILL $$").await;
    assert!(matches!(error, CompileError::Jail { .. }) && !error.is_of_the_component(), "{error}");
}

/// The hard limit on CPU time ends a process with the signal that the kernel also sends when memory
/// is short.
#[tokio::test]
async fn a_child_that_is_killed_after_its_cpu_time_met_that_limit() {
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
async fn a_jail_that_is_not_there_is_the_machines_fault() {
    let error = compile(JailCommand { program: "/nonexistent/skysail".into(), args: Vec::new() }).await;
    check(
        &error,
        false,
        expect![
            "the compile jail /nonexistent/skysail could not be run: is the executable still there, and may it be executed?"
        ],
    );
}

#[tokio::test]
async fn the_environment_is_not_the_childs() {
    // `PATH` of the shell's own making may be there; what this process has is not.
    let error = child("/usr/bin/env | /bin/grep -c CARGO >&2; exit 1").await;
    check(
        &error,
        true,
        expect!["the compile jail crashed over it (exit status: 1): 0: build it with a current toolchain"],
    );
}

#[tokio::test]
async fn what_a_childs_kernel_does_not_keep_it_from_is_no_part_of_why_it_crashed() {
    let error =
        child("echo 'compile jail: without Landlock (x); y' >&2; echo 'thread main panicked' >&2; exit 101").await;
    check(
        &error,
        true,
        expect![
            "the compile jail crashed over it (exit status: 101): thread main panicked: build it with a current toolchain"
        ],
    );
}
