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
                import wasi:cli/environment@0.2.0;
                import wasi:filesystem/types@0.2.0;
                import wasi:filesystem/preopens@0.2.0;
                import wasi:random/random@0.2.0;
                import wasi:http/types@0.2.0;
                import wasi:http/outgoing-handler@0.2.0;
            }

            package wasi:io@0.2.0 {
                interface error { resource error; }
                interface poll { resource pollable { block: func(); } }
                interface streams {
                    use error.{error};
                    variant stream-error { last-operation-failed(error), closed }
                    /// Where bytes come from.
                    resource input-stream {
                        /// Waits for bytes, at most this many.
                        blocking-read: func(len: u64) -> result<list<u8>, stream-error>;
                    }
                    /// Where bytes are written.
                    resource output-stream {
                        /// Writes at most 4096 bytes and waits until they are written.
                        blocking-write-and-flush: func(contents: list<u8>) -> result<_, stream-error>;
                    }
                }
            }
            package wasi:clocks@0.2.0 {
                interface monotonic-clock {
                    use wasi:io/poll@0.2.0.{pollable};
                    type duration = u64;
                    subscribe-duration: func(when: u64) -> pollable;
                }
            }
            package wasi:cli@0.2.0 {
                interface stdout { use wasi:io/streams@0.2.0.{output-stream}; get-stdout: func() -> output-stream; }
                interface stderr { use wasi:io/streams@0.2.0.{output-stream}; get-stderr: func() -> output-stream; }
                interface exit { exit: func(status: result); }
                interface environment {
                    get-environment: func() -> list<tuple<string, string>>;
                    get-arguments: func() -> list<string>;
                    initial-cwd: func() -> option<string>;
                }
            }
            package wasi:filesystem@0.2.0 {
                interface types {
                    enum error-code {
                        access, would-block, already, bad-descriptor, busy, deadlock, quota, exist, file-too-large,
                        illegal-byte-sequence, in-progress, interrupted, invalid, io, is-directory, loop, too-many-links,
                        message-size, name-too-long, no-device, no-entry, no-lock, insufficient-memory, insufficient-space,
                        not-directory, not-empty, not-recoverable, unsupported, no-tty, no-such-device, overflow,
                        not-permitted, pipe, read-only, invalid-seek, text-file-busy, cross-device
                    }
                    flags path-flags { symlink-follow }
                    flags open-flags { create, directory, exclusive, truncate }
                    flags descriptor-flags {
                        read, write, file-integrity-sync, data-integrity-sync, requested-write-sync, mutate-directory
                    }
                    /// A file or a directory.
                    resource descriptor {
                        /// Opens a file below a directory.
                        open-at: func(path-flags: path-flags, path: string, open-flags: open-flags, %flags: descriptor-flags)
                            -> result<descriptor, error-code>;
                    }
                }
                interface preopens {
                    use types.{descriptor};
                    get-directories: func() -> list<tuple<descriptor, string>>;
                }
            }
            package wasi:random@0.2.0 {
                interface random { get-random-u64: func() -> u64; }
            }
            package wasi:http@0.2.0 {
                interface types {
                    use wasi:clocks/monotonic-clock@0.2.0.{duration};
                    use wasi:io/streams@0.2.0.{input-stream, output-stream};
                    use wasi:io/poll@0.2.0.{pollable};
                    variant method { get, head, post, put, delete, connect, options, trace, patch, other(string) }
                    variant scheme { HTTP, HTTPS, other(string) }
                    record DNS-error-payload { rcode: option<string>, info-code: option<u16> }
                    record TLS-alert-received-payload { alert-id: option<u8>, alert-message: option<string> }
                    record field-size-payload { field-name: option<string>, field-size: option<u32> }
                    variant error-code {
                        DNS-timeout, DNS-error(DNS-error-payload), destination-not-found, destination-unavailable,
                        destination-IP-prohibited, destination-IP-unroutable, connection-refused, connection-terminated,
                        connection-timeout, connection-read-timeout, connection-write-timeout, connection-limit-reached,
                        TLS-protocol-error, TLS-certificate-error, TLS-alert-received(TLS-alert-received-payload),
                        HTTP-request-denied, HTTP-request-length-required, HTTP-request-body-size(option<u64>),
                        HTTP-request-method-invalid, HTTP-request-URI-invalid, HTTP-request-URI-too-long,
                        HTTP-request-header-section-size(option<u32>), HTTP-request-header-size(option<field-size-payload>),
                        HTTP-request-trailer-section-size(option<u32>), HTTP-request-trailer-size(field-size-payload),
                        HTTP-response-incomplete, HTTP-response-header-section-size(option<u32>),
                        HTTP-response-header-size(field-size-payload), HTTP-response-body-size(option<u64>),
                        HTTP-response-trailer-section-size(option<u32>), HTTP-response-trailer-size(field-size-payload),
                        HTTP-response-transfer-coding(option<string>), HTTP-response-content-coding(option<string>),
                        HTTP-response-timeout, HTTP-upgrade-failed, HTTP-protocol-error, loop-detected, configuration-error,
                        internal-error(option<string>)
                    }
                    variant header-error { invalid-syntax, forbidden, immutable }
                    /// Headers or trailers.
                    resource fields {
                        constructor();
                        /// Adds one.
                        append: func(name: string, value: list<u8>) -> result<_, header-error>;
                        /// All of them.
                        entries: func() -> list<tuple<string, list<u8>>>;
                    }
                    /// A request that is made.
                    resource outgoing-request {
                        constructor(headers: fields);
                        /// The request's body; only the first call succeeds.
                        body: func() -> result<outgoing-body>;
                        /// GET without it.
                        set-method: func(method: method) -> result;
                        /// Path and query.
                        set-path-with-query: func(path-with-query: option<string>) -> result;
                        /// HTTP or HTTPS.
                        set-scheme: func(scheme: option<scheme>) -> result;
                        /// Host and port.
                        set-authority: func(authority: option<string>) -> result;
                    }
                    /// Timeouts.
                    resource request-options { constructor(); }
                    /// A response.
                    resource incoming-response {
                        /// The response's status.
                        status: func() -> u16;
                        /// The response's headers.
                        headers: func() -> fields;
                        /// The response's body; only the first call succeeds.
                        consume: func() -> result<incoming-body>;
                    }
                    /// The body of a response.
                    resource incoming-body {
                        /// The body's bytes; only the first call succeeds.
                        %stream: func() -> result<input-stream>;
                    }
                    /// The body of a request.
                    resource outgoing-body {
                        /// Where its bytes are written, once.
                        write: func() -> result<output-stream>;
                        /// Marks it as complete.
                        finish: static func(this: outgoing-body, trailers: option<fields>) -> result<_, error-code>;
                    }
                    /// A pending response.
                    resource future-incoming-response {
                        /// Ready when it is there.
                        subscribe: func() -> pollable;
                        /// The answer, once.
                        get: func() -> option<result<result<incoming-response, error-code>>>;
                    }
                }
                interface outgoing-handler {
                    use types.{outgoing-request, request-options, future-incoming-response, error-code};
                    handle: func(request: outgoing-request, options: option<request-options>) -> result<future-incoming-response, error-code>;
                }
            }
        ",
        generate_all,
    });
}

use bindings::wasi::http::{
    outgoing_handler::handle,
    types::{ErrorCode, Fields, IncomingResponse, Method, OutgoingBody, OutgoingRequest, Scheme},
};
pub use bindings::wasi::io::streams::OutputStream;
use bindings::wasi::{
    cli::environment::{get_arguments, get_environment, initial_cwd},
    filesystem::{
        preopens::get_directories,
        types::{Descriptor, DescriptorFlags, OpenFlags, PathFlags},
    },
};

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
    // A failed write of a log line does not matter to a probe.
    drop(stream.blocking_write_and_flush(text.as_bytes()));
}

/// Exits, with or without success.
pub fn exit(status: Result<(), ()>) {
    bindings::wasi::cli::exit::exit(status);
}

/// What the environment and the list of directories contain.
#[must_use]
pub fn surroundings() -> String {
    let directories: Vec<_> = get_directories().into_iter().map(|(_, path)| path).collect();
    format!("{:?} {:?} {:?} {directories:?}", get_environment(), get_arguments(), initial_cwd())
}

/// Opens a file below the directory with this handle, which no import gave.
#[must_use]
pub fn open_below(handle: u32, path: &str) -> bool {
    // SAFETY: none: the host has to notice a handle that does not exist, or is that of something
    // else.
    #[expect(unsafe_code, reason = "the attack is an invented handle")]
    let directory = unsafe { Descriptor::from_handle(handle) };
    let opened = directory.open_at(PathFlags::SYMLINK_FOLLOW, path, OpenFlags::empty(), DescriptorFlags::READ);
    opened.is_ok()
}

/// Eight random bytes.
#[must_use]
pub fn random() -> u64 {
    bindings::wasi::random::random::get_random_u64()
}

/// A request by `wasi:http`: a GET, or a POST with this many bytes. The answer's status, headers
/// and body.
///
/// # Errors
/// A header that cannot be set, or a code of `wasi:http`.
pub fn fetch(url: &str, headers: &[(&str, &str)], body: Option<usize>) -> Result<(u16, String, usize), String> {
    let request = get(url, headers)?;
    let outgoing = match body {
        Some(_) => {
            request.set_method(&Method::Post).map_err(|()| "POST cannot be set".to_owned())?;
            Some(request.body().map_err(|()| "no body".to_owned())?)
        }
        None => None,
    };
    let answer = handle(request, None).map_err(code)?;
    if let (Some(outgoing), Some(len)) = (outgoing, body) {
        // Where the host accepts no more bytes, the response gives the reason.
        let _refused = write_all(outgoing, len);
    }
    answer.subscribe().block();
    let answer = answer.get().and_then(Result::ok).ok_or("no answer")?.map_err(code)?;
    Ok((answer.status(), names(&answer), read_all(&answer)?))
}

/// Opens this many requests before it waits for the first answer, and reads no answer: how many
/// were answered, and the last error.
///
/// # Errors
/// A request that cannot be opened.
pub fn fetch_at_once(url: &str, count: usize) -> Result<(usize, Option<String>), String> {
    let opened: Vec<_> = (0..count).map(|_| handle(get(url, &[])?, None).map_err(code)).collect::<Result<_, _>>()?;
    let answers: Vec<_> = opened
        .iter()
        .map(|answer| {
            answer.subscribe().block();
            answer.get().and_then(Result::ok).ok_or("no answer".to_owned())?.map_err(code)
        })
        .collect();
    let error = answers.iter().filter_map(|answer| answer.as_ref().err().cloned()).next_back();
    Ok((answers.iter().filter(|answer| answer.is_ok()).count(), error))
}

/// A GET request.
fn get(url: &str, headers: &[(&str, &str)]) -> Result<OutgoingRequest, String> {
    let fields = Fields::new();
    for (name, value) in headers {
        fields.append(name, value.as_bytes()).map_err(|error| format!("{name}: {error:?}"))?;
    }
    let request = OutgoingRequest::new(fields);
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let set = |result: Result<(), ()>| result.map_err(|()| format!("{url} cannot be set"));
    set(request.set_scheme(Some(&Scheme::Http)))?;
    set(request.set_authority(Some(authority)))?;
    set(request.set_path_with_query(Some(path)))?;
    Ok(request)
}

fn code(code: ErrorCode) -> String {
    format!("{code:?}")
}

fn write_all(body: OutgoingBody, len: usize) -> Result<(), ()> {
    let stream = body.write()?;
    let chunk = [b'x'; 4096];
    let mut left = len;
    while left > 0 {
        let now = left.min(chunk.len());
        stream.blocking_write_and_flush(chunk.get(..now).unwrap_or_default()).map_err(drop)?;
        left -= now;
    }
    drop(stream);
    OutgoingBody::finish(body, None).map_err(drop)
}

fn names(answer: &IncomingResponse) -> String {
    answer.headers().entries().into_iter().map(|(name, _)| name).collect::<Vec<_>>().join(",")
}

fn read_all(answer: &IncomingResponse) -> Result<usize, String> {
    let body = answer.consume().map_err(|()| "the body is gone".to_owned())?;
    let stream = body.stream().map_err(|()| "the stream is gone".to_owned())?;
    let mut len = 0;
    while let Ok(bytes) = stream.blocking_read(1 << 16) {
        len += bytes.len();
    }
    Ok(len)
}
