//! The prefix index against a naive one, over random operations; and proof that the comparison can fail.

mod broken;
mod naive;
mod subject;

use core::time::Duration;

use warmroute::clock::Millis;
use warmroute::config::IndexOptions;
use warmroute::endpoints::Slot;
use warmroute::prefix::RecordState;
use warmroute::request::BlockHash;

use broken::{Broken, Fault};
use naive::Naive;
use subject::{Real, Subject};

/// The sizes that a run plays with.
#[derive(Clone)]
struct World {
    slots: u16,
    max_pairs: u32,
    max_capacity: u32,
    max_depth: usize,
    /// Continuations of each block.
    fan_out: u64,
    max_step_ms: u64,
}

impl World {
    fn options(&self) -> IndexOptions {
        IndexOptions {
            max_pairs: self.max_pairs,
            ttl: Duration::from_secs(20),
            ..IndexOptions::default()
        }
    }

    /// A path of chained hashes; short alphabets make paths meet and part.
    fn path(&self, rng: &mut fastrand::Rng) -> Vec<BlockHash> {
        let mut hash = 1_u64;
        let depth = rng.usize(0..=self.max_depth);
        let next = |_| {
            hash = (hash ^ (rng.u64(0..self.fan_out) + 7))
                .wrapping_mul(0x2545_f491_4f6c_dd1d)
                .rotate_left(23);
            hash
        };
        (0..depth).map(next).collect()
    }
}

/// Plays the same random operations to `subject` and a naive index; the first difference, if there is one.
fn difference(
    world: &World,
    seed: u64,
    operations: u32,
    subject: &mut impl Subject,
) -> Option<String> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut naive = Naive::new(&world.options(), usize::from(world.slots));
    let mut now_ms = 1_700_000_000_000;
    let mut claims: Vec<(Vec<BlockHash>, Slot)> = Vec::new();
    for slot in 0..world.slots {
        let capacity = rng.u32(0..=world.max_capacity);
        subject.set_capacity_blocks(Slot(slot), capacity);
        naive.set_capacity_blocks(Slot(slot), capacity);
    }
    for operation in 0..operations {
        // Now and then nothing happens for longer than the TTL.
        now_ms += if rng.u16(..) < 200 {
            25_000
        } else {
            rng.u64(0..world.max_step_ms)
        };
        // The clock steps back now and then.
        let now = Millis(now_ms - if rng.u8(..) < 8 { 3000 } else { 0 });
        let slot = Slot(rng.u16(0..world.slots));
        let path = world.path(&mut rng);
        let (real, wanted) = match rng.u8(0..32) {
            0..16 => {
                let state = if rng.bool() {
                    RecordState::Tentative
                } else {
                    RecordState::Confirmed
                };
                let real = format!("{:?}", subject.record(&path, slot, state, now));
                let wanted = format!("{:?}", naive.record(&path, slot, state, now));
                if state == RecordState::Tentative {
                    claims.push((path, slot));
                }
                (real, wanted)
            }
            16..26 if !claims.is_empty() => {
                let (path, slot) = claims.swap_remove(rng.usize(0..claims.len()));
                if rng.bool() {
                    let real = subject.confirm(&path, slot, now);
                    (
                        real.to_string(),
                        naive.confirm(&path, slot, now).to_string(),
                    )
                } else {
                    subject.withdraw(&path, slot);
                    naive.withdraw(&path, slot);
                    Default::default()
                }
            }
            26..29 => {
                let keep = rng.u32(0..=path.len() as u32);
                subject.trim(&path, slot, keep);
                naive.trim(&path, slot, keep);
                Default::default()
            }
            29 | 30 => {
                let capacity = rng.u32(0..=world.max_capacity);
                subject.set_capacity_blocks(slot, capacity);
                naive.set_capacity_blocks(slot, capacity);
                Default::default()
            }
            31 if rng.u8(..) < 64 => {
                let capacity = rng.u32(0..=world.max_capacity);
                subject.remove(slot);
                naive.remove(slot);
                subject.set_capacity_blocks(slot, capacity);
                naive.set_capacity_blocks(slot, capacity);
                Default::default()
            }
            _ => Default::default(),
        };
        if real != wanted {
            return Some(format!(
                "operation {operation} answered {real}, not {wanted}"
            ));
        }
        if subject.counts() != naive.counts() {
            let (real, wanted) = (subject.counts(), naive.counts());
            return Some(format!(
                "operation {operation} left {real:?}, not {wanted:?}"
            ));
        }
        let asked = world.path(&mut rng);
        let later = Millis(now.0 + rng.u64(0..10_000));
        let (real, wanted) = (subject.matches(&asked, later), naive.matches(&asked, later));
        if real != wanted {
            return Some(format!(
                "operation {operation}: matches are {real:?}, not {wanted:?}"
            ));
        }
        for slot in (0..world.slots).map(Slot) {
            if subject.held_blocks(slot) != naive.held_blocks(slot) {
                return Some(format!(
                    "operation {operation}: slot {} holds another number",
                    slot.0
                ));
            }
        }
    }
    None
}

const TINY: World = World {
    slots: 5,
    max_pairs: 24,
    max_capacity: 12,
    max_depth: 9,
    fan_out: 2,
    max_step_ms: 700,
};

#[test]
fn agrees_with_the_naive_index() {
    let worlds = [
        (TINY, 40_000),
        // Capacities bind, the cap does not.
        (
            World {
                max_pairs: 1000,
                max_step_ms: 200,
                ..TINY
            },
            30_000,
        ),
        // The cap binds, capacities do not; long paths.
        (
            World {
                slots: 12,
                max_pairs: 90,
                max_capacity: 90,
                max_depth: 40,
                ..TINY
            },
            12_000,
        ),
        // Blocks with many holders, around where their representation changes.
        (
            World {
                slots: 60,
                max_pairs: 260,
                max_capacity: 12,
                max_depth: 4,
                fan_out: 1,
                max_step_ms: 300,
            },
            16_000,
        ),
        (
            World {
                slots: 200,
                max_pairs: 1500,
                max_capacity: 20,
                max_depth: 8,
                fan_out: 2,
                max_step_ms: 60,
            },
            4_000,
        ),
        // Everything expires all the time.
        (
            World {
                slots: 30,
                max_pairs: 500,
                max_capacity: 40,
                max_step_ms: 9000,
                ..TINY
            },
            10_000,
        ),
    ];
    for (seed, (world, operations)) in worlds.into_iter().enumerate() {
        let mut real = Real::new(&world.options());
        let found = difference(&world, seed as u64, operations, &mut real);
        assert_eq!(found, None, "world {seed}");
    }
}

#[test]
fn the_comparison_catches_each_broken_index() {
    let world = World {
        max_pairs: 40,
        ..TINY
    };
    let run = |fault| {
        let real = Real::new(&world.options());
        difference(&world, 7, 5000, &mut Broken { real, fault })
    };
    assert_eq!(run(Fault::Nothing), None);
    for fault in [
        Fault::CountsBlocksBehindAGap,
        Fault::EvictsHeadsFirst,
        Fault::ReadingIsUsing,
        Fault::WithdrawsForOthers,
        Fault::NeverExpires,
        Fault::ForgetsTheClaim,
        Fault::KeepsWhatIsTrimmed,
        Fault::IgnoresCapacity,
        Fault::RemembersRemoved,
    ] {
        assert!(run(fault).is_some(), "{fault:?} went unnoticed");
    }
}
