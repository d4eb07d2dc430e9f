//! Fake children for tests, which give scripted answers.

use std::{
    fs::{self, OpenOptions},
    path::Path,
};

use wasmtime::Engine;

use super::{
    CompileCost, Compiler, JailCommand, compatibility,
    frame::{AnswerHead, Kind},
};
use crate::admission::Examination;

/// One scripted answer.
#[derive(Clone, Copy)]
pub(crate) enum Said {
    /// The component is admitted.
    Admitted,
    /// Invalid machine code.
    Nonsense,
    /// Machine code for another build.
    OfAnotherBuild,
    /// The compiler refuses it.
    Refused,
    /// The limit of CPU time is used up.
    OutOfTime,
}

/// A compiler with a fake child process, a shell script that gives `answers` to each request. The
/// script reads the answers from the file `said` in `folder`.
pub(crate) fn saying(folder: &Path, engine: &Engine, answers: &[Said]) -> Compiler {
    let mut said = Vec::new();
    let own = compatibility(engine);
    let examination = serde_json::to_vec(&Examination::default()).unwrap();
    for answer in answers {
        let (kind, compatibility, body): (_, _, &[u8]) = match answer {
            Said::Admitted => (Kind::Examination, own, &examination),
            Said::Nonsense => (Kind::Code, own, b"nonsense"),
            Said::OfAnotherBuild => (Kind::Code, own ^ 1, b"nonsense"),
            Said::Refused => (Kind::Refused, own, b"too strange"),
            Said::OutOfTime => (Kind::Cpu, own, b""),
        };
        let length = u64::try_from(body.len()).unwrap();
        AnswerHead { kind, compatibility, cost: CompileCost::default(), length }.write(&mut said, body).unwrap();
    }
    let file = folder.join("said");
    fs::write(&file, said).unwrap();
    // The child reads its whole input, as the parent expects.
    script(&format!("cat >/dev/null; cat '{}'", file.display()))
}

/// A compiler whose children answer with machine code of this size, which is not valid. The file in
/// the folder that has the answers takes no space.
pub(crate) fn saying_code_of(folder: &Path, engine: &Engine, bytes: u64) -> Compiler {
    let compiler = saying(folder, engine, &[Said::Admitted]);
    let mut said = OpenOptions::new().append(true).open(folder.join("said")).unwrap();
    let (compatibility, cost) = (compatibility(engine), CompileCost::default());
    AnswerHead { kind: Kind::Code, compatibility, cost, length: bytes }.write(&mut said, b"").unwrap();
    said.set_len(said.metadata().unwrap().len() + bytes).unwrap();
    compiler
}

fn script(script: &str) -> Compiler {
    Compiler::jailed(JailCommand { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] })
}
