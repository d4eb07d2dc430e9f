//! The child's side of the jail: reads hostile input in a separate process, and answers with
//! an examination and with machine code or a reason.

#[cfg(test)]
mod tests;

use std::{
    fs::File,
    io::{self, Read, Write as _},
    os::unix::fs::FileExt as _,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    thread,
    time::Duration,
};

use rustix::{
    process::{Pid, Resource, Rlimit, getppid, getrlimit, setrlimit},
    thread::set_no_new_privs,
    time::ClockId,
};
use wasmtime::Engine;

use super::{
    CompileCost, CompileLimits, STACK_BYTES, compatibility,
    frame::{AnswerHead, Kind, Request, Task},
    one_line, walls,
};
use crate::{Limits, admission, cpu_time::clock, engine_config};

mod threads;

/// Exit code if standard input contains no valid request, for example because a person started the
/// subcommand.
const NOT_ASKED: u8 = 2;
/// The maximum number of open files: the three pipes, `/proc/self/status`, and Landlock's ruleset
/// while it is created.
const FILES_MAX: u64 = 8;
/// Address space in addition to writable memory, in bytes: an allocator reserves some for each
/// thread.
const RESERVED_MAX: u64 = 1 << 30;
/// Seconds between the soft and the hard limit on CPU time: with several threads, the kernel must
/// act on the soft limit before the hard limit is reached.
const HARD_EXTRA_SECONDS: u64 = 5;
/// Period in which the watch thread checks the CPU time, the memory and the parent.
const WATCH_PERIOD: Duration = Duration::from_millis(10);

/// Runs the hidden subcommand of the executable. Call this function before the process starts a
/// thread or opens a file, and exit with its result.
///
/// Reads one request from standard input, checks and compiles the component under the limits of the
/// request, and writes its answers to standard output.
#[must_use]
pub fn child_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // If the pipe is closed, no process can read the message.
            drop(writeln!(io::stderr(), "compile jail: {error}"));
            ExitCode::from(NOT_ASKED)
        }
    }
}

fn run() -> io::Result<()> {
    let parent = getppid();
    let request = Request::read(&mut io::stdin().lock())?;
    let limits = request.limits;
    let used = Arc::new(Used::now()?);
    let threads = threads::count();
    let apart = threads::stacks(threads + 1);
    let missing = confine(limits, &used, apart)?;
    if !missing.is_empty() {
        // If the parent has closed the pipe, it is gone, and the watch ends this process.
        drop(writeln!(io::stderr(), "{}{}", walls::WITHOUT, missing.join("; ")));
    }
    watch(limits.time, parent, Arc::clone(&used))?;
    threads::on_a_stack_of_its_own(&used.apart, || work(&request, &used, threads))
}

fn work(request: &Request, used: &Used, threads: usize) -> io::Result<()> {
    let Request { task, limits: CompileLimits { component_bytes, .. } } = *request;
    let mut stdin = io::stdin().lock();
    let Some(component) = receive(&mut stdin, component_bytes)? else {
        return answer(Kind::Memory, 0, used, &[]);
    };
    let examination = admission::examine(&component).bounded();
    let admitted = examination.refusals.is_empty();
    answer(Kind::Examination, 0, used, &serde_json::to_vec(&examination)?)?;
    match task {
        Task::Compile if admitted => compile(&component, used, threads),
        Task::Compile | Task::Examine => Ok(()),
    }
}

/// Reads `length` bytes; none if there is not enough memory.
fn receive(stdin: &mut impl Read, length: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    if bytes.try_reserve_exact(usize::try_from(length).map_err(io::Error::other)?).is_err() {
        return Ok(None);
    }
    stdin.take(length).read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

fn compile(component: &[u8], used: &Used, threads: usize) -> io::Result<()> {
    let engine = Engine::new(&engine_config(Limits::default().stack_bytes)).map_err(io::Error::other)?;
    let compatibility = compatibility(&engine);
    let Ok((pool, stacks)) = threads::start(threads) else {
        // A pool of one thread can fail only for lack of memory.
        return answer(Kind::Memory, compatibility, used, &[]);
    };
    used.apart.fetch_add(stacks, Ordering::Relaxed);
    match pool.install(|| engine.precompile_component(component)) {
        Ok(code) => answer(Kind::Code, compatibility, used, &code),
        Err(error) if is_out_of_memory(&error) => answer(Kind::Memory, compatibility, used, &[]),
        Err(error) => answer(Kind::Refused, compatibility, used, one_line(&format!("{error:#}")).as_bytes()),
    }
}

/// Confines the process to what compiling needs. Returns the missing kernel features, for people.
/// `apart` is memory that does not count against the component's limit.
fn confine(limits: CompileLimits, used: &Used, apart: u64) -> io::Result<Vec<String>> {
    let limits_of = |resource, soft: u64, hard: u64| {
        // An existing lower limit cannot be raised, and need not be.
        let hard = getrlimit(resource).maximum.map_or(hard, |lower| lower.min(hard));
        setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
    };
    let limit = |resource, max| limits_of(resource, max, max);
    // The watch thread is exact and normally ends the process first. If it does not run in time on
    // a busy machine, the kernel ends the process with SIGXCPU, which names the reason. The hard
    // limit applies if that signal is ignored.
    let seconds = limits.time.as_secs().saturating_add(1);
    limits_of(Resource::Cpu, seconds, seconds.saturating_add(HARD_EXTRA_SECONDS))?;
    let memory = limits.memory_bytes.saturating_add(apart);
    limit(Resource::Data, used.base.saturating_add(memory))?;
    // The main thread's stack is not counted against the limit.
    limit(Resource::Stack, STACK_BYTES as u64)?;
    // Only this limit counts shared memory: the compiler does not use it, but an exploit of the
    // compiler could.
    limit(Resource::As, used.read(ADDRESS_SPACE)?.saturating_add(memory).saturating_add(RESERVED_MAX))?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nofile, FILES_MAX)?;
    set_no_new_privs(true)?;
    // `walls::apply` must be last: its filter forbids the calls above.
    Ok(walls::apply())
}

/// Starts the watch thread. It ends the process with an answer when the CPU time is used up,
/// because the kernel's own limit counts whole seconds, and without an answer when the parent is
/// gone.
///
/// If the compiler finishes at that moment, its answer is still complete: both hold the lock of
/// standard output while they write, and the parent reads the first answer.
fn watch(budget: Duration, parent: Option<Pid>, used: Arc<Used>) -> io::Result<()> {
    /// Stack of the watch thread, which only reads a clock and a file and writes an answer without
    /// a body; it counts as memory of the component.
    const STACK: usize = 256 << 10;
    let watch = move || {
        while clock(ClockId::ProcessCPUTime) < budget {
            // The kernel reparents an orphan.
            if getppid() != parent {
                std::process::exit(1);
            }
            // A failed sample is ignored; the memory is read again at the end.
            drop(used.memory());
            thread::park_timeout(WATCH_PERIOD);
        }
        // If the parent is gone, no process needs the answer.
        drop(answer(Kind::Cpu, 0, &used, &[]));
        std::process::exit(0);
    };
    thread::Builder::new().stack_size(STACK).spawn(watch).map(drop)
}

fn answer(kind: Kind, compatibility: u64, used: &Used, body: &[u8]) -> io::Result<()> {
    let memory_bytes = used.memory().unwrap_or_default();
    let head = AnswerHead {
        kind,
        compatibility,
        cost: CompileCost { cpu: clock(ClockId::ProcessCPUTime), memory_bytes },
        length: body.len() as u64,
    };
    head.write(&mut io::stdout().lock(), body)
}

/// The memory that `RLIMIT_DATA` counts: private writable memory without the main thread's stack,
/// whether it is used or not.
const MEMORY: &str = "VmData:";
/// The memory that `RLIMIT_AS` counts.
const ADDRESS_SPACE: &str = "VmSize:";

/// Measures the memory that the component uses.
struct Used {
    /// `/proc/self/status`, kept open, because the confined process cannot open files. Each read
    /// from its start returns current values.
    status: File,
    /// Memory before the component was read, in bytes.
    base: u64,
    /// Peak memory including `base`, in bytes.
    peak: AtomicU64,
    /// Memory of the threads' stacks, which does not count, in bytes.
    apart: AtomicU64,
}

impl Used {
    fn now() -> io::Result<Self> {
        let status = File::open("/proc/self/status")?;
        let mut used = Self { status, base: 0, peak: AtomicU64::new(0), apart: AtomicU64::new(0) };
        used.base = used.read(MEMORY)?;
        Ok(used)
    }

    /// Peak memory of the component over all calls of this function, in bytes.
    fn memory(&self) -> io::Result<u64> {
        let now = self.read(MEMORY)?;
        let peak = self.peak.fetch_max(now, Ordering::Relaxed).max(now);
        Ok(peak.saturating_sub(self.base).saturating_sub(self.apart.load(Ordering::Relaxed)))
    }

    /// Reads one of the sizes, in bytes.
    fn read(&self, field: &str) -> io::Result<u64> {
        let mut status = Vec::new();
        let mut part = [0; 4096];
        loop {
            let read = self.status.read_at(&mut part, status.len() as u64)?;
            match part.get(..read) {
                None | Some([]) => break,
                Some(part) => status.extend_from_slice(part),
            }
        }
        let status = String::from_utf8_lossy(&status);
        let kib =
            status.lines().find_map(|line| line.strip_prefix(field)?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.map(|kib| kib << 10).ok_or_else(|| io::Error::other(format!("/proc/self/status has no {field}")))
    }
}

fn is_out_of_memory(error: &wasmtime::Error) -> bool {
    let refused_by_kernel = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::OutOfMemory)
    };
    error.is::<wasmtime::OutOfMemory>() || error.chain().any(refused_by_kernel)
}
