//! The arguments of the commands for authors: `skysail new`, `skysail go-overlay` and `skysail
//! componentize`.

use std::path::PathBuf;

use clap::{Args as ClapArgs, ValueEnum, ValueHint};

/// The language of a new provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Language {
    /// Needs Rust with the target wasm32-unknown-unknown, or Debian's rustc-web.
    Rust,
    /// Needs Go 1.26 or newer.
    Go,
    /// Needs Node.js 18 or newer, with npm.
    #[value(name = "javascript", alias = "js")]
    JavaScript,
    /// Needs Python 3.11 or newer, with the module venv.
    Python,
}

impl Language {
    /// The file with the functions of the provider.
    pub(crate) const fn source(self) -> &'static str {
        match self {
            Self::Rust => "src/lib.rs",
            Self::Go => "provider.go",
            Self::JavaScript => "provider.js",
            Self::Python => "provider.py",
        }
    }
}

/// `skysail new`.
#[derive(Debug, ClapArgs)]
pub(crate) struct NewArgs {
    /// Name of the provider: 1 to 40 lowercase letters, digits and hyphens. It is also the scheme
    /// of the provider IDs (`NAME://ID`) and the name of the component's file.
    #[arg(value_name = "NAME")]
    pub(crate) name: String,
    /// Language of the provider.
    #[arg(long, short, value_name = "LANGUAGE", required_unless_present = "go_provider")]
    pub(crate) language: Option<Language>,
    /// A Go package that registers a provider for k8s.io/cloud-provider under NAME, and the version
    /// of its module, such as k8s.io/cloud-provider-aws/pkg/providers/v1@v1.37.1: the new provider
    /// is the vendor's code, unchanged.
    #[arg(long, value_name = "PACKAGE@VERSION", conflicts_with = "language")]
    pub(crate) go_provider: Option<String>,
    /// The folder guest-sdk in a clone of Skysail's repository, because the SDKs are not published
    /// yet. Default: the folder guest-sdk in the current folder or in a folder above it.
    #[arg(long, value_name = "DIR", env = "SKYSAIL_SDK", value_hint = ValueHint::DirPath)]
    pub(crate) sdk: Option<PathBuf>,
    /// Folder to create. Default: NAME in the current folder.
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) folder: Option<PathBuf>,
}

/// `skysail componentize`.
#[derive(Debug, ClapArgs)]
pub(crate) struct ComponentizeArgs {
    /// Core module of a provider in Rust or Go, or the component that skysail-componentize-js or
    /// skysail-componentize-py writes.
    #[arg(value_name = "INPUT", value_hint = ValueHint::FilePath)]
    pub(crate) input: PathBuf,
    /// File of the component. The names of its functions go into a sidecar beside it, which has
    /// the extension `.symbols`, for `skysail call`, `skysail dev` and `skysail symbolize`.
    #[arg(value_name = "OUTPUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
}

/// `skysail go-overlay`.
#[derive(Debug, ClapArgs)]
pub(crate) struct GoOverlayArgs {
    /// Folder for overlay.json and the file that it names.
    #[arg(value_name = "FOLDER", value_hint = ValueHint::DirPath)]
    pub(crate) folder: PathBuf,
}
