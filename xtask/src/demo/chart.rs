//! Timeline as an SVG: one coloured line for each volume, with the phases marked.
//!
//! The upper panel shows everything. The lower panel shows only low rates, where the ceilings are.

use std::fmt::Write;

use super::phases::Phase;
use super::{Logs, VOLUMES, Window};
use crate::numbers::rate;

/// Width of one point of a line, in milliseconds.
const STEP_MS: u64 = 250;
/// Top of the lower panel in IOPS.
const LOW_TOP: f64 = 5000.0;
const COLOURS: [&str; 3] = ["#1f77b4", "#ff7f0e", "#2ca02c"];
const WIDTH: f64 = 1200.0;
const HEIGHT: f64 = 720.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 30.0;
const STYLE: &str = "text{font-family:Helvetica,Arial,sans-serif;font-size:13px;fill:#333}\
    .title{font-size:19px}.small{font-size:11px;fill:#555}.grid{stroke:#e3e3e3}.axis{stroke:#888}\
    .mark{stroke:#999;stroke-dasharray:4 4}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}";

/// Rectangle with its own scale.
struct Panel {
    top: f64,
    height: f64,
    iops_max: f64,
    seconds_max: f64,
}

/// Points of one line: seconds since the start, and IOPS.
type Line = Vec<(f64, f64)>;

/// Draws the whole picture.
pub fn draw(logs: &Logs, windows: &[Window], phases: &[Phase]) -> String {
    let (Some(first), Some(last)) = (windows.first(), windows.last()) else { return String::new() };
    let (start_ms, end_ms) = (first.begin_ms, last.to_ms);
    let lines: Vec<Line> = logs
        .iter()
        .map(|log| {
            let starts = (start_ms..end_ms.saturating_sub(STEP_MS)).step_by(STEP_MS as usize);
            starts.map(|at| ((at - start_ms) as f64 / 1000.0, rate(log, at, at + STEP_MS))).collect()
        })
        .collect();
    let seconds_max = (end_ms - start_ms) as f64 / 1000.0;
    let highest = lines.iter().flatten().map(|point| point.1).fold(1.0, f64::max);
    let upper = Panel { top: 110.0, height: 300.0, iops_max: highest * 1.05, seconds_max };
    let lower = Panel { top: 470.0, height: 160.0, iops_max: LOW_TOP, seconds_max };
    let marks: Vec<f64> = windows.iter().map(|window| (window.begin_ms - start_ms) as f64 / 1000.0).collect();
    let mut svg = header();
    draw_phase_names(&mut svg, &upper, &marks, phases);
    for (panel, name) in [(&upper, "IOPS"), (&lower, "IOPS, the lowest 5000")] {
        panel.draw_frame(&mut svg, name, &marks);
        panel.draw_lines(&mut svg, &lines);
    }
    draw_legend(&mut svg);
    svg.push_str("</svg>\n");
    svg
}

fn header() -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         viewBox=\"0 0 {WIDTH} {HEIGHT}\">\n<style>{STYLE}</style>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#fff\"/>\n\
         <text class=\"title\" x=\"{LEFT}\" y=\"34\">IOPS of each volume, as its clients counted them</text>\n"
    )
}

/// Writes to a string, which cannot fail.
macro_rules! put {
    ($svg:expr, $($part:tt)*) => { writeln!($svg, $($part)*).expect("a text takes everything") };
}

fn draw_phase_names(svg: &mut String, panel: &Panel, marks: &[f64], phases: &[Phase]) {
    for (index, (mark, phase)) in marks.iter().zip(phases).enumerate() {
        let x = panel.x(*mark) + 4.0;
        put!(svg, "<text class=\"small\" x=\"{x:.1}\" y=\"62\">{}.</text>", index + 1);
        let (first, second) = halves(phase.title);
        put!(svg, "<text class=\"small\" x=\"{x:.1}\" y=\"77\">{first}</text>");
        put!(svg, "<text class=\"small\" x=\"{x:.1}\" y=\"92\">{second}</text>");
    }
}

/// Cuts a title at the blank nearest to its middle.
fn halves(title: &str) -> (&str, &str) {
    let middle = title.len() / 2;
    let blanks = title.match_indices(' ').map(|(at, _)| at);
    blanks.min_by_key(|at| at.abs_diff(middle)).map_or((title, ""), |at| (&title[..at], &title[at + 1..]))
}

fn draw_legend(svg: &mut String) {
    for (index, (name, colour)) in VOLUMES.iter().zip(COLOURS).enumerate() {
        let x = WIDTH / 2.0 - 150.0 + index as f64 * 110.0;
        let y = HEIGHT - 18.0;
        put!(svg, "<rect x=\"{x}\" y=\"{:.0}\" width=\"22\" height=\"4\" fill=\"{colour}\"/>", y - 6.0);
        put!(svg, "<text x=\"{:.0}\" y=\"{y}\">{name}</text>", x + 30.0);
    }
}

impl Panel {
    fn x(&self, seconds: f64) -> f64 {
        LEFT + (WIDTH - LEFT - RIGHT) * seconds / self.seconds_max
    }

    fn y(&self, iops: f64) -> f64 {
        self.top + self.height * (1.0 - iops / self.iops_max)
    }

    fn draw_frame(&self, svg: &mut String, name: &str, marks: &[f64]) {
        let (right, bottom) = (WIDTH - RIGHT, self.top + self.height);
        let step = round_step(self.iops_max / 5.0);
        let mut iops = 0.0;
        while iops <= self.iops_max {
            let y = self.y(iops);
            put!(svg, "<line class=\"grid\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>");
            let text_y = y + 4.0;
            put!(svg, "<text x=\"{}\" y=\"{text_y:.1}\" text-anchor=\"end\">{iops}</text>", LEFT - 8.0);
            iops += step;
        }
        let mut seconds = 0.0;
        while seconds <= self.seconds_max {
            let (x, y) = (self.x(seconds), bottom + 18.0);
            put!(svg, "<text x=\"{x:.1}\" y=\"{y:.0}\" text-anchor=\"middle\">{seconds} s</text>");
            seconds += 10.0;
        }
        for mark in marks {
            let x = self.x(*mark);
            put!(
                svg,
                "<line class=\"mark\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{:.0}\" y2=\"{bottom}\"/>",
                self.top
            );
        }
        put!(svg, "<line class=\"axis\" x1=\"{LEFT}\" x2=\"{right}\" y1=\"{bottom}\" y2=\"{bottom}\"/>");
        let middle = self.top + self.height / 2.0;
        put!(
            svg,
            "<text transform=\"translate(22 {middle:.0}) rotate(-90)\" text-anchor=\"middle\">{name}</text>"
        );
    }

    fn draw_lines(&self, svg: &mut String, lines: &[Line]) {
        let (width, id) = (WIDTH - LEFT - RIGHT, format!("panel{:.0}", self.top));
        let rectangle =
            format!("x=\"{LEFT}\" y=\"{}\" width=\"{width}\" height=\"{}\"", self.top, self.height + 2.0);
        put!(svg, "<clipPath id=\"{id}\"><rect {rectangle}/></clipPath><g clip-path=\"url(#{id})\">");
        for (line, colour) in lines.iter().zip(COLOURS) {
            let points =
                line.iter().map(|(seconds, iops)| format!("{:.1},{:.1}", self.x(*seconds), self.y(*iops)));
            let points = points.collect::<Vec<_>>().join(" ");
            put!(svg, "<polyline class=\"line\" stroke=\"{colour}\" points=\"{points}\"/>");
        }
        put!(svg, "</g>");
    }
}

/// Returns the next larger number of 1, 2 and 5 times a power of ten.
fn round_step(least: f64) -> f64 {
    let power = 10f64.powf(least.max(1.0).log10().floor());
    [1.0, 2.0, 5.0, 10.0]
        .map(|factor| factor * power)
        .into_iter()
        .find(|step| *step >= least)
        .unwrap_or(power)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::phases::PHASES;
    use crate::world::fio::Completion;

    #[test]
    fn chart_has_a_line_per_volume_and_a_mark_per_phase() {
        let log = |step: usize| {
            (0..20_000).step_by(step).map(|at_ms| Completion { at_ms, latency_ns: 1 }).collect()
        };
        let window = |begin_ms| Window {
            begin_ms,
            from_ms: begin_ms + 2000,
            to_ms: begin_ms + 10_000,
            let_through: [0; 3],
        };
        let svg = draw(&[log(1), log(2), log(4)], &[window(0), window(10_000)], &PHASES);
        assert_eq!(svg.matches("<polyline").count(), 6);
        assert_eq!(svg.matches("class=\"mark\"").count(), 4);
        assert!(svg.contains(">20 s<") && svg.contains(">vol3<") && svg.ends_with("</svg>\n"));
    }

    #[test]
    fn steps_are_round() {
        assert_eq!([0.3, 7.0, 1400.0, 2100.0].map(round_step), [1.0, 10.0, 2000.0, 5000.0]);
        assert_eq!(halves("vol1 turns noisy: 32 jobs"), ("vol1 turns", "noisy: 32 jobs"));
    }
}
