//! What a file is made of: an inode of this kernel, or a foreign device.

use std::any::Any;

use super::inode::Inode;
use crate::device::Device;

/// Its own enum and no trait object, so that a request for an inode meets no dynamic dispatch.
pub(super) enum Made {
    Inode(Inode),
    Foreign(Box<dyn Kept>),
}

/// A device of any sort, seen as what it is or as a device: Rust 1.85 has no way from `dyn Device` to `dyn Any`.
pub(super) trait Kept: Device {
    fn as_any(&self) -> &dyn Any;
    fn as_device(&self) -> &dyn Device;
}

impl<D: Device> Kept for D {
    fn as_any(&self) -> &dyn Any {
        self
    }

    fn as_device(&self) -> &dyn Device {
        self
    }
}

impl Made {
    /// For what no request asks.
    pub(super) fn device(&self) -> &dyn Device {
        match self {
            Made::Inode(inode) => inode,
            Made::Foreign(device) => device.as_device(),
        }
    }

    /// The foreign device, if it is of this type.
    pub(super) fn foreign<D: Device>(&self) -> Option<&D> {
        match self {
            Made::Inode(_) => None,
            Made::Foreign(device) => (**device).as_any().downcast_ref(),
        }
    }
}
