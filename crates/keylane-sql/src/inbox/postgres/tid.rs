//! The place of a row, in the type that the database has for it.

use sqlx::encode::IsNull;
use sqlx::error::BoxDynError;
use sqlx::postgres::types::Oid;
use sqlx::postgres::{PgArgumentBuffer, PgHasArrayType, PgTypeInfo};

/// The block, and in the lowest sixteen bits the row within it.
pub(super) struct Tid(pub(super) u64);

// These numbers of types are the same in all versions.
const TID: PgTypeInfo = PgTypeInfo::with_oid(Oid(27));
const TIDS: PgTypeInfo = PgTypeInfo::with_oid(Oid(1010));

impl sqlx::Type<sqlx::Postgres> for Tid {
    fn type_info() -> PgTypeInfo {
        TID
    }
}

impl PgHasArrayType for Tid {
    fn array_type_info() -> PgTypeInfo {
        TIDS
    }
}

impl sqlx::Encode<'_, sqlx::Postgres> for Tid {
    fn encode_by_ref(&self, buffer: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
        let [_, _, place @ ..] = self.0.to_be_bytes();
        buffer.extend(place);
        Ok(IsNull::No)
    }
}
