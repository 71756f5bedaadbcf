//! The name under which a test is run again, as a child.

/// A test of this binary, as its runner calls it.
#[derive(Clone, Copy)]
pub(crate) struct TestName(pub(crate) &'static str);

impl TestName {
    /// By the function, not by its name: a runner that finds no test of a name is content.
    pub(crate) fn of<T: Fn()>(_: T) -> TestName {
        let path = std::any::type_name::<T>();
        TestName(path.split_once("::").map_or(path, |(_, name)| name))
    }
}
