//! The text of a log as a reader keeps it: in blocks, each in a place of its environment.

use rollhook_core::slots::Slot;
use tokio::time::Instant;

use super::readers::End;

/// The bytes of a block, which is the largest part.
pub(super) const BLOCK: usize = 64 << 10;

/// What was read of a log.
pub(super) struct Text {
    /// All of the same length but the last.
    blocks: Vec<Block>,
    pub(super) end: Option<End>,
    /// The time at which the last piece came.
    pub(super) grown_at: Option<Instant>,
    pub(super) asked_at: Instant,
}

/// A block in its place.
struct Block {
    bytes: Vec<u8>,
    _place: Slot<String>,
}

impl Text {
    /// Returns the text of a log of which nothing was read.
    pub(super) const fn new(now: Instant) -> Self {
        Self { blocks: Vec::new(), end: None, grown_at: None, asked_at: now }
    }

    /// Adds a piece, and returns whether there was a place for each block of it.
    pub(super) fn push(&mut self, mut piece: &[u8], place: impl Fn() -> Option<Slot<String>>) -> bool {
        self.grown_at = Some(Instant::now());
        while !piece.is_empty() {
            if self.blocks.last().is_none_or(|block| block.bytes.len() == BLOCK) {
                let Some(_place) = place() else { return false };
                self.blocks.push(Block { bytes: Vec::new(), _place });
            }
            let Some(Block { bytes, .. }) = self.blocks.last_mut() else { return false };
            let (fits, rest) = piece.split_at(piece.len().min(BLOCK - bytes.len()));
            bytes.extend_from_slice(fits);
            piece = rest;
        }
        true
    }

    /// Returns the part from this byte on, up to the end of its block; `None` if it was not read yet.
    pub(super) fn part(&self, from: usize) -> Option<&[u8]> {
        self.blocks.get(from / BLOCK)?.bytes.get(from % BLOCK..).filter(|part| !part.is_empty())
    }
}
