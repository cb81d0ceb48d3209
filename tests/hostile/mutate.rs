//! Mutations of metadata: bits, and fields that are set to what a liar would say.

use super::layout::{Item, Layout, read, write};
use uext4::crash::Rng;
use uext4::device::MemDevice;

/// The kinds of metadata that an image has.
pub fn kinds(layout: &Layout) -> Vec<&'static str> {
    let mut kinds: Vec<&str> = layout.items.iter().map(|i| i.what).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// A random piece of a kind.
pub fn pick<'l>(layout: &'l Layout, kind: &str, rng: &mut Rng) -> &'l Item {
    let of: Vec<&Item> = layout.items.iter().filter(|i| i.what == kind).collect();
    of[rng.below(of.len() as u64) as usize]
}

/// Changes one piece of `kind` on `dev` and makes its checksum right. Answers what it did.
pub fn mutate(dev: &MemDevice, layout: &Layout, kind: &str, rng: &mut Rng) -> String {
    let item = pick(layout, kind, rng);
    let mut block = read(dev, &layout.geo, item.block);
    let bytes = &mut block[item.start..item.start + item.len];
    let mut said = Vec::new();
    for _ in 0..1 + rng.below(2) {
        said.push(match rng.below(8) {
            0..=2 => flip(bytes, rng),
            3..=6 => field(bytes, layout, rng),
            _ => other(dev, bytes, layout, kind, rng),
        });
    }
    write(dev, &layout.geo, item.block, &block);
    layout.repair(dev, item);
    format!("{kind} in block {}: {}", item.block, said.join(", "))
}

/// An offset, mostly where something is.
fn place(bytes: &[u8], width: usize, rng: &mut Rng) -> usize {
    let slots = (bytes.len() / width) as u64;
    for _ in 0..12 {
        // Structures begin at the front.
        let slots = if rng.one_in(2) { slots.min(24) } else { slots };
        let at = rng.below(slots) as usize * width;
        if bytes[at..at + width].iter().any(|b| *b != 0) || rng.one_in(6) {
            return at;
        }
    }
    0
}

fn flip(bytes: &mut [u8], rng: &mut Rng) -> String {
    let at = place(bytes, 1, rng);
    let bit = rng.below(8);
    bytes[at] ^= 1 << bit;
    format!("bit {bit} of byte {at:#x}")
}

/// What a field of `width` bytes that holds `old` may be set to.
pub fn lies(old: u64, width: usize, layout: &Layout) -> Vec<u64> {
    let max = u64::MAX >> (64 - 8 * width);
    let blocks = layout.geo.blocks_count;
    let mut all = vec![0, 1, 2, 7, 8, 10, 11, max, max - 1, max >> 1, (max >> 1) + 1];
    all.extend([old.wrapping_add(1), old.wrapping_sub(1), old << 1, old >> 1, old ^ max]);
    all.extend([blocks - 1, blocks, blocks + 1, u64::from(layout.geo.inodes_count) + 1]);
    all.extend([old.swap_bytes() >> (64 - 8 * width), 0x7fff, 0x8000, 0x8001, 0x1000_0000]);
    all.into_iter().map(|v| v & max).filter(|v| *v != old).collect()
}

fn field(bytes: &mut [u8], layout: &Layout, rng: &mut Rng) -> String {
    let width = [1, 2, 2, 4, 4, 4, 8][rng.below(7) as usize].min(bytes.len());
    let at = place(bytes, width, rng);
    let mut raw = [0; 8];
    raw[..width].copy_from_slice(&bytes[at..at + width]);
    let old = u64::from_le_bytes(raw);
    let mut lies = lies(old, width, layout);
    // Other pieces of metadata.
    for _ in 0..6 {
        let i = rng.below(layout.items.len() as u64) as usize;
        lies.push(layout.items[i].block & (u64::MAX >> (64 - 8 * width)));
    }
    let new = lies[rng.below(lies.len() as u64) as usize];
    bytes[at..at + width].copy_from_slice(&new.to_le_bytes()[..width]);
    format!("{width} bytes at {at:#x}: {old:#x} becomes {new:#x}")
}

/// The contents of another piece, or nothing, or garbage.
fn other(dev: &MemDevice, bytes: &mut [u8], layout: &Layout, kind: &str, rng: &mut Rng) -> String {
    let len = 1 + rng.below(bytes.len() as u64) as usize;
    let at = rng.below((bytes.len() - len + 1) as u64) as usize;
    match rng.below(4) {
        0 => {
            bytes[at..at + len].fill(if rng.one_in(2) { 0 } else { 0xff });
            format!("{len} bytes at {at:#x} wiped")
        }
        1 => {
            bytes[at..at + len].fill_with(|| rng.draw() as u8);
            format!("{len} bytes at {at:#x} of noise")
        }
        n => {
            let kind = if n == 2 { kind } else { kinds(layout)[rng.below(4) as usize] };
            let from = pick(layout, kind, rng);
            let block = read(dev, &layout.geo, from.block);
            let n = from.len.min(bytes.len());
            bytes[..n].copy_from_slice(&block[from.start..from.start + n]);
            format!("a copy of the {kind} of block {}", from.block)
        }
    }
}
