//! The report as XML of `JUnit`, which most CI systems show.

use std::path::Path;

use anyhow::Context as _;
use quick_xml::{
    Writer,
    events::{BytesDecl, BytesText, Event},
};
use skysail_host::write_file;

use super::report::{Outcome, Report, Tested};
use crate::output::plain;

/// Writes the file.
///
/// # Errors
/// The report cannot be encoded, or the file cannot be written.
pub(super) fn write(report: &Report, file: &Path) -> anyhow::Result<()> {
    let text = document(report).context("cannot encode the report as JUnit XML")?;
    write_file(file, &text)
        .with_context(|| format!("--junit: {} cannot be written; name a file in a folder that exists", file.display()))
}

/// One suite; what is left in the cloud is an error of the suite.
fn document(report: &Report) -> std::io::Result<Vec<u8>> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let (tests, failures) = (report.results.len().to_string(), report.count(Outcome::Failed).to_string());
    let (skipped, took) =
        (report.count(Outcome::NotTested).to_string(), report.results.iter().map(|one| one.took).sum());
    let counts = [("tests", &*tests), ("failures", &*failures), ("skipped", &*skipped), ("errors", "0")];
    writer.create_element("testsuites").with_attributes(counts).write_inner_content(|writer| {
        let component = plain(&report.component);
        writer
            .create_element("testsuite")
            .with_attribute(("name", &*component))
            .with_attributes(counts)
            .with_attribute(("time", &*seconds(took)))
            .write_inner_content(|writer| {
                report.results.iter().try_for_each(|result| case(writer, result))?;
                if report.left.is_empty() {
                    return Ok(());
                }
                let left: Vec<_> = report.left.iter().map(|left| plain(left)).collect();
                writer.create_element("system-err").write_text_content(BytesText::new(&left.join("\n")))?;
                Ok(())
            })?;
        Ok(())
    })?;
    let mut text = writer.into_inner();
    text.push(b'\n');
    Ok(text)
}

fn case(writer: &mut Writer<Vec<u8>>, result: &Tested) -> std::io::Result<()> {
    let (name, class, reason) =
        (plain(&result.name), plain(&result.subject), plain(result.reason.as_deref().unwrap_or_default()));
    let details: Vec<_> = result.details.iter().map(|line| plain(line)).collect();
    let element = writer.create_element("testcase").with_attributes([
        ("name", &*name),
        ("classname", &*class),
        ("time", &*seconds(result.took)),
    ]);
    element.write_inner_content(|writer| {
        match result.outcome {
            Outcome::Failed => {
                let failure = writer.create_element("failure").with_attribute(("message", &*reason));
                failure.write_text_content(BytesText::new(&details.join("\n")))?;
            }
            Outcome::NotTested => {
                writer.create_element("skipped").with_attribute(("message", &*reason)).write_empty()?;
            }
            Outcome::Passed if reason.is_empty() => {}
            Outcome::Passed => {
                writer.create_element("system-out").write_text_content(BytesText::new(&reason))?;
            }
        }
        Ok(())
    })?;
    Ok(())
}

fn seconds(time: std::time::Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use expect_test::expect;

    use super::{super::report::tests::example, document};

    #[test]
    fn every_case_is_a_test_and_a_text_of_a_provider_cannot_break_the_document() {
        let text = String::from_utf8(document(&example()).unwrap()).unwrap();
        expect![[r#"
            <?xml version="1.0" encoding="UTF-8"?>
            <testsuites tests="4" failures="1" skipped="1" errors="0">
              <testsuite name="provider.wasm" tests="4" failures="1" skipped="1" errors="0" time="3.750">
                <testcase name="known machines are described" classname="instances" time="1.250">
                </testcase>
                <testcase name="a second ensure changes nothing" classname="load-balancers" time="1.250">
                  <failure message="the second `ensure` sent a write: PUT &lt;https://a/ [2J&gt;"></failure>
                </testcase>
                <testcase name="every field of a port" classname="load-balancers" time="1.250">
                  <system-out>another protocol: refused</system-out>
                </testcase>
                <testcase name="all cases" classname="routes" time="0.000">
                  <skipped message="the component does not export the interface"/>
                </testcase>
                <system-err>the load balancer of the Service a/b: Denied</system-err>
              </testsuite>
            </testsuites>
        "#]]
        .assert_eq(&text);
    }
}
