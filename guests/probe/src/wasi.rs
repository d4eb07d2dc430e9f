//! The parts of WASI 0.2 that probes use. A probe that uses none of them imports none of them.

mod bindings {
    wit_bindgen::generate!({
        inline: "
            package skysail:probe;

            world wasi {
                import wasi:io/poll@0.2.0;
                import wasi:io/error@0.2.0;
                import wasi:io/streams@0.2.0;
                import wasi:clocks/monotonic-clock@0.2.0;
                import wasi:cli/stdout@0.2.0;
                import wasi:cli/stderr@0.2.0;
                import wasi:cli/exit@0.2.0;
                import wasi:random/random@0.2.0;
            }

            package wasi:io@0.2.0 {
                interface error { resource error; }
                interface poll { resource pollable { block: func(); } }
                interface streams {
                    use error.{error};
                    variant stream-error { last-operation-failed(error), closed }
                    /// Where bytes are written.
                    resource output-stream {
                        /// Writes at most 4096 bytes and waits until they are out.
                        blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
                    }
                }
            }
            package wasi:clocks@0.2.0 {
                interface monotonic-clock {
                    use wasi:io/poll@0.2.0.{pollable};
                    subscribe-duration: func(when: u64) -> pollable;
                }
            }
            package wasi:cli@0.2.0 {
                interface stdout { use wasi:io/streams@0.2.0.{output-stream}; get-stdout: func() -> output-stream; }
                interface stderr { use wasi:io/streams@0.2.0.{output-stream}; get-stderr: func() -> output-stream; }
                interface exit { exit: func(status: result); }
            }
            package wasi:random@0.2.0 {
                interface random { get-random-u64: func() -> u64; }
            }
        ",
        generate_all,
    });
}

pub use bindings::wasi::io::streams::OutputStream;

/// Waits without work, in a host call.
pub fn wait_ns(ns: u64) {
    bindings::wasi::clocks::monotonic_clock::subscribe_duration(ns).block();
}

/// A new handle to standard output.
#[must_use]
pub fn stdout() -> OutputStream {
    bindings::wasi::cli::stdout::get_stdout()
}

/// Writes to standard output, or to standard error; at most 4,096 bytes.
pub fn print(to_stderr: bool, text: &str) {
    let stream = if to_stderr { bindings::wasi::cli::stderr::get_stderr() } else { stdout() };
    // A log that refuses its text is not what a probe is about.
    drop(stream.blocking_write_and_flush(text.as_bytes()));
}

/// Leaves, with or without success.
pub fn exit(status: Result<(), ()>) {
    bindings::wasi::cli::exit::exit(status);
}

/// Eight random bytes.
#[must_use]
pub fn random() -> u64 {
    bindings::wasi::random::random::get_random_u64()
}
