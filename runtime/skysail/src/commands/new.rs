//! `skysail new`: writes the files of a new provider, which builds and runs without a cloud.

use std::{
    env,
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, anyhow, bail};

use crate::{
    args::{Language, NewArgs},
    exit::{MarkExt as _, Reason},
    output,
};

/// The longest name: it begins every provider ID.
const NAME_MAX: usize = 40;

/// Names that cargo refuses for a package. The rule is the same for all languages, so that a
/// provider may change its language.
const RESERVED: &str = "abstract alloc as async await become box break const continue core crate do dyn else enum \
    extern false final fn for gen if impl in let loop macro match mod move mut override priv \
    proc-macro pub ref return self static std struct super test trait true try type typeof unsafe \
    unsized use virtual where while yield";

/// The cloud-config of the new provider, in each language.
const CLOUD_CONFIG: Template = ("cloud.conf", "[LoadBalancer]\npool = 203.0.113.0/24\n");

/// One file of a provider: its path and its text, in which `example` is the name.
type Template = (&'static str, &'static str);

const GO: &[Template] = &[
    ("Makefile", include_str!("../../../../guest-sdk/go/template/Makefile")),
    ("provider.go", include_str!("../../../../guest-sdk/go/template/provider.go")),
    ("provider_test.go", include_str!("../../../../guest-sdk/go/template/provider_test.go")),
    // The SDK's own module has the template as a package.
    (
        "go.mod",
        // A module with the name of a package of Go's, such as net, cannot be built.
        "module provider.invalid/example\n\ngo 1.26.0\n\nrequire skysail.dev/provider v0.0.0\n\nreplace skysail.dev/provider => \"{sdk}/go\"\n",
    ),
    CLOUD_CONFIG,
    (".gitignore", "build/\n*.symbols\n*.wasm\n"),
];

/// The vendor's Go code as it is: the first build adds the vendor's module to go.mod.
const GO_PROVIDER: &[Template] = &[
    ("Makefile", include_str!("../../../../guest-sdk/go/cloudprovider/template/Makefile")),
    ("options.go", include_str!("../../../../guest-sdk/go/cloudprovider/template/options.go.template")),
    ("provider.go", include_str!("../../../../guest-sdk/go/cloudprovider/template/provider.go.template")),
    (
        "go.mod",
        "module provider.invalid/example\n\ngo 1.26.0\n\nrequire (\n\tskysail.dev/provider v0.0.0\n\tskysail.dev/provider/cloudprovider v0.0.0\n)\n\nreplace skysail.dev/provider => \"{sdk}/go\"\n\nreplace skysail.dev/provider/cloudprovider => \"{sdk}/go/cloudprovider\"\n",
    ),
    (".gitignore", "build/\n*.symbols\n*.wasm\n"),
];

const JAVASCRIPT: &[Template] = &[
    ("Makefile", include_str!("../../../../guest-sdk/js/template/Makefile")),
    ("package.json", include_str!("../../../../guest-sdk/js/template/package.json.template")),
    ("tsconfig.json", include_str!("../../../../guest-sdk/js/template/tsconfig.json")),
    ("provider.js", include_str!("../../../../guest-sdk/js/template/provider.js")),
    ("provider.test.js", include_str!("../../../../guest-sdk/js/template/provider.test.js")),
    CLOUD_CONFIG,
    (".gitignore", "build/\nnode_modules/\n*.wasm\n"),
];

const PYTHON: &[Template] = &[
    ("Makefile", include_str!("../../../../guest-sdk/python/template/Makefile")),
    ("provider.py", include_str!("../../../../guest-sdk/python/template/provider.py")),
    ("test_provider.py", include_str!("../../../../guest-sdk/python/template/test_provider.py")),
    CLOUD_CONFIG,
    (".gitignore", "__pycache__/\nbuild/\n*.wasm\n"),
];

const RUST: &[Template] = &[
    ("Makefile", include_str!("../../../../guest-sdk/template/Makefile")),
    ("Cargo.toml", include_str!("../../../../guest-sdk/template/Cargo.toml.template")),
    ("src/lib.rs", include_str!("../../../../guests/dummy/src/lib.rs")),
    ("src/tests.rs", include_str!("../../../../guests/dummy/src/tests.rs")),
    CLOUD_CONFIG,
    (".gitignore", "build/\n*.symbols\n*.wasm\n"),
];

/// Creates the folder and prints what to do next.
///
/// # Errors
/// The name is invalid, the SDK is not found, or the folder exists.
pub(crate) fn run(args: &NewArgs) -> anyhow::Result<()> {
    let NewArgs { name, language, go_provider, sdk, folder } = args;
    check_name(name).or_exit(Reason::Usage)?;
    let of = of(*language, go_provider.as_deref()).or_exit(Reason::Usage)?;
    let sdk = sdk_folder(sdk.as_deref()).or_exit(Reason::Usage)?;
    let folder = folder.clone().unwrap_or_else(|| PathBuf::from(name));
    check_folder(&folder).or_exit(Reason::Usage)?;
    let files = files(name, of, &sdk).or_exit(Reason::Usage)?;
    write(&folder, &files).with_context(|| format!("cannot write {}", folder.display()))?;
    let written: String = files.iter().map(|(path, _)| format!("  {}\n", folder.join(path).display())).collect();
    let (make, skysail) = commands()?;
    let cd = format!("cd {}", quoted(&folder.to_string_lossy()));
    let text = match of {
        Of::Language(language) => format!(
            "Wrote the provider {name}, which gives out addresses of a pool and needs no cloud; edit {} first:\n\n{written}\n\
             Test and build it, then serve it in a simulated cluster, and build it again at each change:\n\n  \
             {cd} && {make}\n  {skysail} dev --provider {name}.wasm --cloud-config cloud.conf --build make\n",
            language.source(),
        ),
        Of::Vendor { package, .. } => format!(
            "Wrote the provider {name}, which is the code of {package}; options.go says which credential a request gets:\n\n{written}\n\
             Build it, the first time in minutes, and look at it:\n\n  \
             {cd} && {make}\n  {skysail} inspect {name}.wasm\n",
        ),
    };
    output::print(text.as_bytes())
}

/// Of what a new provider is made.
#[derive(Clone, Copy, Debug)]
enum Of<'a> {
    /// The template of a language.
    Language(Language),
    /// A vendor's Go package, and its version with and without the `v`.
    Vendor { package: &'a str, version: &'a str, number: &'a str },
}

fn of(language: Option<Language>, go_provider: Option<&str>) -> anyhow::Result<Of<'_>> {
    match (language, go_provider) {
        (_, Some(named)) => vendor(named),
        (Some(language), None) => Ok(Of::Language(language)),
        (None, None) => bail!("name a language with --language, or a vendor's Go package with --go-provider"),
    }
}

fn vendor(named: &str) -> anyhow::Result<Of<'_>> {
    const EXAMPLE: &str = "k8s.io/cloud-provider-aws/pkg/providers/v1@v1.37.1";
    let Some((package, version)) = named.split_once('@') else {
        bail!("--go-provider {named:?} has no version; write the package and the version of its module, as {EXAMPLE}");
    };
    // What Go allows in a path; a Makefile and a file in Go have it.
    let is_path = |c: char| c.is_ascii_alphanumeric() || "-._~/+".contains(c);
    if !package.chars().all(is_path) || !package.split('/').next().is_some_and(|host| host.contains('.')) {
        bail!("--go-provider: {package:?} is not the path of a Go package; write it as {EXAMPLE}");
    }
    let number = version.strip_prefix('v').filter(|number| number.starts_with(|c: char| c.is_ascii_digit()));
    match number.filter(|number| number.chars().all(|c| is_path(c) && c != '/')) {
        Some(number) => Ok(Of::Vendor { package, version, number }),
        None => bail!("--go-provider: {version:?} is not a version of a Go module; write it as {EXAMPLE}"),
    }
}

/// The commands `make` and `skysail`, with the path of this program if the shell did not find the
/// program by its name.
fn commands() -> anyhow::Result<(String, String)> {
    let is_found = env::args_os().next().is_some_and(|program| !program.as_encoded_bytes().contains(&b'/'));
    if is_found {
        return Ok(("make".to_owned(), "skysail".to_owned()));
    }
    let program = env::current_exe().context("cannot find the path of the skysail executable")?;
    let program = quoted(&program.to_string_lossy());
    Ok((format!("make SKYSAIL={program}"), program))
}

/// A word of a shell.
fn quoted(word: &str) -> String {
    let word = if word.starts_with('-') { format!("./{word}") } else { word.to_owned() };
    match word.chars().all(|c| c.is_ascii_alphanumeric() || "_./+@-".contains(c)) {
        true => word,
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

fn check_folder(folder: &Path) -> anyhow::Result<()> {
    let shown = folder.display();
    if folder.file_name().is_none() || folder.to_string_lossy().chars().any(char::is_control) {
        bail!("--folder {:?} is not the path of a new folder; name another one", folder.to_string_lossy());
    }
    if fs::symlink_metadata(folder).is_ok() {
        bail!("{shown} exists already; name another folder with --folder");
    }
    Ok(())
}

fn check_name(name: &str) -> anyhow::Result<()> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let begins = name.starts_with(|c: char| c.is_ascii_lowercase());
    if name.len() > NAME_MAX || !begins || name.ends_with('-') || !name.chars().all(is_allowed) {
        bail!(
            "{name:?} is not a name of a provider; write 1 to {NAME_MAX} lowercase letters, digits and hyphens, beginning with a letter, such as my-cloud"
        );
    }
    if RESERVED.split(' ').any(|reserved| reserved == name) {
        bail!("{name:?} is a name that Rust reserves; choose another name, such as {name}-cloud");
    }
    Ok(())
}

/// The folder of the SDKs, as an absolute path.
fn sdk_folder(named: Option<&Path>) -> anyhow::Result<PathBuf> {
    let parts = ["go/go.mod", "js/package.json", "python/pyproject.toml"];
    let is_sdk = |folder: &Path| parts.iter().all(|part| folder.join(part).is_file());
    let here = env::current_dir().context("cannot find the current folder")?;
    let found = match named {
        Some(folder) if is_sdk(folder) => Some(folder.to_owned()),
        Some(folder) => {
            bail!("{} (--sdk or SKYSAIL_SDK) is not the folder guest-sdk of Skysail's repository", folder.display())
        }
        None => here.ancestors().map(|folder| folder.join("guest-sdk")).find(|folder| is_sdk(folder)),
    };
    let Some(found) = found else {
        bail!(
            "no folder guest-sdk is in {} or above it; the SDKs are not published yet: clone Skysail's repository, and name its folder guest-sdk with --sdk",
            here.display()
        )
    };
    let folder = fs::canonicalize(&found).with_context(|| format!("cannot find {}", found.display()))?;
    // The path stands in Makefiles, in JSON and in TOML.
    let text = folder.to_string_lossy();
    match text.chars().find(|c| !c.is_alphanumeric() && !"/._-+@, ".contains(*c)) {
        Some(c) => bail!("the path {text} has {c:?}, which a Makefile may misread; move the clone of the repository"),
        None => Ok(folder),
    }
}

/// The files of the provider.
fn files(name: &str, of: Of<'_>, sdk: &Path) -> anyhow::Result<Vec<(&'static str, String)>> {
    let templates = match of {
        Of::Language(Language::Rust) => RUST,
        Of::Language(Language::Go) => GO,
        Of::Language(Language::JavaScript) => JAVASCRIPT,
        Of::Language(Language::Python) => PYTHON,
        Of::Vendor { .. } => GO_PROVIDER,
    };
    let (path, module) = (sdk.to_string_lossy(), name.replace('-', "_"));
    let fill = |(file, text): &Template| {
        let own = match *file {
            // The example of the SDK in Rust is a guest of the repository.
            "src/lib.rs" | "src/tests.rs" => text.replace("dummy", name).replace("Dummy", "Cloud"),
            _ => text.replace("example", name),
        };
        let own = own.replace("{sdk}", &path).replace("{crate}", &module);
        match of {
            Of::Vendor { package, version, number } => {
                (*file, own.replace("{package}", package).replace("{version}", version).replace("{number}", number))
            }
            Of::Language(_) => (*file, own),
        }
    };
    let mut files: Vec<_> = templates.iter().map(fill).collect();
    if matches!(of, Of::Language(Language::Rust)) {
        // The versions with which the SDK is tested: Debian's Rust is too old for newer ones.
        let lock = sdk.join("../Cargo.lock");
        let text = fs::read_to_string(&lock).with_context(|| format!("cannot read {}", lock.display()))?;
        files.push(("Cargo.lock", text));
    }
    Ok(files)
}

/// Writes the files into a temporary folder beside `folder`, and renames it to `folder` when it is
/// complete.
fn write(folder: &Path, files: &[(&str, String)]) -> anyhow::Result<()> {
    let parent = folder.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(parent).with_context(|| format!("cannot create {}", parent.display()))?;
    // The umask decides the permissions, as for any new folder.
    let mut builder = tempfile::Builder::new();
    let partial = builder.prefix(".skysail-new-").permissions(Permissions::from_mode(0o777)).tempdir_in(parent);
    let partial =
        partial.map_err(|error| anyhow!("cannot create a folder in {}: {}", parent.display(), error.kind()))?;
    for (path, text) in files {
        let file = partial.path().join(path);
        if let Some(parent) = file.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(file, text)?;
    }
    fs::rename(partial.path(), folder)?;
    // Nothing is left to remove.
    let _moved = partial.keep();
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::{Of, check_folder, check_name, files, quoted, sdk_folder, vendor, write};
    use crate::args::Language;

    #[test]
    fn a_name_is_a_scheme_and_a_file_name() {
        for name in ["a", "my-cloud", "cloud9"] {
            check_name(name).unwrap();
        }
        let long = "a".repeat(41);
        for name in ["", "-a", "a-", "9a", "My", "my cloud", "a/b", "../a", "ä", "fn", &long] {
            check_name(name).unwrap_err();
        }
    }

    #[test]
    fn no_placeholder_is_left_in_a_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("Cargo.lock"), "# the versions").unwrap();
        let sdk = folder.path().join("guest-sdk");
        fs::create_dir(&sdk).unwrap();
        let languages = [Language::Rust, Language::Go, Language::JavaScript, Language::Python].map(Of::Language);
        for of in languages.into_iter().chain([vendor("example.com/cloud/v2@v2.0.1").unwrap()]) {
            for (path, text) in files("my-cloud", of, &sdk).unwrap() {
                for placeholder in ["{sdk}", "{crate}", "{package}", "{version}", "{number}", "dummy", "Dummy"] {
                    assert!(!text.contains(placeholder), "{path} has {placeholder}:\n{text}");
                }
            }
        }
    }

    #[test]
    fn a_vendors_package_is_a_path_and_a_version() {
        for named in ["k8s.io/cloud-provider-aws/pkg/providers/v1@v1.37.1", "a.test@v0.0.0-20260101000000-0123456789ab"]
        {
            vendor(named).unwrap();
        }
        for (named, why) in [
            ("k8s.io/cloud-provider-aws", "has no version"),
            ("k8s.io/cloud-provider-aws@latest", "is not a version of a Go module"),
            ("k8s.io/cloud-provider-aws@v1/..", "is not a version of a Go module"),
            ("aws@v1.0.0", "is not the path of a Go package"),
            ("k8s.io/a\"b@v1.0.0", "is not the path of a Go package"),
            ("k8s.io/$(shell x)@v1.0.0", "is not the path of a Go package"),
        ] {
            let text = vendor(named).unwrap_err().to_string();
            assert!(text.contains(why) && text.ends_with("v1@v1.37.1"), "{named}: {text}");
        }
    }

    /// The suite of every provider builds this folder.
    #[test]
    fn amazons_provider_in_the_suite_is_what_the_command_writes() {
        let vendors = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/conformance/providers/vendors");
        let of = vendor("k8s.io/cloud-provider-aws/pkg/providers/v1@v1.37.1").unwrap();
        let written = files("aws", of, Path::new("unused")).unwrap();
        for file in ["Makefile", "provider.go"] {
            let (_, text) = written.iter().find(|(path, _)| *path == file).unwrap();
            assert_eq!(fs::read_to_string(vendors.join("aws/component").join(file)).unwrap(), *text, "{file}");
        }
    }

    #[test]
    fn a_folder_without_the_sdks_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().unwrap();
        let error = sdk_folder(Some(folder.path())).unwrap_err().to_string();
        assert!(error.ends_with("is not the folder guest-sdk of Skysail's repository"), "{error}");
        let ours = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guest-sdk");
        sdk_folder(Some(&ours)).unwrap();
    }

    #[test]
    fn a_provider_is_written_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let files = [("a", "one".to_owned()), ("a/b", "two".to_owned())];
        write(&folder.path().join("new"), &files).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        let link = folder.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        write(&link, &[("a", "one".to_owned())]).unwrap_err();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        check_folder(&link).unwrap_err();
        check_folder(&folder.path().join("..")).unwrap_err();
        check_folder(&folder.path().join("new")).unwrap();
        write(&folder.path().join("new"), &[("src/a", "one".to_owned())]).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("new/src/a")).unwrap(), "one");
    }

    #[test]
    fn a_path_is_one_word_of_a_shell() {
        assert_eq!(quoted("a/my-cloud_1.0"), "a/my-cloud_1.0");
        assert_eq!(quoted("a b/c'd\"$x"), r#"'a b/c'\''d"$x'"#);
        assert_eq!(quoted("-rf"), "./-rf");
    }
}
