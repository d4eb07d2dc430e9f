//! WASI 0.2 for components of any toolchain: clocks, random, streams, standard output and error as log lines, exit as an outcome, and
//! outgoing requests ([`super::wasi_http`]).
//!
//! Files, environment and sockets are not linked at all: a component that imports them is refused before it runs.

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::{HasData, Linker, ResourceTable};
use wasmtime_wasi::{
    WasiCtx, WasiCtxBuilder, WasiView as _,
    cli::{IsTerminal, StdoutStream, WasiCli, WasiCliView as _},
    clocks::{WasiClocks, WasiClocksView as _},
    p2::{OutputStream, Pollable, StreamResult, bindings},
    random::{WasiRandom, WasiRandomView as _},
};

use wasmtime_wasi_http::{
    WasiHttp, WasiHttpView as _,
    p2::bindings::{LinkOptions, http},
};

use super::log::{CallLog, Stream};
use crate::store::CallState;

/// Random bytes of one call to the host: a key is tens of bytes.
const RANDOM_BYTES_MAX: u64 = 64 << 10;
/// What a stream takes at once.
const WRITE_BYTES_MAX: usize = 64 << 10;

/// Links one interface.
type Link = fn(&mut Linker<CallState>) -> wasmtime::Result<()>;

/// The interfaces of WASI 0.2 that the sandbox has, each with what links it: those that need nothing of the machine,
/// and requests over the provider's own client.
const LINKS: [(&str, Link); 19] = [
    ("wasi:cli/exit", |l| bindings::cli::exit::add_to_linker::<CallState, WasiCli>(l, CallState::cli)),
    ("wasi:cli/stderr", |l| bindings::cli::stderr::add_to_linker::<CallState, WasiCli>(l, CallState::cli)),
    ("wasi:cli/stdin", |l| bindings::cli::stdin::add_to_linker::<CallState, WasiCli>(l, CallState::cli)),
    ("wasi:cli/stdout", |l| bindings::cli::stdout::add_to_linker::<CallState, WasiCli>(l, CallState::cli)),
    ("wasi:cli/terminal-input", |l| {
        bindings::cli::terminal_input::add_to_linker::<CallState, WasiCli>(l, CallState::cli)
    }),
    ("wasi:cli/terminal-output", |l| {
        bindings::cli::terminal_output::add_to_linker::<CallState, WasiCli>(l, CallState::cli)
    }),
    ("wasi:cli/terminal-stderr", |l| {
        bindings::cli::terminal_stderr::add_to_linker::<CallState, WasiCli>(l, CallState::cli)
    }),
    ("wasi:cli/terminal-stdin", |l| {
        bindings::cli::terminal_stdin::add_to_linker::<CallState, WasiCli>(l, CallState::cli)
    }),
    ("wasi:cli/terminal-stdout", |l| {
        bindings::cli::terminal_stdout::add_to_linker::<CallState, WasiCli>(l, CallState::cli)
    }),
    ("wasi:clocks/monotonic-clock", |l| {
        bindings::clocks::monotonic_clock::add_to_linker::<CallState, WasiClocks>(l, CallState::clocks)
    }),
    ("wasi:clocks/wall-clock", |l| {
        bindings::clocks::wall_clock::add_to_linker::<CallState, WasiClocks>(l, CallState::clocks)
    }),
    ("wasi:http/outgoing-handler", |l| {
        http::outgoing_handler::add_to_linker::<CallState, WasiHttp>(l, CallState::http)
    }),
    ("wasi:http/types", |l| {
        http::types::add_to_linker::<CallState, WasiHttp>(l, &LinkOptions::default().into(), CallState::http)
    }),
    ("wasi:io/error", |l| {
        wasmtime_wasi_io::bindings::wasi::io::error::add_to_linker::<CallState, Io>(l, |state| state.ctx().table)
    }),
    ("wasi:io/poll", |l| {
        wasmtime_wasi_io::bindings::wasi::io::poll::add_to_linker::<CallState, Io>(l, |state| state.ctx().table)
    }),
    ("wasi:io/streams", |l| {
        wasmtime_wasi_io::bindings::wasi::io::streams::add_to_linker::<CallState, Io>(l, |state| state.ctx().table)
    }),
    ("wasi:random/insecure", |l| {
        bindings::random::insecure::add_to_linker::<CallState, WasiRandom>(l, CallState::random)
    }),
    ("wasi:random/insecure-seed", |l| {
        bindings::random::insecure_seed::add_to_linker::<CallState, WasiRandom>(l, CallState::random)
    }),
    ("wasi:random/random", |l| bindings::random::random::add_to_linker::<CallState, WasiRandom>(l, CallState::random)),
];

/// Links what the sandbox has of WASI 0.2.
pub(super) fn add_to_linker(l: &mut Linker<CallState>) -> wasmtime::Result<()> {
    LINKS.iter().try_for_each(|(_, link)| link(l))
}

/// Whether the sandbox has this interface, given without version: `wasi:random/random`.
pub(crate) fn has(interface: &str) -> bool {
    LINKS.iter().any(|(name, _)| *name == interface)
}

struct Io;

impl HasData for Io {
    type Data<'a> = &'a mut ResourceTable;
}

/// A WASI with nothing in it but two streams into the call's log.
pub(crate) fn context(log: &CallLog) -> WasiCtx {
    WasiCtxBuilder::new()
        .max_random_size(RANDOM_BYTES_MAX)
        .stdout(Lines { log: log.clone(), stream: Stream::Stdout })
        .stderr(Lines { log: log.clone(), stream: Stream::Stderr })
        .build()
}

/// A standard stream of the guest.
#[derive(Clone)]
struct Lines {
    log: CallLog,
    stream: Stream,
}

impl IsTerminal for Lines {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Lines {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        // Only asked for by WASI 0.1 and 0.3, which are not linked.
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for Lines {
    /// A log always takes what it is given.
    async fn ready(&mut self) {}
}

#[async_trait::async_trait]
impl OutputStream for Lines {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
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
