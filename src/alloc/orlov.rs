//! Which group a new inode goes to: Orlov for directories, near the parent for files. Pure over a
//! view of the groups.

/// What the choice looks at.
pub(super) trait View {
    /// Groups.
    fn groups(&self) -> u32;
    /// Groups in a flex group; 1 without `flex_bg`.
    fn flex_size(&self) -> u32;
    /// Inodes in a group.
    fn inodes_per_group(&self) -> u32;
    /// Clusters in a group.
    fn clusters_per_group(&self) -> u32;
    /// Free inodes, free clusters and directories of a flex group.
    fn flex(&self, flex: u32) -> Stat;
    /// The same for the whole file system.
    fn total(&self) -> Stat;
    /// Free inodes of a group.
    fn free_inodes(&self, group: u32) -> u32;
    /// Whether a group has a free block.
    fn has_blocks(&self, group: u32) -> bool;
    /// The first group in `from..to` with a free inode.
    fn next_with_inode(&self, from: u32, to: u32) -> Option<u32>;
}

/// Sums over some groups.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Stat {
    pub free_inodes: u64,
    pub free_clusters: u64,
    pub used_dirs: u64,
}

/// The group for a directory. `top_level` spreads it away from its siblings, from `spread`
/// (a number without pattern) on.
pub(super) fn for_dir<V: View>(v: &V, parent: u32, top_level: bool, spread: u32) -> Option<u32> {
    let flex = v.flex_size().max(1);
    let n = v.groups().div_ceil(flex).max(1);
    let total = v.total();
    let avg = |x: u64| x / u64::from(n);
    let (avg_inodes, avg_clusters) = (avg(total.free_inodes), avg(total.free_clusters));
    let near = parent / flex;
    let pick = if top_level {
        let mut best: Option<(u64, u32)> = None;
        for i in 0..n {
            let g = (spread % n + i) % n;
            let s = v.flex(g);
            if s.free_inodes == 0
                || s.free_inodes < avg_inodes
                || s.free_clusters < avg_clusters
                || best.is_some_and(|b| s.used_dirs >= b.0)
            {
                continue;
            }
            best = Some((s.used_dirs, g));
            if s.used_dirs == 0 {
                break;
            }
        }
        best.map(|b| b.1)
    } else {
        let flex64 = u64::from(flex);
        let (ipg, cpg) = (u64::from(v.inodes_per_group()), u64::from(v.clusters_per_group()));
        let max_dirs = avg(total.used_dirs) + ipg * flex64 / 16;
        let min_inodes = avg_inodes.saturating_sub(ipg * flex64 / 4).max(1);
        let min_clusters = avg_clusters.saturating_sub(cpg * flex64 / 4);
        (0..n).map(|i| (near + i) % n).find(|g| {
            let s = v.flex(*g);
            s.used_dirs < max_dirs && s.free_inodes >= min_inodes && s.free_clusters >= min_clusters
        })
    };
    let first = pick.map(|p| p * flex);
    first
        .and_then(|f| v.next_with_inode(f, f.saturating_add(flex).min(v.groups())))
        .or_else(|| fallback(v, parent))
}

/// From the parent's group on, the first with more free inodes than the average; else any.
fn fallback<V: View>(v: &V, parent: u32) -> Option<u32> {
    let avg = v.total().free_inodes / u64::from(v.groups().max(1));
    let n = v.groups();
    let mut left = 64;
    for (from, to) in [(parent, n), (0, parent)] {
        let mut at = from;
        while let Some(g) = v.next_with_inode(at, to) {
            if u64::from(v.free_inodes(g)) >= avg {
                return Some(g);
            }
            left -= 1;
            if left == 0 {
                break;
            }
            at = g + 1;
        }
    }
    any(v, parent)
}

fn any<V: View>(v: &V, from: u32) -> Option<u32> {
    v.next_with_inode(from, v.groups()).or_else(|| v.next_with_inode(0, from))
}

/// The group for anything but a directory: the parent's flex group, then as for a directory of the
/// next one; without `flex_bg` the parent's group, then by a hash of the parent.
pub(super) fn for_file<V: View>(v: &V, parent: u32, parent_ino: u32) -> Option<u32> {
    let flex = v.flex_size().max(1);
    let n = v.groups();
    if flex > 1 {
        let first = parent / flex * flex;
        let end = first.saturating_add(flex).min(n);
        return v.next_with_inode(first, end).or_else(|| {
            let next = if end < n { end } else { 0 };
            for_dir(v, next, false, 0)
        });
    }
    if v.free_inodes(parent) > 0 && v.has_blocks(parent) {
        return Some(parent);
    }
    // A quadratic hash of the parent, so that its files stay together when its group is full.
    let mut g = (u64::from(parent) + u64::from(parent_ino)) % u64::from(n.max(1));
    let mut step = 1u64;
    while step < u64::from(n) {
        g = (g + step) % u64::from(n);
        if v.free_inodes(g as u32) > 0 && v.has_blocks(g as u32) {
            return Some(g as u32);
        }
        step <<= 1;
    }
    any(v, parent)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fs {
        flex: u32,
        groups: Vec<(u32, u32, u32)>,
    }

    impl View for Fs {
        fn groups(&self) -> u32 {
            self.groups.len() as u32
        }
        fn flex_size(&self) -> u32 {
            self.flex
        }
        fn inodes_per_group(&self) -> u32 {
            100
        }
        fn clusters_per_group(&self) -> u32 {
            1000
        }
        fn flex(&self, flex: u32) -> Stat {
            let from = (flex * self.flex) as usize;
            let to = (from + self.flex as usize).min(self.groups.len());
            self.groups[from..to].iter().fold(Stat::default(), |s, g| Stat {
                free_inodes: s.free_inodes + u64::from(g.0),
                free_clusters: s.free_clusters + u64::from(g.1),
                used_dirs: s.used_dirs + u64::from(g.2),
            })
        }
        fn total(&self) -> Stat {
            Fs { flex: self.groups(), groups: self.groups.clone() }.flex(0)
        }
        fn free_inodes(&self, g: u32) -> u32 {
            self.groups[g as usize].0
        }
        fn has_blocks(&self, g: u32) -> bool {
            self.groups[g as usize].1 > 0
        }
        fn next_with_inode(&self, from: u32, to: u32) -> Option<u32> {
            (from..to).find(|g| self.groups[*g as usize].0 > 0)
        }
    }

    #[test]
    fn top_level_directories_spread_and_others_stay() {
        let mut fs = Fs { flex: 2, groups: vec![(100, 1000, 0); 8] };
        let mut seen = std::collections::HashSet::new();
        for i in 0..4 {
            let g = for_dir(&fs, 0, true, i * 7).unwrap();
            fs.groups[g as usize].2 += 1;
            seen.insert(g / 2);
        }
        assert_eq!(seen.len(), 4, "each flex group got one");
        assert_eq!(for_dir(&fs, 4, false, 0), Some(4));
    }

    #[test]
    fn files_stay_in_the_flex_group_until_it_is_full() {
        let mut fs = Fs { flex: 2, groups: vec![(10, 1000, 0); 6] };
        assert_eq!(for_file(&fs, 3, 77), Some(2));
        fs.groups[2].0 = 0;
        assert_eq!(for_file(&fs, 3, 77), Some(3));
        fs.groups[3].0 = 0;
        assert_eq!(for_file(&fs, 3, 77), Some(4));
    }

    #[test]
    fn without_flex_the_last_free_inode_is_found() {
        let mut fs = Fs { flex: 1, groups: vec![(0, 0, 0); 50] };
        assert_eq!(for_file(&fs, 3, 77), None);
        assert_eq!(for_dir(&fs, 3, true, 1), None);
        fs.groups[1].0 = 1;
        assert_eq!(for_file(&fs, 3, 77), Some(1));
        assert_eq!(for_dir(&fs, 3, false, 1), Some(1));
        assert_eq!(for_dir(&fs, 49, true, 1), Some(1));
    }
}
