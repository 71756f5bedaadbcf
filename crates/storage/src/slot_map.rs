//! Values by number, with generations: an old key finds nothing, never what came after it.
//!
//! A slot that is given back is the next to be taken, so a map grows to as many slots as were ever in use at once, and allocates
//! nothing after that.

/// Names a value until it is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotKey {
    pub(crate) index: u32,
    /// How often the slot had been used before.
    pub(crate) generation: u32,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct SlotMap<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for SlotMap<T> {
    fn default() -> SlotMap<T> {
        SlotMap {
            slots: Vec::new(),
            free: Vec::new(),
        }
    }
}

impl<T> SlotMap<T> {
    pub(crate) fn insert(&mut self, value: T) -> SlotKey {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 0,
                value: None,
            });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        SlotKey {
            index,
            generation: slot.generation,
        }
    }

    pub(crate) fn remove(&mut self, key: SlotKey) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation != key.generation {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(value)
    }

    pub(crate) fn get(&self, key: SlotKey) -> Option<&T> {
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: SlotKey) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index as usize)?;
        slot.value.as_mut().filter(|_| slot.generation == key.generation)
    }

    /// Whatever has this number now.
    pub(crate) fn at_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.value.as_mut()
    }

    /// By which key that is found.
    pub(crate) fn key_at(&self, index: u32) -> Option<SlotKey> {
        let slot = self.slots.get(index as usize)?;
        slot.value.as_ref().map(|_| SlotKey {
            index,
            generation: slot.generation,
        })
    }

    /// The numbers that may have a value.
    pub(crate) fn indices(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        let values = self.slots.iter().map(|slot| slot.value.as_ref());
        (0..).zip(values).filter_map(|(index, value)| Some((index, value?)))
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_key_finds_nothing() {
        let mut map = SlotMap::default();
        let [one, two] = [1, 2].map(|value| map.insert(value));
        assert_eq!((map.get(one).copied(), map.get_mut(two).copied()), (Some(1), Some(2)));
        assert_eq!((map.remove(one), map.remove(one)), (Some(1), None));
        let three = map.insert(3);
        assert_eq!(three.index, one.index, "its slot is taken again");
        assert!(map.get(one).is_none() && map.get_mut(one).is_none() && map.remove(one).is_none());
        assert_eq!(
            (map.get(three).copied(), map.at_mut(three.index).copied()),
            (Some(3), Some(3))
        );
        assert_eq!(map.key_at(three.index), Some(three));
        map.remove(two);
        assert!(map.key_at(two.index).is_none() && map.at_mut(two.index).is_none());
        assert_eq!(map.iter().collect::<Vec<_>>(), [(three.index, &3)]);
        assert_eq!(map.values_mut().count(), 1);
        assert_eq!(map.indices(), 0..2);
        let stranger = SlotKey {
            index: 7,
            generation: 0,
        };
        assert!(map.get(stranger).is_none() && map.remove(stranger).is_none());
    }
}
