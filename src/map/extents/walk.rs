//! Going down the tree: lightly for a lookup, with every entry checked for a change.

use super::ExtentTree;
use crate::cache::Buffer;
use crate::error::Result;
use crate::map::Look;
use crate::map::node::{Bad, LBLK_END, Node, check_child, check_extent};
use crate::map::tx::{Owner, Tx};
use crate::ondisk::Geometry;
use crate::ondisk::extent::Extent;
use crate::types::Block;
use smallvec::SmallVec;
use std::sync::Arc;

/// What surrounds a logical block.
pub(super) struct Found {
    /// The last extent that begins at or before it, if its leaf has one.
    pub extent: Option<Extent>,
    /// Nothing is mapped from here up to the block, if there is no extent.
    pub low: u64,
    /// Where the next extent begins; 2^32 if there is none.
    pub next: u64,
}

/// Where to go on from a node.
enum Down {
    Found(Found),
    Child { block: Block, depth: u16, lo: u32, hi: u64 },
}

/// One node of a path.
pub(in crate::map) struct Step {
    /// Its buffer; `None` for the root.
    pub buf: Option<Arc<Buffer>>,
    /// Levels above the leaves.
    pub depth: u16,
    /// In an index node: the entry of the next step. In a leaf: how many entries begin at or before
    /// the block looked for.
    pub at: usize,
    /// Entries in use.
    pub len: usize,
    /// Entries there is room for.
    pub max: usize,
    /// Key of the first entry, if there is any.
    pub first: Option<u32>,
}

/// From the root to a leaf.
pub(super) type Path = SmallVec<[Step; 6]>;

impl ExtentTree {
    /// What surrounds `lblk`. Allocates nothing; of each node only the entries used are checked.
    pub(super) fn find(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32) -> Result<Found> {
        let mut down = Node::root(&self.root)
            .and_then(|n| look(ctx.geo, n, lblk, 0, LBLK_END))
            .map_err(|b| owner.bad(b))?;
        loop {
            let (block, depth, lo, hi) = match down {
                Down::Found(f) => return Ok(f),
                Down::Child { block, depth, lo, hi } => (block, depth, lo, hi),
            };
            let buf = read(ctx, owner, block)?;
            down = buf
                .read(|b| Node::block(b, depth, lo).and_then(|n| look(ctx.geo, n, lblk, lo, hi)))
                .map_err(|b| owner.bad(b).block(block))?;
        }
    }

    /// The path to the leaf of `lblk`, every node of it checked completely.
    pub(super) fn load(&self, ctx: &Look<'_>, owner: &Owner, lblk: u32) -> Result<Path> {
        let mut path = Path::new();
        let root = Node::root(&self.root).map_err(|b| owner.bad(b))?;
        let (step, mut down) = step(ctx.geo, root, lblk, LBLK_END).map_err(|b| owner.bad(b))?;
        path.push(step);
        while let Some((block, depth, lo, hi)) = down {
            owner.check_blocks(ctx, block, 1)?;
            let buf = read(ctx, owner, block)?;
            let (mut step, next) = buf
                .read(|b| Node::block(b, depth, lo).and_then(|n| self::step(ctx.geo, n, lblk, hi)))
                .map_err(|b| owner.bad(b).block(block))?;
            step.buf = Some(buf);
            path.push(step);
            down = next;
        }
        Ok(path)
    }

    /// Looks at the node of a step.
    pub(super) fn with<R>(
        &self,
        owner: &Owner,
        step: &Step,
        f: impl FnOnce(Node<'_>) -> R,
    ) -> Result<R> {
        let first = step.first.unwrap_or(0);
        let r = match &step.buf {
            None => Node::root(&self.root).map(f),
            Some(buf) => buf.read(|b| Node::block(b, step.depth, first).map(f)),
        };
        r.map_err(|b| {
            let c = owner.bad(b);
            step.buf.as_ref().map_or(c.clone(), |b| c.block(b.block())).into()
        })
    }

    /// Extent `i` of the leaf of a step.
    pub(super) fn extent(&self, owner: &Owner, step: &Step, i: usize) -> Result<Option<Extent>> {
        self.with(owner, step, |n| n.extent(i))
    }

    /// Changes the bytes of the node of a step.
    pub(super) fn edit(
        &mut self,
        tx: &mut Tx<'_>,
        step: &Step,
        f: impl FnOnce(&mut [u8]),
    ) -> Result<()> {
        match &step.buf {
            None => f(&mut self.root),
            Some(buf) => tx.h.modify(buf, &tx.owner.seal, f)?,
        }
        Ok(())
    }
}

/// Reads a node's block.
pub(super) fn read(ctx: &Look<'_>, owner: &Owner, block: Block) -> Result<Arc<Buffer>> {
    ctx.cache.read(block, &owner.seal).map_err(|e| owner.name(e))
}

/// One step of a lookup, in a node that covers `lo..hi`.
fn look(geo: &Geometry, n: Node<'_>, lblk: u32, lo: u32, hi: u64) -> Result<Down, Bad> {
    const UNSORTED: &str = "extent entries out of order or overlapping";
    let at = u64::from(lblk);
    let pos = n.position(lblk);
    let next = n.key(pos).map_or(hi, u64::from);
    if next <= at || next > hi {
        return Err((UNSORTED, next));
    }
    let Some(i) = pos.checked_sub(1) else {
        return Ok(Down::Found(Found { extent: None, low: lo.into(), next }));
    };
    match n.key(i) {
        Some(k) if k <= lblk && k >= lo => {}
        k => return Err((UNSORTED, k.unwrap_or(0).into())),
    }
    if n.depth() > 0 {
        let (Some(block), Some(lo)) = (n.child(i), n.key(i)) else {
            return Err((UNSORTED, 0));
        };
        check_child(geo, block)?;
        return Ok(Down::Child { block, depth: n.depth() - 1, lo, hi: next });
    }
    let extent = n.extent(i);
    if let Some(e) = &extent {
        check_extent(geo, e)?;
        if e.end() > next {
            return Err((UNSORTED, next));
        }
    }
    Ok(Down::Found(Found { extent, low: lo.into(), next }))
}

type Next = Option<(Block, u16, u32, u64)>;

/// One step of a path, and the child to go on with.
fn step(geo: &Geometry, n: Node<'_>, lblk: u32, hi: u64) -> Result<(Step, Next), Bad> {
    n.check(geo, hi)?;
    let pos = n.position(lblk);
    let mut step =
        Step { buf: None, depth: n.depth(), at: pos, len: n.len(), max: n.max(), first: n.key(0) };
    if n.depth() == 0 {
        return Ok((step, None));
    }
    step.at = pos.saturating_sub(1);
    let next = match (n.child(step.at), n.key(step.at)) {
        (Some(block), Some(lo)) => {
            let hi = n.key(step.at + 1).map_or(hi, u64::from);
            Some((block, n.depth() - 1, lo, hi))
        }
        _ => return Err(("extent index without entries", 0)),
    };
    Ok((step, next))
}
