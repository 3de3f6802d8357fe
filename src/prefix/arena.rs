//! Nodes in fixed segments, named by 32-bit ids.
//!
//! Invariants
//! - a node never moves: growing adds a segment, so it copies nothing and leaves no hole behind (linear memory never
//!   shrinks, and a doubling vector would cost up to three times its size);
//! - a freed node is handed out again before a segment is added.
//!
//! Cost: a look-up is a shift, a mask and one load of the segment's address.

/// The id of no node: looking it up finds nothing, so a chain ends by itself.
pub(super) const NIL: u32 = u32::MAX;

const SEGMENT_BITS: u32 = 10;
const SEGMENT: usize = 1 << SEGMENT_BITS;

/// A node that can stand in one chain: of its bucket, or of the free nodes.
pub(super) trait Chained: Copy {
    /// What a fresh segment is filled with.
    const BLANK: Self;
    /// The next node of the chain, or [`NIL`].
    fn next(&self) -> u32;
    /// Sets the next node of the chain.
    fn set_next(&mut self, id: u32);
    /// The well-mixed key that the node's bucket follows from.
    fn key(&self) -> u32;
}

/// A vector that grows by segments.
pub(super) struct Segments<T> {
    segments: Vec<Box<[T; SEGMENT]>>,
    len: u32,
}

impl<T: Copy> Segments<T> {
    pub(super) const fn new() -> Self {
        Self {
            segments: Vec::new(),
            len: 0,
        }
    }

    /// With `len` times `blank`, at most a segment.
    pub(super) fn filled(len: u32, blank: T) -> Self {
        let segment = vec![blank; SEGMENT].into_boxed_slice().try_into();
        Self {
            segments: segment.into_iter().collect(),
            len,
        }
    }

    pub(super) const fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.segments
            .get((id >> SEGMENT_BITS) as usize)?
            .get(id as usize & (SEGMENT - 1))
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.segments
            .get_mut((id >> SEGMENT_BITS) as usize)?
            .get_mut(id as usize & (SEGMENT - 1))
    }

    /// Appends; a new segment is filled with `blank`. `None` when ids have run out.
    pub(super) fn push(&mut self, value: T, blank: T) -> Option<u32> {
        let id = self.len;
        if id == NIL {
            return None;
        }
        if self.get(id).is_none() {
            self.segments
                .push(vec![blank; SEGMENT].into_boxed_slice().try_into().ok()?);
        }
        *self.get_mut(id)? = value;
        self.len = id + 1;
        Some(id)
    }

    /// Bytes taken from the allocator, without its own overhead.
    pub(super) fn bytes(&self) -> u64 {
        let table = self.segments.capacity() * size_of::<Box<[T; SEGMENT]>>();
        (table + self.segments.len() * size_of::<[T; SEGMENT]>()) as u64
    }
}

/// Nodes that come and go.
pub(super) struct Arena<T> {
    nodes: Segments<T>,
    free: u32,
    live: u32,
}

impl<T: Chained> Arena<T> {
    pub(super) const fn new() -> Self {
        Self {
            nodes: Segments::new(),
            free: NIL,
            live: 0,
        }
    }

    /// Nodes in use.
    pub(super) const fn live(&self) -> u32 {
        self.live
    }

    #[inline(always)]
    pub(super) fn get(&self, id: u32) -> Option<&T> {
        self.nodes.get(id)
    }

    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut T> {
        self.nodes.get_mut(id)
    }

    pub(super) fn insert(&mut self, node: T) -> Option<u32> {
        let id = match self.nodes.get_mut(self.free) {
            Some(free) => {
                let id = self.free;
                self.free = free.next();
                *free = node;
                id
            }
            None => self.nodes.push(node, T::BLANK)?,
        };
        self.live += 1;
        Some(id)
    }

    /// Frees a node in use; the caller has unlinked it.
    pub(super) fn remove(&mut self, id: u32) {
        if let Some(node) = self.nodes.get_mut(id) {
            node.set_next(self.free);
            self.free = id;
            self.live = self.live.saturating_sub(1);
        }
    }

    pub(super) fn bytes(&self) -> u64 {
        self.nodes.bytes()
    }
}
