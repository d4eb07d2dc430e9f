//! The protocol between parent and child: one request, then one or two answers, each with a header
//! of fixed size.

use std::{
    io::{self, Read, Write},
    time::Duration,
};

use super::{CompileCost, CompileLimits};

const REQUEST_MAGIC: [u8; 8] = *b"SKYJAIL4";
const ANSWER_MAGIC: [u8; 8] = *b"SKYCODE4";

/// Bytes of a request's head: magic, task, CPU milliseconds, memory, length of the component.
pub(super) const REQUEST_HEAD: usize = 40;
/// Bytes of an answer's head: magic, kind, compatibility, CPU microseconds, memory, length.
pub(super) const ANSWER_HEAD: usize = 48;

/// Largest machine code that is accepted from a child, in bytes. Machine code has about three times
/// the size of its wasm, and wasm of tens of megabytes is the largest that a limit allows.
pub(super) const CODE_BYTES_MAX: u64 = 512 << 20;

/// Largest findings that are accepted from a child, in bytes: an honest child truncates them far
/// below (`Findings::bounded`), in text without escapes.
pub(super) const FINDINGS_BYTES_MAX: u64 = 4 << 20;
/// Maximum length of the error text that is accepted from a child process, in bytes.
const REASON_BYTES_MAX: u64 = 64 << 10;

/// The task of a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Task {
    /// Check the component.
    Examine,
    /// Check the component and, if it is admitted, compile it.
    Compile,
}

impl Task {
    const fn word(self) -> u64 {
        match self {
            Self::Examine => 0,
            Self::Compile => 1,
        }
    }

    fn of(word: u64) -> io::Result<Self> {
        [Self::Examine, Self::Compile]
            .into_iter()
            .find(|task| task.word() == word)
            .ok_or_else(|| io::Error::other("the request to the compile jail contains an unknown task"))
    }
}

pub(super) struct Request {
    pub(super) task: Task,
    /// The limits without the size of the component, which the parent has already checked.
    pub(super) limits: CompileLimits,
    /// Length of the component, which follows the header.
    pub(super) length: u64,
}

impl Request {
    pub(super) fn encode(&self) -> [u8; REQUEST_HEAD] {
        let time = u64::try_from(self.limits.time.as_millis()).unwrap_or(u64::MAX);
        words([u64::from_le_bytes(REQUEST_MAGIC), self.task.word(), time, self.limits.memory_bytes, self.length])
    }

    pub(super) fn read(from: &mut impl Read) -> io::Result<Self> {
        let mut head = [0; REQUEST_HEAD];
        from.read_exact(&mut head)?;
        let [magic, task, time, memory_bytes, length] = unwords(&head);
        if magic != u64::from_le_bytes(REQUEST_MAGIC) {
            return Err(io::Error::other(
                "standard input contains no request of Skysail: only Skysail itself runs this subcommand",
            ));
        }
        let limits = CompileLimits { component_bytes: length, time: Duration::from_millis(time), memory_bytes };
        Ok(Self { task: Task::of(task)?, limits, length })
    }
}

/// The kind of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Findings follow, as JSON. Always the first answer; a second one follows if the component is
    /// admitted and machine code was requested.
    Findings,
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
    const fn word(self) -> u64 {
        match self {
            Self::Code => 0,
            Self::Refused => 1,
            Self::Cpu => 2,
            Self::Memory => 3,
            Self::Findings => 4,
        }
    }

    /// Largest body of an answer of this kind.
    const fn bytes_max(self) -> u64 {
        match self {
            Self::Code => CODE_BYTES_MAX,
            Self::Findings => FINDINGS_BYTES_MAX,
            Self::Refused => REASON_BYTES_MAX,
            Self::Cpu | Self::Memory => 0,
        }
    }

    fn of(word: u64) -> io::Result<Self> {
        [Self::Code, Self::Refused, Self::Cpu, Self::Memory, Self::Findings]
            .into_iter()
            .find(|kind| kind.word() == word)
            .ok_or_else(|| io::Error::other("the answer of the compile jail has an unknown kind"))
    }
}

#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) kind: Kind,
    pub(super) compatibility: u64,
    pub(super) cost: CompileCost,
    pub(super) length: u64,
}

impl AnswerHead {
    pub(super) fn decode(head: &[u8; ANSWER_HEAD]) -> io::Result<Self> {
        let [magic, kind, compatibility, cpu, memory_bytes, length] = unwords(head);
        if magic != u64::from_le_bytes(ANSWER_MAGIC) {
            return Err(io::Error::other("standard output contains no answer of Skysail's compile jail"));
        }
        let kind = Kind::of(kind)?;
        if length > kind.bytes_max() {
            return Err(io::Error::other("the answer of the compile jail is larger than the limit"));
        }
        let cost = CompileCost { cpu: Duration::from_micros(cpu), memory_bytes };
        Ok(Self { kind, compatibility, cost, length })
    }

    pub(super) fn write(&self, to: &mut impl Write, body: &[u8]) -> io::Result<()> {
        let Self { kind, compatibility, cost: CompileCost { cpu, memory_bytes }, length } = self;
        let cpu = u64::try_from(cpu.as_micros()).unwrap_or(u64::MAX);
        let head: [u8; ANSWER_HEAD] =
            words([u64::from_le_bytes(ANSWER_MAGIC), kind.word(), *compatibility, cpu, *memory_bytes, *length]);
        to.write_all(&head)?;
        to.write_all(body)?;
        to.flush()
    }
}

fn words<const WORDS: usize, const BYTES: usize>(words: [u64; WORDS]) -> [u8; BYTES] {
    const { assert!(WORDS * 8 == BYTES) };
    let mut bytes = [0; BYTES];
    for (to, word) in bytes.chunks_exact_mut(8).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn unwords<const WORDS: usize, const BYTES: usize>(bytes: &[u8; BYTES]) -> [u64; WORDS] {
    const { assert!(WORDS * 8 == BYTES) };
    let mut words = [0; WORDS];
    for (word, from) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = from.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
    }
    words
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{
        ANSWER_HEAD, AnswerHead, CODE_BYTES_MAX, CompileCost, CompileLimits, FINDINGS_BYTES_MAX, Kind, REQUEST_HEAD,
        Request, Task,
    };

    #[test]
    fn a_request_and_an_answer_are_decoded_as_they_were_encoded() {
        let limits = CompileLimits { component_bytes: 99, time: Duration::from_millis(1234), memory_bytes: 5678 };
        for task in [Task::Examine, Task::Compile] {
            let sent = Request { task, limits, length: 99 };
            let request = Request::read(&mut sent.encode().as_slice()).unwrap();
            assert_eq!((request.task, request.limits, request.length), (task, limits, 99));
        }
        let cost = CompileCost { cpu: Duration::from_micros(7), memory_bytes: 8 };
        let mut sent = Vec::new();
        AnswerHead { kind: Kind::Refused, compatibility: 6, cost, length: 3 }.write(&mut sent, b"abc").unwrap();
        let head = AnswerHead::decode(sent[..ANSWER_HEAD].try_into().unwrap()).unwrap();
        assert_eq!((head.kind, head.compatibility, head.cost, head.length), (Kind::Refused, 6, cost, 3));
    }

    #[test]
    fn an_invalid_or_too_large_answer_is_an_error() {
        assert!(AnswerHead::decode(&[b'x'; ANSWER_HEAD]).is_err());
        for (kind, most) in [(Kind::Code, CODE_BYTES_MAX), (Kind::Findings, FINDINGS_BYTES_MAX), (Kind::Cpu, 0)] {
            let mut sent = Vec::new();
            let head = AnswerHead { kind, compatibility: 0, cost: CompileCost::default(), length: most + 1 };
            head.write(&mut sent, &[]).unwrap();
            assert!(AnswerHead::decode(sent[..ANSWER_HEAD].try_into().unwrap()).is_err(), "{kind:?}");
        }
        assert!(Request::read(&mut [b'x'; REQUEST_HEAD].as_slice()).is_err());
    }
}
