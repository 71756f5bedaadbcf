//! Segments of a volume: making them, and what is done with them by their names.

#![allow(unsafe_code)]

use std::ffi::{c_char, c_int};

use baio::{CreateOptions, OwnershipChange, ResizeOptions};

use crate::abi::baio_link;
use crate::border::{guard, text};
use crate::failure::Result;
use crate::handles::{Handle, Home, look, on_either};
use crate::things::Kind;

fn create<L: Home>(handle: Handle, name: String, size_bytes: u64) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let options = CreateOptions::of_size(size_bytes);
    thing.as_link()?.link.create_segment(&name, &options).wait()?;
    Ok(0)
}

/// Makes a private segment of the caller's own. It blocks until the segment is durable.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number: -EEXIST, -ENOSPC, -EDQUOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_create(link: *mut baio_link, name: *const c_char, size_bytes: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        on_either!(link, Kind::Link, create, name, size_bytes)
    })
}

fn resize<L: Home>(handle: Handle, name: String, size_bytes: u64) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let options = ResizeOptions::to_size(size_bytes);
    thing.as_link()?.link.resize_segment(&name, &options).wait()?;
    Ok(0)
}

/// Changes the size of a segment of the caller's own; open handles see it at once. It blocks.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_resize(link: *mut baio_link, name: *const c_char, size_bytes: u64) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        on_either!(link, Kind::Link, resize, name, size_bytes)
    })
}

fn rename<L: Home>(handle: Handle, old: String, new: String) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    thing.as_link()?.link.rename_segment(&old, &new).wait()?;
    Ok(0)
}

/// Renames a segment of the caller's own; open handles stay valid. It blocks.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_rename(
    link: *mut baio_link,
    old_name: *const c_char,
    new_name: *const c_char,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let (old, new) = unsafe { (text(old_name, "old_name")?, text(new_name, "new_name")?) };
        on_either!(link, Kind::Link, rename, old, new)
    })
}

fn change<L: Home>(handle: Handle, owner: Option<u32>, name: String, change: OwnershipChange) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    let link = &thing.as_link()?.link;
    let owner = owner.unwrap_or(link.identity().uid);
    link.change_ownership_of(owner, &name, change).wait()?;
    Ok(0)
}

/// Changes the permissions of a segment of the caller's own: nine bits, as of a file. Open handles keep their rights. It blocks.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_chmod(link: *mut baio_link, name: *const c_char, mode: u32) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        on_either!(link, Kind::Link, change, None, name, OwnershipChange::of_mode(mode))
    })
}

/// Gives a segment of `owner` to `new_owner` and `new_group`; `UINT32_MAX` leaves either as it is, as in chown(2). Only uid 0 may give
/// a segment to another owner, whose quota is charged and who must have no segment of that name. Its owner may name a group that he is in. It blocks.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number: -EACCES, -EEXIST, -EDQUOT.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_chown(
    link: *mut baio_link,
    owner: u32,
    name: *const c_char,
    new_owner: u32,
    new_group: u32,
) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        let given = |id: u32| Some(id).filter(|id| *id != u32::MAX);
        let becomes = OwnershipChange {
            owner_uid: given(new_owner),
            owner_gid: given(new_group),
            mode: None,
        };
        on_either!(link, Kind::Link, change, Some(owner), name, becomes)
    })
}

fn delete<L: Home>(handle: Handle, name: String) -> Result<c_int> {
    let thing = look::<L>(handle, Kind::Link)?;
    thing.as_link()?.link.delete_segment(&name).wait()?;
    Ok(0)
}

/// Deletes a segment of the caller's own when the requests under way on it have ended. It blocks.
///
/// Threads: the link's.
/// Returns: 0, or a negative error number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn baio_segment_delete(link: *mut baio_link, name: *const c_char) -> c_int {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { text(name, "name")? };
        on_either!(link, Kind::Link, delete, name)
    })
}
