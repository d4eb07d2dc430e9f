//! The child's side of the jail. Runs alone in its process; hostile input comes in; findings, and
//! machine code or a reason go out.

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

/// Exit code where no request was understood: a person who started this by hand learns why on
/// standard error.
const NOT_ASKED: u8 = 2;
/// Open files: the three pipes, what the process reads about itself, and Landlock's rules while
/// they are made.
const FILES_MAX: u64 = 8;
/// Address space beyond what may be written, in bytes: an allocator reserves some for each thread,
/// and takes what it needs of it.
const RESERVED_MAX: u64 = 1 << 30;
/// Seconds between the soft and the hard limit on CPU time: several threads must not reach the
/// second before the kernel has acted on the first.
const HARD_EXTRA_SECONDS: u64 = 5;
/// How often the CPU time is compared with its budget, the memory looked at, and the parent looked
/// for.
const WATCH_PERIOD: Duration = Duration::from_millis(10);

/// What the hidden subcommand of the executable does, and all that it may do: call this before
/// anything else has started a thread or opened a file, and exit with the result.
///
/// Reads one request from standard input, judges and compiles under the limits that it names,
/// writes its answers to standard output.
#[must_use]
pub fn child_main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody else reads this pipe; where it is closed there is nobody to tell.
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
        // The parent has this pipe; where it is gone the watch ends this process.
        drop(writeln!(io::stderr(), "{}{}", walls::WITHOUT, missing.join("; ")));
    }
    watch(limits.time, parent, Arc::clone(&used))?;
    threads::on_a_stack_of_its_own(&used.apart, || work(&request, &used, threads))
}

fn work(request: &Request, used: &Used, threads: usize) -> io::Result<()> {
    let Request { task, length, .. } = *request;
    let mut stdin = io::stdin().lock();
    let Some(component) = receive(&mut stdin, length)? else {
        return answer(Kind::Memory, 0, used, &[]);
    };
    let findings = admission::examine(&component).bounded();
    let admitted = findings.refusals.is_empty();
    answer(Kind::Findings, 0, used, &serde_json::to_vec(&findings)?)?;
    match task {
        Task::Compile if admitted => compile(&component, used, threads),
        Task::Compile | Task::Examine => Ok(()),
    }
}

/// So many bytes; none where there is no memory for them.
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
        // One thread alone needs memory and nothing else.
        return answer(Kind::Memory, compatibility, used, &[]);
    };
    used.apart.fetch_add(stacks, Ordering::Relaxed);
    match pool.install(|| engine.precompile_component(component)) {
        Ok(code) => answer(Kind::Code, compatibility, used, &code),
        Err(error) if is_out_of_memory(&error) => answer(Kind::Memory, compatibility, used, &[]),
        Err(error) => answer(Kind::Refused, compatibility, used, one_line(&format!("{error:#}")).as_bytes()),
    }
}

/// Takes away everything that compiling does not need. What the kernel could not take away comes
/// back, for people. `apart` is memory that is no part of what the component may use.
fn confine(limits: CompileLimits, used: &Used, apart: u64) -> io::Result<Vec<String>> {
    let limits_of = |resource, soft: u64, hard: u64| {
        // A limit that is lower already cannot be raised, and need not be.
        let hard = getrlimit(resource).maximum.map_or(hard, |lower| lower.min(hard));
        setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
    };
    let limit = |resource, max| limits_of(resource, max, max);
    // The watch below is exact and ends the process first. On a busy machine the watch may not run
    // in time: then the kernel ends the process with SIGXCPU, which tells the reason. The hard
    // limit holds where that signal is ignored.
    let seconds = limits.time.as_secs().saturating_add(1);
    limits_of(Resource::Cpu, seconds, seconds.saturating_add(HARD_EXTRA_SECONDS))?;
    let memory = limits.memory_bytes.saturating_add(apart);
    limit(Resource::Data, used.base.saturating_add(memory))?;
    // The main thread's stack is not counted against the limit.
    limit(Resource::Stack, STACK_BYTES as u64)?;
    // What is shared counts here only: nothing in the compiler asks for it, and who breaks out of
    // it is held as well.
    limit(Resource::As, used.read(ADDRESS_SPACE)?.saturating_add(memory).saturating_add(RESERVED_MAX))?;
    limit(Resource::Core, 0)?;
    limit(Resource::Fsize, 0)?;
    limit(Resource::Nofile, FILES_MAX)?;
    set_no_new_privs(true)?;
    // Last: nothing of the above is possible behind them.
    Ok(walls::put_up())
}

/// Ends the process with an answer when its CPU time is used up: the kernel's own limit counts
/// whole seconds. And without one when its parent is gone: a manager that was killed needs no
/// machine code.
///
/// Where the compiler is done at that very moment its answer is whole: both hold the lock of
/// standard output while they write, and the parent reads what comes first.
fn watch(budget: Duration, parent: Option<Pid>, used: Arc<Used>) -> io::Result<()> {
    /// Enough for a loop that reads a clock and a file, and an answer without a body: it counts as
    /// memory of the component.
    const STACK: usize = 256 << 10;
    let watch = move || {
        while clock(ClockId::ProcessCPUTime) < budget {
            // The system gives an orphan another parent.
            if getppid() != parent {
                std::process::exit(1);
            }
            // It was there when the walls went up; where it cannot be read once, it is at the end.
            drop(used.memory());
            thread::park_timeout(WATCH_PERIOD);
        }
        // Where the parent is gone nobody needs the answer.
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

/// What `RLIMIT_DATA` counts: what this process alone may write, its first stack aside, whether it
/// has or not.
const MEMORY: &str = "VmData:";
/// What `RLIMIT_AS` counts.
const ADDRESS_SPACE: &str = "VmSize:";

/// What the component has used, as far as this process knows.
struct Used {
    /// `/proc/self/status`, held open: behind the walls there is no opening it. Each reading from
    /// its start is a new one.
    status: File,
    /// Memory that there was before the component came, in bytes.
    base: u64,
    /// The most that was seen of both, in bytes.
    peak: AtomicU64,
    /// What the stacks of its threads have, in bytes.
    apart: AtomicU64,
}

impl Used {
    fn now() -> io::Result<Self> {
        let status = File::open("/proc/self/status")?;
        let mut used = Self { status, base: 0, peak: AtomicU64::new(0), apart: AtomicU64::new(0) };
        used.base = used.read(MEMORY)?;
        Ok(used)
    }

    /// Memory that the component added, in bytes: the most that was seen whenever this was asked.
    fn memory(&self) -> io::Result<u64> {
        let now = self.read(MEMORY)?;
        let peak = self.peak.fetch_max(now, Ordering::Relaxed).max(now);
        Ok(peak.saturating_sub(self.base).saturating_sub(self.apart.load(Ordering::Relaxed)))
    }

    /// One of the sizes, in bytes.
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
