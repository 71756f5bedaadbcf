//! The operations that change segments, under a name of their caller's.

use super::{Core, OperationId};
use crate::error::Result;
use crate::identity::{Identity, OwnershipChange};
use crate::operation::create::{CreateOptions, create};
use crate::operation::delete::delete;
use crate::operation::repeat::OperationName;
use crate::operation::resize::{ResizeOptions, resize};

/// A repeat ([`OperationName::again`]) changes nothing: it is answered as done if the volume shows that it was, else it fails as `EINDETERMINATE`.
impl Core {
    /// As [`Core::begin_create`], under this name instead of the options' id.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_create_as(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &CreateOptions,
        operation: OperationName,
    ) -> Result<OperationId> {
        let subject = self.subject("create", who, owner_uid, name)?;
        Ok(self.begin(create(subject, *options, operation)))
    }

    /// As [`Core::begin_delete`], under this name. A repeat is told of a segment of no size: the rest is forgotten.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_delete_as(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        operation: OperationName,
    ) -> Result<OperationId> {
        let subject = self.subject("delete", who, owner_uid, name)?;
        Ok(self.begin(delete(subject, operation)))
    }

    /// As [`Core::begin_resize`], under this name. What changes nothing leaves no trace.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_resize_as(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        options: &ResizeOptions,
        operation: OperationName,
    ) -> Result<OperationId> {
        let subject = self.subject("resize", who, owner_uid, name)?;
        Ok(self.begin(resize(subject, *options, operation)))
    }

    /// As [`Core::begin_rename`], under this name.
    ///
    /// # Errors
    /// As [`Core::begin_create`], for either name.
    pub fn begin_rename_as(
        &mut self,
        who: Identity,
        owner_uid: u32,
        old: &str,
        new: &str,
        operation: OperationName,
    ) -> Result<OperationId> {
        let operation = self.rename_of(who, owner_uid, old, new, operation)?;
        Ok(self.begin(operation))
    }

    /// As [`Core::begin_change_ownership`], under this name.
    ///
    /// # Errors
    /// As [`Core::begin_create`].
    pub fn begin_change_ownership_as(
        &mut self,
        who: Identity,
        owner_uid: u32,
        name: &str,
        change: OwnershipChange,
        operation: OperationName,
    ) -> Result<OperationId> {
        let operation = self.ownership_of(who, owner_uid, name, change, operation)?;
        Ok(self.begin(operation))
    }
}
