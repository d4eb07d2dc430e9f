//! Credential helpers: programs on the manager's PATH that know a log-in, as Docker runs them.
//!
//! `docker_credential` runs them too, but waits for one without end, on a thread that nobody can
//! take back, and takes the answer that there is nothing for a failure.

use std::{process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

use super::Login;

/// What a helper may take: one that asks a cloud for a token needs a second or two.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longest answer, in bytes: a token of a cloud has 3 KiB.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The user name of an answer whose secret is an identity token.
const IDENTITY_TOKEN: &str = "<token>";

/// How a helper says that it knows nothing of a server.
///
/// Source: `errCredentialsNotFoundMessage` of docker-credential-helpers.
const NOT_FOUND: &str = "credentials not found in native keychain";

/// Asks `docker-credential-NAME`, which `origin` names.
pub(super) async fn ask(name: &str, origin: &str, server: &str) -> Result<Option<Login>, String> {
    let program = format!("docker-credential-{name}");
    let answer = answer(Command::new(&program), server, TIMEOUT).await;
    answer.map_err(|failure| format!("{program}, which {origin} names, {failure}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Answer {
    username: String,
    secret: String,
}

/// What one helper answers. What it printed may hold the secret, so that no failure repeats it.
async fn answer(mut command: Command, server: &str, longest: Duration) -> Result<Option<Login>, String> {
    let by_hand = "run it by hand with `get`";
    command.arg("get").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child = command.spawn().map_err(|error| format!("cannot be run ({error}): is it on the PATH?"))?;
    let mut running = Running(child);
    let answered = timeout(longest, running.talk(server)).await;
    let late = |_| format!("was not done after {longest:?} and was ended: {by_hand}");
    let (printed, done) = answered.map_err(late)?.map_err(|error| format!("cannot be heard ({error}): {by_hand}"))?;
    if printed.len() as u64 > ANSWER_BYTES_MAX {
        return Err(format!("prints more than {ANSWER_BYTES_MAX} bytes: {by_hand}"));
    }
    if !done && String::from_utf8_lossy(&printed).trim() == NOT_FOUND {
        return Ok(None);
    }
    if !done {
        return Err(format!("failed: {by_hand}"));
    }
    let Answer { username, secret } = serde_json::from_slice(&printed)
        .map_err(|_| format!("prints something else than a user name and a secret: {by_hand}"))?;
    Ok(Some(match username.as_str() {
        IDENTITY_TOKEN => Login::IdentityToken(secret),
        _ => Login::Basic { username, password: secret },
    }))
}

/// A helper with all that it started: gone when this is dropped.
struct Running(Child);

impl Running {
    /// What it prints, and whether it ends well.
    async fn talk(&mut self, server: &str) -> std::io::Result<(Vec<u8>, bool)> {
        if let Some(mut stdin) = self.0.stdin.take() {
            // One that does not read what it is asked may still answer.
            drop(stdin.write_all(server.as_bytes()).await);
        }
        let mut printed = Vec::new();
        if let Some(stdout) = self.0.stdout.take() {
            stdout.take(ANSWER_BYTES_MAX + 1).read_to_end(&mut printed).await?;
        }
        Ok((printed, self.0.wait().await?.success()))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has been waited for has no id any more.
        let group = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "a credential helper had ended by itself");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, time::Duration};

    use expect_test::{Expect, expect};
    use tokio::process::Command;

    use super::{Login, answer};

    /// A helper that is this shell script; `$1` is what it is asked to do.
    async fn asked(script: &str) -> Result<Option<Login>, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "helper"]);
        answer(command, "ghcr.io", Duration::from_secs(1)).await
    }

    async fn refused(script: &str, expected: Expect) {
        let Err(failure) = asked(script).await else { panic!("{script} was believed") };
        expected.assert_eq(&failure);
    }

    #[tokio::test]
    async fn a_helper_is_asked_for_one_server_and_tells_a_password_or_a_token() {
        let by_server = r#"[ "$1" = get ] && printf '{"ServerURL":"x","Username":"me","Secret":"for %s"}' "$(cat)""#;
        let Ok(Some(Login::Basic { username, password })) = asked(by_server).await else { panic!("no password") };
        assert_eq!((username.as_str(), password.as_str()), ("me", "for ghcr.io"));
        let token = asked(r#"echo '{"Username":"<token>","Secret":"t0ken"}'"#).await;
        assert!(matches!(token, Ok(Some(Login::IdentityToken(token))) if token == "t0ken"));
    }

    #[tokio::test]
    async fn a_helper_that_knows_nothing_of_a_server_is_no_failure() {
        assert!(matches!(asked("echo credentials not found in native keychain; exit 1").await, Ok(None)));
    }

    #[tokio::test]
    async fn a_helper_that_fails_or_prints_something_else_is_told_without_what_it_printed() {
        refused("echo hunter2; echo hunter2 >&2; exit 1", expect!["failed: run it by hand with `get`"]).await;
        refused(
            "echo hunter2",
            expect!["prints something else than a user name and a secret: run it by hand with `get`"],
        )
        .await;
        refused("yes hunter2", expect!["prints more than 65536 bytes: run it by hand with `get`"]).await;
        let missing = answer(Command::new("docker-credential-of-nobody"), "ghcr.io", Duration::from_secs(1)).await;
        expect!["cannot be run (No such file or directory (os error 2)): is it on the PATH?"]
            .assert_eq(&missing.err().unwrap_or_default());
    }

    #[tokio::test]
    async fn a_helper_that_never_ends_is_ended_with_all_that_it_started() {
        let folder = tempfile::tempdir().unwrap();
        let ids = folder.path().join("ids");
        let script = format!("sleep 1000 & echo $$ $! > {}; wait", ids.display());
        refused(&script, expect!["was not done after 1s and was ended: run it by hand with `get`"]).await;
        let ids = fs::read_to_string(ids).unwrap();
        assert_eq!(ids.split_whitespace().count(), 2, "{ids}");
        for id in ids.split_whitespace() {
            wait_until_gone(id).await;
        }
    }

    async fn wait_until_gone(id: &str) {
        let runs = || {
            let stat = fs::read_to_string(Path::new("/proc").join(id).join("stat"));
            stat.is_ok_and(|stat| !stat.contains(") Z "))
        };
        for _ in 0..100 {
            if !runs() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        panic!("process {id} still runs");
    }
}
