//! Fake children for tests, which give scripted answers.

use std::{fs, path::Path};

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

/// A compiler whose children always give these answers, which are stored in a file in the folder.
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

fn script(script: &str) -> Compiler {
    Compiler::jailed(JailCommand { program: "/bin/sh".into(), args: vec!["-c".into(), script.into()] })
}
