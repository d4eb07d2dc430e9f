//! The memory that remains in use after a thousand releases.

use std::{fs, process::Command, sync::Arc};

use bytes::Bytes;
use skysail_provider::Code;
use tokio::{task::JoinSet, time};

use super::{GUEST, Guest, Master, PATIENCE, component, offer, slot, version};
use crate::slot::{Offered, Slot};

/// Set in a process that runs only this test, because the memory of a process is that of all its
/// tests.
const ALONE: &str = "SKYSAIL_TEST_ALONE";

/// Bytes by which the machine code of each release is larger than its guest needs.
const BALLAST_BYTES: u64 = 128 << 10;

/// Swaps after which the memory that is kept on purpose is allocated: machine code of the last
/// components, and the allocator's pages.
const WARM: u32 = 200;
const SWAPS: u32 = 1000;

/// Largest allowed growth. All releases after the first [`WARM`] together are six times as large.
const MARGIN_BYTES: u64 = 16 << 20;

const _: () = assert!((SWAPS - WARM) as u64 * BALLAST_BYTES >= 6 * MARGIN_BYTES);

/// The text before the number of a release.
const NUMBER: &str = "number:";

/// A guest, and after it a core module that no code instantiates: it is compiled, and loaded with
/// the rest.
fn ballasted() -> Vec<u8> {
    let filling = "x".repeat(usize::try_from(BALLAST_BYTES).unwrap());
    let module =
        wat::parse_str(format!(r#"(module (memory 3) (data (i32.const 0) "{NUMBER}0000{filling}"))"#)).unwrap();
    // Section 1 with its length in LEB128, of three bytes.
    let length = u32::try_from(module.len()).unwrap();
    let [low, middle, high] = [length, length >> 7, length >> 14].map(|bits| u8::try_from(bits & 0x7f).unwrap());
    let guest = component(&Guest { master: Master::Version(10_000), ..GUEST });
    [&guest, &[1, low | 0x80, middle | 0x80, high][..], &module].concat()
}

/// The same with a digest of its own.
fn release(ballasted: &[u8], number: u32) -> Bytes {
    let mut bytes = ballasted.to_vec();
    // In the module, which is last.
    let at = bytes.len() - usize::try_from(BALLAST_BYTES).unwrap() - 4;
    assert!(bytes[..at].ends_with(NUMBER.as_bytes()));
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    bytes.into()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() << 10
}

/// One call that begins on the release that serves and may end after it was exchanged.
fn call(slot: &Arc<Slot>, calls: &mut JoinSet<Result<String, Code>>) {
    let slot = Arc::clone(slot);
    calls.spawn(async move { version(&slot).await });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_swaps_leave_resident_memory_as_it_was() {
    const NAME: &str = "slot::tests::memory::a_thousand_swaps_leave_resident_memory_as_it_was";
    if std::env::var_os(ALONE).is_none() {
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", NAME, "--nocapture"])
            .env(ALONE, "1")
            .output();
        let output = child.unwrap();
        let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains("1 passed"), "{text}");
        return;
    }
    let slot = Arc::new(slot(""));
    let ballasted = ballasted();
    let (mut calls, mut warm) = (JoinSet::new(), 0);
    for number in 1..=SWAPS {
        assert_eq!(offer(&slot, &release(&ballasted, number)).await, Ok(Offered::Activated));
        call(&slot, &mut calls);
        if number.is_multiple_of(WARM) {
            while let Some(answer) = calls.join_next().await {
                assert_eq!(answer.unwrap(), Ok("1".to_owned()));
            }
            let mut status = slot.status();
            time::timeout(PATIENCE, status.wait_for(|status| status.draining == 0)).await.unwrap().unwrap();
            let resident = resident_bytes();
            println!("{number} swaps: {} KiB", resident >> 10);
            if number == WARM {
                warm = resident;
            }
        }
    }
    let code = slot.serving().unwrap().release().instance_pre().component().image_range();
    let code_bytes = (code.end.addr() - code.start.addr()) as u64;
    let grown = resident_bytes().saturating_sub(warm);
    assert!(code_bytes > BALLAST_BYTES, "{code_bytes} bytes");
    assert!(
        grown < MARGIN_BYTES,
        "{} swaps took {} KiB, {} bytes each: a release has {code_bytes} bytes of machine code",
        SWAPS - WARM,
        grown >> 10,
        grown / u64::from(SWAPS - WARM)
    );
}
