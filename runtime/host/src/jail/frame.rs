//! The protocol between the manager (parent) and its compile jail (child). The parent sends one
//! request. The child answers with the examination and then, if the component is admitted and the
//! request asks for machine code, with the machine code. Each has a header of fixed size.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::{CompileCost, CompileLimits};

const REQUEST_MAGIC: [u8; 8] = *b"SKYJAIL5";
const ANSWER_MAGIC: [u8; 8] = *b"SKYCODE5";

/// Bytes of the head of a request and of an answer. The encoding is shorter than this where numbers
/// are small, and the rest is zero.
pub(super) const HEAD: usize = 64;

/// Largest machine code that is accepted from a child, in bytes. Machine code has about three times
/// the size of its wasm, and wasm of tens of megabytes is the largest that a limit allows.
pub(super) const CODE_BYTES_MAX: u64 = 512 << 20;

/// Largest examination that is accepted from a child, in bytes: an honest child truncates it far
/// below (`Examination::bounded`), in text without escapes.
pub(super) const EXAMINATION_BYTES_MAX: u64 = 4 << 20;
/// Maximum length of the error text that is accepted from a child process, in bytes.
const REASON_BYTES_MAX: u64 = 64 << 10;

/// The task of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Task {
    /// Check the component.
    Examine,
    /// Check the component and, if it is admitted, compile it.
    Compile,
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Request {
    pub(super) task: Task,
    /// `component_bytes` is the length of the component, which follows the head.
    pub(super) limits: CompileLimits,
}

impl Request {
    pub(super) fn encode(&self) -> io::Result<[u8; HEAD]> {
        encode(REQUEST_MAGIC, self)
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; HEAD];
        from.read_exact(&mut head)?;
        decode(REQUEST_MAGIC, &head).ok_or_else(|| {
            io::Error::other("standard input contains no request of Skysail: only Skysail itself runs this subcommand")
        })
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// The examination follows, as JSON. Always the first answer; a second one follows if the
    /// component is admitted and machine code was requested.
    Examination,
    /// Machine code follows.
    Code,
    /// A reason follows: the compiler refused the component.
    Refused,
    /// The limit of CPU time is used up.
    Cpu,
    /// An allocation failed.
    Memory,
}

impl Kind {
    /// Largest body of an answer of this kind.
    const fn bytes_max(self) -> u64 {
        match self {
            Self::Code => CODE_BYTES_MAX,
            Self::Examination => EXAMINATION_BYTES_MAX,
            Self::Refused => REASON_BYTES_MAX,
            Self::Cpu | Self::Memory => 0,
        }
    }
}

#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AnswerHead {
    pub(super) kind: Kind,
    pub(super) compatibility: u64,
    pub(super) cost: CompileCost,
    /// Length of the body, which follows the head.
    pub(super) length: u64,
}

impl AnswerHead {
    pub(super) fn decode(head: &[u8; HEAD]) -> io::Result<Self> {
        let head: Self = decode(ANSWER_MAGIC, head)
            .ok_or_else(|| io::Error::other("standard output contains no answer of Skysail's compile jail"))?;
        if head.length > head.kind.bytes_max() {
            return Err(io::Error::other("the answer of the compile jail is larger than the limit"));
        }
        Ok(head)
    }

    pub(super) fn write(&self, to: &mut impl Write, body: &[u8]) -> io::Result<()> {
        to.write_all(&encode(ANSWER_MAGIC, self)?)?;
        to.write_all(body)?;
        to.flush()
    }
}

fn encode(magic: [u8; 8], head: &impl Serialize) -> io::Result<[u8; HEAD]> {
    let mut bytes = [0; HEAD];
    postcard::to_slice(&(magic, head), &mut bytes).map_err(io::Error::other)?;
    Ok(bytes)
}

/// None if the bytes are not the encoding of a head with this magic.
fn decode<T: DeserializeOwned>(magic: [u8; 8], bytes: &[u8; HEAD]) -> Option<T> {
    let (found, head) = postcard::from_bytes::<([u8; 8], T)>(bytes).ok()?;
    (found == magic).then_some(head)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        AnswerHead, CODE_BYTES_MAX, CompileCost, CompileLimits, EXAMINATION_BYTES_MAX, HEAD, Kind, Request, Task,
    };

    #[test]
    fn a_request_and_an_answer_are_decoded_as_they_were_encoded() {
        for (task, number) in [(Task::Examine, 99), (Task::Compile, u64::MAX)] {
            // The largest numbers fill the head.
            let time = Duration::new(number, 999_999_999);
            let limits = CompileLimits { component_bytes: number, time, memory_bytes: number };
            let sent = Request { task, limits };
            assert_eq!(Request::read(&mut sent.encode().unwrap().as_slice()).unwrap(), sent);
            let cost = CompileCost { cpu: time, memory_bytes: number };
            let sent = AnswerHead { kind: Kind::Refused, compatibility: number, cost, length: 3 };
            let mut bytes = Vec::new();
            sent.write(&mut bytes, b"abc").unwrap();
            let (head, body) = bytes.split_first_chunk().unwrap();
            assert_eq!((AnswerHead::decode(head).unwrap(), body), (sent, b"abc".as_slice()));
        }
    }

    #[test]
    fn an_invalid_or_too_large_answer_is_an_error() {
        assert!(AnswerHead::decode(&[b'x'; HEAD]).is_err());
        for (kind, most) in [(Kind::Code, CODE_BYTES_MAX), (Kind::Examination, EXAMINATION_BYTES_MAX), (Kind::Cpu, 0)] {
            let mut sent = Vec::new();
            let head = AnswerHead { kind, compatibility: 0, cost: CompileCost::default(), length: most + 1 };
            head.write(&mut sent, &[]).unwrap();
            assert!(AnswerHead::decode(sent[..HEAD].try_into().unwrap()).is_err(), "{kind:?}");
        }
        assert!(Request::read(&mut [b'x'; HEAD].as_slice()).is_err());
    }
}
