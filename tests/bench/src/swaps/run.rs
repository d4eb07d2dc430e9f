//! Measures one source: offers releases one after another and waits for each, while calls run.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use tempfile::TempDir;

use super::{
    calls::{Calls, Ended},
    figures::{CACHES_FULL, Figures, Shares, Spread},
    memory::resident_mib,
    place::{Place, Source},
    reference::compile_once,
    releases::{Release, Releases},
    world::{Reached, Setting, World},
};

/// Number of components that alternate in the test of machine code in memory.
const KNOWN_IN_MEMORY: u32 = 2;
/// The same for machine code on disk: more than the cache in memory has entries, so that the
/// repeated component is not in memory any more.
const KNOWN_ON_DISK: u32 = 20;
/// Swaps between two compilations for comparison.
const COMPARE_EVERY: u32 = 50;
/// Samples of the memory over a run.
const SAMPLES: u32 = 100;

/// The settings of a run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// Names of bundled components, which alternate; at least one.
    pub components: Vec<String>,
    /// Number of swaps.
    pub swaps: u32,
    /// Rate of the calls during the run.
    pub calls_per_second: u32,
    /// How long the simulated cloud waits before it answers a request.
    pub latency: Duration,
    /// Whether machine code is also written to disk, as with `--state-dir`.
    pub keep: bool,
    /// The program of the reference compilation: if its first argument is [`super::REFERENCE`], it
    /// calls [`super::reference_main`].
    pub reference: PathBuf,
}

/// Measures one source; `say` receives the progress.
///
/// # Errors
/// Something does not start, or a release does not serve.
pub async fn swaps(source: Source, options: &RunOptions, say: impl Fn(&str)) -> Result<Figures> {
    let releases = Releases::of(&options.components)?;
    let folder = TempDir::new().context("a folder for the run")?;
    // A symbolic link, which can be removed later.
    let jail = folder.path().join("compiler");
    symlink(crate::skysail()?, &jail).context("naming the compiler")?;
    let keeping = (options.keep || source == Source::Disk).then(|| folder.path().join("compiled"));
    let world = World::new(Setting { latency: options.latency, jail: jail.clone(), keeping }).await?;
    let place = Place::of(source).await?;
    let mut run = Run { source, options, releases, world, place, times: Times::default() };
    run.prepare(&jail).await?;
    // The first release exists before its source starts, so that no source reports a missing
    // release.
    let look = run.world.look();
    let _feeder = run.place.watch()?.map(|offers| run.world.feed(offers));
    run.world.until_serving(look, &run.release(0)).await?;
    let calls = Calls::start(run.world.slot.clone(), options.calls_per_second);
    run.sample(0).await?;
    for number in 1..=options.swaps {
        run.swap(number).await.with_context(|| format!("swap {number} of {source}"))?;
        if number.is_multiple_of((options.swaps / 10).max(1)) {
            say(&format!("{source}: {number} of {}", options.swaps));
        }
    }
    let ended = calls.end().await?;
    Ok(run.figures(ended))
}

/// The state of a run.
struct Run<'a> {
    source: Source,
    options: &'a RunOptions,
    releases: Releases,
    world: World,
    place: Place,
    times: Times,
}

/// The measured times.
#[derive(Default)]
struct Times {
    serving: Vec<Duration>,
    written: Vec<Duration>,
    source: Vec<Duration>,
    judged: Vec<Duration>,
    compiled: Vec<Duration>,
    rest: Vec<Duration>,
    compile: Vec<Duration>,
    code_bytes: usize,
    resident_mib: BTreeMap<u32, f64>,
}

impl Run<'_> {
    /// Offers the first release, or all of them if releases repeat, and then removes the compiler.
    async fn prepare(&mut self, jail: &Path) -> Result<()> {
        let known = if self.source.is_known() { self.known() } else { 1 };
        for number in (0..known).rev() {
            self.place.put(&self.release(number), &self.world.slot).await?;
        }
        if self.source.is_known() {
            // Without the compiler, a release that is not cached is refused, and the run fails.
            fs::remove_file(jail).context("removing the link to the compiler")?;
        }
        Ok(())
    }

    const fn known(&self) -> u32 {
        match self.source {
            Source::Disk => KNOWN_ON_DISK,
            Source::File | Source::ConfigMap | Source::Oci | Source::Memory => KNOWN_IN_MEMORY,
        }
    }

    fn release(&self, number: u32) -> Release {
        self.releases.number(if self.source.is_known() { number % self.known() } else { number })
    }

    async fn swap(&mut self, number: u32) -> Result<()> {
        let release = self.release(number);
        let look = self.world.look();
        // Do both concurrently: waiting must not begin only after the write.
        let put = self.place.put(&release, &self.world.slot);
        let (put, reached) = tokio::try_join!(put, self.world.until_serving(look, &release))?;
        // A watch may deliver the change before the writer has the response.
        let seen = self.place.seen(put)?;
        let Reached { offered, verified, compiled, serving } = reached;
        self.times.serving.push(serving.saturating_duration_since(seen));
        self.times.written.push(serving.saturating_duration_since(put.begun));
        self.times.source.push(offered.saturating_duration_since(seen));
        self.times.judged.push(verified.saturating_duration_since(offered));
        self.times.compiled.push(compiled.saturating_duration_since(verified));
        self.times.rest.push(serving.saturating_duration_since(compiled));
        if number.is_multiple_of((self.options.swaps / SAMPLES).max(1)) || number == CACHES_FULL {
            self.sample(number).await?;
        }
        if number.is_multiple_of(COMPARE_EVERY.min(self.options.swaps.div_ceil(5))) {
            let (time, code_bytes) = compile_once(&self.options.reference, &release.bytes).await?;
            self.times.compile.push(time);
            self.times.code_bytes = code_bytes;
        }
        Ok(())
    }

    /// Samples the memory while no old release is draining.
    async fn sample(&mut self, number: u32) -> Result<()> {
        self.world.until_drained().await?;
        self.times.resident_mib.insert(number, resident_mib()?);
        Ok(())
    }

    fn figures(self, calls: Ended) -> Figures {
        let Self { source, options, releases, times, .. } = self;
        Figures {
            source,
            component: options.components.join(" and "),
            component_bytes: releases.number(0).bytes.len(),
            code_bytes: times.code_bytes,
            swaps: options.swaps,
            serving_ms: Spread::of(&times.serving),
            written_ms: Spread::of(&times.written),
            shares: Shares {
                source_ms: Spread::of(&times.source).p50,
                judged_ms: Spread::of(&times.judged).p50,
                compiled_ms: Spread::of(&times.compiled).p50,
                rest_ms: Spread::of(&times.rest).p50,
            },
            compile_ms: Spread::of(&times.compile).p50,
            calls: calls.count(),
            call_ms: calls.spread(),
            failed: calls.failed,
            resident_mib: times.resident_mib,
        }
    }
}
