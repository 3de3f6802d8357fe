//! An allocator that counts what the thread that asks takes from it: the test harness allocates on threads of its own.
#![allow(dead_code, reason = "each test binary uses its own part")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static CALLS: Cell<usize> = const { Cell::new(0) };
    static HELD: Cell<usize> = const { Cell::new(0) };
}

/// Calls for memory so far, for more of it too.
pub fn calls() -> usize {
    CALLS.get()
}

/// Bytes that are held now. What one thread took and another gave back makes it wrong, and wrap.
pub fn held_bytes() -> usize {
    HELD.get()
}

fn count(taken: usize, given: usize) {
    HELD.set(HELD.get().wrapping_add(taken).wrapping_sub(given));
}

// SAFETY: hands every call on to the system's allocator and counts beside it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        count(layout.size(), 0);
        // SAFETY: the caller's promises are the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        count(0, layout.size());
        // SAFETY: the caller's promises are the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        count(size, layout.size());
        // SAFETY: the caller's promises are the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;
