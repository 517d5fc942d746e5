//! Sets of domain positions of one parameter, each distinct set stored once.

use super::budget::Budget;
use super::hash::FastMap;

/// The distinct sets over a domain of fixed size, numbered in the order in which they were first seen.
#[derive(Clone, Debug)]
pub(super) struct SetTable {
    stride: usize,
    words: Vec<u64>,
    sizes: Vec<u32>,
    index: FastMap<Box<[u64]>, u32>,
}

impl SetTable {
    /// A table of sets over `0..domain`.
    pub(super) fn new(domain: usize) -> SetTable {
        SetTable { stride: domain.div_ceil(64).max(1), words: Vec::new(), sizes: Vec::new(), index: FastMap::default() }
    }

    /// Words one set takes.
    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The number of the set whose bits are `words`.
    pub(super) fn intern(&mut self, words: &[u64]) -> u32 {
        debug_assert_eq!(words.len(), self.stride);
        if let Some(&id) = self.index.get(words) {
            return id;
        }
        let id = u32::try_from(self.sizes.len()).expect("invariant: the node limit keeps sets below 2^32");
        self.words.extend_from_slice(words);
        self.sizes.push(words.iter().map(|word| word.count_ones()).sum());
        self.index.insert(words.into(), id);
        id
    }

    /// [`SetTable::intern`], counted in `budget`.
    pub(super) fn intern_within(&mut self, words: &[u64], budget: &Budget) -> u32 {
        let known = self.len();
        let id = self.intern(words);
        budget.step(words.len());
        if self.len() > known {
            // The words once in the table and once as a key, half of the table spare, and what points to them.
            budget.keep(3 * size_of_val(words) + 64);
        }
        id
    }

    /// The bits of set `id`.
    pub(super) fn words(&self, id: u32) -> &[u64] {
        let start = id as usize * self.stride;
        &self.words[start..start + self.stride]
    }

    /// How many positions set `id` holds.
    pub(super) fn size(&self, id: u32) -> u32 {
        self.sizes[id as usize]
    }

    /// How many distinct sets there are.
    pub(super) fn len(&self) -> usize {
        self.sizes.len()
    }

    /// Whether set `id` holds `position`.
    pub(super) fn contains(&self, id: u32, position: u16) -> bool {
        has(self.words(id), position)
    }

    /// How many members of set `id` are below `position`.
    pub(super) fn below(&self, id: u32, position: u16) -> u32 {
        let words = self.words(id);
        let word = usize::from(position) / 64;
        let inside = words.get(word).map_or(0, |bits| (bits & ((1 << (position % 64)) - 1)).count_ones());
        words.iter().take(word).map(|bits| bits.count_ones()).sum::<u32>() + inside
    }

    /// The member of set `id` with exactly `rank` members below it.
    pub(super) fn member(&self, id: u32, rank: u32) -> Option<u16> {
        positions(self.words(id)).nth(rank as usize)
    }
}

/// Whether `words` holds `position`.
pub(super) fn has(words: &[u64], position: u16) -> bool {
    words.get(usize::from(position) / 64).is_some_and(|word| word >> (position % 64) & 1 == 1)
}

/// The members of `words` next to `position` on both sides, not counting `position` itself.
pub(super) fn around(words: &[u64], position: u16) -> (Option<u16>, Option<u16>) {
    let at = usize::from(position) / 64;
    let bit = 1u64 << (position % 64);
    let name = |word: usize, bit: u32| u16::try_from(word * 64 + bit as usize).expect("invariant: domains fit u16");
    let low = |word: usize| match word == at {
        true => words[word] & (bit - 1),
        false => words[word],
    };
    let high = |word: usize| match word == at {
        true => words[word] & !(bit - 1) & !bit,
        false => words[word],
    };
    let below = (0..=at).rev().find(|&word| low(word) != 0).map(|word| name(word, 63 - low(word).leading_zeros()));
    let above = (at..words.len()).find(|&word| high(word) != 0).map(|word| name(word, high(word).trailing_zeros()));
    (below, above)
}

/// Adds `position` to `words`.
pub(super) fn insert(words: &mut [u64], position: u16) {
    words[usize::from(position) / 64] |= 1 << (position % 64);
}

/// The members of `words` in rising order.
pub(super) fn positions(words: &[u64]) -> impl Iterator<Item = u16> + '_ {
    words.iter().zip((0u16..).step_by(64)).flat_map(|(&word, base)| {
        let mut left = word;
        std::iter::from_fn(move || {
            let bit = u16::try_from(left.trailing_zeros()).expect("invariant: at most 64 trailing zeros");
            (left != 0).then(|| {
                left &= left - 1;
                base + bit
            })
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rank_and_member_are_inverse_across_words() {
        let mut table = SetTable::new(200);
        let members = [0u16, 3, 63, 64, 127, 128, 199];
        let mut words = vec![0; table.stride()];
        members.iter().for_each(|&position| insert(&mut words, position));
        let id = table.intern(&words);
        assert_eq!(table.intern(&words), id);
        assert_eq!(table.size(id) as usize, members.len());
        assert_eq!(positions(table.words(id)).collect::<Vec<_>>(), members);
        for (rank, &position) in (0u32..).zip(&members) {
            assert_eq!((table.below(id, position), table.member(id, rank)), (rank, Some(position)));
            assert!(table.contains(id, position));
        }
        assert!(!table.contains(id, 1) && !table.contains(id, 65));
        assert_eq!(table.member(id, 7), None);
        for position in 0..200 {
            let below = members.iter().copied().rfind(|&member| member < position);
            let above = members.iter().copied().find(|&member| member > position);
            assert_eq!(around(table.words(id), position), (below, above), "{position}");
        }
    }
}
