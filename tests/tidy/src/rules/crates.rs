//! Manifests and who may depend on whom. The tables are data: a new edge is one line that a
//! reviewer sees.

use crate::{
    rule::{Hit, Rule},
    tree::{CARGO_TREE, File, package_name},
};

/// Crates of ours that a crate of ours may use, outside its tests. Folders end with `/` and stand
/// for every crate below.
const EDGES: &[(&str, &[&str])] = &[
    ("runtime/provider/", &[]),
    ("runtime/egress/", &["skysail-provider"]),
    ("runtime/slot/", &["skysail-provider"]),
    ("runtime/host/", &["skysail-egress", "skysail-provider", "skysail-slot"]),
    ("runtime/sources/", &["skysail-egress", "skysail-provider"]),
    ("runtime/controllers/", &["skysail-provider"]),
    ("runtime/election/", &["skysail-provider"]),
    ("runtime/dev/", &["skysail-provider"]),
    ("runtime/serving/", &["skysail-provider"]),
    (
        "runtime/skysail/",
        &[
            "skysail-provider",
            "skysail-host",
            "skysail-sources",
            "skysail-controllers",
            "skysail-serving",
            "skysail-election",
            "skysail-dev",
            // `skysail componentize`.
            "skysail-componentize",
        ],
    ),
    ("guest-sdk/", &[]),
    ("guests/probes/", &["skysail-guest-sdk", "skysail-probe"]),
    ("guests/", &["skysail-guest-sdk"]),
    ("tests/support/", &["skysail-provider", "skysail-host", "skysail-sources", "skysail-controllers", "skysail-dev"]),
    (
        "tests/bench/",
        &[
            "skysail-provider",
            "skysail-host",
            "skysail-sources",
            "skysail-dev",
            "skysail-test-support",
            // For the real registry.
            "skysail-test-e2e",
        ],
    ),
    (
        "tests/",
        &[
            "skysail-provider",
            "skysail-slot",
            "skysail-host",
            "skysail-sources",
            "skysail-controllers",
            "skysail-election",
            "skysail-dev",
            "skysail-test-support",
            "skysail-test-conformance",
            "skysail-guest-sdk",
            // Makes the bindings that the Go SDK has to have.
            "skysail-componentize",
        ],
    ),
];

/// What the tests of any crate may use besides.
const TEST_EDGES: &[&str] = &["skysail-provider", "skysail-dev", "skysail-test-support"];

/// Packages that must not be in a crate's tree, however deep: crate, package (`*` at the end for a
/// prefix), feature (empty: any).
const NEVER: &[(&str, &str, &str)] = &[
    ("skysail-provider", "kube*", ""),
    ("skysail-provider", "k8s-openapi", ""),
    ("skysail-provider", "wasmtime*", ""),
    ("skysail-provider", "tokio", "net"),
    ("skysail-provider", "tokio", "rt"),
    ("skysail-provider", "reqwest", ""),
    ("skysail-provider", "tracing-subscriber", ""),
    ("skysail-egress", "kube*", ""),
    ("skysail-egress", "k8s-openapi", ""),
    ("skysail-egress", "wasmtime*", ""),
    ("skysail-egress", "wit-*", ""),
    ("skysail-egress", "reqwest", ""),
    ("skysail-slot", "kube*", ""),
    ("skysail-slot", "k8s-openapi", ""),
    ("skysail-slot", "wasmtime*", ""),
    ("skysail-slot", "wit-*", ""),
    ("skysail-host", "kube*", ""),
    ("skysail-host", "k8s-openapi", ""),
    ("skysail-sources", "wasmtime*", ""),
    ("skysail-controllers", "wasmtime*", ""),
    ("skysail-controllers", "wit-*", ""),
    ("skysail-controllers", "reqwest", ""),
    ("skysail-election", "wasmtime*", ""),
    ("skysail-election", "reqwest", ""),
    ("skysail-dev", "wasmtime*", ""),
    ("skysail-serving", "wasmtime*", ""),
    ("skysail-serving", "reqwest", ""),
    ("skysail-guest-sdk", "tokio", ""),
    ("skysail-test-conformance", "skysail-host", ""),
    ("skysail-test-simulation", "skysail-host", ""),
    ("skysail-guest-sdk", "kube*", ""),
];

/// Packages that no crate may have in its tree: second cryptography libraries, mocks of our
/// modules.
const NOWHERE: &[&str] =
    &["openssl", "openssl-sys", "native-tls", "aws-lc-rs", "aws-lc-sys", "mockall", "faux", "mockito", "wiremock"];

/// Crates that may use `anyhow`, by folder.
const ANYHOW: &[&str] = &["runtime/skysail/", "guests/componentize/", "tests/"];

pub(crate) const INHERITS_WORKSPACE: Rule = Rule {
    name: "inherits-workspace",
    why: "all crates have the same lints, licence and edition; a crate with its own settings is not noticed",
    remedy: "copy the head of another crate's Cargo.toml: version, edition, rust-version, license, publish and lints from the workspace",
    check: |tree| {
        let mut hits = Vec::new();
        for file in tree.manifests() {
            for key in ["version", "edition", "rust-version", "license", "publish"] {
                if !file.lines().any(|(_, line)| line.trim() == format!("{key}.workspace = true")) {
                    hits.push(Hit::new(&file.path, 0, format!("no `{key}.workspace = true`")));
                }
            }
            if !file.text.contains("[lints]\nworkspace = true") {
                hits.push(Hit::new(&file.path, 0, "no `[lints]` with `workspace = true`"));
            }
        }
        if let Some(root) = tree.get("Cargo.toml") {
            for line in ["publish = false", "license = \"Apache-2.0\"", "edition = \"2024\""] {
                if !root.lines().any(|(_, have)| have == line) {
                    hits.push(Hit::new(&root.path, 0, format!("[workspace.package] has no `{line}`")));
                }
            }
        }
        hits
    },
};

pub(crate) const ONE_TOOLCHAIN: Rule = Rule {
    name: "one-toolchain",
    why: "two statements of the Rust version can differ, and one of them is then wrong",
    remedy: "make `rust-version` in Cargo.toml the major.minor of `channel` in rust-toolchain.toml",
    check: |tree| {
        let value = |path: &str, key: &str| {
            let file = tree.get(path)?;
            file.lines().find_map(|(line, text)| {
                Some((line, text.strip_prefix(key)?.trim_start_matches([' ', '=']).trim_matches('"').to_owned()))
            })
        };
        let Some((line, version)) = value("Cargo.toml", "rust-version") else {
            return vec![Hit::new("Cargo.toml", 0, "no `rust-version` in [workspace.package]")];
        };
        match value("rust-toolchain.toml", "channel") {
            Some((_, channel)) if channel == version || channel.starts_with(&format!("{version}.")) => Vec::new(),
            Some((_, channel)) => {
                vec![Hit::new(
                    "Cargo.toml",
                    line,
                    format!("rust-version is {version}, rust-toolchain.toml pins {channel}"),
                )]
            }
            None => vec![Hit::new("Cargo.toml", line, "rust-toolchain.toml pins no `channel`")],
        }
    },
};

/// What else has the version of a release, and the line that has it: the beginning, and how many
/// such lines of the file count.
const VERSIONED: &[(&str, &str, usize)] = &[
    ("deploy/chart/Chart.yaml", "version: ", 1),
    ("deploy/chart/Chart.yaml", "appVersion: ", 1),
    ("guest-sdk/python/pyproject.toml", "version = ", 1),
    ("guest-sdk/js/package.json", "\"version\": ", 1),
    // The package itself, as the root and as one of the packages; dependencies follow.
    ("guest-sdk/js/package-lock.json", "\"version\": ", 2),
];

pub(crate) const ONE_VERSION: Rule = Rule {
    name: "one-version",
    why: "the parts of a release are made from one tag, and users compare their versions",
    remedy: "change versions only with `make release-commit VERSION=X.Y.Z`, which writes all of them",
    check: |tree| {
        let package = tree.get("Cargo.toml").and_then(|file| {
            let (_, package) = file.text.split_once("[workspace.package]")?;
            package.lines().find_map(|line| line.strip_prefix("version = "))
        });
        let Some(version) = package.map(|version| version.trim_matches('"')) else {
            return vec![Hit::new("Cargo.toml", 0, "no `version` in [workspace.package]")];
        };
        let mut hits = Vec::new();
        for (path, begin, count) in VERSIONED {
            let Some(file) = tree.get(path) else { continue };
            let lines = file.lines().filter_map(|(number, line)| Some((number, line.trim().strip_prefix(begin)?)));
            for (number, value) in lines.take(*count) {
                let value = value.trim_matches([',', '"']);
                if value != version {
                    hits.push(Hit::new(path, number, format!("the version {value}, and Cargo.toml has {version}")));
                }
            }
        }
        hits
    },
};

pub(crate) const VERSIONS_ONCE: Rule = Rule {
    name: "versions-once",
    why: "a version that two manifests contain is updated in only one of them",
    remedy: "put it into [workspace.dependencies] of the root and write `name.workspace = true`",
    check: |tree| {
        let mut hits = Vec::new();
        for file in tree.manifests() {
            for (_, line, entry) in dependency_lines(file) {
                if !entry.contains("workspace = true") {
                    hits.push(Hit::new(
                        &file.path,
                        line,
                        format!("`{entry}` does not take its version from the workspace"),
                    ));
                }
            }
        }
        hits
    },
};

pub(crate) const WHO_DEPENDS_ON_WHOM: Rule = Rule {
    name: "who-depends-on-whom",
    why: "the boundaries of ARCHITECTURE.md hold only while Cargo enforces them",
    remedy: "move the code to the crate that may know both; if the edge is right, add it to EDGES in tests/tidy/src/rules/crates.rs and to ARCHITECTURE.md",
    check: |tree| {
        let mut hits = Vec::new();
        for file in tree.manifests() {
            let Some((_, allowed)) = EDGES.iter().find(|(folder, _)| file.path.starts_with(folder)) else {
                hits.push(Hit::new(&file.path, 0, "this folder is not in the table of edges"));
                continue;
            };
            for (table, line, entry) in dependency_lines(file) {
                let name = entry.split(['.', ' ', '=']).next().unwrap_or_default();
                let for_tests = table.contains("dev-dependencies");
                let ours = name == "skysail" || name.starts_with("skysail-");
                let test_support = name == "skysail-test-support" && !for_tests && !file.path.starts_with("tests/");
                if ours && (test_support || !(allowed.contains(&name) || (for_tests && TEST_EDGES.contains(&name)))) {
                    hits.push(Hit::new(&file.path, line, format!("`{name}` may not be used here")));
                }
                let anyhow = ANYHOW.iter().any(|folder| file.path.starts_with(folder)) || for_tests;
                if name == "anyhow" && !anyhow {
                    hits.push(Hit::new(
                        &file.path,
                        line,
                        "`anyhow` outside the binary and tests: an error that callers branch on is a `thiserror` enum",
                    ));
                }
            }
        }
        hits
    },
};

pub(crate) const IMPORT_TABLE: Rule = Rule {
    name: "import-table",
    why: "controllers that see wasmtime, or a host that sees Kubernetes, can no longer be tested or replaced alone",
    remedy: "see which dependency brings it in (`cargo tree -p CRATE -i PACKAGE -e normal`) and drop that, or move the code",
    check: |tree| {
        let Some(file) = tree.get(CARGO_TREE) else { return vec![Hit::new(CARGO_TREE, 0, "no tree of dependencies")] };
        let mut hits = Vec::new();
        for (line, text) in file.lines() {
            let Some((ours, rest)) = text.split_once(": ") else { continue };
            let (name, features) = rest.split_once(' ').unwrap_or((rest, ""));
            let banned = NEVER.iter().any(|(crate_, package, feature)| {
                *crate_ == ours
                    && matches(package, name)
                    && (feature.is_empty() || features.split(',').any(|have| have == *feature))
            });
            if banned || NOWHERE.contains(&name) {
                hits.push(Hit::new(CARGO_TREE, line, format!("{ours} has {} in its tree", rest.trim())));
            }
        }
        hits
    },
};

fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |prefix| name.starts_with(prefix))
}

/// Table, line and entry of each dependency: `name…` at the start of a line in a table whose name
/// ends with `dependencies`.
fn dependency_lines(file: &File) -> Vec<(String, usize, &str)> {
    debug_assert!(package_name(&file.text).is_some() || file.text.is_empty());
    let mut table = String::new();
    let mut found = Vec::new();
    for (number, line) in file.lines() {
        if let Some(name) = line.strip_prefix('[') {
            table = name.trim_end_matches(']').to_owned();
        } else if table.ends_with("dependencies") && line.starts_with(|c: char| c.is_ascii_alphabetic()) {
            found.push((table.clone(), number, line));
        }
    }
    found
}
