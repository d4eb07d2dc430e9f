//! Outside the sandbox a host function panics with a message that names the function. The bindings
//! would abort the whole test program without a name.

/// Marks a function that needs the host. Does nothing in the sandbox.
///
/// # Panics
///
/// On every target but `wasm32`.
#[track_caller]
#[cfg_attr(
    not(target_arch = "wasm32"),
    expect(clippy::panic, reason = "outside the sandbox there is no host to answer, and no error type to say so")
)]
pub(crate) fn host_only(function: &str) {
    #[cfg(not(target_arch = "wasm32"))]
    panic!(
        "skysail_guest_sdk::{function} calls the host, and only the sandbox has one: in a native test call functions \
         that take plain values, or run the component with `skysail call`"
    );
    #[cfg(target_arch = "wasm32")]
    let _ = function;
}

#[cfg(test)]
mod tests {
    use std::{panic::catch_unwind, time::Duration};

    use crate::{cache, clock, config, events, http::Api};

    /// This test shares a process with the others, so an abort would end all of them.
    #[test]
    fn a_native_call_of_the_host_ends_with_a_sentence_that_names_the_function() {
        let get = || Api::new("http://127.0.0.1:1").get(&["x"]);
        type Named = (&'static str, fn() -> String);
        let calls: [Named; 8] = [
            ("config::text", config::text),
            ("clock::now_ms", || clock::now_ms().to_string()),
            ("clock::monotonic", || format!("{:?}", clock::monotonic())),
            ("cache::get", || format!("{:?}", cache::get_or("x", Duration::ZERO, || Ok(1)))),
            ("cache::set", || cache::set("x", &1, Duration::ZERO).to_string()),
            ("cache::update", || format!("{:?}", cache::update("x", Duration::ZERO, |_: Option<u8>| 1))),
            ("cache::delete", || format!("{:?}", cache::delete("x"))),
            ("events::warning", || format!("{:?}", events::warning("Reason", "text"))),
        ];
        let sentence = |call: Box<dyn FnOnce() -> String + std::panic::UnwindSafe>| {
            let panic = catch_unwind(call).unwrap_err();
            panic.downcast_ref::<String>().unwrap().clone()
        };
        for (name, call) in calls {
            let text = sentence(Box::new(call));
            assert!(text.starts_with(&format!("skysail_guest_sdk::{name} calls the host")), "{text}");
        }
        let text = sentence(Box::new(move || format!("{:?}", get().send())));
        assert!(text.starts_with("skysail_guest_sdk::http::Request::send calls the host"), "{text}");
        let text = sentence(Box::new(move || format!("{:?}", crate::http::send_all(vec![get()]))));
        assert!(text.starts_with("skysail_guest_sdk::http::send_all calls the host"), "{text}");
    }

    #[test]
    fn a_native_test_may_log_and_print() {
        crate::info!("made"; "count" => 1);
        crate::println!("two {}", "words");
        assert_eq!(crate::dbg!(1 + 1), 2);
        crate::eprintln!();
    }
}
