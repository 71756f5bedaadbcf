//! How objects are cut into streams, and streams dealt to lanes.

use super::job::{Lane, Stream};

/// Each object cut into as many equal shares as there are lanes, in the order in which [`deal`] gives every lane its own.
pub(crate) fn shares(objects: usize, lanes: u32, request_size: u64, size: u64) -> Vec<Stream> {
    let blocks = u128::from(size / request_size.max(1));
    let bound = |share: u32| (blocks * u128::from(share) / u128::from(lanes.max(1))) as u64 * request_size;
    let stream = |object, share| Stream {
        object,
        start: bound(share),
        end: bound(share + 1),
    };
    (0..objects)
        .flat_map(|object| (0..lanes).map(move |share| stream(object, share)))
        .collect()
}

/// The streams of every object: each begins an offset behind the one before, and ends one before it.
pub(crate) fn contexts(objects: usize, contexts: u32, offset: u64, size: u64) -> Vec<Stream> {
    let stream = |object: usize, context: u64| Stream {
        object,
        start: context * offset,
        end: size.saturating_sub(context * offset),
    };
    (0..objects)
        .flat_map(|object| (0..u64::from(contexts)).map(move |context| stream(object, context)))
        .collect()
}

/// Deals streams to lanes in turn; depths and batches are left to the caller.
pub(crate) fn deal(streams: &[Stream], lanes: usize) -> Vec<Lane> {
    let lane = |index: usize| Lane {
        depth: 1,
        batch: 1,
        streams: streams.iter().skip(index).step_by(lanes.max(1)).copied().collect(),
    };
    (0..lanes).map(lane).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_cover_everything_once_and_every_lane_has_its_own() {
        let streams = shares(2, 3, 10, 75);
        let lanes = deal(&streams, 3);
        let of = |lane: usize| {
            lanes[lane]
                .streams
                .iter()
                .map(|stream| (stream.object, stream.start, stream.end))
        };
        assert_eq!(of(0).collect::<Vec<_>>(), [(0, 0, 20), (1, 0, 20)]);
        assert_eq!(of(1).collect::<Vec<_>>(), [(0, 20, 40), (1, 20, 40)]);
        assert_eq!(of(2).collect::<Vec<_>>(), [(0, 40, 70), (1, 40, 70)]);
    }

    #[test]
    fn contexts_lie_inside_one_another_and_are_dealt_in_turn() {
        let streams = contexts(2, 2, 100, 1000);
        let stream = |object, start, end| Stream { object, start, end };
        assert_eq!(
            streams,
            [
                stream(0, 0, 1000),
                stream(0, 100, 900),
                stream(1, 0, 1000),
                stream(1, 100, 900)
            ]
        );
        let lanes = deal(&streams, 3);
        assert_eq!(lanes[0].streams, [streams[0], streams[3]]);
        assert_eq!(lanes[2].streams, [streams[2]]);
    }
}
