//! The form in which the engine sends the log of a container without a terminal.

/// A log in pieces, each of which begins with its stream, as four bytes, and its length.
#[derive(Default)]
pub(crate) struct LogPieces {
    /// The beginning of a piece, as far as it was received.
    head: Vec<u8>,
    /// The bytes of the current piece that are yet to come.
    left: usize,
}

impl LogPieces {
    /// Takes what was received, and hands over the text within.
    pub(crate) fn take(&mut self, mut bytes: &[u8], mut text: impl FnMut(&[u8])) {
        while !bytes.is_empty() {
            if self.left == 0 {
                let (head, rest) = bytes.split_at(bytes.len().min(8 - self.head.len()));
                self.head.extend_from_slice(head);
                bytes = rest;
                if let [_, _, _, _, a, b, c, d] = self.head[..] {
                    self.left = usize::try_from(u32::from_be_bytes([a, b, c, d])).unwrap_or(usize::MAX);
                    self.head.clear();
                }
                continue;
            }
            let (piece, rest) = bytes.split_at(bytes.len().min(self.left));
            text(piece);
            self.left -= piece.len();
            bytes = rest;
        }
    }
}
