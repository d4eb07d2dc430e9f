//! Writes the figures as Markdown tables and inserts them into a document.

use std::fmt::{self, Write as _};

use anyhow::{Context as _, Result, ensure};

use super::{
    figures::{CACHES_FULL, Figures, Restart, Shares, Spread},
    place::Source,
};

/// The lines of a document that enclose the figures.
const BEGIN: &str = "<!-- swaps: begin -->\n";
const END: &str = "<!-- swaps: end -->\n";

/// The tables.
#[must_use]
pub fn markdown(figures: &[Figures], restart: Option<&Restart>) -> String {
    let mut text = String::new();
    let _a_string_takes_all = write(&mut text, figures, restart);
    text
}

/// The document with its tables replaced by these.
///
/// # Errors
/// The document has no lines that enclose figures.
pub fn insert(document: &str, tables: &str) -> Result<String> {
    let place = || format!("the document needs a line {} and after it a line {}", BEGIN.trim(), END.trim());
    let (before, rest) = document.split_once(BEGIN).with_context(place)?;
    let (_, after) = rest.split_once(END).with_context(place)?;
    ensure!(!after.contains(BEGIN), "the document has {} twice", BEGIN.trim());
    Ok(format!("{before}{BEGIN}\n{}\n\n{END}{after}", tables.trim()))
}

fn write(text: &mut String, figures: &[Figures], restart: Option<&Restart>) -> fmt::Result {
    if !figures.is_empty() {
        swaps(text, figures)?;
    }
    if let Some(restart) = restart {
        restarts(text, restart)?;
    }
    Ok(())
}

fn swaps(text: &mut String, figures: &[Figures]) -> fmt::Result {
    writeln!(
        text,
        "| source | component | swaps | offer seen to serving, ms: minimum, median, p99, maximum | bound | p99 within the bound | times one compilation | from the write, ms: median, p99 |\n\
         |---|--:|--:|--:|--:|---|--:|--:|"
    )?;
    for one in figures {
        let Figures { source, component, component_bytes, swaps, serving_ms, written_ms, compile_ms, .. } = one;
        let ratio = if source.is_known() { String::new() } else { format!("{:.2}", serving_ms.p50 / compile_ms) };
        writeln!(
            text,
            "| {source} | {component}, {} KiB | {swaps} | {} | {:.0} | {} | {ratio} | {:.0}, {:.0} |",
            (component_bytes + 512) >> 10,
            shown(serving_ms),
            source.bound_ms(),
            if one.holds() { "holds" } else { "does not hold" },
            written_ms.p50,
            written_ms.p99,
        )?;
    }
    writeln!(
        text,
        "\n| source | of that, ms: source, judging, compiling, the rest | calls | failed | a call, ms: median, p99, maximum | resident, MiB: at first, after {CACHES_FULL}, at the end | growth a swap | one compilation | machine code of one release |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|"
    )?;
    for one in figures {
        let Shares { source_ms, judged_ms, compiled_ms, rest_ms } = one.shares;
        let Figures { source, calls, call_ms, resident_mib, compile_ms, code_bytes, .. } = one;
        let at = |sample: Option<&f64>| sample.map_or_else(|| "–".to_owned(), |mib| format!("{mib:.1}"));
        let growth = one.growth_kib().map_or_else(|| "–".to_owned(), |kib| format!("{kib:.1} KiB"));
        let flat = one.is_flat().map_or("", |flat| if flat { ", flat" } else { ", **not flat**" });
        writeln!(
            text,
            "| {source} | {source_ms:.0}, {judged_ms:.0}, {compiled_ms:.0}, {rest_ms:.0} | {calls} | {} | {:.0}, {:.0}, {:.0} | {}, {}, {} | {growth}{flat} | {compile_ms:.0} ms | {} KiB |",
            failures(one),
            call_ms.p50,
            call_ms.p99,
            call_ms.max,
            at(resident_mib.values().next()),
            at(resident_mib.get(&CACHES_FULL)),
            at(resident_mib.values().next_back()),
            code_bytes >> 10,
        )?;
    }
    writeln!(text)?;
    for source in Source::ALL.iter().filter(|source| figures.iter().any(|one| one.source == **source)) {
        writeln!(text, "- **{source}**: the time runs from when {}.", source.measured())?;
    }
    writeln!(text)
}

fn restarts(text: &mut String, restart: &Restart) -> fmt::Result {
    let Restart { component, rounds, first_request_ms, first_node_ms, alone_ms } = restart;
    writeln!(
        text,
        "| killed and started again, its registry away | rounds | ms: minimum, median, p99, maximum | bound | every round within the bound |\n\
         |---|--:|--:|--:|---|\n\
         | to the first request that {component} sends to the cloud | {rounds} | {} | {:.0} | {} |\n\
         | to the first node that is initialised | {rounds} | {} | | |\n\
         | the API server away as well: to the release that serves | {rounds} | {} | {:.0} | {} |\n",
        shown(first_request_ms),
        Restart::BOUND_MS,
        kept(first_request_ms),
        shown(first_node_ms),
        shown(alone_ms),
        Restart::BOUND_MS,
        kept(alone_ms),
    )
}

fn kept(spread: &Spread) -> &'static str {
    if Restart::keeps(spread) { "holds" } else { "does not hold" }
}

fn shown(spread: &Spread) -> String {
    let Spread { min, p50, p99, max } = spread;
    // Small values have a decimal: a bound of 20 ms needs the precision.
    let decimals = usize::from(*p50 < 50.0);
    format!("{min:.decimals$}, **{p50:.decimals$}**, {p99:.decimals$}, {max:.decimals$}")
}

fn failures(figures: &Figures) -> String {
    if figures.failed.is_empty() {
        return "0".to_owned();
    }
    let by_code: Vec<String> = figures.failed.iter().map(|(code, count)| format!("{code} {count}")).collect();
    format!("**{}** ({})", figures.failures(), by_code.join(", "))
}

#[cfg(test)]
mod tests {
    use super::{BEGIN, END, insert};

    #[test]
    fn only_the_tables_of_a_document_are_replaced() {
        let document = format!("before\n\n{BEGIN}old\n{END}\nafter\n");
        let inserted = insert(&document, "| new |\n").unwrap();
        assert_eq!(inserted, format!("before\n\n{BEGIN}\n| new |\n\n{END}\nafter\n"));
        assert_eq!(insert(&inserted, "| new |").unwrap(), inserted);
        let refused = insert("no place", "| new |").unwrap_err().to_string();
        assert!(refused.contains("<!-- swaps: begin -->"), "{refused}");
    }
}
