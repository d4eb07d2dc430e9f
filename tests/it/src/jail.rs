//! The compile jail with its real child: good components come back as machine code, hostile ones are contained.

use std::{fmt::Write as _, time::Duration};

use bytes::Bytes;
use skysail_host::{
    Limits, engine_config,
    jail::{CompileError, CompileLimits, Compiled, Compiler, JailCommand, Stop},
};
use skysail_provider::Limit;

use crate::components::built;

/// The child's executable: Cargo builds this package's binaries before its tests, and puts them two folders above.
pub(crate) fn command() -> JailCommand {
    let test = std::env::current_exe().unwrap();
    let program = test.parent().and_then(std::path::Path::parent).unwrap().join("compile-jail");
    assert!(program.exists(), "{} is missing: cargo test -p skysail-test-it builds it", program.display());
    JailCommand { program, args: Vec::new() }
}

async fn compile(component: Vec<u8>, limits: CompileLimits) -> Result<Compiled, CompileError> {
    let engine = wasmtime::Engine::new(&engine_config(Limits::default().stack_bytes)).unwrap();
    Compiler::jailed(command()).compile(&engine, [0; 32], Bytes::from(component), limits).await
}

#[tokio::test]
async fn a_provider_compiles_in_the_jail_and_says_what_it_cost() {
    let compiled = compile(built("dummy"), CompileLimits::from(&Limits::default())).await.unwrap();
    let cost = compiled.cost.unwrap();
    assert!(!compiled.cached && compiled.component.size() > 1000);
    assert!(cost.cpu > Duration::ZERO && cost.memory_bytes > 0, "{cost:?}");
    assert!(cost.memory_bytes < Limits::default().compile_memory_bytes, "{cost:?}");
}

#[tokio::test]
async fn what_the_compiler_refuses_comes_back_as_its_reason() {
    let mut component = built("dummy");
    component.truncate(component.len() / 2);
    let error = compile(component, CompileLimits::from(&Limits::default())).await.err().unwrap();
    assert!(matches!(&error, CompileError::Refused { reason } if !reason.is_empty()), "{error}");
}

/// A component with one function of so many jump tables that each lead to as many places: each edge is work for the compiler, and there
/// are as many edges as the component has bytes.
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
    let text = format!("(component (core module (func (export \"f\") (param i32) {locals} {body})))");
    wat::parse_str(text).unwrap()
}

#[tokio::test]
async fn a_component_that_compiles_for_ever_is_stopped_by_its_cpu_time_and_the_reason_names_the_limit() {
    let hostile = slow_to_compile(350);
    assert!(hostile.len() < 200 << 10, "{} bytes are enough", hostile.len());
    let limits = CompileLimits { time: Duration::from_millis(300), memory_bytes: 4 << 30 };
    let error = compile(hostile, limits).await.err().expect("the compiler must not come to an end");
    let CompileError::Limit { hit, stop: Stop::Cpu } = &error else { panic!("{error}") };
    assert_eq!((hit.limit, hit.max), (Limit::CompileTime, 300));
    assert!(hit.used >= 300 && hit.used < 3000, "{hit}");
    assert!(error.to_string().contains("compileTimeMs"), "{error}");
}

/// A component that is little more than one data segment of so many bytes.
fn large(bytes: usize) -> Vec<u8> {
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
    let memory = section(5, &[&[1, 0][..], &leb(bytes / (64 << 10) + 1)].concat());
    let data = section(11, &[&[1, 0, 0x41, 0, 0x0b][..], &leb(bytes), &vec![7; bytes]].concat());
    let module = [b"\0asm\x01\0\0\0", memory.as_slice(), data.as_slice()].concat();
    [b"\0asm\x0d\0\x01\0", section(1, &module).as_slice()].concat()
}

#[tokio::test]
async fn a_component_that_needs_more_memory_than_allowed_is_stopped_and_the_reason_names_the_limit() {
    let limits = CompileLimits { time: Duration::from_secs(60), memory_bytes: 64 << 20 };
    compile(large(1 << 20), limits).await.expect("a small one fits");
    let error = compile(large(48 << 20), limits).await.err().expect("a large one does not");
    let CompileError::Limit { hit, stop: Stop::Memory } = &error else { panic!("{error}") };
    assert_eq!((hit.limit, hit.max), (Limit::CompileMemory, 64 << 20));
    assert!(error.to_string().contains("compileMemoryBytes"), "{error}");
}
