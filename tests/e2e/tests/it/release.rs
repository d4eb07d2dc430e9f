//! `make release` and `make release-commit` in a copy of the repository with tags of its own: what
//! a release holds and how a user verifies it, by the commands of the page, by the manager and by
//! cosign; and what both targets refuse. The program under test and built components stand in for
//! those that `make release` builds, and a few lines of C for the manager for the other
//! architecture.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;
use skysail_test_e2e::{
    registry::Registry,
    tools::installed,
    workspace::{component, root, run, skysail, target},
};
use tempfile::TempDir;

use crate::documents::{blocks, page};

const PAGE: &str = "deploy/docs/releases.md";

/// The types of the attestations about each artifact, as cosign calls them.
const ATTESTATIONS: [&str; 3] = ["slsaprovenance1", "spdxjson", "cyclonedx"];

/// One change of users, in the section of a version.
const CHANGE: &str = "- One change.";

/// A copy of the repository, with its own history, and the folder for its releases.
pub(crate) struct Checkout {
    folder: TempDir,
    pub(crate) version: String,
}

impl Checkout {
    /// Copies what git tracks or would track, so that the scripts of a working tree are tested. One
    /// provider stays, because each takes seconds.
    pub(crate) fn new() -> Result<Self> {
        let version = run(skysail()?, &["--version"])?;
        let version = version.split(' ').next_back().context("no version")?.to_owned();
        let checkout = Self { folder: TempDir::new()?, version };
        let copy = checkout.path("copy").display().to_string();
        fs::create_dir(&copy)?;
        let files = "git ls-files -co --exclude-standard -z | tar --null --files-from=- -c | tar -x -C \"$0\"";
        run("bash", &["-euo", "pipefail", "-c", files, &copy])?;
        for entry in fs::read_dir(checkout.path("copy/guests"))? {
            let readme = entry?.path().join("README.md");
            if readme.exists() && !readme.ends_with("incus/README.md") {
                fs::remove_file(readme)?;
            }
        }
        checkout.git(&["init", "--quiet"])?;
        checkout.change(&["## Unreleased", CHANGE])?;
        Ok(checkout)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn at(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn git(&self, arguments: &[&str]) -> Result<String> {
        let copy = self.at("copy");
        run(
            "git",
            &[&["-C", &copy, "-c", "user.name=test", "-c", "user.email=test@skysail.example"], arguments].concat(),
        )
    }

    /// Commits a changelog of these lines.
    fn change(&self, changelog: &[&str]) -> Result<()> {
        fs::write(self.path("copy/CHANGELOG.md"), format!("# Changelog\n\n{}\n", changelog.join("\n\n")))?;
        self.git(&["add", "--all"])?;
        self.git(&["commit", "--quiet", "--allow-empty", "--message", "A change"]).map(drop)
    }

    /// Commits a changelog with a section of the version, and moves the version's tag there.
    pub(crate) fn tag(&self) -> Result<()> {
        self.change(&["## Unreleased", &format!("## {} - 2026-01-01", self.version), CHANGE])?;
        self.git(&["tag", "--force", &format!("v{}", self.version)]).map(drop)
    }

    /// Runs a script of the copy, with the tools of this repository and with these variables alone.
    fn script(&self, script: &str, arguments: &[&str], variables: &[&str]) -> Result<String> {
        let tools = format!("CARGO_TARGET_DIR={}", target().canonicalize()?.display());
        let (folder, script) = (format!("--chdir={}", self.at("copy")), self.at(&format!("copy/.ci/release/{script}")));
        let unset = ["--unset=COSIGN_KEY", "--unset=COSIGN_PASSWORD", "--unset=RELEASE_UNSIGNED"];
        let identity = ["GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@b", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@b"];
        run("env", &[&unset[..], &[&folder, &tools], &identity, variables, &[&script], arguments].concat())
    }

    /// The sentence with which `make release` refuses before it builds.
    fn refusal(&self, variables: &[&str]) -> Result<String> {
        let error = self.script("make", &["check"], variables).err().context("the release was not refused")?;
        Ok(error.to_string())
    }

    /// Makes a release of the program under test, and returns its folder.
    fn release(&self, name: &str, variables: &[&str]) -> Result<PathBuf> {
        let components = component("incus")?.canonicalize()?.with_file_name("");
        self.release_of(&components, name, variables)
    }

    /// The same of the components in this folder.
    pub(crate) fn release_of(&self, components: &Path, name: &str, variables: &[&str]) -> Result<PathBuf> {
        let (programs, components) = (self.at("programs"), components.display().to_string());
        if !self.path("programs").exists() {
            let [own, other] = architectures()?;
            fs::create_dir(&programs)?;
            symlink(skysail()?.canonicalize()?, self.path(&format!("programs/skysail-linux-{own}")))?;
            self.stand_in(&other)?;
        }
        self.script("make", &["assemble", &programs, &components, &self.at(name)], variables)?;
        Ok(self.path(name))
    }

    /// Compiles the program for the other architecture. `make test` builds no second manager, so
    /// this program has the manager's version and the name of a compiler, and nothing else of the
    /// manager. So the tests show that a release packs, describes and signs the program and the
    /// image of each architecture, and nothing about the manager for the other architecture, which
    /// `make image ARCH=…` builds and starts.
    fn stand_in(&self, architecture: &str) -> Result<()> {
        let machine = if architecture == "arm64" { "aarch64" } else { "x86_64" };
        let text = format!(
            r#"#include <stdio.h>
__asm__(".ident \"rustc version 1.0.0\"");
int main(void) {{ return puts("skysail {}") < 0; }}
"#,
            self.version
        );
        let (source, program) = (self.at("program.c"), self.at(&format!("programs/skysail-linux-{architecture}")));
        fs::write(&source, text)?;
        // The libraries that a program of Rust names.
        let libraries = ["-Wl,--no-as-needed", "-lm", "-lgcc_s"];
        run(format!("{machine}-linux-gnu-gcc"), &[&["-o", &program, &source], &libraries[..]].concat()).map(drop)
    }

    /// A key pair of cosign: the variables with which a release is signed.
    pub(crate) fn key(&self) -> Result<[String; 2]> {
        let (cosign, key) = (installed("bin/cosign")?, self.at("cosign"));
        let arguments = ["COSIGN_PASSWORD=clear skies", &cosign, "generate-key-pair", "--output-key-prefix", &key];
        run("env", &arguments)?;
        Ok([format!("COSIGN_KEY={key}.key"), "COSIGN_PASSWORD=clear skies".to_owned()])
    }

    /// Runs the commands of the page in the folder of a release, as a user who has the public key.
    fn verify(&self, release: &Path) -> Result<String> {
        let page = page(PAGE)?;
        let mut verifying = blocks(&page).into_iter().filter(|block| block.mark == "a test runs this block");
        let commands = verifying.next().with_context(|| format!("{PAGE} has no block to run"))?.text;
        let commands = commands.replace("cosign.pub", &self.at("cosign.pub")).replace("X.Y.Z", &self.version);
        let script = format!("cd \"$0\"; PATH=$1:$PATH; {commands}");
        let tools = Path::new(&installed("bin/cosign")?).canonicalize()?.with_file_name("");
        let (release, tools) = (release.display().to_string(), tools.display().to_string());
        run("bash", &["-euo", "pipefail", "-c", &script, &release, &tools])
    }
}

/// The architectures of a release: that of this machine and the other one.
fn architectures() -> Result<[String; 2]> {
    let own = run("dpkg", &["--print-architecture"])?;
    let other = if own == "amd64" { "arm64" } else { "amd64" };
    Ok([own, other.to_owned()])
}

fn json(path: PathBuf) -> Result<Value> {
    serde_json::from_slice(&fs::read(&path)?).with_context(|| path.display().to_string())
}

#[tokio::test]
async fn a_release_has_all_parts_and_each_way_to_verify_it_accepts_it_and_no_other() -> Result<()> {
    let checkout = Checkout::new()?;
    checkout.tag()?;
    let key = checkout.key()?;
    let release = checkout.release("release", &key.each_ref().map(String::as_str))?;
    has_all_parts(&checkout, &release)?;
    names_its_dependencies(&release)?;
    is_served_with_its_key(&checkout, &release).await?;

    // The same commit gives the same bytes, signatures aside.
    let again = checkout.release("again", &["RELEASE_UNSIGNED=1"])?;
    ensure!(fs::read(release.join("SHA256SUMS"))? == fs::read(again.join("SHA256SUMS"))?, "the release differs");
    ensure!(!again.join("SHA256SUMS.sigstore.json").exists(), "a signature without a key");

    checkout.verify(&release)?;
    for file in ["incus.wasm", "SHA256SUMS", "provenance.json"] {
        let original = fs::read(release.join(file))?;
        fs::write(release.join(file), [&original[..], b"\n"].concat())?;
        ensure!(checkout.verify(&release).is_err(), "a changed {file} was not noticed");
        fs::write(release.join(file), original)?;
    }
    checkout.verify(&release).map(drop)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// The files, and that the provenance has the checksum of each and the commit.
fn has_all_parts(checkout: &Checkout, release: &Path) -> Result<()> {
    let version = &checkout.version;
    let programs = architectures()?.map(|architecture| format!("skysail-linux-{architecture}"));
    let images = architectures()?.map(|architecture| format!("skysail-image-linux-{architecture}"));
    let chart = format!("skysail-{version}.tgz");
    let sums = fs::read_to_string(release.join("SHA256SUMS"))?;
    let sums: BTreeSet<(&str, &str)> = sums.lines().filter_map(|line| line.split_once("  ")).collect();
    let names: BTreeSet<&str> = sums.iter().map(|(_, name)| *name).filter(|name| !name.starts_with("oci/")).collect();
    let mut expected: BTreeSet<String> =
        [&chart, "incus.wasm", "incus.symbols", "provenance.json"].map(str::to_owned).into();
    for part in programs.iter().chain(&images).chain([&chart, &"incus.wasm".to_owned()]) {
        expected.extend([format!("{part}.spdx.json"), format!("{part}.cdx.json")]);
    }
    expected.extend(programs);
    ensure!(names == expected.iter().map(String::as_str).collect(), "{names:#?}");
    run(installed("bin/helm")?, &["lint", &release.join(chart).display().to_string()])?;

    let provenance = json(release.join("provenance.json"))?;
    let subjects = provenance.get("subject").and_then(Value::as_array).context("no subject")?;
    let subjects =
        subjects.iter().filter_map(|s| Some((s.pointer("/digest/sha256")?.as_str()?, s.get("name")?.as_str()?)));
    let subjects: BTreeSet<(&str, &str)> = subjects.collect();
    let others: BTreeSet<(&str, &str)> = sums.into_iter().filter(|(_, name)| *name != "provenance.json").collect();
    ensure!(subjects == others, "{subjects:#?}");
    let commit = checkout.git(&["rev-parse", "HEAD"])?;
    let source = provenance.pointer("/predicate/buildDefinition/resolvedDependencies/0/digest/gitCommit");
    ensure!(source.and_then(Value::as_str) == Some(&*commit), "{provenance:#}");
    let sources = provenance.pointer("/predicate/buildDefinition/resolvedDependencies").and_then(Value::as_array);
    let names: Vec<&str> = sources.context("no sources")?.iter().filter_map(|source| text(source, "name")).collect();
    for architecture in architectures()? {
        let is_libc = |name: &&str| name.starts_with("libc6_") && name.ends_with(&format!("_{architecture}.deb"));
        ensure!(names.iter().any(is_libc), "no C library of {architecture}: {names:?}");
    }
    Ok(())
}

/// The program's SBOMs have wasmtime in the version of Cargo.lock, and the image's also the C
/// library. `sbom.py` has validated the documents with the libraries of both formats.
fn names_its_dependencies(release: &Path) -> Result<()> {
    let [own, other] = architectures()?;
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let (_, entry) = lock.split_once("\nname = \"wasmtime\"\nversion = \"").context("Cargo.lock has no wasmtime")?;
    let (version, _) = entry.split_once('"').context("no version")?;
    let wasmtime = format!("pkg:cargo/wasmtime@{version}");
    let of = |architecture: &str| format!("arch={architecture}&");
    for (part, purl, end) in [
        (format!("skysail-linux-{own}"), &*wasmtime, String::new()),
        (format!("skysail-linux-{other}"), &wasmtime, String::new()),
        (format!("skysail-image-linux-{own}"), &wasmtime, String::new()),
        (format!("skysail-image-linux-{own}"), "pkg:deb/debian/libc6@", of(&own)),
        (format!("skysail-image-linux-{other}"), "pkg:deb/debian/libc6@", of(&other)),
        ("incus.wasm".to_owned(), "pkg:cargo/serde_json@", String::new()),
    ] {
        let is_there = |found: &str| found.starts_with(purl) && found.contains(&end);
        let spdx = json(release.join(format!("{part}.spdx.json")))?;
        ensure!(text(&spdx, "spdxVersion") == Some("SPDX-2.3"), "{part}: another format: {spdx:#}");
        let packages = spdx.get("packages").and_then(Value::as_array).context("no packages")?;
        let locators = packages.iter().filter_map(|package| package.pointer("/externalRefs/0/referenceLocator"));
        ensure!(locators.filter_map(Value::as_str).any(is_there), "{part}: SPDX lacks {purl}");
        let bom = json(release.join(format!("{part}.cdx.json")))?;
        ensure!(text(&bom, "bomFormat") == Some("CycloneDX"), "{part}: another format: {bom:#}");
        let components = bom.get("components").and_then(Value::as_array).context("no components")?;
        let mut purls = components.iter().filter_map(|component| text(component, "purl"));
        ensure!(purls.any(is_there), "{part}: CycloneDX lacks {purl}");
    }
    Ok(())
}

/// The layouts in a real registry, copied as the page says: `skysail pull` and cosign verify the
/// provider, and cosign the image and what the image of each architecture is.
async fn is_served_with_its_key(checkout: &Checkout, release: &Path) -> Result<()> {
    let (registry, oras) = (Registry::open().await?, installed("bin/oras")?);
    let at = |name: &str| format!("{}/org/{name}:{}", registry.host(), checkout.version);
    for name in ["incus", "skysail"] {
        let layout = format!("{}:{}", release.join("oci").join(name).display(), checkout.version);
        run(&oras, &["cp", "-r", "--from-oci-layout", "--to-plain-http", &layout, &at(name)])?;
    }
    let (key, file) = (checkout.at("cosign.pub"), checkout.at("pulled.wasm"));
    registry.skysail(&["pull", "--key", &key, &at("incus"), "--file", &file])?;
    ensure!(fs::read(&file)? == fs::read(release.join("incus.wasm"))?, "another component was pulled");
    let other = root().join("runtime/sources/src/oci/tests/cosign/cosign.pub").display().to_string();
    let refused = registry.skysail(&["pull", "--key", &other, &at("incus"), "--file", &file]).err();
    let refused = refused.context("a release was accepted with another key")?.to_string();
    ensure!(refused.contains("sign the artifact with the expected keys or identities"), "{refused}");
    is_attested(&at("incus"), &key, &ATTESTATIONS)?;

    is_attested(&at("skysail"), &key, &["slsaprovenance1"])?;
    for architecture in architectures()? {
        let platform = format!("linux/{architecture}");
        let config = ["manifest", "fetch-config", "--plain-http", "--platform", &platform, &at("skysail")];
        let config: Value = serde_json::from_str(&run(&oras, &config)?)?;
        ensure!(text(&config, "architecture") == Some(&architecture), "{platform}: {config:#}");
        let digest = run(&oras, &["resolve", "--plain-http", "--platform", &platform, &at("skysail")])?;
        is_attested(&format!("{}/org/skysail@{digest}", registry.host()), &key, &ATTESTATIONS)?;
    }
    Ok(())
}

/// What cosign verifies of an artifact in a registry.
fn is_attested(reference: &str, key: &str, attestations: &[&str]) -> Result<()> {
    let cosign = installed("bin/cosign")?;
    let with = ["--key", key, "--insecure-ignore-tlog", "--allow-http-registry", reference];
    run(&cosign, &[&["verify"], &with[..]].concat())?;
    for kind in attestations {
        run(&cosign, &[&["verify-attestation", "--type", kind], &with[..]].concat())?;
    }
    Ok(())
}

#[test]
fn what_is_no_release_is_refused_with_its_remedy_before_anything_is_built() -> Result<()> {
    let checkout = Checkout::new()?;
    let (version, unsigned) = (&checkout.version, &["RELEASE_UNSIGNED=1"][..]);
    let refused = |variables: &[&str], sentence: &str| -> Result<()> {
        let refusal = checkout.refusal(variables)?;
        ensure!(refusal.contains(sentence), "{refusal}\ninstead of {sentence}");
        Ok(())
    };
    refused(unsigned, "has no tag: make release makes only what a tag names")?;
    checkout.git(&["tag", "v99.0.0"])?;
    refused(unsigned, &format!("tag v99.0.0: Cargo.toml has the version {version}, and both have to be equal"))?;
    checkout.git(&["tag", &format!("v{version}")])?;
    refused(unsigned, &format!("CHANGELOG.md: no section '## {version} - DATE'"))?;
    checkout.change(&[
        "## Unreleased",
        CHANGE,
        &format!("## {version} - 2026-01-01"),
        "## 0.0.0-old - 2025-01-01",
        CHANGE,
    ])?;
    checkout.git(&["tag", "--force", &format!("v{version}")])?;
    refused(unsigned, &format!("CHANGELOG.md: the section {version} has no entry"))?;
    checkout.tag()?;
    fs::write(checkout.path("copy/new-file"), "")?;
    refused(unsigned, "the checkout has changes without a commit (new-file)")?;
    fs::remove_file(checkout.path("copy/new-file"))?;

    refused(&[], "COSIGN_KEY is not set, and a release is signed; set it")?;
    refused(&["COSIGN_KEY=missing.key"], "COSIGN_KEY: missing.key is no file")?;
    refused(&["COSIGN_KEY=Makefile"], "COSIGN_PASSWORD is not set")?;
    refused(&["COSIGN_KEY=Makefile", "RELEASE_UNSIGNED=1"], "only one of them can hold")?;
    checkout.script("make", &["check"], unsigned)?;

    let unmade = |variables: &[&str], sentence: &str| -> Result<()> {
        let refusal = checkout.release("release", variables).err().context("the release was not refused")?.to_string();
        ensure!(refusal.contains(sentence), "{refusal}\ninstead of {sentence}");
        ensure!(!checkout.path("release").exists(), "the refused release left files");
        Ok(())
    };
    let [key, _] = checkout.key()?;
    unmade(&[&key, "COSIGN_PASSWORD=wrong"], "correct COSIGN_KEY or COSIGN_PASSWORD")?;
    let [own, other] = architectures()?;
    let [own, program] = [&own, &other].map(|name| checkout.path(&format!("programs/skysail-linux-{name}")));
    fs::remove_file(&program)?;
    let remedy = format!("build it with .ci/program {other}");
    unmade(unsigned, &format!("is missing, and a release is for amd64 arm64; {remedy}"))?;
    symlink(own, program)?;
    unmade(unsigned, &format!("is no program for {other}; {remedy}"))
}

#[test]
fn the_commit_of_a_release_has_its_version_everywhere_and_its_section_of_the_changelog() -> Result<()> {
    let checkout = Checkout::new()?;
    for (version, sentence) in [
        ("", "VERSION is not set; run make release-commit VERSION=X.Y.Z"),
        ("v99.1", "VERSION=v99.1 is no semantic version; write X.Y.Z"),
        (&checkout.version, "which Cargo.toml has; choose a later version"),
        ("0.0.0-rc.1", "VERSION=0.0.0-rc.1 does not come after"),
    ] {
        let refusal =
            checkout.script("cut", &[version], &[]).err().with_context(|| format!("{version:?} was accepted"))?;
        ensure!(refusal.to_string().contains(sentence), "{version:?}: {refusal}");
    }
    checkout.script("cut", &["99.1.0-rc.1"], &[])?;
    let refusal = checkout.script("cut", &["99.1.0"], &[]).err().context("a release without a change was accepted")?;
    ensure!(refusal.to_string().contains("CHANGELOG.md: 'Unreleased' has no entry"), "{refusal}");
    let changelog = fs::read_to_string(checkout.path("copy/CHANGELOG.md"))?;
    ensure!(changelog.contains("## Unreleased\n\n## 99.1.0-rc.1 - 2"), "{changelog}");
    checkout.change(&["## Unreleased", CHANGE])?;
    checkout.script("cut", &["99.1.0"], &[])?;
    ensure!(checkout.git(&["log", "-1", "--format=%s"])? == "Release 99.1.0", "another subject");
    ensure!(checkout.git(&["status", "--porcelain"])?.is_empty(), "something is not committed");

    // What has the old version now has the new one, and nothing else has changed.
    let manifest = checkout.at("copy/Cargo.toml");
    run(env!("CARGO"), &["tree", "--locked", "--depth=0", "--package=skysail", "--manifest-path", &manifest])?;
    for file in [
        "Cargo.toml",
        "deploy/chart/Chart.yaml",
        "guest-sdk/js/package.json",
        "guest-sdk/js/package-lock.json",
        "guest-sdk/python/pyproject.toml",
    ] {
        let (old, new) =
            (fs::read_to_string(root().join(file))?, fs::read_to_string(checkout.path("copy").join(file))?);
        let (old, new) = (without(&old, &checkout.version), without(&new, "99.1.0"));
        ensure!(old == new, "{file}:\n{new}");
    }
    let rendered = run(installed("bin/helm")?, &["template", "skysail", &checkout.at("copy/deploy/chart")])?;
    let committed = fs::read_to_string(checkout.path("copy/deploy/manifests/deployment.yaml"))?;
    for line in committed.lines().filter(|line| line.contains("99.1.0")) {
        ensure!(rendered.contains(line), "deploy/manifests/deployment.yaml has {line}, the chart has not");
    }
    ensure!(committed.contains("image: skysail:99.1.0"), "{committed}");
    Ok(())
}

/// A file with `VERSION` in place of a version that stands alone.
fn without(text: &str, version: &str) -> String {
    text.replace(&format!(": {version}\n"), ": VERSION\n").replace(&format!("\"{version}\""), "\"VERSION\"")
}
