//! Keeping the tree small after removals: nodes that are nearly empty are merged
//! with a neighbour, and what fits the inode moves back into it.

use super::ExtentTree;
use super::splice::Spare;
use super::walk::read;
use crate::error::Result;
use crate::map::node::{self, Node, Raw};
use crate::map::tx::Tx;
use crate::types::Block;

impl ExtentTree {
    /// Merges nodes on the path to `lblk` and shortens the tree, as long as the handle has credits.
    pub(super) fn tidy(&mut self, tx: &mut Tx<'_>, lblk: u32) -> Result<()> {
        while self.depth > 0 && tx.h.ensure(u32::from(self.depth) + 5)? {
            if !self.merge_one(tx, lblk)? {
                return self.collapse(tx);
            }
        }
        Ok(())
    }

    /// Merges the lowest node of the path that is nearly empty with a neighbour; whether there was one.
    fn merge_one(&mut self, tx: &mut Tx<'_>, lblk: u32) -> Result<bool> {
        let path = self.load(tx.ctx, tx.owner, lblk)?;
        for level in (1..path.len()).rev() {
            let (step, parent) = (&path[level], &path[level - 1]);
            let Some(buf) = &step.buf else { continue };
            if step.len * 4 > step.max || parent.len < 2 {
                continue;
            }
            let right_is_next = parent.at + 1 < parent.len;
            let sibling_at = if right_is_next { parent.at + 1 } else { parent.at - 1 };
            let sibling =
                self.with(tx.owner, parent, |n| n.child(sibling_at).zip(n.key(sibling_at)))?;
            let Some((block, first)) = sibling else { continue };
            let sib = read(tx.ctx, tx.owner, block)?;
            let bad = |b| tx.owner.bad(b).block(block);
            let (len, max) = sib
                .read(|b| Node::block(b, step.depth, first).map(|n| (n.len(), n.max())))
                .map_err(bad)?;
            if (len + step.len) * 2 > step.max.min(max) {
                continue;
            }
            let (left, right, right_at) =
                if right_is_next { (buf, &sib, sibling_at) } else { (&sib, buf, parent.at) };
            let key = self.with(tx.owner, parent, |n| n.key(right_at))?.unwrap_or(0);
            let moved: Vec<Raw> = right
                .read(|b| {
                    Node::block(b, step.depth, key).and_then(|n| {
                        n.check(tx.ctx.geo, node::LBLK_END)?;
                        Ok(n.raws().to_vec())
                    })
                })
                .map_err(bad)?;
            let keep = if right_is_next { step.len } else { len };
            tx.h.modify(left, &tx.owner.seal, |b| node::splice(b, keep, 0, &moved))?;
            tx.free_node(right.block())?;
            self.splice(tx, &path[..level], right_at, 1, &[], &mut Spare::new())?;
            return Ok(true);
        }
        Ok(false)
    }

    /// While the root has one child whose entries fit the inode, they move there. Frees, never
    /// allocates; costs two credits.
    pub(super) fn collapse(&mut self, tx: &mut Tx<'_>) -> Result<()> {
        while self.depth > 0 {
            let only: Option<(Block, u32)> = match Node::root(&self.root) {
                Ok(n) if n.len() == 1 => n.child(0).zip(n.key(0)),
                _ => None,
            };
            let Some((block, first)) = only else { break };
            let buf = read(tx.ctx, tx.owner, block)?;
            let depth = self.depth - 1;
            let room = node_room(&self.root);
            let entries: Option<Vec<Raw>> = buf
                .read(|b| {
                    let n = Node::block(b, depth, first)?;
                    if n.len() > room {
                        return Ok(None);
                    }
                    n.check(tx.ctx.geo, node::LBLK_END)?;
                    Ok(Some(n.raws().to_vec()))
                })
                .map_err(|b| tx.owner.bad(b).block(block))?;
            let Some(entries) = entries else { break };
            drop(buf);
            tx.free_node(block)?;
            node::init(&mut self.root, depth, &entries);
            self.depth = depth;
        }
        Ok(())
    }
}

/// Entries that fit the root.
fn node_room(root: &[u8; 60]) -> usize {
    Node::root(root).map_or(0, |n| n.max())
}
