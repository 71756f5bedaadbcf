//! The table of requests while a backend has it.
//!
//! What a table holds is what the kernel may still use, and it stays until an engine is told of the end. A backend may be anybody's safe
//! code, which has the table by `&mut`, and may have another engine's too when it drives one. If it exchanged the two (`mem::swap`), each
//! engine would give back what the kernel still writes for the other. Nothing mends that later, so the process ends.

use crate::slot::Slots;

/// A table that is lent for one call.
pub(super) struct Lent<'a> {
    slots: &'a mut Slots,
    number: u64,
}

impl Lent<'_> {
    pub(super) fn new(slots: &mut Slots) -> Lent<'_> {
        let number = slots.number();
        Lent { slots, number }
    }

    pub(super) fn table(&mut self) -> &mut Slots {
        self.slots
    }
}

impl Drop for Lent<'_> {
    /// Behind a panic too: whoever caught it would have the engine with another's table.
    fn drop(&mut self) {
        if self.slots.number() != self.number {
            std::process::abort();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;
    use std::process::{Command, Stdio};

    use super::*;
    use crate::backend::router::Router;
    use crate::backend::{Backend, Done, Doorbell, Explain};
    use crate::error::{Errno, Error};
    use crate::request::{Op, RequestId, Wait};

    /// Says what it has for itself: another table, if it is to exchange them.
    struct Exchanges {
        does_so: bool,
        doorbell: Doorbell,
    }

    impl Backend for Exchanges {
        fn start(&mut self, _: &mut Slots, _: &[RequestId]) -> usize {
            0
        }

        fn turn(&mut self, slots: &mut Slots, _: Wait, _: &mut Done) -> Result<(), Errno> {
            if self.does_so {
                *slots = Slots::new(0);
            }
            Ok(())
        }

        fn doorbell(&self) -> Doorbell {
            self.doorbell.clone()
        }

        fn explain(&self) -> Explain {
            Explain::named("exchanges")
        }

        fn refuses(&self, _: Op) -> Option<Error> {
            None
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "it starts a program")]
    fn a_backend_that_exchanges_tables_ends_the_process() {
        const CHILD: &str = "BAIO_EXCHANGES_TABLES";
        let turn = |does_so| {
            let doorbell = Doorbell::new().unwrap();
            let mut router = Router::new(Box::new(Exchanges { does_so, doorbell }));
            router.turn(&mut Slots::new(1), Wait::No, &mut Done::default())
        };
        assert_eq!(turn(false), Ok(()));
        if std::env::var_os(CHILD).is_some() {
            let _ = turn(true);
            return;
        }
        let name = "backend::lent::tests::a_backend_that_exchanges_tables_ends_the_process";
        let ended = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name])
            .env(CHILD, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert_eq!(ended.signal(), Some(libc::SIGABRT), "{ended}");
    }
}
