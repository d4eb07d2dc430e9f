//! The file of `skysail call --profile`: the fuel of the guest's functions, as text or as a flame
//! graph.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context as _, bail};
use skysail_host::{CallRecorder, Profile, write_file};

use crate::{args::CallArgs, output_file};

/// Width of the image, and height of one function, in pixels.
const WIDTH: f64 = 1_200.0;
const ROW: f64 = 17.0;
/// Space above and below the functions.
const MARGIN: f64 = 30.0;
/// A function that takes less of the width is not drawn.
const NARROWEST: f64 = 0.3;
/// Width of a letter, in pixels.
const LETTER: f64 = 7.0;

/// The form of a profile, by the extension of its file.
#[derive(Clone, Copy, Debug)]
enum Form {
    Folded,
    Svg,
}

/// The file that gets the profile.
#[derive(Debug)]
pub(super) struct ProfileFile {
    path: PathBuf,
    form: Form,
    profile: Arc<Profile>,
}

impl ProfileFile {
    /// The file that the flag names; none without the flag. Makes the recorder profile the calls of
    /// the function.
    ///
    /// # Errors
    /// The extension is another one, or the file cannot be replaced.
    pub(super) fn of(args: &CallArgs, recorder: &mut CallRecorder) -> anyhow::Result<Option<Self>> {
        let Some(path) = &args.profile else { return Ok(None) };
        let file = Self::new(path, &args.function)?;
        *recorder = recorder.clone().profiled(Arc::clone(&file.profile));
        Ok(Some(file))
    }

    fn new(path: &Path, function: &str) -> anyhow::Result<Self> {
        output_file::check("--profile", path)?;
        let form = match path.extension().and_then(|extension| extension.to_str()) {
            Some("folded") => Form::Folded,
            Some("svg") => Form::Svg,
            _ => bail!(
                "--profile: {} ends with neither .svg nor .folded; name a file that ends with .svg for a flame graph, or with .folded \
                 for text",
                path.display()
            ),
        };
        Ok(Self { path: path.to_owned(), form, profile: Arc::new(Profile::new(function.to_owned())) })
    }

    /// Writes the profile.
    ///
    /// # Errors
    /// The file cannot be written, or the function was not called.
    pub(super) fn write(&self) -> anyhow::Result<()> {
        let stacks = self.profile.by_stack();
        if stacks.is_empty() {
            bail!("--profile: no code of the component ran, so there is no profile");
        }
        let text = match self.form {
            Form::Folded => self.profile.folded(),
            Form::Svg => svg(&stacks),
        };
        write_file(&self.path, text.as_bytes())
            .with_context(|| format!("--profile: cannot write {}", self.path.display()))
    }
}

/// A function, called by those above it.
#[derive(Default)]
struct Node<'a> {
    fuel: u64,
    calls: BTreeMap<&'a str, Node<'a>>,
}

impl Node<'_> {
    fn depth(&self) -> u32 {
        self.calls.values().map(|node| node.depth() + 1).max().unwrap_or_default()
    }
}

/// A flame graph: the outermost functions are at the bottom, and the width of a function is its
/// fuel with that of all functions above it.
fn svg(stacks: &[(Vec<String>, u64)]) -> String {
    let mut root = Node::default();
    for (stack, fuel) in stacks {
        let mut node = &mut root;
        node.fuel = node.fuel.saturating_add(*fuel);
        for name in stack {
            node = node.calls.entry(name).or_default();
            node.fuel = node.fuel.saturating_add(*fuel);
        }
    }
    let height = f64::from(root.depth()) * ROW + 2.0 * MARGIN;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         font-family=\"monospace\" font-size=\"12\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         <text x=\"4\" y=\"18\">{} units of fuel; the width of a function is its fuel with that of the functions above it</text>\n",
        root.fuel
    );
    let mut image = Image { out: &mut out, fuel: root.fuel.max(1) };
    image.row(&root, 0.0, height - MARGIN - ROW);
    out.push_str("</svg>\n");
    out
}

/// An image that is drawn.
struct Image<'a> {
    out: &'a mut String,
    /// All of it.
    fuel: u64,
}

impl Image<'_> {
    /// Draws the functions that a node calls, side by side.
    fn row(&mut self, node: &Node<'_>, mut x: f64, y: f64) {
        for (name, called) in &node.calls {
            let share = ratio(called.fuel, self.fuel);
            let width = share * WIDTH;
            if width >= NARROWEST {
                self.draw(name, (x, y, width), &format!("{} units, {:.1} %", called.fuel, share * 100.0));
                self.row(called, x, y - ROW);
            }
            x += width;
        }
    }

    fn draw(&mut self, name: &str, (x, y, width): (f64, f64, f64), about: &str) {
        let (escaped, color) = (escaped(name), color(name));
        self.out.push_str(&format!(
            "<g><title>{escaped}: {about}</title><rect x=\"{x:.1}\" y=\"{y}\" width=\"{width:.1}\" height=\"{}\" fill=\"{color}\"/>",
            ROW - 1.0
        ));
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 171 letters")]
        let letters = (width / LETTER) as usize;
        if letters > 3 {
            let shown: String = name.chars().take(letters - 1).collect();
            let (x, y, shown) = (x + 3.0, y + ROW - 4.0, self::escaped(&shown));
            self.out.push_str(&format!("<text x=\"{x:.1}\" y=\"{y}\">{shown}</text>"));
        }
        self.out.push_str("</g>\n");
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share of an image needs no exact unit")]
fn ratio(part: u64, whole: u64) -> f64 {
    part as f64 / whole as f64
}

/// Names are a guest's.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The same for each function of a crate or package, which begins the name.
fn color(name: &str) -> String {
    let path = name.trim_start_matches(['<', '&', '[', '(']);
    let package = path.split([':', '.', '/']).next().unwrap_or_default();
    let hash = package.bytes().fold(7_u32, |hash, byte| hash.wrapping_mul(31).wrapping_add(u32::from(byte)));
    format!("hsl({} {}% 68%)", hash % 60, 60 + hash / 60 % 35)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{ProfileFile, svg};

    #[test]
    fn a_function_is_as_wide_as_its_fuel_and_that_of_what_it_calls() {
        let stack = |names: &[&str], fuel| (names.iter().map(|name| (*name).to_owned()).collect(), fuel);
        let image = svg(&[
            stack(&["routes.list"], 100),
            stack(&["routes.list", "a::<b>&"], 300),
            stack(&["routes.list", "a::<b>&", "c"], 600),
            stack(&["routes.list", "narrow"], 0),
        ]);
        expect_test::expect![[r#"
            <svg xmlns="http://www.w3.org/2000/svg" width="1200" height="111" viewBox="0 0 1200 111" font-family="monospace" font-size="12">
            <rect width="100%" height="100%" fill="white"/>
            <text x="4" y="18">1000 units of fuel; the width of a function is its fuel with that of the functions above it</text>
            <g><title>routes.list: 1000 units, 100.0 %</title><rect x="0.0" y="64" width="1200.0" height="16" fill="hsl(49 79% 68%)"/><text x="3.0" y="77">routes.list</text></g>
            <g><title>a::&lt;b&gt;&amp;: 900 units, 90.0 %</title><rect x="0.0" y="47" width="1080.0" height="16" fill="hsl(14 65% 68%)"/><text x="3.0" y="60">a::&lt;b&gt;&amp;</text></g>
            <g><title>c: 600 units, 60.0 %</title><rect x="0.0" y="30" width="720.0" height="16" fill="hsl(16 65% 68%)"/><text x="3.0" y="43">c</text></g>
            </svg>
        "#]]
        .assert_eq(&image);
    }

    #[test]
    fn the_extension_of_the_file_decides_the_form() {
        for good in ["a.svg", "a.folded"] {
            ProfileFile::new(Path::new(good), "routes.list").unwrap();
        }
        for bad in ["a", "a.png", "svg"] {
            let error = ProfileFile::new(Path::new(bad), "routes.list").unwrap_err().to_string();
            assert!(
                error.ends_with("name a file that ends with .svg for a flame graph, or with .folded for text"),
                "{error}"
            );
        }
    }
}
