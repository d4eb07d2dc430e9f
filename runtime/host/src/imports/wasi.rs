//! WASI 0.2 for components of any toolchain: clocks, random numbers, streams, standard output and
//! error as log lines, exit as an outcome, and outgoing requests ([`super::wasi_http`]).
//!
//! Environment and files are linked for the toolchains whose every program imports them, and are
//! empty: no variable, no directory, and so no file; the only argument is the name of the program.
//! Sockets are not linked: a component that imports them is refused before it runs.

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{io::AsyncWrite, time::Instant};
use wasmtime::component::{HasData, HasSelf, Linker, ResourceTable};
use wasmtime_wasi::{
    WasiCtx, WasiCtxBuilder, WasiView as _,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _},
    clocks::{HostMonotonicClock, HostWallClock, WasiClocks, WasiClocksView as _},
    filesystem::{WasiFilesystem, WasiFilesystemView as _},
    p2::{OutputStream, Pollable, StreamError, StreamResult, bindings},
    random::WasiRandomView as _,
};

use wasmtime_wasi_http::{
    WasiHttp, WasiHttpView as _,
    p2::bindings::{LinkOptions, http},
};

use super::log::{CallLog, Stream};
use crate::{fuel_charge::Owed, store::CallState, world::World};

/// The maximum number of random bytes of one host call: the limit of browsers.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// What a component finds as the name of its program: every program has one, and a library that
/// reads the name without a check, such as Go's klog, would panic without it.
const PROGRAM: &str = "provider";
/// The maximum number of bytes of one write to a stream.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Links one interface.
type Link = fn(&mut Linker<CallState>) -> wasmtime::Result<()>;

/// The interfaces of WASI 0.2 that the sandbox offers, each with its link function: those that do
/// not access the machine, and HTTP requests through the provider's client. A component gets every
/// directory and every descriptor from `preopens` or from another descriptor, and [`context`]
/// preopens nothing.
const LINKS: [(&str, Link); 22] = [
    ("wasi:cli/environment", |l| {
        bindings::cli::environment::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/exit", |l| {
        bindings::cli::exit::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/stderr", |l| {
        bindings::cli::stderr::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/stdin", |l| {
        bindings::cli::stdin::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/stdout", |l| {
        bindings::cli::stdout::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/terminal-input", |l| {
        bindings::cli::terminal_input::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/terminal-output", |l| {
        bindings::cli::terminal_output::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/terminal-stderr", |l| {
        bindings::cli::terminal_stderr::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/terminal-stdin", |l| {
        bindings::cli::terminal_stdin::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:cli/terminal-stdout", |l| {
        bindings::cli::terminal_stdout::add_to_linker::<CallState, WasiCli>(l, |state| state.charge_import().cli())
    }),
    ("wasi:clocks/monotonic-clock", |l| {
        bindings::clocks::monotonic_clock::add_to_linker::<CallState, WasiClocks>(l, |state| {
            state.charge_import().clocks()
        })
    }),
    ("wasi:clocks/wall-clock", |l| {
        bindings::clocks::wall_clock::add_to_linker::<CallState, WasiClocks>(l, |state| state.charge_import().clocks())
    }),
    ("wasi:filesystem/preopens", |l| {
        bindings::filesystem::preopens::add_to_linker::<CallState, WasiFilesystem>(l, |state| {
            state.charge_import().filesystem()
        })
    }),
    ("wasi:filesystem/types", |l| {
        bindings::filesystem::types::add_to_linker::<CallState, WasiFilesystem>(l, |state| {
            state.charge_import().filesystem()
        })
    }),
    ("wasi:http/outgoing-handler", |l| {
        http::outgoing_handler::add_to_linker::<CallState, WasiHttp>(l, |state| state.charge_import().http())
    }),
    ("wasi:http/types", |l| {
        http::types::add_to_linker::<CallState, WasiHttp>(l, &LinkOptions::default().into(), |state| {
            state.charge_import().http()
        })
    }),
    ("wasi:io/error", |l| {
        wasmtime_wasi_io::bindings::wasi::io::error::add_to_linker::<CallState, Io>(l, |state| {
            state.charge_import().ctx().table
        })
    }),
    ("wasi:io/poll", |l| {
        wasmtime_wasi_io::bindings::wasi::io::poll::add_to_linker::<CallState, Io>(l, |state| {
            state.charge_import().ctx().table
        })
    }),
    ("wasi:io/streams", |l| {
        wasmtime_wasi_io::bindings::wasi::io::streams::add_to_linker::<CallState, Io>(l, |state| {
            state.charge_import().ctx().table
        })
    }),
    ("wasi:random/insecure", |l| {
        bindings::random::insecure::add_to_linker::<CallState, HasSelf<CallState>>(l, CallState::charge_import)
    }),
    ("wasi:random/insecure-seed", |l| {
        bindings::random::insecure_seed::add_to_linker::<CallState, HasSelf<CallState>>(l, CallState::charge_import)
    }),
    ("wasi:random/random", |l| {
        bindings::random::random::add_to_linker::<CallState, HasSelf<CallState>>(l, CallState::charge_import)
    }),
];

/// Links the interfaces of WASI 0.2 that the sandbox offers.
pub(super) fn add_to_linker(l: &mut Linker<CallState>) -> wasmtime::Result<()> {
    LINKS.iter().try_for_each(|(_, link)| link(l))
}

/// Whether the sandbox offers this interface, given without version: `wasi:random/random`.
pub(crate) fn has(interface: &str) -> bool {
    LINKS.iter().any(|(name, _)| *name == interface)
}

struct Io;

impl HasData for Io {
    type Data<'a> = &'a mut ResourceTable;
}

/// A WASI context with only the standard output and error, which write into the call's log: without
/// variables, directories, and arguments after the name of the program.
pub(crate) fn context(log: &CallLog, owed: Owed, clock: WorldClock) -> WasiCtx {
    WasiCtxBuilder::new()
        .arg(PROGRAM)
        .max_random_size(RANDOM_BYTES_MAX)
        .wall_clock(clock.clone())
        .monotonic_clock(clock)
        .stdout(Lines { log: log.clone(), stream: Stream::Stdout, owed: owed.clone() })
        .stderr(Lines { log: log.clone(), stream: Stream::Stderr, owed })
        .build()
}

// === random numbers: as in WASI, charged by the byte ===

impl bindings::random::random::Host for CallState {
    fn get_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.fuel_charge.random_bytes(len.min(RANDOM_BYTES_MAX));
        let mut bytes = self.random().get_random_bytes(len)?;
        self.world.random_bytes(&mut bytes);
        Ok(bytes)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        let number = self.random().get_random_u64()?;
        Ok(u64::from_le_bytes(self.world.random(number.to_le_bytes())))
    }
}

impl bindings::random::insecure::Host for CallState {
    fn get_insecure_random_bytes(&mut self, len: u64) -> wasmtime::Result<Vec<u8>> {
        self.fuel_charge.random_bytes(len.min(RANDOM_BYTES_MAX));
        let mut bytes = self.random().get_insecure_random_bytes(len)?;
        self.world.random_bytes(&mut bytes);
        Ok(bytes)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        let number = self.random().get_insecure_random_u64()?;
        Ok(u64::from_le_bytes(self.world.random(number.to_le_bytes())))
    }
}

impl bindings::random::insecure_seed::Host for CallState {
    fn insecure_seed(&mut self) -> wasmtime::Result<(u64, u64)> {
        let (low, high) = self.random().insecure_seed()?;
        let [low, high] = [low, high].map(|half| u64::from_le_bytes(self.world.random(half.to_le_bytes())));
        Ok((low, high))
    }
}

// === clocks: those of the world ===

/// The clocks of one call.
#[derive(Clone)]
pub(crate) struct WorldClock {
    pub(crate) world: Arc<World>,
    /// The zero of the monotonic clock.
    pub(crate) began: Instant,
}

impl HostWallClock for WorldClock {
    fn resolution(&self) -> Duration {
        Duration::from_nanos(1)
    }

    fn now(&self) -> Duration {
        self.world.wall()
    }
}

impl HostMonotonicClock for WorldClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        u64::try_from(self.world.monotonic(self.began).as_nanos()).unwrap_or(u64::MAX)
    }
}

// === standard output and error ===

/// A standard stream of the guest.
#[derive(Clone)]
struct Lines {
    log: CallLog,
    stream: Stream,
    owed: Owed,
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Used only by WASI 0.1 and 0.3, which are not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for Lines {
    /// A log is always ready.
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        // WASI requires the stream itself to enforce the result of `check-write`.
        if bytes.len() > WRITE_BYTES_MAX {
            return Err(StreamError::trap(
                "the component wrote more bytes to a stream than check-write had permitted: a bug of the component",
            ));
        }
        self.owed.add(bytes.len() as u64);
        self.log.write(self.stream, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(WRITE_BYTES_MAX)
    }
}
