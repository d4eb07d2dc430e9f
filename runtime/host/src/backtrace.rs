//! The place in the guest where a call ended: the names of the guest's own functions, innermost
//! first.
//!
//! The innermost functions of every panic belong to the standard library of the language, and the
//! outermost functions of every call to the glue of `wit-bindgen`. Neither helps an author, so both
//! are left out unless nothing else is left.
//!
//! Where the names are in a sidecar that the host does not have, the place is the numbers of the
//! functions in the component's code, from which `symbols` makes the names later.

use std::{borrow::Cow, collections::BTreeSet, sync::LazyLock};

use regex::{Captures, Regex};
use skysail_provider::text::one_line;
use wasmtime::WasmBacktrace;

use crate::symbols::{MODULE, Symbols};

/// Functions that an error names: with the text of a panic they have to fit into an Event.
const FRAMES_MAX: usize = 5;
/// Longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 120;
/// Numbers that an error has: the library's functions around a panic are among them.
const NUMBERS_MAX: usize = 16;
/// Hexadecimal digits of a digest that tell one component from another.
const SHORT: usize = 12;

/// One function of a backtrace.
struct Frame<'a> {
    number: u32,
    name: Option<&'a str>,
    /// Whether the names of its module are in a sidecar. The modules that wit-component adds to a
    /// component, such as the adapter for WASI, have theirs.
    is_main: bool,
}

/// `inner ← outer`, with names from the component or from the symbols, or `functions 7 ← 2 of
/// component 0123456789ab`; none where the component was not running.
pub(crate) fn of(error: &wasmtime::Error, component: &str, symbols: Option<&Symbols>) -> Option<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>()?;
    let frames: Vec<_> = backtrace
        .frames()
        .iter()
        .map(|frame| {
            let (number, is_main) = (frame.func_index(), frame.module().name() == Some(MODULE));
            let symbols = symbols.filter(|_| is_main);
            Frame { number, name: frame.func_name().or_else(|| symbols?.function(number)), is_main }
        })
        .collect();
    shown(&frames, component)
}

fn shown(frames: &[Frame<'_>], component: &str) -> Option<String> {
    let main: Vec<_> = frames.iter().filter(|frame| frame.is_main).take(NUMBERS_MAX).collect();
    if main.is_empty() {
        return named(frames.iter().filter_map(|frame| frame.name));
    }
    named(main.iter().filter_map(|frame| frame.name)).or_else(|| {
        let numbers: Vec<_> = main.iter().map(|frame| frame.number.to_string()).collect();
        let plural = if numbers.len() == 1 { "" } else { "s" };
        Some(format!("function{plural} {} of component {}", numbers.join(" ← "), short(component)))
    })
}

/// The beginning of a digest `sha256:…`.
fn short(component: &str) -> &str {
    let hex = component.strip_prefix("sha256:").unwrap_or(component);
    hex.get(..SHORT).unwrap_or(hex)
}

/// The functions of the author among these names; none if there is no name.
fn named<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<String> = names.map(readable).collect();
    let own: Vec<_> = names.iter().skip_while(|name| is_of_library(name)).filter(|name| !is_glue(name)).collect();
    let shown = if own.is_empty() { names.iter().collect() } else { own };
    let shown: Vec<_> = shown.into_iter().take(FRAMES_MAX).map(|name| one_line(name, NAME_BYTES_MAX)).collect();
    (!shown.is_empty()).then(|| shown.join(" ← "))
}

/// What [`of`] writes for functions without names.
static NUMBERS: LazyLock<Regex> = LazyLock::new(|| {
    #[expect(clippy::expect_used, reason = "a test compiles it")]
    Regex::new(r"\bin functions? ([0-9]{1,10}(?: ← [0-9]{1,10})*) of component ([0-9a-f]{12})\b")
        .expect("the pattern must be valid")
});

/// A text in which each backtrace of numbers has the names of these symbols, as an error has them
/// where the names are known. Adds the components of the other backtraces to `unknown`.
pub fn symbolized<'a>(text: &'a str, symbols: &[Symbols], unknown: &mut BTreeSet<String>) -> Cow<'a, str> {
    NUMBERS.replace_all(text, |found: &Captures<'_>| {
        let [whole, numbers, component] = [0, 1, 2].map(|group| found.get(group).map_or("", |part| part.as_str()));
        let Some(symbols) = symbols.iter().find(|symbols| short(symbols.component()) == component) else {
            unknown.insert(component.to_owned());
            return whole.to_owned();
        };
        let numbers = numbers.split(" ← ").filter_map(|number| number.parse().ok());
        named(numbers.filter_map(|number| symbols.function(number)))
            .map_or_else(|| whole.to_owned(), |functions| format!("in {functions}"))
    })
}

/// Demangled, without hashes; `<cloud::Cloud as sdk::Instances>::describe` is
/// `cloud::Cloud::describe`.
pub(crate) fn readable(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let short = name.strip_prefix('<').and_then(|rest| {
        let (implementor, rest) = rest.split_once(" as ")?;
        let (_, function) = rest.rsplit_once(">::")?;
        // A type with generic arguments cannot be split like this.
        (!implementor.contains(['<', '>'])).then(|| format!("{implementor}::{function}"))
    });
    short.unwrap_or(name)
}

/// Whether the function belongs to the standard library or to the runtime that the compiler adds,
/// of Rust or of Go.
fn is_of_library(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    ["std::", "core::", "alloc::", "__rustc", "rust_", "__rust_", "dlmalloc", "abort", "runtime.", "syscall.", "os."]
        .iter()
        .any(|start| path.starts_with(start))
}

/// Whether the function is binding code between the host and the author's function, or Go's
/// scheduler, which is below and between the functions of a program.
fn is_glue(name: &str) -> bool {
    let is_of_go = || {
        ["runtime.", "wasm_", "skysail.dev_provider_internal_"].iter().any(|start| name.starts_with(start))
            // The export.
            || name.starts_with("skysail_provider_") && !name.contains("::")
    };
    let parts = ["wit_bindgen::", "_cabi", "#", "wit-component:"];
    parts.iter().any(|part| name.contains(part)) || is_of_go()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::{Frame, named, shown as text, symbolized};
    use crate::symbols::Symbols;

    const FIRST: &str = "sha256:ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    const SECOND: &str = "sha256:0000000000000000000000000000000000000000000000000000000000000000";

    fn shown(names: &[&str]) -> Option<String> {
        named(names.iter().copied())
    }

    #[test]
    fn a_backtrace_begins_at_the_guests_own_code_and_is_demangled() {
        let names = [
            "_RNvCsfLfy6EI15iL_7___rustc10rust_panic",
            "_RNvNtCsebHcaeoSrxy_3std9panicking15panic_with_hook",
            "rust_begin_unwind",
            "_ZN4core9panicking9panic_fmt17h0123456789abcdefE",
            "_ZN4core6option13unwrap_failed17h0123456789abcdefE",
            "_ZN5cloud8machines4find17h0123456789abcdefE",
            // Between two of the guest's own it tells something.
            "_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE",
            "_ZN54_$LT$cloud..Cloud$u20$as$u20$sdk..instances..Guest$GT$8describe17h0123456789abcdefE",
            "_ZN3sdk8bindings9instances21_export_describe_cabi17h0123456789abcdefE",
            "skysail:provider/instances@0.1.0#describe",
        ];
        let expected = "cloud::machines::find ← core::ops::function::FnOnce::call_once ← cloud::Cloud::describe";
        assert_eq!(shown(&names).as_deref(), Some(expected));
    }

    #[test]
    fn of_a_panic_in_go_the_functions_of_the_program_are_left() {
        let names = [
            "runtime.abort",
            "runtime.fatalpanic",
            "runtime.gopanic",
            "skysail.dev_provider_internal_glue_loadbalancers.Get.Enter.func1",
            "runtime.gopanic",
            "runtime.mapassign_faststr",
            "main.find",
            "main.probe.GetLoadBalancer",
            "skysail.dev_provider_internal_glue_loadbalancers.Get",
            "wasm_pc_f_loop_export",
            "skysail_provider_load_balancers_0.1.0_get",
        ];
        assert_eq!(shown(&names).as_deref(), Some("main.find ← main.probe.GetLoadBalancer"));
    }

    #[test]
    fn where_only_the_standard_library_and_glue_are_left_they_are_shown() {
        let names = ["abort", "skysail:legacy/clusters@0.1.0#master"];
        assert_eq!(shown(&names).as_deref(), Some("abort ← skysail:legacy/clusters@0.1.0#master"));
        assert_eq!(shown(&[]), None);
    }

    #[test]
    fn without_names_the_place_is_numbers_of_the_components_own_functions() {
        let frame = |number, name, is_main| Frame { number, name, is_main };
        let component = "sha256:0123456789abcdef";
        let adapter = frame(3, Some("wasi_snapshot_preview1::proc_exit"), false);
        let frames = [adapter, frame(812, None, true), frame(7, None, true)];
        assert_eq!(text(&frames, component).as_deref(), Some("functions 812 ← 7 of component 0123456789ab"));
        assert_eq!(text(&frames[1..2], component).as_deref(), Some("function 812 of component 0123456789ab"));
        assert_eq!(text(&frames[..1], component).as_deref(), Some("wasi_snapshot_preview1::proc_exit"));
        // The symbols name some functions, and a component of another toolchain none.
        let some = [frame(3, Some("proc_exit"), false), frame(1, None, true), frame(2, Some("cloud::find"), true)];
        assert_eq!(text(&some, component).as_deref(), Some("cloud::find"));
        assert_eq!(text(&[frame(1, None, false)], component), None);
        let many: Vec<_> = (0..100).map(|number| frame(number, None, true)).collect();
        assert!(text(&many, component).unwrap().contains(" ← 15 of component"));
        assert_eq!(text(&[], component), None);
    }

    #[test]
    fn numbers_become_the_names_of_the_authors_own_functions() {
        let names = [
            "_ZN4core6option13unwrap_failed17h0123456789abcdefE",
            "_ZN5cloud8machines4find17h0123456789abcdefE",
            "skysail:provider/instances@0.1.0#describe",
        ];
        let (symbols, mut unknown) = ([Symbols::of(&["other"], SECOND), Symbols::of(&names, FIRST)], BTreeSet::new());
        let mut text = |text: &str| symbolized(text, &symbols, &mut unknown).into_owned();
        assert_eq!(
            text(r#"{"error":"trapped; in functions 0 ← 1 ← 99 ← 2 of component ba7816bf8f01","n":1}"#),
            r#"{"error":"trapped; in cloud::machines::find","n":1}"#
        );
        let both = "in function 0 of component 000000000000; in function 2 of component ba7816bf8f01";
        assert_eq!(text(both), "in other; in skysail:provider/instances@0.1.0#describe");
        for same in [
            "in functions 1 ← 0 of component 1234567890ab",
            "in functions 99 of component ba7816bf8f01",
            "in functions 99999999999 of component ba7816bf8f01",
            "in functions x ← 1 of component ba7816bf8f01",
            "in functions 1 of component ba7816bf8f",
            "no backtrace",
        ] {
            assert_eq!(text(same), same);
        }
        assert_eq!(unknown, BTreeSet::from(["1234567890ab".to_owned()]));
    }

    #[test]
    fn names_are_a_guests_and_have_a_bound() {
        let long = "x".repeat(10_000);
        let text = shown(&[&long, "a\nb\u{1b}[31m\u{202e}c"]).unwrap();
        assert!(text.len() < 200 && text.ends_with(" ← a b [31mc"), "{text}");
        assert_eq!(shown(&["f"; 100]).unwrap(), "f ← f ← f ← f ← f");
        // Nothing that takes long or much memory to demangle.
        let nested = format!("_R{}", "INvCs_1aE".repeat(50_000));
        assert!(shown(&[&nested]).unwrap().len() < 200);
    }
}
