//! A report as one HTML page that needs nothing else: no network, no scripts; light and dark by
//! what the reader prefers.

use crate::svg::{Svg, escape};
use crate::table::Table;
use std::fmt::Write as _;

/// The colours of charts, in a page and in a file alone.
pub const CHART_STYLE: &str = "
:root{--ground:#ffffff;--ink:#1c2128;--soft:#57606a;--grid:#e4e7eb;--axis:#8c959f;
--s0:#1f6feb;--s1:#d9480f;--s2:#2b8a3e;--s3:#9c36b5;--s4:#b08800;--s5:#0b7285;--s6:#c2255c;--s7:#5c677d}
@media (prefers-color-scheme:dark){:root{--ground:#14181d;--ink:#e6e9ed;--soft:#a3adb8;--grid:#2a3037;--axis:#6b7682;
--s0:#6ea8fe;--s1:#ff8c5a;--s2:#5fcf80;--s3:#d18bf0;--s4:#e3b341;--s5:#4fc3d9;--s6:#ff7fa8;--s7:#9aa7bd}}
.chart{font:12px system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
.chart .ground{fill:var(--ground)}
.chart text{fill:var(--ink)}.chart .title{font-size:14px;font-weight:600}
.chart .tick,.chart .label,.chart .legend{fill:var(--soft)}.chart .legend{fill:var(--ink)}
.chart .value{font-size:11px;fill:var(--ink)}
.chart .grid{stroke:var(--grid)}.chart .axis{stroke:var(--axis)}.chart .whisker{stroke:var(--ink);stroke-width:1.2}
.chart .line{fill:none;stroke-width:2;stroke-linejoin:round}.chart .dashed{stroke-dasharray:5 4;stroke-width:1.6}
.chart .band{opacity:.16}.chart .free{fill:var(--grid)}.chart .meta{fill:var(--axis)}
.c0{stroke:var(--s0)}.c1{stroke:var(--s1)}.c2{stroke:var(--s2)}.c3{stroke:var(--s3)}
.c4{stroke:var(--s4)}.c5{stroke:var(--s5)}.c6{stroke:var(--s6)}.c7{stroke:var(--s7)}
.f0{fill:var(--s0)}.f1{fill:var(--s1)}.f2{fill:var(--s2)}.f3{fill:var(--s3)}
.f4{fill:var(--s4)}.f5{fill:var(--s5)}.f6{fill:var(--s6)}.f7{fill:var(--s7)}
";

const PAGE_STYLE: &str = "
:root{color-scheme:light dark}
body{margin:0;background:var(--ground);color:var(--ink);
font:16px/1.55 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}
main{max-width:62rem;margin:0 auto;padding:2rem 1.25rem 4rem}
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .3rem}h2{font-size:1.25rem;margin:2.4rem 0 .5rem}
h3{font-size:1.02rem;margin:1.6rem 0 .4rem}
p,ul{max-width:46rem}a{color:var(--s0)}
.sub,.small,figcaption{color:var(--soft);font-size:.88rem}
.note{border-left:3px solid var(--s4);padding:.3rem .9rem;margin:.8rem 0;max-width:46rem}
.found{border-left:3px solid var(--s2);padding:.3rem .9rem;margin:.8rem 0;max-width:46rem}
.wide{overflow-x:auto}
table{border-collapse:collapse;font-size:.86rem;font-variant-numeric:tabular-nums;margin:.5rem 0}
th,td{padding:.28rem .7rem;text-align:right;border-bottom:1px solid var(--grid);white-space:nowrap}
th{font-weight:600;color:var(--soft);vertical-align:bottom}td.l,th.l{text-align:left}
figure{margin:1.2rem 0}figure svg{max-width:100%;height:auto}
nav{margin:1rem 0}nav a{margin-right:1rem;white-space:nowrap}
code{font-size:.88em}pre{overflow-x:auto;font-size:.82rem;padding:.8rem;border:1px solid var(--grid)}
details{margin:.8rem 0}summary{cursor:pointer;color:var(--soft)}
";

/// A page being written.
#[derive(Debug, Clone)]
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    /// Begins with its title and a line below it.
    pub fn new(title: &str, sub: &str) -> Page {
        let body = format!("<h1>{}</h1>\n<p class=\"sub\">{}</p>\n", escape(title), escape(sub));
        Page { title: title.into(), body }
    }

    /// A section; `id` is what a link to it names.
    pub fn section(&mut self, id: &str, title: &str) {
        let _ = writeln!(self.body, "<h2 id=\"{}\">{}</h2>", escape(id), escape(title));
    }

    /// A heading below a section.
    pub fn heading(&mut self, title: &str) {
        let _ = writeln!(self.body, "<h3>{}</h3>", escape(title));
    }

    /// Links to sections: id and text.
    pub fn contents(&mut self, all: &[(String, String)]) {
        self.body.push_str("<nav>");
        for (id, text) in all {
            let _ = write!(self.body, "<a href=\"#{}\">{}</a> ", escape(id), escape(text));
        }
        self.body.push_str("</nav>\n");
    }

    /// A paragraph; an empty line in the text begins another.
    pub fn text(&mut self, text: &str) {
        for p in text.split("\n\n").map(str::trim).filter(|p| !p.is_empty()) {
            let _ = writeln!(self.body, "<p>{}</p>", escape(p));
        }
    }

    /// A small paragraph.
    pub fn small(&mut self, text: &str) {
        let _ = writeln!(self.body, "<p class=\"small\">{}</p>", escape(text));
    }

    /// A warning.
    pub fn note(&mut self, text: &str) {
        let _ = writeln!(self.body, "<div class=\"note\">{}</div>", escape(text));
    }

    /// What was found.
    pub fn found(&mut self, text: &str) {
        let _ = writeln!(self.body, "<div class=\"found\">{}</div>", escape(text));
    }

    /// A table.
    pub fn table(&mut self, table: &Table, caption: &str) {
        self.body.push_str("<figure><div class=\"wide\"><table><thead><tr>");
        let class = |n: usize| if n < table.left.max(1) { " class=\"l\"" } else { "" };
        for (n, head) in table.head.iter().enumerate() {
            let _ = write!(self.body, "<th{}>{}</th>", class(n), escape(head));
        }
        self.body.push_str("</tr></thead><tbody>\n");
        for row in &table.rows {
            self.body.push_str("<tr>");
            for (n, cell) in row.iter().enumerate() {
                let _ = write!(self.body, "<td{}>{}</td>", class(n), escape(cell));
            }
            self.body.push_str("</tr>\n");
        }
        self.body.push_str("</tbody></table></div>");
        self.caption(caption);
    }

    /// A picture.
    pub fn figure(&mut self, svg: &Svg, caption: &str) {
        let _ = write!(self.body, "<figure><div class=\"wide\">{}</div>", svg.inline());
        self.caption(caption);
    }

    fn caption(&mut self, caption: &str) {
        if !caption.is_empty() {
            let _ = write!(self.body, "<figcaption>{}</figcaption>", escape(caption));
        }
        self.body.push_str("</figure>\n");
    }

    /// Text as it is, folded away behind a summary.
    pub fn folded(&mut self, summary: &str, text: &str) {
        let _ = writeln!(
            self.body,
            "<details><summary>{}</summary><pre>{}</pre></details>",
            escape(summary),
            escape(text)
        );
    }

    /// Everything that another page has, its title aside.
    pub fn append(&mut self, other: &Page) {
        let after_title = other.body.split_once("</h1>\n").map_or(other.body.as_str(), |(_, b)| b);
        self.body.push_str(after_title);
    }

    /// The whole page.
    pub fn html(&self) -> String {
        format!(
            "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><title>{}</title><style>{CHART_STYLE}{PAGE_STYLE}</style>\
             </head><body><main>\n{}</main></body></html>\n",
            escape(&self.title),
            self.body
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_whole_and_asks_for_nothing() {
        let mut p = Page::new("T & t", "sub");
        p.section("s", "S");
        p.text("one\n\ntwo <b>");
        let mut t = Table::new(["a", "b"]);
        t.row(["x", "1"]);
        p.table(&t, "c");
        p.figure(&Svg::new(10.0, 10.0, "l"), "");
        p.folded("raw", "<x>");
        let html = p.html();
        assert!(
            html.contains("<p>two &lt;b&gt;</p>")
                && html.contains("<td class=\"l\">x</td><td>1</td>")
        );
        for outside in ["<script", "<link", "src=", "url(", "@import"] {
            assert!(!html.contains(outside), "{outside}");
        }
        assert_eq!(html.matches("<figure>").count(), html.matches("</figure>").count());
        assert!(html.contains("prefers-color-scheme:dark"));
    }
}
