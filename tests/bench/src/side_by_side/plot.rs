//! The growth curves as an SVG.

use std::collections::BTreeMap;

use anyhow::{Result, anyhow};
use plotters::{
    chart::{ChartBuilder, SeriesLabelPosition},
    prelude::{Circle, Color as _, IntoDrawingArea as _, IntoLogRange as _, LineSeries, PathElement, SVGBackend},
    style::{BLACK, RGBColor, WHITE},
};

use super::{
    contestant::Contestant,
    figures::{Figures, Growth},
    report::median,
};

const SIZE: (u32, u32) = (960, 420);
const COLOURS: [RGBColor; 2] = [RGBColor(0x1f, 0x77, 0xb4), RGBColor(0xd6, 0x27, 0x28)];

/// The figure that a panel shows.
type Shown = (&'static str, fn(&Figures) -> f64);
const PANELS: [Shown; 2] =
    [("seconds until all was done", Figures::done_s), ("seconds of CPU until then", |figures| figures.cpu_s)];

/// Time and CPU against the number of nodes, both axes logarithmic: a straight line at 45 degrees
/// is linear growth.
///
/// # Errors
/// There is nothing to draw.
pub fn growth_plot(curves: &BTreeMap<Contestant, Growth>) -> Result<String> {
    let mut svg = String::new();
    draw(&mut svg, curves).map_err(|error| anyhow!("drawing the growth: {error}"))?;
    Ok(svg)
}

fn draw(svg: &mut String, curves: &BTreeMap<Contestant, Growth>) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    for (area, (title, shown)) in root.split_evenly((1, PANELS.len())).iter().zip(PANELS) {
        let points: BTreeMap<Contestant, Vec<(f64, f64)>> =
            curves.iter().map(|(who, growth)| (*who, points(growth, shown))).collect();
        let all = || points.values().flatten();
        let range = |of: fn(&(f64, f64)) -> f64| {
            let least = all().map(of).fold(f64::INFINITY, f64::min);
            let most = all().map(of).fold(0.0, f64::max);
            (least / 1.25)..(most * 1.25)
        };
        let mut chart = ChartBuilder::on(area)
            .caption(title, ("sans-serif", 16))
            .margin(12)
            .x_label_area_size(36)
            .y_label_area_size(44)
            .build_cartesian_2d(range(|point| point.0).log_scale(), range(|point| point.1).log_scale())?;
        chart.configure_mesh().x_desc("nodes, with half as many Services").light_line_style(WHITE).draw()?;
        for ((who, points), colour) in points.iter().zip(COLOURS) {
            let line = chart.draw_series(LineSeries::new(points.iter().copied(), colour.stroke_width(2)))?;
            line.label(who.to_string())
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 16, y)], colour.stroke_width(2)));
            chart.draw_series(points.iter().map(|point| Circle::new(*point, 3, colour.filled())))?;
        }
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::UpperLeft)
            .border_style(BLACK.mix(0.3))
            .background_style(WHITE)
            .draw()?;
    }
    root.present()?;
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "numbers of nodes are far below 2^52")]
fn points(growth: &Growth, shown: fn(&Figures) -> f64) -> Vec<(f64, f64)> {
    growth.iter().map(|(size, rounds)| (size.nodes as f64, median(rounds, shown))).collect()
}
