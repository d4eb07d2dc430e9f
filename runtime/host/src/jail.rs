//! The compile jail: judges a component and turns it into machine code under limits on time and
//! memory.
//!
//! The jail bounds what a component costs. It is no wall against an exploit of the compiler: what
//! the child hands over is executed in this process.
//!
//! 82 KiB of wasm can compile for a minute, 15 KiB of nested types overflow the stack of their
//! reader, and neither can be cancelled. So both happen in a child process: the same executable
//! with a hidden subcommand, which calls [`child_main`]. One child answers twice, first what it
//! found ([`admission`](crate::admission)), then the machine code. The child sees the component on
//! its standard input and nothing else: no environment, no file, no socket, no other process, no
//! new privileges. A thread of its own ends it at its CPU budget, the kernel ends it at its memory,
//! and the parent at its wall time. What keeps it in is in `walls`; where the kernel lacks some of
//! it, the child compiles all the same, and the parent says so in the log.
//!
//! What comes back is machine code that will run in this process. It is believed because of where
//! it comes from: a private pipe of a child that runs our own executable, or a folder where each of
//! its bytes is under a keyed hash ([`Compiler::keeping`]). Precompiled input from anywhere else is
//! refused before a child is started ([`admission::look`](crate::admission::look)).
//!
//! Orphans: where the parent dies, however it dies, a child ends within some milliseconds.

use std::{ffi::OsString, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use skysail_provider::{Limit, LimitHit};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use wasmtime::Engine;

use crate::{
    CompiledComponent, Limits, Release, ReleaseError, Sandbox,
    admission::{self, Finding, Findings, Inspection, RefusalCode},
};

mod cache;
mod child;
mod disk;
mod frame;
mod parent;
#[cfg(test)]
pub(crate) mod stand_in;
mod walls;

#[cfg(test)]
mod tests;

use cache::Cache;
pub use child::child_main;
use disk::Disk;

/// How to start the compiler: the executable that calls [`child_main`], and the arguments that make
/// it do so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JailCommand {
    /// Absolute path; usually that of the running executable.
    pub program: PathBuf,
    /// The hidden subcommand.
    pub args: Vec<OsString>,
}

/// Stack of each thread of a child: as much as the first thread of a process usually has, for what
/// nests.
const STACK_BYTES: usize = 8 << 20;

/// What judging and compiling one component may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompileLimits {
    /// Largest component, in bytes.
    pub component_bytes: u64,
    /// CPU time of the child.
    pub time: Duration,
    /// Memory that the child may add to what it has at its start, in bytes: what it may write,
    /// whether it has or not.
    pub memory_bytes: u64,
}

impl CompileLimits {
    /// Wall time is this many times the CPU time, plus [`Self::WALL_EXTRA`]: a busy machine is no
    /// reason to refuse a component, and a child that waits for something it should not wait for
    /// has to end.
    const WALL_FACTOR: u32 = 3;
    /// Time to start a process on a busy machine.
    const WALL_EXTRA: Duration = Duration::from_secs(10);

    fn wall(self) -> Duration {
        self.time.saturating_mul(Self::WALL_FACTOR).saturating_add(Self::WALL_EXTRA)
    }
}

impl From<&Limits> for CompileLimits {
    fn from(limits: &Limits) -> Self {
        Self {
            component_bytes: limits.component_bytes,
            time: Duration::from_millis(limits.compile_time_ms),
            memory_bytes: limits.compile_memory_bytes,
        }
    }
}

/// What one compilation cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompileCost {
    /// CPU time of the child, its start included.
    pub cpu: Duration,
    /// Memory that the child added to what it had at its start, in bytes: the most that was seen,
    /// each ten milliseconds and at the end.
    pub memory_bytes: u64,
}

/// A compiled component.
#[derive(Clone)]
pub struct Compiled {
    /// Ready to be loaded.
    pub component: Arc<CompiledComponent>,
    /// What it cost, now or when it was compiled first; none where it was compiled in this process.
    pub cost: Option<CompileCost>,
    /// Whether the machine code was still there from an earlier compilation.
    pub cached: bool,
}

impl Compiled {
    /// Whether these limits would have let it through.
    pub(crate) fn is_within(&self, limits: CompileLimits) -> bool {
        self.cost.is_none_or(|cost| cost.is_within(limits))
    }
}

impl CompileCost {
    const fn is_within(self, limits: CompileLimits) -> bool {
        self.cpu.as_nanos() <= limits.time.as_nanos() && self.memory_bytes <= limits.memory_bytes
    }
}

/// Why a component was not compiled. The texts say what was tried and the way out; the cause is the
/// source.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The component may not serve, and was not compiled.
    #[error("{}", reasons(refusals))]
    NotAdmitted {
        /// At least one.
        refusals: Vec<Finding>,
    },
    /// Judging it and compiling it cost more than it may. Says nothing about another machine only
    /// where the limit is wall time.
    #[error("judging and compiling it was stopped by {stop} ({hit}): build a smaller component, or raise {}", hit.limit.name())]
    Limit {
        /// Which limit, and how much was used.
        hit: LimitHit,
        /// What stopped it.
        stop: Stop,
    },
    /// The compiler refused the component.
    #[error("the compiler refused the component: {reason}")]
    Refused {
        /// What the compiler said, one line.
        reason: String,
    },
    /// It nests deeper than the child's stack can follow.
    #[error(
        "it nests deeper than {} MiB of stack can follow, as much as the compile jail has: build it with a current toolchain, and without types or blocks \
         within each other by the thousand",
        STACK_BYTES >> 20
    )]
    TooDeep,
    /// The child ended in a way that nobody asked for: a bug of the compiler, or of the reader
    /// before it, that the component found.
    #[error("the compile jail crashed over it ({status}): {said}: build it with a current toolchain")]
    Crashed {
        /// Exit status or signal.
        status: String,
        /// The end of what it wrote to its standard error, one line; may be empty.
        said: String,
    },
    /// The child could not be started, or the pipes to it failed.
    #[error("the compile jail {} could not be run: is the executable still there, and may it be executed?", program.display())]
    Jail {
        /// What was to be run.
        program: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The child is not of this build: its machine code would not fit this engine.
    #[error("the compile jail {} is of another build than this process: restart the process", program.display())]
    OtherBuild {
        /// What was run.
        program: PathBuf,
    },
}

/// What stopped a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The CPU budget of the child.
    Cpu,
    /// The memory of the child.
    Memory,
    /// The parent's clock.
    Wall,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "its CPU time in milliseconds",
            Self::Memory => "its memory in bytes",
            Self::Wall => "its wall time in milliseconds",
        })
    }
}

impl CompileError {
    /// Whether the same bytes with the same limits will fail again. Where not, the failure is the
    /// machine's, and a later try may succeed.
    #[must_use]
    pub const fn is_of_the_component(&self) -> bool {
        match self {
            Self::NotAdmitted { .. } | Self::Refused { .. } | Self::TooDeep | Self::Crashed { .. } => true,
            Self::Limit { stop, .. } => !matches!(stop, Stop::Wall),
            Self::Jail { .. } | Self::OtherBuild { .. } => false,
        }
    }

    const fn limit(stop: Stop, limit: Limit, used: u64, max: u64) -> Self {
        Self::Limit { hit: LimitHit { limit, used, max }, stop }
    }
}

/// Judges and compiles components, and remembers the machine code of the last few so that a return
/// to an earlier component is instant.
///
/// Shared by all slots of a process; cloning is cheap.
#[derive(Clone)]
pub struct Compiler {
    kind: Kind,
    /// Children at once. Each may take `compileMemoryBytes`, and two saturate a small machine.
    permits: Arc<Semaphore>,
    cache: Arc<Mutex<Cache>>,
    /// What outlives the process.
    disk: Option<Arc<Disk>>,
}

#[derive(Clone)]
enum Kind {
    Jailed(Arc<parent::Jail>),
    InProcess,
}

impl Compiler {
    /// Compilations at once in one process.
    pub const CONCURRENT_MAX: usize = 2;

    /// Compiles in child processes.
    #[must_use]
    pub fn jailed(command: JailCommand) -> Self {
        Self::new(Kind::Jailed(Arc::new(parent::Jail::new(command))))
    }

    /// Compiles in this process, with no limit on time or memory. For tests and benches with
    /// components of their own: a hostile one takes the process down.
    #[must_use]
    pub fn in_process_for_trusted_components() -> Self {
        Self::new(Kind::InProcess)
    }

    fn new(kind: Kind) -> Self {
        Self { kind, permits: Arc::new(Semaphore::new(Self::CONCURRENT_MAX)), cache: Arc::default(), disk: None }
    }

    /// The same, which keeps at most so many bytes of machine code in this folder for the next
    /// start; no other process uses the folder. What is found there is believed where `key`
    /// authenticates it: no other account may know the key.
    ///
    /// # Errors
    /// The folder cannot be read or written, or another account may write it.
    pub fn keeping(self, folder: PathBuf, bytes_max: u64, key: &[u8; 32]) -> io::Result<Self> {
        Ok(Self { disk: Some(Arc::new(Disk::open(folder, bytes_max, key)?)), ..self })
    }

    /// Judges `component` and compiles it for `engine`, or takes the machine code from the cache:
    /// what is there was admitted.
    ///
    /// `digest` is the SHA-256 of `component`: the caller has computed it. `admitted` is called
    /// when the judgement is good and the compilation begins.
    ///
    /// # Errors
    /// [`CompileError`]; [`CompileError::is_of_the_component`] says whether to try again.
    ///
    /// # Cancel safety
    /// Dropping the future kills the child.
    pub async fn compile(
        &self,
        engine: &Engine,
        (component, digest): (Bytes, [u8; 32]),
        limits: CompileLimits,
        admitted: impl FnOnce() + Send,
    ) -> Result<Compiled, CompileError> {
        look(&component, limits)?;
        let key = cache::Key { digest, compatibility: compatibility(engine) };
        if let Some((component, cost)) = self.cache.lock().await.get(&key, limits) {
            admitted();
            return Ok(Compiled { component, cost, cached: true });
        }
        if let Some((code, cost)) = self.kept(key, limits).await {
            admitted();
            let component = Arc::new(CompiledComponent::from_jail(code));
            self.cache.lock().await.put(key, Arc::clone(&component), Some(cost));
            return Ok(Compiled { component, cost: Some(cost), cached: true });
        }
        let _permit = self.permit().await;
        let (compiled, cost) = match &self.kind {
            Kind::Jailed(jail) => {
                let mut output = parent::compile(jail, component, limits, admitted).await?;
                if output.compatibility != key.compatibility {
                    return Err(CompileError::OtherBuild { program: jail.command.program.clone() });
                }
                if let Some(disk) = self.disk.clone() {
                    // Machine code is megabytes: it goes there and back, and is not copied.
                    let put = move || {
                        disk.put(&key, &output.code, output.cost);
                        output
                    };
                    let program = || jail.command.program.clone();
                    let failed = |error| CompileError::Jail { program: program(), source: io::Error::other(error) };
                    output = tokio::task::spawn_blocking(put).await.map_err(failed)?;
                }
                (CompiledComponent::from_jail(output.code), Some(output.cost))
            }
            Kind::InProcess => {
                admissible(examine_in_process(component.clone()).await?)?;
                admitted();
                (in_process(engine.clone(), component).await?, None)
            }
        };
        let component = Arc::new(compiled);
        self.cache.lock().await.put(key, Arc::clone(&component), cost);
        Ok(Compiled { component, cost, cached: false })
    }

    async fn kept(&self, key: cache::Key, limits: CompileLimits) -> Option<(Vec<u8>, CompileCost)> {
        let disk = Arc::clone(self.disk.as_ref()?);
        // A task that was cancelled is a process that ends.
        tokio::task::spawn_blocking(move || disk.get(&key, limits)).await.ok().flatten()
    }

    /// Judges `component` and compiles nothing. `origin` says where it came from, for people.
    ///
    /// # Errors
    /// [`CompileError`], where the judgement could not be made; a component that is refused is
    /// none.
    ///
    /// # Cancel safety
    /// Dropping the future kills the child.
    pub async fn inspect(
        &self,
        component: Bytes,
        origin: &str,
        limits: CompileLimits,
    ) -> Result<Inspection, CompileError> {
        let inspection = Inspection::new(&component, origin);
        if let Err(refusal) = admission::look(&component, limits.component_bytes) {
            return Ok(inspection.refused(refusal));
        }
        let _permit = self.permit().await;
        let findings = match &self.kind {
            Kind::Jailed(jail) => parent::examine(jail, component, limits).await?,
            Kind::InProcess => examine_in_process(component).await?,
        };
        Ok(inspection.with(findings))
    }

    /// Judges `component` as a slot does until the component is called for the first time: reads
    /// it, compiles it and links what came of it. What compiling it cost is none where it was not
    /// compiled. Nothing of it is run.
    ///
    /// # Errors
    /// [`CompileError`], where the judgement could not be made; a component that is refused is
    /// none.
    ///
    /// # Cancel safety
    /// Dropping the future kills the child.
    pub async fn judge(
        &self,
        sandbox: &Sandbox,
        component: Bytes,
        origin: &str,
    ) -> Result<(Inspection, Option<CompileCost>), CompileError> {
        let limits = CompileLimits::from(sandbox.limits());
        let inspection = self.inspect(component.clone(), origin, limits).await?;
        if !inspection.is_admitted() {
            return Ok((inspection, None));
        }
        let digest = admission::digest_of(&component);
        let refusal = match self.compile(sandbox.wasmtime(), (component, digest), limits, || {}).await {
            Ok(Compiled { component, cost, .. }) => match Release::new(sandbox, &component, &inspection.digest) {
                Ok(_) => return Ok((inspection, cost)),
                Err(error) => (RefusalCode::LinkFailed, chain(&error)),
            },
            Err(error @ CompileError::Limit { .. }) if error.is_of_the_component() => {
                (RefusalCode::CompileLimit, chain(&error))
            }
            Err(error) if error.is_of_the_component() => (RefusalCode::CompileFailed, chain(&error)),
            Err(error) => return Err(error),
        };
        let (code, reason) = refusal;
        Ok((inspection.refused(Finding { code, reason: one_line(&reason) }), None))
    }

    /// Keeps every compilation waiting.
    #[cfg(test)]
    pub(crate) async fn occupied(self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(Self::CONCURRENT_MAX).unwrap();
        self.permits.acquire_many_owned(all).await.unwrap()
    }

    async fn permit(&self) -> SemaphorePermit<'_> {
        #[expect(clippy::expect_used, reason = "nobody closes this semaphore")]
        self.permits.acquire().await.expect("the semaphore must be open")
    }
}

/// An error with its causes, on one line.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn look(component: &[u8], limits: CompileLimits) -> Result<(), CompileError> {
    admission::look(component, limits.component_bytes)
        .map_err(|refusal| CompileError::NotAdmitted { refusals: vec![refusal] })
}

/// Ok where nothing was found that keeps the component from being compiled.
fn admissible(findings: Findings) -> Result<(), CompileError> {
    match findings.refusals {
        refusals if refusals.is_empty() => Ok(()),
        refusals => Err(CompileError::NotAdmitted { refusals }),
    }
}

fn reasons(refusals: &[Finding]) -> String {
    refusals.iter().map(|refusal| refusal.reason.as_str()).collect::<Vec<_>>().join("; ")
}

impl std::fmt::Debug for Compiler {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let command = match &self.kind {
            Kind::Jailed(jail) => Some(&jail.command),
            Kind::InProcess => None,
        };
        f.debug_struct("Compiler").field("command", &command).finish_non_exhaustive()
    }
}

/// Equal where machine code made by one engine can be loaded by the other. The same in parent and
/// child of one build.
fn compatibility(engine: &Engine) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    // `DefaultHasher::new` has fixed keys.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

async fn examine_in_process(component: Bytes) -> Result<Findings, CompileError> {
    let examined = tokio::task::spawn_blocking(move || admission::examine(&component)).await;
    examined
        .map_err(|error| CompileError::Crashed { status: "in process".to_owned(), said: one_line(&error.to_string()) })
}

async fn in_process(engine: Engine, component: Bytes) -> Result<CompiledComponent, CompileError> {
    let compiled = tokio::task::spawn_blocking(move || CompiledComponent::in_process(&engine, &component)).await;
    match compiled {
        Ok(Ok(compiled)) => Ok(compiled),
        Ok(Err(ReleaseError::Compile(error))) => Err(CompileError::Refused { reason: one_line(&format!("{error:#}")) }),
        Ok(Err(error)) => Err(CompileError::Refused { reason: error.to_string() }),
        Err(error) => Err(CompileError::Crashed { status: "in process".to_owned(), said: error.to_string() }),
    }
}

/// Longest reason that is kept, in bytes: a component's names may stand in it.
const REASON_BYTES_MAX: usize = 600;

/// Text from a compiler that has seen hostile input, made fit for a log line.
fn one_line(text: &str) -> String {
    skysail_provider::text::one_line(text.trim(), REASON_BYTES_MAX)
}
