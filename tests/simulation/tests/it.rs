//! Runs the days that belong to every test run, and checks that a day is reproducible.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::process::{Command, Output};

fn simulate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_simulate"))
        .args(args)
        .env_remove("SEEDS")
        .env_remove("SEED_FROM")
        .output()
        .unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn five_hundred_days_end_well() {
    let output = simulate(&["--seeds", "500"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
}

#[test]
fn a_seed_is_the_same_day_to_the_last_line() {
    let day = || simulate(&["--one", "7", "--story"]);
    let (first, second) = (day(), day());
    assert!(text(&first.stdout).lines().count() > 50, "{}", text(&first.stderr));
    assert_eq!(text(&first.stdout), text(&second.stdout));
}
