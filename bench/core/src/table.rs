//! Tables for the terminal and the page.

use crate::stats::Estimate;
use comfy_table::{Cell, CellAlignment, ContentArrangement, TableComponent, presets};

/// A table of text; the first column is to the left, the others to the right.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Table {
    /// The heads of the columns.
    pub head: Vec<String>,
    /// The rows.
    pub rows: Vec<Vec<String>>,
    /// How many columns are to the left; 0 means 1.
    pub left: usize,
}

impl Table {
    /// With these heads.
    pub fn new<S: Into<String>>(head: impl IntoIterator<Item = S>) -> Table {
        Table { head: head.into_iter().map(Into::into).collect(), rows: Vec::new(), left: 1 }
    }

    /// Another row.
    pub fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// As text for a terminal.
    pub fn text(&self) -> String {
        let mut t = comfy_table::Table::new();
        t.load_preset(presets::NOTHING);
        t.set_style(TableComponent::HeaderLines, '─');
        t.set_style(TableComponent::MiddleHeaderIntersections, '─');
        t.set_content_arrangement(ContentArrangement::Disabled);
        t.set_header(self.head.iter().map(Cell::new));
        for row in &self.rows {
            t.add_row(row.iter().map(Cell::new));
        }
        for (n, column) in t.column_iter_mut().enumerate() {
            if n >= self.left.max(1) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        t.to_string()
    }
}

/// A number with three digits that count.
pub fn number(x: f64) -> String {
    if !x.is_finite() {
        return "-".into();
    }
    match x.abs() {
        0.0 => "0".into(),
        a if a >= 99.95 => format!("{x:.0}"),
        a if a >= 9.995 => format!("{x:.1}"),
        a if a >= 0.9995 => format!("{x:.2}"),
        a if a >= 0.0005 => format!("{x:.3}"),
        _ => format!("{x:.1e}"),
    }
}

/// A median with half its interval's width in per cent, as `123 ±4%`.
pub fn with_spread(e: &Estimate) -> String {
    format!("{} ±{:.0}%", number(e.median), e.spread() * 100.0)
}

/// A ratio with its interval, as `1.32x (1.20-1.41)`.
pub fn ratio(e: &Estimate) -> String {
    format!("{}x ({}-{})", number(e.median), number(e.low), number(e.high))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits() {
        let cases = [
            (0.0, "0"),
            (1234.5, "1234"),
            (99.96, "100"),
            (12.34, "12.3"),
            (1.0, "1.00"),
            (0.5, "0.500"),
            (0.00001, "1.0e-5"),
            (-3.0, "-3.00"),
            (f64::NAN, "-"),
        ];
        for (x, want) in cases {
            assert_eq!(number(x), want);
        }
    }

    #[test]
    fn columns_line_up() {
        let mut t = Table::new(["name", "MB/s"]);
        t.row(["lock", "1"]);
        t.row(["nolock", "1000"]);
        let text = t.text();
        assert!(text.contains(" lock        1 ") && text.contains(" nolock   1000 "), "{text}");
    }
}
