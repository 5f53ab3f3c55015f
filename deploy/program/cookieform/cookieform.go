// Package cookieform knows the form of the database in which browsers of Chromium's
// family keep cookies: which schemas there are, and how values are encrypted.
package cookieform

const (
	// Oldest and Newest bound the schemas whose columns mean what they mean here. A
	// database has its own in the table meta, as the key version.
	Oldest, Newest = 18, 24
	// prefixedFrom is the schema since which a value begins with its host's hash.
	prefixedFrom = 24
)

// Written is the schema that is known well enough to be written, and was tried.
const Written = 24

// An Object is a row of sqlite_schema.
type Object struct{ Type, Name, Table, SQL string }

// Objects returns all that a database of the schema [Written] has, as Chromium 156
// makes it anew. One that an older Chromium has made, and a newer one changed, may be
// written otherwise.
func Objects() []Object {
	return []Object{
		{"table", "meta", "meta", "CREATE TABLE meta(key LONGVARCHAR NOT NULL UNIQUE PRIMARY KEY, value LONGVARCHAR)"},
		{"index", "sqlite_autoindex_meta_1", "meta", ""},
		{"table", "cookies", "cookies", "CREATE TABLE cookies(creation_utc INTEGER NOT NULL,host_key TEXT NOT NULL," +
			"top_frame_site_key TEXT NOT NULL,name TEXT NOT NULL,value TEXT NOT NULL,encrypted_value BLOB NOT NULL,path TEXT NOT NULL," +
			"expires_utc INTEGER NOT NULL,is_secure INTEGER NOT NULL,is_httponly INTEGER NOT NULL,last_access_utc INTEGER NOT NULL," +
			"has_expires INTEGER NOT NULL,is_persistent INTEGER NOT NULL,priority INTEGER NOT NULL,samesite INTEGER NOT NULL," +
			"source_scheme INTEGER NOT NULL,source_port INTEGER NOT NULL,last_update_utc INTEGER NOT NULL,source_type INTEGER NOT NULL," +
			"has_cross_site_ancestor INTEGER NOT NULL)"},
		{"index", "cookies_unique_index", "cookies", "CREATE UNIQUE INDEX cookies_unique_index ON cookies(host_key, top_frame_site_key, " +
			"has_cross_site_ancestor, name, path, source_scheme, source_port)"},
	}
}
