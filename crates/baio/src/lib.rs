//! baio
