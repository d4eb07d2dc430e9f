//! The place in the guest where a call ended: the names of the guest's own functions, innermost
//! first.
//!
//! The innermost functions of every panic belong to Rust's standard library, and the outermost
//! functions of every call to the glue of `wit-bindgen`. Neither helps an author, so both are left
//! out unless nothing else is left.

use skysail_provider::text::one_line;
use wasmtime::WasmBacktrace;

/// Functions that an error names: with the text of a panic they have to fit into an Event.
const FRAMES_MAX: usize = 5;
/// Longest name of a function, in bytes.
const NAME_BYTES_MAX: usize = 120;

/// `inner ← outer`; none where the component has no names or was not running.
pub(crate) fn of(error: &wasmtime::Error) -> Option<String> {
    let backtrace = error.downcast_ref::<WasmBacktrace>()?;
    chosen(backtrace.frames().iter().filter_map(|frame| frame.func_name()))
}

fn chosen<'a>(names: impl Iterator<Item = &'a str>) -> Option<String> {
    let names: Vec<String> = names.map(readable).collect();
    let own: Vec<_> = names.iter().skip_while(|name| is_of_rust(name)).filter(|name| !is_glue(name)).collect();
    let shown = if own.is_empty() { names.iter().collect() } else { own };
    let shown: Vec<_> = shown.into_iter().take(FRAMES_MAX).map(|name| one_line(name, NAME_BYTES_MAX)).collect();
    (!shown.is_empty()).then(|| shown.join(" ← "))
}

/// Demangled, without hashes; `<cloud::Cloud as sdk::Instances>::describe` is
/// `cloud::Cloud::describe`.
fn readable(name: &str) -> String {
    let name = format!("{:#}", rustc_demangle::demangle(name));
    let short = name.strip_prefix('<').and_then(|rest| {
        let (implementor, rest) = rest.split_once(" as ")?;
        let (_, function) = rest.rsplit_once(">::")?;
        // A type with generic arguments cannot be split like this.
        (!implementor.contains(['<', '>'])).then(|| format!("{implementor}::{function}"))
    });
    short.unwrap_or(name)
}

/// Whether the function belongs to the standard library or to the runtime that the compiler adds.
fn is_of_rust(name: &str) -> bool {
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let path = path.strip_prefix("mut ").unwrap_or(path);
    ["std::", "core::", "alloc::", "__rustc", "rust_", "__rust_", "dlmalloc", "abort"]
        .iter()
        .any(|start| path.starts_with(start))
}

/// Whether the function is binding code between the host and the author's function.
fn is_glue(name: &str) -> bool {
    name.contains("wit_bindgen::") || name.contains("_cabi") || name.contains('#') || name.contains("wit-component:")
}

#[cfg(test)]
mod tests {
    use super::chosen;

    fn shown(names: &[&str]) -> Option<String> {
        chosen(names.iter().copied())
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
    fn where_only_the_standard_library_and_glue_are_left_they_are_shown() {
        let names = ["abort", "skysail:legacy/clusters@0.1.0#master"];
        assert_eq!(shown(&names).as_deref(), Some("abort ← skysail:legacy/clusters@0.1.0#master"));
        assert_eq!(shown(&[]), None);
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
