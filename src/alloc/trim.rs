//! FITRIM: telling the device which blocks are free.

use super::Allocator;
use super::buddy::Extent;
use super::report::DeliverAtEnd;
use crate::error::Result;
use crate::types::{Block, Group};

/// Free runs withheld from allocation at a time.
const BATCH: usize = 64;

impl Allocator {
    /// Discards the free runs of at least `minlen` blocks within `len` blocks from `start`. Groups
    /// where nothing was freed since the last whole trim are passed over. How many blocks were
    /// discarded.
    ///
    /// # Errors
    /// `NotSupported` if the device does not discard; `Io`.
    pub fn trim(&self, start: Block, len: u64, minlen: u32) -> Result<u64> {
        let _told = DeliverAtEnd(&self.report);
        let geo = &self.geo;
        let from = start.0.max(geo.first_data_block.into());
        let end = start.0.saturating_add(len).min(geo.blocks_count);
        if from >= end {
            return Ok(0);
        }
        let mut total = 0;
        let per_group = u64::from(geo.blocks_per_group);
        let rel = |b: u64| b - u64::from(geo.first_data_block);
        let first = rel(from) / per_group;
        let last = rel(end - 1) / per_group;
        for g in (first..=last).map(|g| Group(g as u32)) {
            let base = geo.group_first_block(g).0;
            let size = geo.clusters_in_group(g);
            let lo = from.saturating_sub(base) as u32;
            let hi = (end - base).min(size.into()) as u32;
            total += self.trim_group(g, lo, hi, minlen.max(1), lo == 0 && hi == size)?;
        }
        Ok(total)
    }

    fn trim_group(&self, g: Group, lo: u32, hi: u32, minlen: u32, whole: bool) -> Result<u64> {
        if self.groups.cell(g)?.state.lock().trimmed {
            return Ok(0);
        }
        let mut total = 0;
        let mut at = lo;
        while at < hi {
            // Held like a preallocation, so that an eviction of the buddy does not lose them.
            let id = self.preallocs.next_id();
            let Some(mut e) = self.groups.enter(g, true)? else { return Ok(total) };
            if whole && at == lo {
                // A free from here on marks it untrimmed again.
                e.state.trimmed = true;
            }
            let st = &mut *e.state;
            let Some(buddy) = st.buddy.as_mut() else { return Ok(total) };
            let mut batch: Vec<Extent> = Vec::with_capacity(BATCH);
            while batch.len() < BATCH && at < hi {
                let Some(x) = buddy.next_free(at).filter(|x| x.start < hi) else {
                    at = hi;
                    break;
                };
                let x = Extent { start: x.start, len: x.len.min(hi - x.start) };
                at = x.end();
                if x.len >= minlen && buddy.mark_used(x).is_ok() {
                    batch.push(x);
                }
            }
            if batch.is_empty() {
                continue;
            }
            st.held_blocks += batch.iter().map(|x| x.len).sum::<u32>();
            st.withheld().held.insert(id, batch.iter().copied().collect());
            self.groups.refresh(g, st);
            drop(e);
            let mut result = Ok(());
            for x in &batch {
                let run = self.run(g, x.start, x.len);
                let bytes = u64::from(x.len) << self.geo.block_size.log2();
                result = self.cache.dev().discard(self.geo.block_size.offset(run.start), bytes);
                if result.is_err() {
                    break;
                }
                total += u64::from(x.len);
            }
            self.give_back(&super::prealloc::Pa { id, lstart: 0, group: g, start: 0, len: 0 });
            if let Err(e) = result {
                self.groups.cell(g)?.state.lock().trimmed = false;
                return Err(e);
            }
        }
        Ok(total)
    }
}
