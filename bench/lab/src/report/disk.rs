//! A picture of the disk: block groups as rows, each file in a colour.

use bench_core::chart::COLOURS;
use bench_core::svg::{Anchor, Svg};
use serde::Deserialize;

/// What the ageing work writes down.
#[derive(Debug, Clone, Deserialize)]
pub struct Disk {
    size: u64,
    block: u64,
    files: Vec<(String, Vec<(u64, u64)>)>,
}

const WIDTH: f64 = 680.0;
const LEFT: f64 = 44.0;
const ROW: f64 = 13.0;
/// Blocks in a row: a block group of the images that are drawn.
const GROUP: u64 = 4096;

/// Draws it.
pub fn draw(title: &str, disk: &Disk) -> Svg {
    let blocks = disk.size / disk.block.max(1);
    let rows = blocks.div_ceil(GROUP).clamp(1, 256);
    let mut svg = Svg::new(WIDTH, 40.0 + ROW * rows as f64, title);
    svg.text("title", (LEFT, 20.0), Anchor::Start, title);
    let room = WIDTH - LEFT - 16.0;
    let place = |block: u64| {
        let (row, column) = (block / GROUP, block % GROUP);
        (LEFT + room * column as f64 / GROUP as f64, 32.0 + ROW * row as f64)
    };
    for row in 0..rows {
        let (x, y) = place(row * GROUP);
        let width = room * (blocks - row * GROUP).min(GROUP) as f64 / GROUP as f64;
        svg.rect("free", (x, y), (width, ROW - 2.0), "");
        if row % 4 == 0 {
            svg.text("tick", (LEFT - 6.0, y + 9.0), Anchor::End, &row.to_string());
        }
    }
    for (n, (name, extents)) in disk.files.iter().enumerate() {
        let class = format!("f{}", n % COLOURS);
        for (at, len) in extents {
            let (mut at, end) = (*at, at.saturating_add(*len).min(rows * GROUP));
            while at < end {
                let stop = end.min((at / GROUP + 1) * GROUP);
                let width = room * (stop - at) as f64 / GROUP as f64;
                let tip = format!("{name}: blocks {at} to {}", stop - 1);
                svg.rect(&class, place(at), (width.max(0.4), ROW - 2.0), &tip);
                at = stop;
            }
        }
    }
    svg
}
