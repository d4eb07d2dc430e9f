//! A cloud that is not Rust: a program that prints a line of JSON when it serves, answers lines of
//! JSON afterwards, and ends with its standard input, so that it never outlives the test.
//!
//! Threads and pipes of the operating system, not those of tokio: several tests share a program,
//! and each test has a runtime of its own.

use std::{
    collections::VecDeque,
    io::{BufRead as _, BufReader, Read, Write as _},
    process::{Child, ChildStdin, Command, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        mpsc::{Receiver, RecvTimeoutError, sync_channel},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, bail};
use serde_json::Value;

/// Longest wait for an answer: thousands of machines on a busy machine.
const ANSWERED_WITHIN: Duration = Duration::from_secs(300);
/// Lines of the standard error that an error quotes.
const QUOTED_LINES_MAX: usize = 30;
/// Answers that wait for their question: the program gives one for each, and asks nothing itself.
const UNREAD_LINES_MAX: usize = 16;

/// A program that serves. Dropping it ends the program.
#[derive(Debug)]
pub struct Program {
    name: String,
    child: Child,
    pipes: Mutex<Pipes>,
    errors: Errors,
}

#[derive(Debug)]
struct Pipes {
    stdin: ChildStdin,
    stdout: Receiver<String>,
}

/// The last lines of a program's standard error.
#[derive(Debug)]
struct Errors {
    lines: Arc<Mutex<VecDeque<String>>>,
    reader: JoinHandle<()>,
}

impl Program {
    /// Starts a program; the value is the line of JSON that the program prints when it serves.
    ///
    /// # Errors
    /// The program cannot be started, ends, or does not serve in time; the error has its standard
    /// error.
    pub fn start(mut command: Command, ready_within: Duration) -> Result<(Self, Value)> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("{name} cannot be started"))?;
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take())
        else {
            bail!("{name} has no pipes");
        };
        let pipes = Mutex::new(Pipes { stdin, stdout: lines(stdout) });
        let program = Self { name, child, pipes, errors: Errors::of(stderr) };
        let facts = program.next(&program.pipes(), ready_within).context("it does not serve")?;
        Ok((program, facts))
    }

    /// Sends a question and waits for the answer. Other questions wait meanwhile.
    ///
    /// # Errors
    /// The program ended or does not answer in time, or its answer is an object with the field
    /// `error`.
    pub fn ask(&self, question: &Value) -> Result<Value> {
        // Without this, the proxies of the same test would wait for the answer.
        tokio::task::block_in_place(|| {
            let mut pipes = self.pipes();
            let sent = writeln!(pipes.stdin, "{question}").and_then(|()| pipes.stdin.flush());
            // A program that ended has its reason in its standard error.
            let answer = match sent {
                Ok(()) => self.next(&pipes, ANSWERED_WITHIN),
                Err(error) => Err(self.failed(&format!("takes no question: {error}"))),
            };
            let answer = answer.with_context(|| format!("the question was {question}"))?;
            match answer.get("error") {
                Some(error) => Err(anyhow!("{}: {question}: {error}", self.name)),
                None => Ok(answer),
            }
        })
    }

    fn pipes(&self) -> MutexGuard<'_, Pipes> {
        self.pipes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, pipes: &Pipes, within: Duration) -> Result<Value> {
        match pipes.stdout.recv_timeout(within) {
            Ok(line) => serde_json::from_str(&line).map_err(|_| self.failed(&format!("printed no JSON: {line}"))),
            Err(RecvTimeoutError::Timeout) => Err(self.failed(&format!("printed nothing within {within:?}"))),
            Err(RecvTimeoutError::Disconnected) => Err(self.ended()),
        }
    }

    /// The error of a program that closed its standard output.
    fn ended(&self) -> anyhow::Error {
        wait_for_the_end_of(&self.errors.reader);
        self.failed("ended")
    }

    fn failed(&self, what: &str) -> anyhow::Error {
        let lines = self.errors.lines.lock().unwrap_or_else(PoisonError::into_inner);
        let lines: String = lines.iter().map(|line| format!("\n    {line}")).collect();
        anyhow!("{} {what}; the end of its standard error:{lines}", self.name)
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // The program's state is not needed any more. The program may have ended by itself.
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

impl Errors {
    fn of(stderr: impl Read + Send + 'static) -> Self {
        let lines = Arc::<Mutex<VecDeque<String>>>::default();
        let kept = Arc::clone(&lines);
        let reader = thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.push_back(line);
                if kept.len() > QUOTED_LINES_MAX {
                    kept.pop_front();
                }
            }
        });
        Self { lines, reader }
    }
}

/// Each line that a program prints, until its standard output ends.
fn lines(stdout: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = sync_channel(UNREAD_LINES_MAX);
    thread::spawn(move || {
        let lines = BufReader::new(stdout).lines().map_while(Result::ok);
        for line in lines.filter(|line| !line.trim().is_empty()) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    receiver
}

/// A program that ended closes its standard error too, unless a child of its own still has it open.
fn wait_for_the_end_of(reader: &JoinHandle<()>) {
    for _ in 0..20 {
        if reader.is_finished() {
            break;
        }
        thread::park_timeout(Duration::from_millis(50));
    }
}

#[cfg(test)]
mod tests {
    use std::{process::Command, time::Duration};

    use serde_json::json;

    use super::Program;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_answers_each_question_and_ends_with_its_test() {
        let echo = r#"echo '{"port": 1}'; while read line; do echo "{\"heard\": $line}"; done"#;
        let (program, facts) = Program::start(shell(echo), SOON).unwrap();
        assert_eq!(facts, json!({"port": 1}));
        for number in [1, 2] {
            assert_eq!(program.ask(&json!(number)).unwrap(), json!({"heard": number}));
        }
        let process = format!("/proc/{}", program.child.id());
        assert!(std::fs::exists(&process).unwrap());
        drop(program);
        assert!(!std::fs::exists(&process).unwrap());
    }

    #[test]
    fn the_error_of_a_program_that_does_not_serve_has_its_standard_error() {
        let error = Program::start(shell("echo the port is taken >&2; exit 1"), SOON).unwrap_err();
        assert!(format!("{error:#}").contains("the port is taken"), "{error:#}");
        let late = Program::start(shell("echo almost >&2; exec sleep 60"), Duration::from_millis(1_500)).unwrap_err();
        assert!(format!("{late:#}").contains("printed nothing within 1.5s"), "{late:#}");
        assert!(format!("{late:#}").contains("almost"), "{late:#}");
        let error = Program::start(shell("echo no JSON"), SOON).unwrap_err();
        assert!(format!("{error:#}").contains("printed no JSON: no JSON"), "{error:#}");
    }

    #[test]
    fn a_refused_question_is_an_error() {
        let (program, _) = Program::start(shell(r#"echo 1; read line; echo '{"error": "no"}'"#), SOON).unwrap();
        let error = program.ask(&json!({"add": 1})).unwrap_err();
        assert!(format!("{error:#}").contains(r#"{"add":1}: "no""#), "{error:#}");
        let error = program.ask(&json!(2)).unwrap_err();
        assert!(format!("{error:#}").contains("the question was 2"), "{error:#}");
    }
}
