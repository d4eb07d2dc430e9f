//! Docker credential helpers: programs on the manager's PATH that return credentials.
//!
//! The crate `docker_credential` runs helpers too, but waits for a helper without a timeout on a
//! thread that cannot be cancelled, and reports "credentials not found" as a failure.

use std::{process::Stdio, time::Duration};

use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    process::{Child, Command},
    time::timeout,
};

use super::Login;

/// The timeout of a helper: one that requests a token from a cloud needs a second or two.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Longest answer, in bytes: a token of a cloud has 3 KiB.
const ANSWER_BYTES_MAX: u64 = 64 << 10;

/// The user name of an answer whose secret is an identity token.
const IDENTITY_TOKEN: &str = "<token>";

/// The output of a helper that has no credentials for a server.
///
/// Source: `errCredentialsNotFoundMessage` of docker-credential-helpers.
const NOT_FOUND: &str = "credentials not found in native keychain";

/// Runs `docker-credential-NAME`, which the configuration `origin` names.
pub(super) async fn ask(name: &str, origin: &str, server: &str) -> Result<Option<Login>, String> {
    let program = format!("docker-credential-{name}");
    let answer = answer(Command::new(&program), server, TIMEOUT).await;
    answer.map_err(|failure| format!("{program}, which {origin} names, {failure}"))
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperAnswer {
    username: String,
    secret: String,
}

/// Runs one helper. No error repeats the helper's output, which may contain the secret.
async fn answer(mut command: Command, server: &str, longest: Duration) -> Result<Option<Login>, String> {
    let by_hand = "run it by hand with `get`";
    command.arg("get").process_group(0).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let child =
        command.spawn().map_err(|error| format!("cannot be run ({error}); install it in a directory of the PATH"))?;
    let mut running = Running(child);
    let answered = timeout(longest, running.talk(server)).await;
    let late = |_| format!("did not finish within {longest:?} and was killed; {by_hand}");
    let (printed, done) =
        answered.map_err(late)?.map_err(|error| format!("has unreadable output ({error}); {by_hand}"))?;
    if printed.len() as u64 > ANSWER_BYTES_MAX {
        return Err(format!("prints more than {ANSWER_BYTES_MAX} bytes; {by_hand}"));
    }
    if !done && String::from_utf8_lossy(&printed).trim() == NOT_FOUND {
        return Ok(None);
    }
    if !done {
        return Err(format!("failed; {by_hand}"));
    }
    let HelperAnswer { username, secret } = serde_json::from_slice(&printed)
        .map_err(|_| format!("did not print both a user name and a secret; {by_hand}"))?;
    Ok(Some(match username.as_str() {
        IDENTITY_TOKEN => Login::IdentityToken(secret),
        _ => Login::Basic { username, password: secret },
    }))
}

/// A helper's process group, which is killed on drop.
struct Running(Child);

impl Running {
    /// The helper's output, and whether it exited with success.
    async fn talk(&mut self, server: &str) -> std::io::Result<(Vec<u8>, bool)> {
        if let Some(mut stdin) = self.0.stdin.take() {
            // A helper that does not read its input may still answer.
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
        // A process that was waited for has no id.
        let group = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(group) = group
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(error = &error as &dyn std::error::Error, "the credential helper had already ended");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path, pin::pin, time::Duration};

    use expect_test::{Expect, expect};
    use futures::poll;
    use tokio::{process::Command, task::yield_now, time};

    use super::{Login, answer};

    /// Longer than a helper that ends takes on a busy machine.
    const PATIENCE: Duration = Duration::from_secs(60);

    /// Runs this shell script as a helper; `$1` is the helper's command.
    async fn asked(script: &str) -> Result<Option<Login>, String> {
        let mut command = Command::new("sh");
        command.args(["-c", script, "helper"]);
        answer(command, "ghcr.io", PATIENCE).await
    }

    async fn refused(script: &str, expected: Expect) {
        let Err(failure) = asked(script).await else { panic!("{script} was accepted") };
        expected.assert_eq(&failure);
    }

    #[tokio::test]
    async fn a_helper_receives_the_server_and_returns_a_password_or_a_token() {
        let by_server = r#"[ "$1" = get ] && printf '{"ServerURL":"x","Username":"me","Secret":"for %s"}' "$(cat)""#;
        let Ok(Some(Login::Basic { username, password })) = asked(by_server).await else { panic!("no password") };
        assert_eq!((username.as_str(), password.as_str()), ("me", "for ghcr.io"));
        let token = asked(r#"echo '{"Username":"<token>","Secret":"t0ken"}'"#).await;
        assert!(matches!(token, Ok(Some(Login::IdentityToken(token))) if token == "t0ken"));
    }

    #[tokio::test]
    async fn a_helper_without_credentials_for_a_server_is_no_failure() {
        assert!(matches!(asked("echo credentials not found in native keychain; exit 1").await, Ok(None)));
    }

    #[tokio::test]
    async fn the_error_of_a_helper_does_not_repeat_the_output_of_the_helper() {
        refused("echo hunter2; echo hunter2 >&2; exit 1", expect!["failed; run it by hand with `get`"]).await;
        refused("echo hunter2", expect!["did not print both a user name and a secret; run it by hand with `get`"])
            .await;
        refused("yes hunter2", expect!["prints more than 65536 bytes; run it by hand with `get`"]).await;
        let missing = answer(Command::new("docker-credential-of-nobody"), "ghcr.io", PATIENCE).await;
        expect!["cannot be run (No such file or directory (os error 2)); install it in a directory of the PATH"]
            .assert_eq(&missing.err().unwrap_or_default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_helper_that_never_ends_is_killed_with_all_its_child_processes() {
        let folder = tempfile::tempdir().unwrap();
        let ids = folder.path().join("ids");
        let script = format!("sleep 1000 & echo $$ $! >{0}.new && mv {0}.new {0}; wait", ids.display());
        let mut helper = pin!(asked(&script));
        while !ids.exists() {
            // The paused clock stands while this task is ready: the helper has time to start.
            assert!(poll!(&mut helper).is_pending(), "the helper ended");
            yield_now().await;
        }
        time::advance(PATIENCE * 2).await;
        let Err(failure) = helper.await else { panic!("{script} was accepted") };
        expect!["did not finish within 60s and was killed; run it by hand with `get`"].assert_eq(&failure);
        time::resume();
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
        let ends = async {
            while runs() {
                time::sleep(Duration::from_millis(20)).await;
            }
        };
        time::timeout(PATIENCE, ends).await.unwrap_or_else(|_| panic!("process {id} still runs"));
    }
}
