//! The parent's side of the jail: starts the child, sends the request, waits with a timeout, and
//! explains failures.

use std::{
    fs, io,
    os::{fd::AsFd as _, unix::process::ExitStatusExt as _},
    process::{ExitStatus, Stdio},
    sync::Once,
    time::Duration,
};

use bytes::Bytes;
use rustix::{
    pipe::fcntl_setpipe_size,
    process::{Pid, Signal, WaitId, WaitIdOptions, waitid},
};
use skysail_provider::Limit;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
    time,
};

use super::{
    CompileCost, CompileError, CompileLimits, JailCommand, Stop,
    frame::{AnswerHead, HEAD, Kind, Request, Task},
    one_line, walls,
};
use crate::admission::Examination;

/// Bytes of the child's standard error that are kept; the rest is read and dropped.
const SAID_BYTES_MAX: u64 = 4096;

/// Capacity of a pipe to or from a child: the most that Linux allows an unprivileged process.
const PIPE_BYTES: usize = 1 << 20;

/// The message of Rust's runtime when an allocation fails, before it aborts.
const ALLOCATION_FAILED: &str = "memory allocation of ";
/// The message of Rust's runtime when a thread overflows its stack.
const STACK_OVERFLOWED: &str = "has overflowed its stack";

/// The command that starts children, and whether missing kernel features were logged.
pub(super) struct Jail {
    pub(super) command: JailCommand,
    /// Logs missing kernel features only once: each child reports the same.
    said: Once,
}

impl Jail {
    pub(super) const fn new(command: JailCommand) -> Self {
        Self { command, said: Once::new() }
    }

    /// Logs the first line of a child's standard error if it reports missing kernel features, and
    /// returns the rest.
    fn log_missing_features(&self, said: String) -> String {
        let Some(rest) = said.strip_prefix(walls::WITHOUT) else { return said };
        let (missing, rest) = rest.split_once('\n').unwrap_or((rest, ""));
        self.said.call_once(|| tracing::warn!("{}{}", walls::WITHOUT, one_line(missing)));
        rest.to_owned()
    }
}

/// Machine code, the hash of compatible engines, and the cost.
pub(super) struct Output {
    pub(super) code: Vec<u8>,
    pub(super) compatibility: u64,
    pub(super) cost: CompileCost,
}

/// Checks `component` in a child process.
pub(super) async fn examine(jail: &Jail, component: Bytes, limits: CompileLimits) -> Result<Examination, CompileError> {
    let input = Input { task: Task::Examine, component };
    let ended = run(jail, input, limits, || {}).await?;
    match ended.answer {
        Ok(ChildAnswer::Examination(examination)) if ended.status.success() => Ok(examination),
        _ => Err(failure(ended, limits)),
    }
}

/// Checks and compiles `component` in a child process; `admitted` is called between the two steps.
pub(super) async fn compile(
    jail: &Jail,
    component: Bytes,
    limits: CompileLimits,
    admitted: impl FnOnce() + Send,
) -> Result<Output, CompileError> {
    let input = Input { task: Task::Compile, component };
    let ended = run(jail, input, limits, admitted).await?;
    match ended.answer {
        Ok(ChildAnswer::Code(output)) if ended.status.success() => Ok(output),
        Ok(ChildAnswer::Examination(Examination { refusals, .. })) => Err(CompileError::NotAdmitted { refusals }),
        _ => Err(failure(ended, limits)),
    }
}

/// The request to a child.
struct Input {
    task: Task,
    component: Bytes,
}

/// Starts a child and waits until it has ended.
async fn run(
    jail: &Jail,
    input: Input,
    limits: CompileLimits,
    admitted: impl FnOnce() + Send,
) -> Result<Ended, CompileError> {
    let command = &jail.command;
    let failed = |source| CompileError::Jail { program: command.program.clone(), source };
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(failed)?;
    let mut ended = match time::timeout(limits.wall(), talk(&mut child, limits, &input, admitted)).await {
        Ok(ended) => ended.map_err(failed)?,
        Err(time::error::Elapsed { .. }) => {
            child.kill().await.map_err(failed)?;
            let wall = millis(limits.wall());
            return Err(CompileError::limit(Stop::Wall, Limit::CompileTime, wall, wall));
        }
    };
    if ended.status.signal() == Some(Signal::KILL.as_raw()) && ended.cpu < limits.time {
        let source = io::Error::other(
            "another process or the kernel killed it, probably because the machine is short of memory",
        );
        return Err(failed(source));
    }
    ended.said = jail.log_missing_features(ended.said);
    Ok(ended)
}

/// The result of a child that has ended.
struct Ended {
    status: ExitStatus,
    /// CPU time of all its threads, measured by the kernel.
    cpu: Duration,
    /// The child's answer, or why there is none: a killed child writes a part of it or nothing.
    answer: Result<ChildAnswer, Unanswered>,
    said: String,
}

/// The answer of a child that succeeded.
enum ChildAnswer {
    /// If only an examination was requested, or the examination refuses the component.
    Examination(Examination),
    Code(Output),
}

/// Why a child did not succeed.
enum Unanswered {
    /// The child reported a reason.
    Ended(AnswerHead, Vec<u8>),
    /// The answer is incomplete, invalid or absent.
    Unreadable,
}

async fn talk(
    child: &mut Child,
    limits: CompileLimits,
    input: &Input,
    admitted: impl FnOnce() + Send,
) -> io::Result<Ended> {
    let piped = || io::Error::other("a pipe to the child is missing");
    let stdin = child.stdin.take().ok_or_else(piped)?;
    let stdout = child.stdout.take().ok_or_else(piped)?;
    let stderr = child.stderr.take().ok_or_else(piped)?;
    // Megabytes go through: with the default capacity parent and child would wait for each other at
    // every 64 KiB. If the system refuses the larger capacity, the exchange is only slower.
    for pipe in [stdin.as_fd(), stdout.as_fd()] {
        let _refused_or_not = fcntl_setpipe_size(pipe, PIPE_BYTES);
    }
    let answer = read_answers(stdout, input.task, admitted);
    let (_fed, answer, said) = tokio::join!(feed(stdin, limits, input), answer, read_said(stderr));
    // Without the CPU time of the kernel a SIGKILL counts as a failure of the machine.
    let cpu = cpu_time_at_the_end(child).await.unwrap_or_default();
    Ok(Ended { status: child.wait().await?, cpu, answer, said: said? })
}

/// Waits until a child has ended, and reads the CPU time of all its threads. The child is not
/// reaped yet, so its process ID cannot be another process's.
async fn cpu_time_at_the_end(child: &Child) -> Option<Duration> {
    /// Milliseconds of one unit of `/proc`: `USER_HZ` is 100 on each architecture that Rust has a
    /// Linux target for.
    const TICK_MS: u64 = 10;
    let pid = Pid::from_raw(i32::try_from(child.id()?).ok()?)?;
    // Ends with the child, which is killed where this future is dropped.
    let ended = move || waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT).map(drop);
    tokio::task::spawn_blocking(ended).await.ok()?.ok()?;
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())).ok()?;
    // A program's name may contain blanks and parentheses. User and system time are fields 14 and
    // 15, 12 and 13 after the name.
    let (_, fields) = stat.rsplit_once(") ")?;
    let ticks = fields.split(' ').skip(11).take(2).map(str::parse::<u64>).sum::<Result<u64, _>>().ok()?;
    Some(Duration::from_millis(ticks * TICK_MS))
}

/// Sends the request. The caller ignores errors: if a child ends early, its answer or its exit
/// status names the reason.
async fn feed(mut stdin: ChildStdin, limits: CompileLimits, input: &Input) -> io::Result<()> {
    let Input { task, component } = input;
    let limits = CompileLimits { component_bytes: component.len() as u64, ..limits };
    stdin.write_all(&Request { task: *task, limits }.encode()?).await?;
    stdin.write_all(component).await?;
    stdin.shutdown().await
}

/// Reads the child's answers and returns the last.
async fn read_answers(
    mut stdout: impl AsyncRead + Unpin,
    task: Task,
    admitted: impl FnOnce(),
) -> Result<ChildAnswer, Unanswered> {
    let (head, body) = read_answer(&mut stdout).await?;
    if head.kind != Kind::Examination {
        return Err(Unanswered::Ended(head, body));
    }
    let examination: Examination = serde_json::from_slice(&body).map_err(|_| Unanswered::Unreadable)?;
    let examination = examination.bounded();
    if task == Task::Examine || !examination.refusals.is_empty() {
        return Ok(ChildAnswer::Examination(examination));
    }
    admitted();
    let (head, body) = read_answer(&mut stdout).await?;
    let AnswerHead { kind, compatibility, cost, .. } = head;
    match kind {
        Kind::Code => Ok(ChildAnswer::Code(Output { code: body, compatibility, cost })),
        Kind::Examination => Err(Unanswered::Unreadable),
        Kind::Refused | Kind::Cpu | Kind::Memory => Err(Unanswered::Ended(head, body)),
    }
}

async fn read_answer(stdout: &mut (impl AsyncRead + Unpin)) -> Result<(AnswerHead, Vec<u8>), Unanswered> {
    let mut head = [0; HEAD];
    stdout.read_exact(&mut head).await?;
    let head = AnswerHead::decode(&head)?;
    // Allocate exactly this size: the machine code stays in the cache for long. `decode` has
    // bounded the length.
    let mut body = vec![0; usize::try_from(head.length).map_err(|_| Unanswered::Unreadable)?];
    stdout.read_exact(&mut body).await?;
    Ok((head, body))
}

impl From<io::Error> for Unanswered {
    fn from(_: io::Error) -> Self {
        Self::Unreadable
    }
}

async fn read_said(mut stderr: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut said = Vec::new();
    (&mut stderr).take(SAID_BYTES_MAX).read_to_end(&mut said).await?;
    // A full pipe would stop the child.
    tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

/// The error for a child that did not succeed.
fn failure(ended: Ended, limits: CompileLimits) -> CompileError {
    let time = millis(limits.time);
    let memory = || {
        let max = limits.memory_bytes;
        CompileError::limit(Stop::Memory, Limit::CompileMemory, max, max)
    };
    let Ended { status, cpu, answer, said } = ended;
    match answer {
        Err(Unanswered::Ended(AnswerHead { kind: Kind::Refused, .. }, reason)) => {
            CompileError::Refused { reason: one_line(&String::from_utf8_lossy(&reason)) }
        }
        Err(Unanswered::Ended(AnswerHead { kind: Kind::Cpu, cost, .. }, _)) => {
            CompileError::limit(Stop::Cpu, Limit::CompileTime, millis(cost.cpu), time)
        }
        Err(Unanswered::Ended(AnswerHead { kind: Kind::Memory, .. }, _)) => memory(),
        // Rust aborts if an allocation fails.
        _ if said.contains(ALLOCATION_FAILED) => memory(),
        _ if said.contains(STACK_OVERFLOWED) => CompileError::TooDeep,
        // The kernel sends SIGXCPU at the soft limit on CPU time and SIGKILL at the hard one. The
        // child's own watch may not have run before either.
        _ if [Signal::XCPU, Signal::KILL].map(|signal| Some(signal.as_raw())).contains(&status.signal()) => {
            CompileError::limit(Stop::Cpu, Limit::CompileTime, millis(cpu).max(time), time)
        }
        _ => CompileError::Crashed { status: status.to_string(), said: one_line(&said) },
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
