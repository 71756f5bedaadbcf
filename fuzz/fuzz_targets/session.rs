//! Messages from a hostile peer, of both directions: decoding never panics, and what is accepted has one form.
#![no_main]

use baio_words::session::{FromBroker, FromClient};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let again = match FromClient::decode(data) {
        Ok(FromClient::Doorbell) => None,
        Ok(FromClient::Hello(hello)) => Some(hello.encode()),
        Ok(FromClient::Question { id, question }) => Some(question.encode(id).expect("it came in a message")),
        Err(malformed) => {
            assert!(malformed.at <= data.len(), "{malformed}");
            None
        }
    };
    assert!(again.is_none_or(|again| again == data), "an accepted message has one form");
    let again = match FromBroker::decode(data) {
        Ok(FromBroker::Doorbell) => None,
        Ok(FromBroker::Welcome(welcome)) => Some(welcome.encode()),
        Ok(FromBroker::Answer { id, answer }) => {
            let again = answer.encode(id).expect("it came in a message");
            // A word of a newer broker reads as "unknown", which is then said in its place.
            let is_newer = again != data && format!("{answer:?}").contains("\"unknown\"");
            if is_newer {
                assert_eq!(FromBroker::decode(&again), Ok(FromBroker::Answer { id, answer }));
            }
            (!is_newer).then_some(again)
        }
        Err(malformed) => {
            assert!(malformed.at <= data.len(), "{malformed}");
            None
        }
    };
    assert!(again.is_none_or(|again| again == data), "an accepted message has one form");
});
