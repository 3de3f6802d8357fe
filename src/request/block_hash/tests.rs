use std::collections::HashSet;

use super::block_hash;

/// Each bit of a block turns about half of the hash's bits, and each of these about half of the time.
#[test]
fn every_bit_matters() {
    let mut rng = fastrand::Rng::with_seed(11);
    for len in [4, 31, 32, 33, 64, 100, 255, 256, 257, 300, 512] {
        let mut turned = [0_u32; 64];
        let mut count = 0;
        for _ in 0..(40_000 / (len * 8)).max(2) {
            let mut bytes: Vec<u8> = (0..len).map(|_| rng.u8(b' '..0x7F)).collect();
            let before = block_hash(&bytes);
            for bit in 0..len * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                let change = before ^ block_hash(&bytes);
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(change.count_ones() > 8, "{len} bytes, bit {bit}");
                count += 1;
                for (place, times) in turned.iter_mut().enumerate() {
                    *times += u32::from(change >> place & 1 == 1);
                }
            }
        }
        for times in turned {
            let share = f64::from(times) / f64::from(count);
            assert!((0.48..0.52).contains(&share), "{len} bytes: {share}");
        }
    }
}

/// Blocks that are like each other in the ways that texts are: no two share a hash, nor even half of
/// one more often than chance has it.
#[test]
fn like_blocks_do_not_collide() {
    let mut hashes = Vec::new();
    let base: Vec<u8> = (0..256_u32).map(|i| b'a' + (i % 23) as u8).collect();
    hashes.extend((0..512).map(|len| block_hash(&vec![0; len])));
    hashes.extend((1..512).map(|len| block_hash(&vec![b' '; len])));
    for at in 0..256 {
        for b in (0..=255).filter(|&b| b != base[at]) {
            let mut one = base.clone();
            one[at] = b;
            hashes.push(block_hash(&one));
        }
        for other in at + 1..256 {
            if base[at] != base[other] {
                let mut swapped = base.clone();
                swapped.swap(at, other);
                hashes.push(block_hash(&swapped));
            }
        }
    }
    for i in 0..200_000_u32 {
        let mut counter = base.clone();
        counter[100..108].copy_from_slice(format!("{i:08}").as_bytes());
        counter[212..220].copy_from_slice(format!("{:08}", i.wrapping_mul(7)).as_bytes());
        hashes.push(block_hash(&counter));
        let mut ids = [0; 256];
        for (place, word) in ids.chunks_exact_mut(4).enumerate() {
            word.copy_from_slice(&(i + place as u32).to_be_bytes());
        }
        hashes.push(block_hash(&ids));
    }
    let count = hashes.len();
    let distinct: HashSet<u64> = hashes.iter().copied().collect();
    assert_eq!(distinct.len(), count);
    let chance = (count as f64).powi(2) / 2.0 / 2_f64.powi(32);
    for shift in [0, 32] {
        let halves: HashSet<u32> = hashes.iter().map(|h| (h >> shift) as u32).collect();
        let shared = (count - halves.len()) as f64;
        assert!(shared < 2.0 * chance + 10.0, "{shared}, by chance {chance}");
    }
}

/// A pair of words of which one cancels its key, with any other beside it: the weak place of a product.
#[test]
fn a_word_beside_a_cancelled_one_counts() {
    let mut hashes = HashSet::new();
    let key = |place: usize| {
        let bytes: [u8; 4] = super::KEYS[0][place..place + 4].try_into().expect("a key");
        u32::from_le_bytes(bytes).wrapping_neg().to_le_bytes()
    };
    for i in 0..100_000_u32 {
        let mut block = [b'x'; 256];
        block[16..20].copy_from_slice(&key(16));
        block[..4].copy_from_slice(&i.to_le_bytes());
        hashes.insert(block_hash(&block));
    }
    assert_eq!(hashes.len(), 100_000);
}
