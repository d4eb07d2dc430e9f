//! Pictures for the documents, drawn from what a test saw. `make picture` names the folder for
//! them; without a folder nothing is drawn.

use std::{fs, path::Path, time::Duration};

use anyhow::{Context as _, Result};

use crate::workspace::environment;

/// The environment variable with the folder.
const FOLDER: &str = "SKYSAIL_PICTURES";

const WIDTH: f64 = 960.0;
/// Where the time begins: to the left are the labels.
const TIME_FROM: f64 = 330.0;
const TIME_TO: f64 = WIDTH - 90.0;
const TOP: f64 = 64.0;
const ROW: f64 = 26.0;
const TICKS: u32 = 4;
/// By depth.
const COLOURS: [&str; 3] = ["#1f77b4", "#2ca02c", "#ff7f0e"];

/// Something that took time.
#[derive(Debug)]
pub struct Bar {
    /// Of how many others it is a part.
    pub depth: usize,
    /// What took time.
    pub label: String,
    /// Begin, since the start of the timeline.
    pub start: Duration,
    /// End, since the start of the timeline.
    pub end: Duration,
}

/// Bars below each other, on one axis of time.
#[derive(Debug)]
pub struct Timeline {
    /// Text above the bars.
    pub title: String,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
}

impl Timeline {
    /// Writes the picture to this file of the folder that `SKYSAIL_PICTURES` names, if it is set.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn draw(&self, file: &str) -> Result<()> {
        let Some(folder) = environment(FOLDER) else { return Ok(()) };
        let file = Path::new(&folder).join(file);
        fs::write(&file, self.svg()).with_context(|| format!("{FOLDER}: {} cannot be written", file.display()))
    }

    fn svg(&self) -> String {
        let whole = self.bars.iter().map(|bar| bar.end.as_secs_f64()).fold(f64::MIN_POSITIVE, f64::max);
        let at = |time: Duration| TIME_FROM + (TIME_TO - TIME_FROM) * time.as_secs_f64() / whole;
        let bottom = self.bars.iter().fold(TOP, |bottom, _| bottom + ROW);
        let title = escaped(&self.title);
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
             viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\" font-family=\"sans-serif\" \
             font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n\
             <text x=\"20\" y=\"26\" font-size=\"16\">{title}</text>\n",
            height = bottom + 16.0,
        );
        for tick in 0..=TICKS {
            let time = Duration::from_secs_f64(whole) * tick / TICKS;
            let (x, text) = (at(time), shown(time));
            add(&mut svg, format_args!("<path d=\"M{x:.1} {TOP}V{bottom}\" stroke=\"#dddddd\"/>"));
            add(
                &mut svg,
                format_args!(
                    "<text x=\"{x:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#666666\">{text}</text>",
                    TOP - 8.0
                ),
            );
        }
        let mut y = TOP;
        for bar in &self.bars {
            let (from, to) = (at(bar.start), at(bar.end));
            let (indent, label) = (20 + 16 * bar.depth, escaped(&bar.label));
            let colour = COLOURS.get(bar.depth).unwrap_or(&"#7f7f7f");
            let (text, took) = (y + 17.0, shown(bar.end.saturating_sub(bar.start)));
            add(&mut svg, format_args!("<text x=\"{indent}\" y=\"{text}\">{label}</text>"));
            // Something short is still to be seen.
            let width = (to - from).max(2.0);
            add(
                &mut svg,
                format_args!(
                    "<rect x=\"{from:.1}\" y=\"{:.0}\" width=\"{width:.1}\" height=\"16\" fill=\"{colour}\"/>",
                    y + 5.0
                ),
            );
            add(
                &mut svg,
                format_args!("<text x=\"{:.1}\" y=\"{text}\" fill=\"#666666\">{took}</text>", from + width + 6.0),
            );
            y += ROW;
        }
        svg.push_str("</svg>\n");
        svg
    }
}

fn add(svg: &mut String, element: std::fmt::Arguments<'_>) {
    svg.push_str(&element.to_string());
    svg.push('\n');
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

fn shown(time: Duration) -> String {
    match time.as_secs_f64() {
        0.0 => "0".to_owned(),
        seconds if seconds >= 10.0 => format!("{seconds:.0} s"),
        seconds if seconds >= 1.0 => format!("{seconds:.1} s"),
        seconds => format!("{:.1} ms", seconds * 1000.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bar(depth: usize, label: &str, from_ms: u64, to_ms: u64) -> Bar {
        Bar { depth, label: label.to_owned(), start: Duration::from_millis(from_ms), end: Duration::from_millis(to_ms) }
    }

    #[test]
    fn a_bar_is_as_long_as_its_time_and_its_label_is_text() {
        let bars = vec![bar(0, "all", 0, 200), bar(1, "GET /a?b<c&\"d\"", 50, 100)];
        let svg = Timeline { title: "a title".to_owned(), bars }.svg();
        assert!(svg.contains("<rect x=\"330.0\" y=\"69\" width=\"540.0\""), "{svg}");
        assert!(svg.contains("<rect x=\"465.0\" y=\"95\" width=\"135.0\""), "{svg}");
        assert!(svg.contains(">GET /a?b&lt;c&amp;&quot;d&quot;</text>"), "{svg}");
        assert!(svg.contains(">50.0 ms</text>") && svg.contains(">200.0 ms</text>"), "{svg}");
    }

    #[test]
    fn a_timeline_without_bars_is_a_picture() {
        assert!(Timeline { title: String::new(), bars: Vec::new() }.svg().ends_with("</svg>\n"));
    }
}
