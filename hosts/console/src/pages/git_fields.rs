//! The fields of a git app's source, which the forms of registration and settings share.

/// The source of a git app.
pub(super) struct GitFields {
    pub(super) url: String,
    pub(super) branch: String,
    pub(super) dockerfile: String,
    pub(super) context: String,
    pub(super) image_repository: String,
    pub(super) credentials: String,
}
