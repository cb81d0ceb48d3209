//! Arrays by name, and what each is modelled on.
//!
//! | name | modelled on |
//! |---|---|
//! | `hdd` | one 3.5-inch SATA disk of about 2010, 7,200 turns a minute, 500 GB a platter, write cache off: 8.9 ms mean seek, 4.2 ms half a turn, 120 MB/s |
//! | `raid5-8` | eight of those in a software RAID5 (md, left-symmetric), 64 KiB chunks, no stripe cache, no controller cache |
//! | `raid10-14` | fourteen 2.5-inch SAS disks, 15,000 turns a minute, in a RAID10 with 64 KiB chunks: 3.4 ms mean seek, 2 ms half a turn, 150 MB/s each, behind 2 GB/s |
//! | `ssd` | a SATA SSD: eight channels, about 90 us for a 4 KiB read, 530 MB/s, 1 ms a flush |
//! | `nvme` | a data-centre NVMe SSD with power-loss protection: 64 channels, about 80 us for a 4 KiB read, 20 us for a write (into its protected memory), 3.2 GB/s, 30 us a flush |

use super::Spec;
use super::layout::Layout;
use super::unit::{DiskSpec, FlashSpec, UnitSpec};

const US: u64 = 1_000;

/// The names, in the order in which they are documented.
pub const NAMES: [&str; 5] = ["hdd", "raid5-8", "raid10-14", "ssd", "nvme"];

const SATA_7200: DiskSpec = DiskSpec {
    turn: 8_333_333,
    seek_min: 800 * US,
    seek_full: 16_000 * US,
    track: 1_000_000,
    overhead: 100 * US,
};

const SAS_15K: DiskSpec = DiskSpec {
    turn: 4_000_000,
    seek_min: 300 * US,
    seek_full: 6_200 * US,
    track: 600_000,
    overhead: 60 * US,
};

/// The array of that name.
pub fn by_name(name: &str) -> Option<Spec> {
    let chunk = 64 << 10;
    Some(match name {
        "hdd" => Spec {
            layout: Layout::Single,
            unit: UnitSpec::Disk(SATA_7200),
            link_rate: 300_000_000,
            flush: 0,
        },
        "raid5-8" => Spec {
            layout: Layout::Raid5 { disks: 8, chunk },
            unit: UnitSpec::Disk(SATA_7200),
            link_rate: 2_000_000_000,
            flush: 0,
        },
        "raid10-14" => Spec {
            layout: Layout::Raid10 { disks: 14, chunk },
            unit: UnitSpec::Disk(SAS_15K),
            link_rate: 2_000_000_000,
            flush: 0,
        },
        "ssd" => Spec {
            layout: Layout::Raid0 { disks: 8, chunk: 16 << 10 },
            unit: UnitSpec::Flash(FlashSpec { read: 60 * US, write: 40 * US, rate: 140_000_000 }),
            link_rate: 530_000_000,
            flush: 1_000 * US,
        },
        "nvme" => Spec {
            layout: Layout::Raid0 { disks: 64, chunk: 16 << 10 },
            unit: UnitSpec::Flash(FlashSpec { read: 70 * US, write: 10 * US, rate: 400_000_000 }),
            link_rate: 3_200_000_000,
            flush: 30 * US,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_an_array() {
        for name in NAMES {
            assert!(by_name(name).is_some_and(|s| s.layout.disks() > 0), "{name}");
        }
        assert!(by_name("floppy").is_none());
    }
}
