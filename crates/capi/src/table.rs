//! Where things are, and which use of its place each is.

pub(crate) const PLACE_BITS: u32 = 18;
pub(crate) const GENERATION_BITS: u32 = 18;

pub(crate) const fn low(bits: u32) -> u64 {
    (1 << bits) - 1
}

/// Objects by place; a place that is used again has another generation.
pub(crate) struct Table<T> {
    places: Vec<(u64, Option<T>)>,
    free: Vec<usize>,
}

impl<T> Table<T> {
    pub(crate) const fn new() -> Table<T> {
        Table {
            places: Vec::new(),
            free: Vec::new(),
        }
    }

    /// None: it is full.
    pub(crate) fn insert(&mut self, value: T) -> Option<(u64, u64)> {
        let place = match self.free.pop() {
            Some(place) => place,
            None if self.places.len() as u64 > low(PLACE_BITS) => return None,
            None => {
                self.places.push((0, None));
                self.places.len() - 1
            }
        };
        let (generation, held) = self.places.get_mut(place)?;
        // From 1: no ticket is 0.
        *generation += 1;
        *held = Some(value);
        Some((place as u64, *generation))
    }

    pub(crate) fn get(&self, place: u64, generation: u64) -> Option<&T> {
        let (of, held) = self.places.get(usize::try_from(place).ok()?)?;
        held.as_ref().filter(|_| *of == generation)
    }

    pub(crate) fn get_mut(&mut self, place: u64, generation: u64) -> Option<&mut T> {
        let (of, held) = self.places.get_mut(usize::try_from(place).ok()?)?;
        held.as_mut().filter(|_| *of == generation)
    }

    pub(crate) fn remove(&mut self, place: u64, generation: u64) -> Option<T> {
        let index = usize::try_from(place).ok()?;
        let (of, held) = self.places.get_mut(index)?;
        let taken = held.take_if(|_| *of == generation)?;
        // A place whose generations are used up is not used again: an old handle would be a new one's.
        if generation < low(GENERATION_BITS) {
            self.free.push(index);
        }
        Some(taken)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.places.iter().filter_map(|(_, held)| held.as_ref())
    }

    /// All that it holds, one after the other.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> {
        let Table { places, free } = self;
        let held = places.iter_mut().enumerate();
        held.filter_map(|(index, (of, held))| {
            let taken = held.take()?;
            if *of < low(GENERATION_BITS) {
                free.push(index);
            }
            Some(taken)
        })
    }
}
