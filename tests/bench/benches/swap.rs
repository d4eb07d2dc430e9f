//! Measures the time from the rename of a file until the release serves: notification, settling,
//! admission, the compile jail, linking, `describe`, `check-config`, swap. Every round has a new
//! digest, so the cache of machine code is not used; its functions are those of the previous round,
//! and are not compiled again.
//!
//! `cargo bench -p skysail-test-bench --bench swap`; `make bench` runs it.

#![expect(clippy::unwrap_used, reason = "a bench that cannot be set up has nothing else to do")]

use std::{fs, process::ExitCode, sync::Arc, time::Duration};

use criterion::Criterion;
use skysail_host::{
    CallRecorder, Engine, Limits, SandboxOptions,
    jail::{Compiler, child_main},
    slot::{Offer, Slot, SlotMetrics, SlotOptions, SlotServices},
};
use skysail_sources::{Digest, FileSource, FileSourceSettings};
use skysail_test_bench::{JAIL, component, own_jail};
use tokio::{runtime::Runtime, task::JoinSet, time::Instant};

/// The cloud-config that simcloud requires; no request is sent to this address.
const CONFIG: &str = "[Global]\nendpoint = http://127.0.0.1:1\n";

fn main() -> ExitCode {
    if std::env::args().nth(1).as_deref() == Some(JAIL) {
        return child_main();
    }
    let mut criterion = Criterion::default().configure_from_args().sample_size(20);
    bench(&mut criterion);
    criterion.final_summary();
    ExitCode::SUCCESS
}

fn slot() -> Slot {
    let services = SlotServices {
        engine: Engine::new().unwrap(),
        recorder: CallRecorder::default(),
        compiler: Compiler::jailed(own_jail().unwrap()),
        metrics: SlotMetrics::default(),
    };
    let sandbox =
        SandboxOptions { name: "bench".to_owned(), limits: Limits::default(), config: CONFIG.to_owned(), http: None };
    Slot::new(services, SlotOptions::new(sandbox)).unwrap()
}

fn bench(criterion: &mut Criterion) {
    let component = component("simcloud").unwrap();
    let dir = tempfile::tempdir().unwrap();
    let (path, partial) = (dir.path().join("provider.wasm"), dir.path().join("partial"));
    let runtime = Runtime::new().unwrap();
    let _entered = runtime.enter();
    let slot = Arc::new(slot());
    let mut offers = FileSource::new(path.clone(), FileSourceSettings::default()).watch();
    let mut feeder = JoinSet::new();
    feeder.spawn({
        let slot = Arc::clone(&slot);
        async move {
            while let Some(report) = offers.next().await {
                if let Ok(offer) = report {
                    slot.offer(Offer { bytes: offer.bytes, origin: offer.origin }).await.unwrap();
                }
            }
        }
    });
    let mut round = 0_u32;
    criterion.bench_function(&format!("file event to serving, simcloud, {} bytes", component.len()), |bencher| {
        bencher.iter_custom(|iterations| {
            let mut total = Duration::ZERO;
            for _ in 0..iterations {
                round += 1;
                // A custom section changes the digest and not the behaviour.
                let bytes = [component.as_slice(), &[0, 6, 1, b'm'], &round.to_le_bytes()].concat();
                let digest = Digest::of(&bytes).to_string();
                let mut status = slot.status();
                fs::write(&partial, &bytes).unwrap();
                let start = Instant::now();
                fs::rename(&partial, &path).unwrap();
                runtime
                    .block_on(status.wait_for(|s| s.active.as_ref().is_some_and(|active| active.digest == digest)))
                    .unwrap();
                total += start.elapsed();
            }
            total
        });
    });
    drop(feeder);
}
