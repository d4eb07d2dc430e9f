//! The compile jail: checks a component and compiles it to machine code under limits on time and
//! memory.
//!
//! The jail limits the cost of a component. It is no protection against an exploit of the compiler:
//! this process executes the machine code that the child returns.
//!
//! 82 KiB of wasm can take a minute to compile, 15 KiB of nested types overflow the parser's stack,
//! and neither can be cancelled. So both run in a child process: the same executable with a hidden
//! subcommand, which calls [`child_main`]. A child answers twice: first with its examination
//! ([`admission`](crate::admission)), then with the machine code. The child has the component on
//! its standard input and nothing else: no environment, no file, no socket, no other process, no
//! new privileges. A watch thread ends the child at its limit of CPU time, the kernel at its limit
//! of memory, and the parent at its limit of wall time. `walls` confines the child; if the kernel
//! lacks a part of it, the child still compiles, and the parent logs a warning.
//!
//! The machine code will run in this process. It is trusted because of its origin: a private pipe
//! of a child that runs this process's own executable, or a folder whose files carry a keyed hash
//! ([`Compiler::keeping`]). Precompiled input from anywhere else is refused before a child is
//! started ([`admission::look`](crate::admission::look)).
//!
//! If the parent dies in any way, the child exits within some milliseconds.

use std::{ffi::OsString, io, path::PathBuf, sync::Arc, time::Duration};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use skysail_provider::{Limit, LimitHit, text::with_causes};
use tokio::sync::{Mutex, Semaphore, SemaphorePermit};
use wasmtime::Engine;

use crate::{
    CompiledComponent, Limits, Release, ReleaseError, Sandbox,
    admission::{self, AdmissionFinding, Examination, Inspection, RefusalCode},
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

/// How to start the child process: the executable that calls [`child_main`], and its arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JailCommand {
    /// Absolute path; usually that of the running executable.
    pub program: PathBuf,
    /// The hidden subcommand.
    pub args: Vec<OsString>,
}

/// Stack of each thread of a child, for nested input: the usual size of a main thread's stack.
const STACK_BYTES: usize = 8 << 20;

/// The limits for checking and compiling one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileLimits {
    /// Largest component, in bytes.
    pub component_bytes: u64,
    /// CPU time of the child.
    pub time: Duration,
    /// Writable memory that the child may map in addition to what it has at its start, in bytes,
    /// whether it is used or not.
    pub memory_bytes: u64,
}

impl CompileLimits {
    /// The limit of wall time is this many times the CPU time, plus [`Self::WALL_EXTRA`]: the CPU
    /// time bounds the cost, also where the child gets only a tenth of a core, and a child that
    /// hangs has to end.
    const WALL_FACTOR: u32 = 10;
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

/// The cost of one compilation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompileCost {
    /// CPU time of the child, including its start.
    pub cpu: Duration,
    /// Memory that the child mapped in addition to what it had at its start, in bytes: the peak of
    /// samples every ten milliseconds and at the end.
    pub memory_bytes: u64,
}

/// A compiled component.
#[derive(Clone)]
pub struct Compiled {
    /// Ready to be loaded.
    pub component: Arc<CompiledComponent>,
    /// The cost, now or at the first compilation; none if the component was compiled in this
    /// process.
    pub cost: Option<CompileCost>,
    /// Whether the machine code comes from the cache.
    pub cached: bool,
}

impl CompileCost {
    const fn is_within(self, limits: CompileLimits) -> bool {
        self.cpu.as_nanos() <= limits.time.as_nanos() && self.memory_bytes <= limits.memory_bytes
    }
}

/// Why a component was not compiled. The message names the problem and the remedy; the source is
/// the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CompileError {
    /// The component may not serve, and was not compiled.
    #[error("{}", reasons(refusals))]
    NotAdmitted {
        /// At least one.
        refusals: Vec<AdmissionFinding>,
    },
    /// Checking and compiling the component exceeded a limit. Only a limit of wall time depends on
    /// the machine.
    #[error("checking and compiling the component exceeded its limit of {stop} ({hit}); build a smaller component, or raise {}", hit.limit.name())]
    Limit {
        /// Which limit, and the usage.
        hit: LimitHit,
        /// What the limit bounds.
        stop: Stop,
    },
    /// The compiler refused the component.
    #[error("the compiler refused the component: {reason}")]
    Refused {
        /// The compiler's message, one line.
        reason: String,
    },
    /// The component overflowed the child's stack with nested types or blocks.
    #[error(
        "the component nests types or blocks deeper than {} MiB of stack can follow, the stack size of the compile jail; build it with a current toolchain \
         and with less nesting",
        STACK_BYTES >> 20
    )]
    TooDeep,
    /// The child crashed: the component triggered a bug of the compiler or of the parser.
    #[error(
        "the compile jail crashed while it checked or compiled the component ({status}): {said}; build it with a current toolchain"
    )]
    Crashed {
        /// Exit status or signal.
        status: String,
        /// The beginning of its standard error, one line; may be empty.
        said: String,
    },
    /// The child could not be started, or the pipes to it failed.
    #[error("the compile jail {} could not be run; check that the executable exists and is executable", program.display())]
    Jail {
        /// The executable.
        program: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The child belongs to another build, so its machine code is not compatible with this engine.
    #[error("the compile jail {} belongs to another build than this process; restart the process", program.display())]
    OtherBuild {
        /// The executable.
        program: PathBuf,
    },
}

/// The limit that ended a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// CPU time of the child.
    Cpu,
    /// Memory of the child.
    Memory,
    /// Wall time, measured by the parent.
    Wall,
}

impl std::fmt::Display for Stop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Cpu => "CPU time in milliseconds",
            Self::Memory => "memory in bytes",
            Self::Wall => "wall time in milliseconds",
        })
    }
}

impl CompileError {
    /// Whether the same bytes with the same limits will fail again. If not, the machine caused the
    /// failure, and a later attempt may succeed.
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

/// Checks and compiles components, and caches the machine code of the last few, so that a return to
/// an earlier component needs no compilation.
///
/// Shared by all slots of a process; cloning is cheap.
#[derive(Clone)]
pub struct Compiler {
    kind: Kind,
    /// Limits the concurrent children. Each may use `compileMemoryBytes`, and two saturate a small
    /// machine.
    permits: Arc<Semaphore>,
    cache: Arc<Mutex<Cache>>,
    /// The cache on disk, which outlives the process.
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

    /// Compiles in this process, without limits on time or memory. Only for tests and benchmarks
    /// with trusted components: a hostile component can crash the process.
    #[must_use]
    pub fn in_process_for_trusted_components() -> Self {
        Self::new(Kind::InProcess)
    }

    fn new(kind: Kind) -> Self {
        Self { kind, permits: Arc::new(Semaphore::new(Self::CONCURRENT_MAX)), cache: Arc::default(), disk: None }
    }

    /// Adds a cache on disk with at most `bytes_max` bytes of machine code, which the next start
    /// reuses. No other process may use the folder. Machine code in the folder is trusted if `key`
    /// authenticates it: no other account may know the key.
    ///
    /// # Errors
    /// The folder cannot be read or written, or another account has write access.
    pub fn keeping(self, folder: PathBuf, bytes_max: u64, key: &[u8; 32]) -> io::Result<Self> {
        Ok(Self { disk: Some(Arc::new(Disk::open(folder, bytes_max, key)?)), ..self })
    }

    /// Checks `component` and compiles it for `engine`, or takes the machine code from the cache,
    /// which contains only admitted components.
    ///
    /// `digest` is the SHA-256 of `component`, computed by the caller. `admitted` is called when
    /// the component is admitted and the compilation begins.
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
                    // Machine code is megabytes: move it into the task and back instead of copying
                    // it.
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
        // The task is cancelled only when the process exits.
        tokio::task::spawn_blocking(move || disk.get(&key, limits)).await.ok().flatten()
    }

    /// Checks `component` without compiling it. `origin` names its source, for people.
    ///
    /// # Errors
    /// [`CompileError`] if the check could not be done; a refused component is no error.
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
        let examination = match &self.kind {
            Kind::Jailed(jail) => parent::examine(jail, component, limits).await?,
            Kind::InProcess => examine_in_process(component).await?,
        };
        Ok(inspection.with(examination))
    }

    /// Checks `component` as a slot does before the first call: reads, compiles and links it. Runs
    /// nothing of it. The cost is none if the component was not compiled.
    ///
    /// # Errors
    /// [`CompileError`] if the check could not be done; a refused component is no error.
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
                Err(error) => (RefusalCode::LinkFailed, with_causes(&error)),
            },
            Err(error @ CompileError::Limit { .. }) if error.is_of_the_component() => {
                (RefusalCode::CompileLimit, with_causes(&error))
            }
            Err(error) if error.is_of_the_component() => (RefusalCode::CompileFailed, with_causes(&error)),
            Err(error) => return Err(error),
        };
        let (code, reason) = refusal;
        Ok((inspection.refused(AdmissionFinding { code, reason: one_line(&reason) }), None))
    }

    /// Takes all permits, so that every compilation waits.
    #[cfg(test)]
    pub(crate) async fn occupied(self) -> tokio::sync::OwnedSemaphorePermit {
        let all = u32::try_from(Self::CONCURRENT_MAX).unwrap();
        self.permits.acquire_many_owned(all).await.unwrap()
    }

    async fn permit(&self) -> SemaphorePermit<'_> {
        #[expect(clippy::expect_used, reason = "the semaphore is never closed")]
        self.permits.acquire().await.expect("the semaphore must be open")
    }
}

fn look(component: &[u8], limits: CompileLimits) -> Result<(), CompileError> {
    admission::look(component, limits.component_bytes)
        .map_err(|refusal| CompileError::NotAdmitted { refusals: vec![refusal] })
}

/// Ok if there are no refusals.
fn admissible(examination: Examination) -> Result<(), CompileError> {
    match examination.refusals {
        refusals if refusals.is_empty() => Ok(()),
        refusals => Err(CompileError::NotAdmitted { refusals }),
    }
}

fn reasons(refusals: &[AdmissionFinding]) -> String {
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

/// A hash that is equal for two engines if one can load the machine code of the other. Parent and
/// child of one build have the same hash.
fn compatibility(engine: &Engine) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    // `DefaultHasher::new` has fixed keys.
    let mut hasher = DefaultHasher::new();
    engine.precompile_compatibility_hash().hash(&mut hasher);
    hasher.finish()
}

async fn examine_in_process(component: Bytes) -> Result<Examination, CompileError> {
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

/// Longest message that is kept, in bytes: it may contain names of the component.
const REASON_BYTES_MAX: usize = 600;

/// Sanitises a message of a compiler that processed hostile input.
fn one_line(text: &str) -> String {
    skysail_provider::text::one_line(text.trim(), REASON_BYTES_MAX)
}
