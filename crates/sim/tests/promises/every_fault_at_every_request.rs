//! The promise: whichever request of an opening, a repair, a move, a close or any other operation fails, once or from then on,
//! the answer is right or an error; and on a healthy device, also after a power cut, everything acknowledged is there and a
//! check finds nothing.

use baio_sim::each_request;

#[test]
fn is_answered_with_an_error_or_costs_nothing() {
    let report = each_request::run(2);
    assert!(!report.is_broken(), "{}", report.failures_told());
    assert!(report.more("struck") > 2_000, "{report:?}");
    assert!(report.more("went_on") > 100, "{report:?}");
    assert!(
        report.more("answered_with_an_error") > 1_000 && report.more("passed_unseen") > 100,
        "{report:?}"
    );
}
