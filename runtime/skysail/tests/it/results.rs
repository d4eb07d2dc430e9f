//! Tests of the commands that print a result and exit: `call`, `inspect`, `crd`, `completions`.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions},
    os::unix::fs::symlink,
    process::{Command, Output, Stdio},
};

use serde_json::Value;

use crate::program::{SKYSAIL, built};

const SHELLS: [&str; 5] = ["bash", "elvish", "fish", "powershell", "zsh"];

fn skysail(args: &[&dyn AsRef<OsStr>]) -> Command {
    let mut command = Command::new(SKYSAIL);
    command.args(args.iter().map(|arg| (*arg).as_ref())).stdin(Stdio::null());
    command
}

/// Exit code, standard output, standard error.
fn run(args: &[&dyn AsRef<OsStr>]) -> (Option<i32>, String, String) {
    let Output { status, stdout, stderr } = skysail(args).output().unwrap();
    (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

#[test]
fn identity_describe_needs_no_cloud_config() {
    for name in ["simcloud", "incus"] {
        let (code, stdout, stderr) = run(&[&"call", &built(name), &"identity.describe"]);
        assert_eq!(code, Some(0), "{stderr}");
        assert_eq!(serde_json::from_str::<Value>(&stdout).unwrap()["name"], name);
        assert!(stderr.starts_with("identity.describe: Ok in "), "{stderr}");
    }
}

#[test]
fn identity_check_config_needs_no_valid_cloud_config() {
    let text = r#"{"text": "[Global]\nendpiont = http://127.0.0.1\n"}"#;
    let (code, stdout, stderr) = run(&[&"call", &built("simcloud"), &"identity.check-config", &"--json", &text]);
    assert_eq!(code, Some(3), "{stderr}");
    let problems: Value = serde_json::from_str(&stdout).unwrap();
    assert!(problems.as_array().unwrap().iter().any(|problem| problem["severity"] == "fatal"), "{problems}");
    assert!(stderr.starts_with("identity.check-config: Ok in "), "{stderr}");
    assert!(stderr.contains("simcloud.wasm refuses the cloud-config; correct the fatal problems"), "{stderr}");
}

#[test]
fn other_functions_say_how_to_give_a_cloud_config() {
    let (code, stdout, stderr) = run(&[&"call", &built("simcloud"), &"routes.list"]);
    assert_eq!((code, stdout.as_str()), (Some(3), ""));
    assert!(stderr.contains("give one with --cloud-config or --provider-file"), "{stderr}");
}

#[test]
fn the_error_about_a_function_that_is_not_exported_lists_the_exported_interfaces() {
    let (code, _, stderr) = run(&[&"call", &built("dummy"), &"routes.list"]);
    assert_eq!(code, Some(1));
    let text = "dummy.wasm does not export routes; choose an interface that it exports (load-balancers, instances), or";
    assert!(stderr.contains(text), "{stderr}");
}

#[test]
fn the_names_of_a_trap_are_beside_the_component_or_in_the_file_of_a_flag_or_put_into_a_log_later() {
    let folder = tempfile::tempdir().unwrap();
    let [wasm, beside, moved, log] = ["a.wasm", "a.symbols", "b.symbols", "log"].map(|name| folder.path().join(name));
    fs::copy(built("probe-trap"), &wasm).unwrap();
    fs::copy(built("probe-trap").with_extension("symbols"), &beside).unwrap();
    let attack = |more: &[&dyn AsRef<OsStr>]| {
        let call: [&dyn AsRef<OsStr>; 5] = [&"call", &wasm, &"clusters.master", &"--json", &r#"{"cluster": "attack"}"#];
        let (code, _, stderr) = run(&[&call[..], more].concat());
        assert_eq!(code, Some(1), "{stderr}");
        stderr
    };
    let named = attack(&[]);
    assert!(named.contains("; in skysail_probe_trap::attack"), "{named}");
    fs::rename(&beside, &moved).unwrap();
    let numbered = attack(&[]);
    assert!(numbered.contains("; in functions ") && !numbered.contains("::attack"), "{numbered}");
    // Without the line about the cost, which differs.
    let error = |text: &str| text.lines().last().unwrap().to_owned();
    assert_eq!(error(&attack(&[&"--symbols", &moved])), error(&named));

    fs::write(&log, &numbered).unwrap();
    let symbolize = |symbols: &OsStr| {
        let mut command = skysail(&[&"symbolize", &"--symbols", &symbols]);
        let Output { status, stdout, stderr } = command.stdin(File::open(&log).unwrap()).output().unwrap();
        (status.code(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
    };
    let (code, text, _) = symbolize(moved.as_os_str());
    assert_eq!((code, error(&text)), (Some(0), error(&named)));
    // Of another component, and no sidecar.
    let other = built("probe-fuel").with_extension("symbols");
    let (code, text, stderr) = symbolize(other.as_os_str());
    assert_eq!((code, text), (Some(1), numbered));
    assert!(stderr.contains("give the symbols of these components, too"), "{stderr}");
    let (code, text, stderr) = symbolize(wasm.as_os_str());
    assert_eq!((code, &*text), (Some(2), ""));
    assert!(stderr.contains("it is a component itself; name the .symbols file"), "{stderr}");

    // A component that was built again without its sidecar.
    fs::copy(&other, &beside).unwrap();
    let stale = attack(&[]);
    assert!(stale.starts_with("skysail: warning: the symbols ") && stale.contains("; in functions "), "{stale}");
    let (code, _, stderr) = run(&[&"call", &wasm, &"identity.describe", &"--symbols", &other]);
    assert_eq!(code, Some(2));
    assert!(stderr.contains("build the component again, which writes both files"), "{stderr}");
}

#[test]
fn the_inspection_of_a_file_that_is_not_a_component_has_only_its_digest_size_and_refusal() {
    let (code, stdout, _) = run(&[&"inspect", &concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")]);
    let names: Vec<_> = stdout.lines().filter_map(|line| line.split_whitespace().next()).collect();
    assert_eq!((code, names), (Some(3), vec!["file", "digest", "size", "refused"]));
}

#[test]
fn the_cost_of_compiling_is_printed_as_text_and_as_json() {
    let (code, stdout, stderr) = run(&[&"inspect", &"--compile", &built("dummy")]);
    assert_eq!(code, Some(0), "{stderr}");
    let cost = stdout.lines().find_map(|line| line.strip_prefix("compile")).unwrap_or_else(|| panic!("{stdout}"));
    let numbers: Vec<u64> = cost.split_whitespace().filter_map(|word| word.parse().ok()).collect();
    assert!(numbers.len() == 2 && numbers.iter().all(|number| *number > 0), "{cost}");
    let (_, stdout, _) = run(&[&"inspect", &"--compile", &built("dummy"), &"--output", &"json"]);
    let inspection: Value = serde_json::from_str(&stdout).unwrap();
    let cost = |name: &str| inspection["compile"][name].as_u64().unwrap();
    assert!(cost("cpuMs") > 0 && cost("memoryBytes") > 1 << 20, "{stdout}");
}

#[test]
fn the_error_about_an_invalid_log_filter_names_the_cause_once() {
    let (code, _, stderr) = run(&[&"call", &"p.wasm", &"identity.describe", &"--log", &"x=y=z"]);
    assert_eq!((code, stderr.matches("error parsing level filter").count()), (Some(2), 1), "{stderr}");
}

#[test]
fn a_file_that_is_too_large_is_refused_with_its_size_and_without_a_digest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    File::create(&path).unwrap().set_len(100_000_000).unwrap();
    let (code, stdout, stderr) = run(&[&"inspect", &path]);
    assert_eq!(code, Some(3), "{stderr}");
    assert!(stdout.contains("\nsize       100000000 bytes"), "{stdout}");
    assert!(!stdout.contains("digest") && stdout.contains("spec.limits.componentBytes"), "{stdout}");
    let (_, stdout, _) = run(&[&"inspect", &path, &"--output", &"json"]);
    let inspection: Value = serde_json::from_str(&stdout).unwrap();
    assert_eq!((&inspection["size"], inspection.get("digest")), (&Value::from(100_000_000), None));
    assert_eq!(inspection["refusals"][0]["code"], "TooLarge");
    let (code, _, stderr) = run(&[&"call", &path, &"identity.describe"]);
    assert!(code == Some(3) && stderr.contains("100000000 bytes"), "{stderr}");
}

/// A name with a line of its own, a control sequence, and characters that change the direction of
/// the text or begin a line.
#[test]
fn a_hostile_file_name_cannot_change_what_an_inspection_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a\nverdict    may serve\u{1b}[2K\u{202e}\u{2028}.wasm");
    let inspect = |contents: Option<&str>, output: &str| {
        drop(std::fs::remove_file(&path));
        match contents {
            Some(text) => std::fs::write(&path, text).unwrap(),
            None => drop(std::fs::copy(built("dummy"), &path).unwrap()),
        }
        run(&[&"inspect", &path, &"--output", &output])
    };
    for (contents, expected) in [(None, Some(0)), (Some("junk"), Some(3))] {
        for output in ["text", "json"] {
            let (code, stdout, stderr) = inspect(contents, output);
            assert_eq!(code, expected, "{stderr}");
            let all = stdout + &stderr;
            assert!(!all.contains(['\u{1b}', '\u{202e}', '\u{2028}']), "{all:?}");
            let verdicts = all.lines().filter(|line| line.starts_with("verdict")).count();
            assert_eq!(verdicts, usize::from(code == Some(0) && output == "text"), "{all:?}");
        }
    }
    std::fs::remove_file(&path).unwrap();
    let (code, stdout, stderr) = run(&[&"inspect", &path]);
    assert_eq!((code, &*stdout, stderr.lines().count()), (Some(2), "", 1), "{stderr:?}");
    assert!(!stderr.contains(['\u{1b}', '\u{202e}', '\u{2028}']), "{stderr:?}");
}

/// The provider, and an instance of a core module with a memory of 4 GiB.
fn with_a_large_memory(component: &[u8]) -> Vec<u8> {
    let (mut rest, mut modules) = (&component[8..], 0);
    while let [id, sized @ ..] = rest {
        let (mut length, mut bytes) = (0_usize, 0);
        while bytes == 0 || sized[bytes - 1] & 0x80 != 0 {
            length |= usize::from(sized[bytes] & 0x7f) << (7 * bytes);
            bytes += 1;
        }
        modules += u8::from(*id == 1);
        rest = &sized[bytes + length..];
    }
    let module = b"\0asm\x01\0\0\0\x05\x05\x01\0\x80\x80\x04";
    let instance = [1, 0, modules, 0];
    [component, &[1, u8::try_from(module.len()).unwrap()], module, &[2, 4], &instance].concat()
}

/// Nothing answers at the registry's address.
#[test]
fn a_component_that_a_slot_would_refuse_when_it_loads_it_is_not_pushed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large.wasm");
    std::fs::write(&path, with_a_large_memory(&std::fs::read(built("dummy")).unwrap())).unwrap();
    let (code, stdout, stderr) = run(&[&"inspect", &path]);
    assert!(code == Some(3) && stdout.contains("\nrefused    [LinkFailed]"), "{stdout}{stderr}");
    let (code, stdout, stderr) = run(&[&"push", &path, &"127.0.0.1:1/provider:v1", &"--plain-http", &"127.0.0.1:1"]);
    assert_eq!((code, &*stdout), (Some(3), ""), "{stderr}");
    assert!(stderr.contains("memory"), "{stderr}");
}

#[test]
fn the_printed_crd_equals_the_one_in_deploy_manifests() {
    let (code, definition, _) = run(&[&"crd"]);
    assert!(code == Some(0) && definition == include_str!("../../../../deploy/manifests/crd.yaml"), "{definition}");
}

#[test]
fn completions_offer_the_functions_of_the_contract() {
    // clap's script for fish completes flags and commands, but no arguments.
    for shell in ["bash", "zsh"] {
        let (_, script, _) = run(&[&"completions", &shell]);
        for function in ["load-balancers.ensure", "node-legacy.scrub-dns", "persistent-volume-labels.labels"] {
            assert!(script.contains(function), "{shell}: {function}");
        }
    }
}

/// bash expands `*` to the names of the files in its folder.
#[test]
fn completions_offer_the_controllers_and_no_wildcard() {
    let (_, script, _) = run(&[&"completions", &"bash"]);
    let (_, controllers) = script.split_once("--controllers)").unwrap();
    let offered = controllers.lines().nth(1).unwrap();
    assert!(offered.contains(" service-lb-controller -cloud-node-controller "), "{offered}");
    assert!(!offered.contains('*'), "{offered}");
}

#[test]
fn a_kubeconfig_that_is_missing_is_named_first_and_once() {
    let output = skysail(&[&"status"]).env("KUBECONFIG", "/nonexistent/kubeconfig").output().unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    let start = "skysail: no cluster is configured: failed to read kubeconfig from '\"/nonexistent/kubeconfig\"': No such \
                 file or directory (os error 2); give --kubeconfig";
    assert!(output.status.code() == Some(2) && error.starts_with(start), "{error}");
    assert_eq!(error.matches("/nonexistent").count(), 1, "{error}");
}

#[test]
fn completions_offer_no_hidden_command() {
    for shell in SHELLS {
        let (code, script, _) = run(&[&"completions", &shell]);
        assert!(code == Some(0) && script.contains("inspect"), "{shell}");
        assert!(!script.contains("__compile"), "{shell}");
    }
}

/// The name of the link is all that kubectl gives.
#[test]
fn links_with_the_names_of_a_kubectl_plugin_run_it_and_complete_its_command_line() {
    let folder = tempfile::tempdir().unwrap();
    let run = |name: &str, words: &[&str]| {
        let link = folder.path().join(name);
        symlink(SKYSAIL, &link).unwrap();
        let output = Command::new(&link).args(words).current_dir(folder.path()).output().unwrap();
        fs::remove_file(link).unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    let (code, help, _) = run("kubectl-skysail", &["status", "--help"]);
    assert!(code == Some(0) && help.contains("Usage: kubectl skysail status "), "{help}");
    let (code, _, error) = run("kubectl-skysail", &["statsu"]);
    assert!(code == Some(2) && error.contains("kubectl skysail"), "{error}");

    let completed = |words: &[&str]| {
        let (code, candidates, error) = run("kubectl_complete-skysail", words);
        assert_eq!((code, &*error), (Some(0), ""));
        candidates
    };
    assert_eq!(
        completed(&["stat"]),
        "status\tShow for each provider which release serves, what is wrong, and what its calls cost\n:4\n"
    );
    assert_eq!(completed(&["status", "--output", "wi"]).lines().last(), Some(":4"));
    assert!(completed(&["status", "--output", ""]).starts_with("text\t"));
    assert!(completed(&["status", "--output=wi"]).starts_with("wide\t"));
    assert!(completed(&[""]).lines().any(|line| line.starts_with("plan\t")));
    assert!(!completed(&["__"]).contains("compile"));
    fs::create_dir(folder.path().join("folder")).unwrap();
    fs::write(folder.path().join("folder/a.wasm"), "").unwrap();
    assert_eq!(completed(&["inspect", "fol"]), "folder/\n:2\n");
    assert_eq!(completed(&["inspect", "folder/a"]), "folder/a.wasm\n:0\n");
    assert_eq!(completed(&["no-such-command", ""]).lines().last(), Some(":4"));
}

#[test]
fn a_closed_standard_output_is_not_a_failure() {
    let component = built("dummy");
    let call: &[&dyn AsRef<OsStr>] = &[&"call", &component, &"identity.describe"];
    let shells = SHELLS.map(|shell| [&"completions" as &dyn AsRef<OsStr>, Box::leak(Box::new(shell))]);
    for args in
        shells.iter().map(<[_; 2]>::as_slice).chain([[&"inspect" as &dyn AsRef<OsStr>, &component].as_slice(), call])
    {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let status = skysail(args).stdout(writer).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(0), "{:?}", args.iter().map(|arg| (*arg).as_ref()).collect::<Vec<_>>());
    }
}

#[test]
fn a_full_disk_is_a_failure_with_the_reason() {
    let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
    for args in [&[&"completions" as &dyn AsRef<OsStr>, &"bash"], &[&"inspect" as &dyn AsRef<OsStr>, &built("dummy")]] {
        let output = skysail(args).stdout(full()).stderr(Stdio::piped()).spawn().unwrap().wait_with_output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.starts_with("skysail: cannot write to standard output: No space left"), "{stderr}");
    }
}
