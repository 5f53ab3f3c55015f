package db

import (
	"database/sql"
	"strings"
	"time"
)

// CleanText makes a text of another program's storable: Postgres takes no NUL
// and no broken UTF-8.
func CleanText(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

// Nullable makes an empty text NULL.
func Nullable[T ~string](s T) sql.NullString {
	return sql.NullString{String: string(s), Valid: s != ""}
}

// NullableBytes makes no bytes NULL.
func NullableBytes[T ~[]byte](b T) any {
	if len(b) == 0 {
		return nil
	}
	return []byte(b)
}

// NullableTime makes the zero time NULL, and any other Unix milliseconds.
func NullableTime(t time.Time) sql.NullInt64 {
	return sql.NullInt64{Int64: t.UnixMilli(), Valid: !t.IsZero()}
}

// TimeOf is the inverse of NullableTime.
func TimeOf(ms sql.NullInt64) time.Time {
	if !ms.Valid || ms.Int64 == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms.Int64).UTC()
}
