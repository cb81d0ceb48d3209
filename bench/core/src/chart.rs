//! Charts: lines with their intervals, and bars.

use crate::svg::{Anchor, Svg};
use crate::table::number;

const WIDTH: f64 = 680.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 64.0;
const RIGHT: f64 = 18.0;
const BOTTOM: f64 = 46.0;
/// How many colours there are.
pub const COLOURS: usize = 8;

/// How a scale runs.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Scale {
    /// From 0 in even steps.
    #[default]
    Linear,
    /// Each step the same factor.
    Log,
}

/// An axis.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Axis {
    /// What is along it, with the unit.
    pub label: String,
    /// How it runs.
    pub scale: Scale,
    /// Marks with their texts; chosen by the values if there are none.
    pub ticks: Vec<(f64, String)>,
}

impl Axis {
    /// A linear axis.
    pub fn linear(label: &str) -> Axis {
        Axis { label: label.into(), ..Axis::default() }
    }
    /// A logarithmic axis.
    pub fn log(label: &str) -> Axis {
        Axis { label: label.into(), scale: Scale::Log, ticks: Vec::new() }
    }
    /// With marks at these places.
    pub fn marks(mut self, ticks: impl IntoIterator<Item = (f64, String)>) -> Axis {
        self.ticks = ticks.into_iter().collect();
        self
    }
}

/// A value with its interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Dot {
    /// Along the axis.
    pub x: f64,
    /// The value.
    pub y: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
}

impl Dot {
    /// Without an interval.
    pub fn plain(x: f64, y: f64) -> Dot {
        Dot { x, y, low: y, high: y }
    }
}

/// A line of a chart.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// As the legend calls it.
    pub name: String,
    /// Which colour, counted from 0.
    pub colour: usize,
    /// Whether the line is broken: for what somebody else published, or a second kind.
    pub dashed: bool,
    /// Its points, in order of x.
    pub dots: Vec<Dot>,
}

/// Lines over an axis.
#[derive(Debug, Clone, PartialEq)]
pub struct Lines {
    /// What it shows.
    pub title: String,
    /// Across.
    pub x: Axis,
    /// Up.
    pub y: Axis,
    /// The lines.
    pub series: Vec<Series>,
}

/// A value with its interval; `None` where nothing was measured.
pub type Bar = Option<(f64, f64, f64)>;

/// Groups of bars.
#[derive(Debug, Clone, PartialEq)]
pub struct Bars {
    /// What it shows.
    pub title: String,
    /// Up.
    pub y: Axis,
    /// The names of the groups.
    pub groups: Vec<String>,
    /// The bars of each group: a name, a colour, and a value with its interval for each group.
    pub series: Vec<(String, usize, Vec<Bar>)>,
}

/// From values to places.
struct Map {
    scale: Scale,
    from: (f64, f64),
    to: (f64, f64),
}

impl Map {
    fn at(&self, v: f64) -> f64 {
        let (a, b) = self.from;
        let part = match self.scale {
            Scale::Linear => (v - a) / (b - a),
            Scale::Log => (v.max(a) / a).ln() / (b / a).ln(),
        };
        self.to.0 + (self.to.1 - self.to.0) * part.clamp(-0.02, 1.02)
    }
}

/// A range that holds all values, and round marks in it.
fn extent(
    values: impl Iterator<Item = f64>,
    axis: &Axis,
    from_zero: bool,
) -> ((f64, f64), Vec<(f64, String)>) {
    let values: Vec<f64> = values.filter(|v| v.is_finite()).collect();
    let max = values.iter().copied().fold(f64::MIN, f64::max);
    match axis.scale {
        Scale::Linear => {
            let min = values.iter().copied().fold(f64::MAX, f64::min);
            let (min, max) = if values.is_empty() { (0.0, 1.0) } else { (min, max) };
            let low = if from_zero { min.min(0.0) } else { min };
            let high = if max > low { max } else { low + 1.0 };
            if !axis.ticks.is_empty() {
                return ((low, high), axis.ticks.clone());
            }
            let step = round_step((high - low) / 5.0);
            let (first, last) = ((low / step).floor(), (high / step).ceil());
            let ticks = (first as i64..=last as i64).map(|n| n as f64 * step);
            ((first * step, last * step), ticks.map(|t| (t, plain(t, step))).collect())
        }
        Scale::Log => {
            let min = values.iter().copied().filter(|v| *v > 0.0).fold(f64::MAX, f64::min);
            let (min, max) = if min > max { (1.0, 10.0) } else { (min, max) };
            if !axis.ticks.is_empty() {
                return ((min, if max > min { max } else { min * 2.0 }), axis.ticks.clone());
            }
            let (first, last) = (min.log10().floor() as i32, max.log10().ceil() as i32);
            let last = last.max(first + 1);
            let ticks = (first..=last).map(|n| 10f64.powi(n)).map(|t| (t, number_short(t)));
            ((10f64.powi(first), 10f64.powi(last)), ticks.collect())
        }
    }
}

fn round_step(raw: f64) -> f64 {
    let unit = 10f64.powf(raw.log10().floor());
    let n = raw / unit;
    unit * [1.0, 2.0, 2.5, 5.0, 10.0].into_iter().find(|s| n <= s * 1.0001).unwrap_or(10.0)
}

fn plain(t: f64, step: f64) -> String {
    if t.abs() >= 10_000.0 {
        return number_short(t);
    }
    let digits = (-step.log10().floor()).max(0.0) as usize;
    let more =
        usize::from((step / 10f64.powf(step.log10().floor()) - 2.5).abs() < 0.01 && step < 10.0);
    format!("{t:.*}", digits + more)
}

fn number_short(t: f64) -> String {
    match t {
        t if t >= 1e9 => format!("{}G", t / 1e9),
        t if t >= 1e6 => format!("{}M", t / 1e6),
        t if t >= 1e4 => format!("{}k", t / 1e3),
        t => format!("{t}"),
    }
}

/// Title and legend; returns the picture and where the plot begins below them.
fn frame(title: &str, legend: &[(&str, usize, bool)]) -> (Svg, f64) {
    let mut rows = 1.0;
    let mut x = LEFT;
    let mut places = Vec::new();
    for (name, ..) in legend {
        let w = 34.0 + 6.8 * name.chars().count() as f64;
        if x + w > WIDTH - RIGHT && x > LEFT {
            rows += 1.0;
            x = LEFT;
        }
        places.push((x, 24.0 + 18.0 * rows));
        x += w;
    }
    let top = 24.0 + 18.0 * rows + 16.0;
    let mut svg = Svg::new(WIDTH, HEIGHT + top - 58.0, title);
    svg.text("title", (LEFT, 20.0), Anchor::Start, title);
    for ((name, colour, dashed), (x, y)) in legend.iter().zip(places) {
        let class = format!("line c{}{}", colour % COLOURS, if *dashed { " dashed" } else { "" });
        svg.line(&class, (x, y - 4.0), (x + 20.0, y - 4.0));
        svg.text("legend", (x + 26.0, y), Anchor::Start, name);
    }
    (svg, top)
}

fn y_axis(svg: &mut Svg, axis: &Axis, map: &Map, ticks: &[(f64, String)]) {
    for (v, text) in ticks {
        let y = map.at(*v);
        svg.line("grid", (LEFT, y), (WIDTH - RIGHT, y));
        svg.text("tick", (LEFT - 8.0, y + 4.0), Anchor::End, text);
    }
    svg.text_up("label", (16.0, (map.to.0 + map.to.1) / 2.0), &axis.label);
}

impl Lines {
    /// Draws it.
    pub fn draw(&self) -> Svg {
        let legend: Vec<(&str, usize, bool)> =
            self.series.iter().map(|s| (s.name.as_str(), s.colour, s.dashed)).collect();
        let (mut svg, top) = frame(&self.title, &legend);
        let bottom = HEIGHT + top - 58.0 - BOTTOM;
        let dots = || self.series.iter().flat_map(|s| &s.dots);
        let (yr, yt) = extent(dots().flat_map(|d| [d.y, d.low, d.high]), &self.y, true);
        let (xr, xt) = extent(dots().map(|d| d.x), &self.x, false);
        let y = Map { scale: self.y.scale, from: yr, to: (bottom, top) };
        let x = Map { scale: self.x.scale, from: xr, to: (LEFT + 10.0, WIDTH - RIGHT - 10.0) };
        y_axis(&mut svg, &self.y, &y, &yt);
        svg.line("axis", (LEFT, bottom), (WIDTH - RIGHT, bottom));
        for (v, text) in &xt {
            let at = x.at(*v);
            svg.line("axis", (at, bottom), (at, bottom + 4.0));
            svg.text("tick", (at, bottom + 17.0), Anchor::Middle, text);
        }
        svg.text(
            "label",
            ((LEFT + WIDTH - RIGHT) / 2.0, bottom + 36.0),
            Anchor::Middle,
            &self.x.label,
        );
        for s in &self.series {
            let c = s.colour % COLOURS;
            let high = s.dots.iter().map(|d| (x.at(d.x), y.at(d.high)));
            let low = s.dots.iter().rev().map(|d| (x.at(d.x), y.at(d.low)));
            if s.dots.iter().any(|d| d.low < d.high) {
                svg.area(&format!("band f{c}"), &high.chain(low).collect::<Vec<_>>());
            }
        }
        for s in &self.series {
            let c = s.colour % COLOURS;
            let dashed = if s.dashed { " dashed" } else { "" };
            let places: Vec<(f64, f64)> = s.dots.iter().map(|d| (x.at(d.x), y.at(d.y))).collect();
            svg.path(&format!("line c{c}{dashed}"), &places);
            for (d, at) in s.dots.iter().zip(&places) {
                let tip = format!("{}: {} at {}", s.name, number(d.y), number(d.x));
                svg.dot(&format!("dot f{c}"), *at, if s.dashed { 2.0 } else { 3.2 }, &tip);
            }
        }
        svg
    }
}

impl Bars {
    /// Draws it.
    pub fn draw(&self) -> Svg {
        let legend: Vec<(&str, usize, bool)> =
            self.series.iter().map(|s| (s.0.as_str(), s.1, false)).collect();
        let (mut svg, top) = frame(&self.title, &legend);
        let bottom = HEIGHT + top - 58.0 - BOTTOM;
        let all = self.series.iter().flat_map(|s| &s.2).flatten();
        let (yr, yt) = extent(all.flat_map(|(v, _, high)| [*v, *high]), &self.y, true);
        let y = Map { scale: self.y.scale, from: yr, to: (bottom, top) };
        y_axis(&mut svg, &self.y, &y, &yt);
        let room = (WIDTH - RIGHT - LEFT) / self.groups.len().max(1) as f64;
        let bar = (room * 0.76 / self.series.len().max(1) as f64).min(56.0);
        for (g, group) in self.groups.iter().enumerate() {
            let middle = LEFT + room * (g as f64 + 0.5);
            let start = middle - bar * self.series.len() as f64 / 2.0;
            svg.text("tick", (middle, bottom + 17.0), Anchor::Middle, group);
            for (n, (name, colour, values)) in self.series.iter().enumerate() {
                let Some(Some((v, low, high))) = values.get(g) else { continue };
                let (x, at) = (start + bar * n as f64, y.at(*v));
                let tip = format!("{group}, {name}: {}", number(*v));
                let size = (bar - 2.0, (bottom - at).max(1.0));
                let class = format!("bar f{}", colour % COLOURS);
                svg.rect(&class, (x + 1.0, at.min(bottom - 1.0)), size, &tip);
                let above = if low < high {
                    let (a, b) = (y.at(*low), y.at(*high));
                    svg.line("whisker", (x + bar / 2.0, a), (x + bar / 2.0, b));
                    b
                } else {
                    at
                };
                if bar > 22.0 {
                    svg.text("value", (x + bar / 2.0, above - 4.0), Anchor::Middle, &number(*v));
                }
            }
        }
        svg.line("axis", (LEFT, bottom), (WIDTH - RIGHT, bottom));
        svg
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_round_and_hold_the_values() {
        let axis = Axis::linear("y");
        let ((a, b), ticks) = extent([3.0, 97.0].into_iter(), &axis, true);
        assert_eq!((a, b), (0.0, 100.0));
        assert_eq!(
            ticks.iter().map(|t| t.1.as_str()).collect::<Vec<_>>(),
            ["0", "20", "40", "60", "80", "100"]
        );
        let ((a, b), ticks) = extent([0.3, 97.0].into_iter(), &Axis::log("y"), true);
        assert_eq!((a, b, ticks.len()), (0.1, 100.0, 4));
        for none in [Axis::linear("y"), Axis::log("y")] {
            let ((a, b), _) = extent([f64::NAN].into_iter(), &none, true);
            assert!(a < b);
        }
        assert_eq!(plain(0.25, 0.25), "0.25");
        assert_eq!(plain(2.5, 2.5), "2.5");
        assert_eq!(plain(20_000.0, 10_000.0), "20k");
    }

    #[test]
    fn pictures_stay_inside_their_frame() {
        let dots: Vec<Dot> = (0..6)
            .map(|n| Dot { x: f64::from(1 << n), y: f64::from(n), low: 0.0, high: 7.0 })
            .collect();
        let lines = Lines {
            title: "a < b & c".into(),
            x: Axis::log("threads").marks([(1.0, "1".into()), (32.0, "32".into())]),
            y: Axis::linear("MB/s"),
            series: vec![Series { name: "s".into(), colour: 9, dashed: true, dots }],
        };
        let text = lines.draw().file();
        assert!(
            text.contains("a &lt; b &amp; c") && !text.contains("NaN") && !text.contains("inf")
        );
        for part in text.split("cx=\"").skip(1) {
            let x: f64 = part.split('"').next().unwrap().parse().unwrap();
            assert!((0.0..=WIDTH).contains(&x), "{x}");
        }
        let bars = Bars {
            title: "b".into(),
            y: Axis::linear("n"),
            groups: vec!["one".into(), "two".into()],
            series: vec![("s".into(), 0, vec![Some((0.0, 0.0, 0.0)), None])],
        };
        assert!(!bars.draw().inline().contains("NaN"));
    }
}
