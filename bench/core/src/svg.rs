//! SVG text, with the classes that [`crate::page::STYLE`] colours in light and dark.

use std::fmt::Write as _;

/// An SVG picture being drawn.
#[derive(Debug, Clone)]
pub struct Svg {
    width: f64,
    height: f64,
    label: String,
    body: String,
}

/// Text as it may stand in XML.
pub fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Where a text is anchored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Anchor {
    /// It begins there.
    Start,
    /// Its middle is there.
    Middle,
    /// It ends there.
    End,
}

impl Svg {
    /// Empty; `label` says in words what it shows.
    pub fn new(width: f64, height: f64, label: &str) -> Svg {
        Svg { width, height, label: label.into(), body: String::new() }
    }

    /// A straight line.
    pub fn line(&mut self, class: &str, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
        let _ = writeln!(
            self.body,
            r#"<line class="{class}" x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}"/>"#
        );
    }

    /// A line through points.
    pub fn path(&mut self, class: &str, points: &[(f64, f64)]) {
        let d: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(self.body, r#"<polyline class="{class}" points="{}"/>"#, d.join(", "));
    }

    /// A filled area.
    pub fn area(&mut self, class: &str, points: &[(f64, f64)]) {
        let d: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
        let _ = writeln!(self.body, r#"<polygon class="{class}" points="{}"/>"#, d.join(", "));
    }

    /// A rectangle; `tip` shows when it is pointed at.
    pub fn rect(&mut self, class: &str, (x, y): (f64, f64), (w, h): (f64, f64), tip: &str) {
        let (w, h) = (w.max(0.0), h.max(0.0));
        let _ = write!(
            self.body,
            r#"<rect class="{class}" x="{x:.2}" y="{y:.2}" width="{w:.2}" height="{h:.2}""#
        );
        self.close("rect", tip);
    }

    /// A dot.
    pub fn dot(&mut self, class: &str, (x, y): (f64, f64), r: f64, tip: &str) {
        let _ = write!(self.body, r#"<circle class="{class}" cx="{x:.1}" cy="{y:.1}" r="{r}""#);
        self.close("circle", tip);
    }

    fn close(&mut self, name: &str, tip: &str) {
        let _ = match tip {
            "" => writeln!(self.body, "/>"),
            tip => writeln!(self.body, "><title>{}</title></{name}>", escape(tip)),
        };
    }

    /// Text.
    pub fn text(&mut self, class: &str, (x, y): (f64, f64), anchor: Anchor, text: &str) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" x="{x:.1}" y="{y:.1}" text-anchor="{anchor}">{}</text>"#,
            escape(text)
        );
    }

    /// Text that runs upwards.
    pub fn text_up(&mut self, class: &str, (x, y): (f64, f64), text: &str) {
        let _ = writeln!(
            self.body,
            r#"<text class="{class}" transform="translate({x:.1} {y:.1}) rotate(-90)" text-anchor="middle">{}</text>"#,
            escape(text)
        );
    }

    /// As an element of a page that has the style.
    pub fn inline(&self) -> String {
        self.finish("")
    }

    /// As a file of its own.
    pub fn file(&self) -> String {
        self.finish(&format!("<style>{}</style>\n", crate::page::CHART_STYLE))
    }

    fn finish(&self, style: &str) -> String {
        let (w, h) = (self.width, self.height);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"chart\" viewBox=\"0 0 {w} {h}\" width=\"{w}\" \
             height=\"{h}\" role=\"img\" aria-label=\"{}\">\n{style}<rect class=\"ground\" width=\"{w}\" \
             height=\"{h}\"/>\n{}</svg>\n",
            escape(&self.label),
            self.body
        )
    }
}
