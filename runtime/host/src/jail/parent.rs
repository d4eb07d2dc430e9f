//! The parent's side of the jail: starts the child, feeds it, waits no longer than allowed, and says why nothing came.

use std::{
    io,
    os::unix::process::ExitStatusExt as _,
    process::{ExitStatus, Stdio},
};

use bytes::Bytes;
use rustix::process::Signal;
use skysail_provider::Limit;
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, ChildStdin, Command},
    time,
};

use super::{
    CompileCost, CompileError, CompileLimits, JailCommand, Stop,
    frame::{ANSWER_HEAD, AnswerHead, Kind, Request},
    one_line,
};

/// Bytes of the child's standard error that are kept; the rest is read and dropped.
const SAID_BYTES_MAX: u64 = 4096;

/// What Rust's runtime writes before it aborts because an allocation failed.
const ALLOCATION_FAILED: &str = "memory allocation of ";

/// Machine code and where it fits.
pub(super) struct Output {
    pub(super) code: Vec<u8>,
    pub(super) compatibility: u64,
    pub(super) cost: CompileCost,
}

/// Compiles `component` in a child process.
pub(super) async fn compile(
    command: &JailCommand,
    component: Bytes,
    limits: CompileLimits,
) -> Result<Output, CompileError> {
    let jail = |source| CompileError::Jail { program: command.program.clone(), source };
    let mut child = Command::new(&command.program)
        .args(&command.args)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(jail)?;
    let ended = match time::timeout(limits.wall(), talk(&mut child, component, limits)).await {
        Ok(ended) => ended.map_err(jail)?,
        Err(time::error::Elapsed { .. }) => {
            child.kill().await.map_err(jail)?;
            let wall = millis(limits.wall());
            return Err(CompileError::limit(Stop::Wall, Limit::CompileTime, wall, wall));
        }
    };
    if ended.status.signal() == Some(Signal::KILL.as_raw()) {
        let source = io::Error::other("it was killed from outside, perhaps because the machine is short of memory");
        return Err(CompileError::Jail { program: command.program.clone(), source });
    }
    judge(ended, limits)
}

/// All that is known of a child that has ended.
struct Ended {
    status: ExitStatus,
    /// What it answered, or why that cannot be read: a child that was killed leaves half an answer or none.
    answer: io::Result<(AnswerHead, Vec<u8>)>,
    said: String,
}

async fn talk(child: &mut Child, component: Bytes, limits: CompileLimits) -> io::Result<Ended> {
    let piped = || io::Error::other("a pipe to the child is missing");
    let stdin = child.stdin.take().ok_or_else(piped)?;
    let stdout = child.stdout.take().ok_or_else(piped)?;
    let stderr = child.stderr.take().ok_or_else(piped)?;
    let (_fed, answer, said) = tokio::join!(feed(stdin, component, limits), read_answer(stdout), read_said(stderr));
    Ok(Ended { status: child.wait().await?, answer, said: said? })
}

/// A child that ends before it has read everything has a reason, which its answer or its status tells better than this pipe.
async fn feed(mut stdin: ChildStdin, component: Bytes, limits: CompileLimits) -> io::Result<()> {
    stdin.write_all(&Request { limits, length: component.len() as u64 }.encode()).await?;
    stdin.write_all(&component).await?;
    stdin.shutdown().await
}

async fn read_answer(mut stdout: impl AsyncRead + Unpin) -> io::Result<(AnswerHead, Vec<u8>)> {
    let mut head = [0; ANSWER_HEAD];
    stdout.read_exact(&mut head).await?;
    let head = AnswerHead::decode(&head)?;
    let mut body = Vec::new();
    stdout.take(head.length).read_to_end(&mut body).await?;
    if body.len() as u64 != head.length {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((head, body))
}

async fn read_said(mut stderr: impl AsyncRead + Unpin) -> io::Result<String> {
    let mut said = Vec::new();
    (&mut stderr).take(SAID_BYTES_MAX).read_to_end(&mut said).await?;
    // A full pipe would stop the child.
    tokio::io::copy(&mut stderr, &mut tokio::io::sink()).await?;
    Ok(String::from_utf8_lossy(&said).into_owned())
}

fn judge(ended: Ended, limits: CompileLimits) -> Result<Output, CompileError> {
    let time = millis(limits.time);
    let memory = |used| CompileError::limit(Stop::Memory, Limit::CompileMemory, used, limits.memory_bytes);
    let Ended { status, answer, said } = ended;
    match answer {
        Ok((AnswerHead { kind: Kind::Code, compatibility, cost, .. }, code)) if status.success() => {
            Ok(Output { code, compatibility, cost })
        }
        Ok((AnswerHead { kind: Kind::Refused, .. }, reason)) => {
            Err(CompileError::Refused { reason: one_line(&String::from_utf8_lossy(&reason)) })
        }
        Ok((AnswerHead { kind: Kind::Cpu, cost, .. }, _)) => {
            Err(CompileError::limit(Stop::Cpu, Limit::CompileTime, millis(cost.cpu), time))
        }
        Ok((AnswerHead { kind: Kind::Memory, .. }, _)) => Err(memory(limits.memory_bytes)),
        Ok((AnswerHead { kind: Kind::Code, .. }, _)) | Err(_) => {
            // Rust aborts where an allocation fails; the kernel's limit on CPU time has a signal of its own.
            if said.contains(ALLOCATION_FAILED) {
                return Err(memory(limits.memory_bytes));
            }
            if status.signal() == Some(Signal::XCPU.as_raw()) {
                return Err(CompileError::limit(Stop::Cpu, Limit::CompileTime, time, time));
            }
            Err(CompileError::Crashed { status: status.to_string(), said: one_line(&said) })
        }
    }
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
