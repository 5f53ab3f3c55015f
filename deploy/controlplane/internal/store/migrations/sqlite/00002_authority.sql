-- +goose Up

-- Foreign keys are off while this runs: tables that others refer to are made anew.
-- Users and dashboards are never deleted, for commands and grants refer to
-- them: removed_at is set, and what gave access is gone.

CREATE TABLE users_new (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	email      TEXT NOT NULL DEFAULT '',
	created_at INTEGER NOT NULL DEFAULT 0,
	removed_at INTEGER
) STRICT;

INSERT INTO users_new (id, name) SELECT id, name FROM users;

-- A user's tokens by their SHA-256.
CREATE TABLE tokens (
	token_hash BLOB PRIMARY KEY,
	user_id    TEXT NOT NULL REFERENCES users (id),
	label      TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	expires_at INTEGER -- NULL: never
) STRICT;

CREATE INDEX tokens_by_user ON tokens (user_id);

INSERT INTO tokens (token_hash, user_id, label, created_at) SELECT token_hash, id, 'seed', 0 FROM users;

DROP TABLE users;
ALTER TABLE users_new RENAME TO users;

-- Who a user is to an OpenID provider. It outlives the user: a removed user
-- who signs in again must not become a new one.
CREATE TABLE identities (
	issuer  TEXT NOT NULL,
	subject TEXT NOT NULL,
	user_id TEXT NOT NULL REFERENCES users (id),
	PRIMARY KEY (issuer, subject)
) STRICT;

ALTER TABLE sandboxes ADD COLUMN device_jwk BLOB; -- the enrolled key, public
ALTER TABLE sandboxes ADD COLUMN revoked_at INTEGER;

CREATE TABLE dashboards_new (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	sandbox_id TEXT UNIQUE REFERENCES sandboxes (id), -- NULL: none yet
	created_at INTEGER NOT NULL DEFAULT 0,
	removed_at INTEGER
) STRICT;

INSERT INTO dashboards_new (id, name, sandbox_id) SELECT id, id, sandbox_id FROM dashboards;
DROP TABLE dashboards;
ALTER TABLE dashboards_new RENAME TO dashboards;

CREATE TABLE members_new (
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	user_id      TEXT NOT NULL REFERENCES users (id),
	role         TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
	capabilities TEXT NOT NULL DEFAULT '', -- separated by spaces; empty: all of the role
	PRIMARY KEY (dashboard_id, user_id)
) STRICT;

-- A controller becomes an editor who may do no more than before.
INSERT INTO members_new (dashboard_id, user_id, role, capabilities)
SELECT dashboard_id, user_id, CASE role WHEN 'controller' THEN 'editor' ELSE role END,
	CASE role WHEN 'controller' THEN 'view control' ELSE '' END
FROM members;
DROP TABLE members;
ALTER TABLE members_new RENAME TO members;
CREATE INDEX members_by_user ON members (user_id);

CREATE TABLE items (
	id           TEXT PRIMARY KEY,
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	kind         TEXT NOT NULL CHECK (kind IN ('note', 'todo', 'layout')),
	body         BLOB NOT NULL, -- JSON
	version      INTEGER NOT NULL,
	updated_by   TEXT NOT NULL REFERENCES users (id),
	updated_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX items_by_dashboard ON items (dashboard_id, id);

ALTER TABLE sessions ADD COLUMN created_at INTEGER NOT NULL DEFAULT 0;

ALTER TABLE grants ADD COLUMN sandbox_id TEXT; -- where it is used; NULL: unknown
ALTER TABLE grants ADD COLUMN revoked_at INTEGER;
CREATE INDEX grants_by_user ON grants (user_id, issued_at, id);
CREATE INDEX grants_by_session ON grants (session_id, issued_at, id);

CREATE TABLE commands_new (
	id                  TEXT PRIMARY KEY,
	user_id             TEXT REFERENCES users (id),     -- NULL: the control plane itself
	idempotency_key     TEXT,                           -- NULL: the caller named none
	request_hash        BLOB NOT NULL,                  -- SHA-256 of what was asked for
	kind                TEXT NOT NULL,
	sandbox_id          TEXT REFERENCES sandboxes (id), -- NULL: not for a sandbox
	session_id          TEXT REFERENCES sessions (id),  -- NULL: not for a session
	grant_id            TEXT,
	envelope            TEXT NOT NULL,                  -- JSON
	issued_at           INTEGER NOT NULL,
	expires_at          INTEGER NOT NULL,
	callback_token_hash BLOB,
	status              TEXT NOT NULL CHECK (status IN ('signed', 'undelivered', 'ok', 'error', 'unknown')),
	result              BLOB,                           -- JSON
	error_name          TEXT,
	error_message       TEXT,
	callback            BLOB,                           -- what the executor signed, verbatim
	executor_signature  BLOB,
	callbacks           INTEGER NOT NULL DEFAULT 0,     -- how many came beside the first
	late                INTEGER NOT NULL DEFAULT 0,     -- how many of those came too late
	finished_at         INTEGER,
	UNIQUE (user_id, idempotency_key)
) STRICT;

INSERT INTO commands_new (id, user_id, idempotency_key, request_hash, kind, sandbox_id, session_id, grant_id,
	envelope, issued_at, expires_at, status, result, error_name, error_message, finished_at)
SELECT c.id, c.user_id, c.idempotency_key, c.request_hash, c.kind, d.sandbox_id, c.session_id, c.grant_id,
	c.envelope, c.issued_at, c.issued_at + json_extract(c.envelope, '$.ttlMs'), c.status,
	CAST(c.result AS BLOB), c.error_name, c.error_message, c.finished_at
FROM commands c
JOIN sessions s ON s.id = c.session_id
JOIN dashboards d ON d.id = s.dashboard_id;
DROP TABLE commands;
ALTER TABLE commands_new RENAME TO commands;
CREATE INDEX commands_by_user ON commands (user_id, issued_at, id);
CREATE INDEX commands_by_session ON commands (session_id, issued_at, id);

-- How often what was done, by UTC day.
CREATE TABLE usage_counts (
	dashboard_id TEXT NOT NULL, -- empty: none
	user_id      TEXT NOT NULL,
	day          TEXT NOT NULL, -- YYYY-MM-DD
	counter      TEXT NOT NULL,
	count        INTEGER NOT NULL,
	PRIMARY KEY (dashboard_id, day, user_id, counter)
) STRICT;

-- At most one of a sandbox is open; a used one is kept as a record.
CREATE TABLE invitations (
	token_hash BLOB PRIMARY KEY,
	sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
	replaces   INTEGER NOT NULL, -- 1: takes another device key than the sandbox has
	expires_at INTEGER NOT NULL,
	used_at    INTEGER,
	used_by    TEXT -- thumbprint of the device key
) STRICT;

CREATE INDEX invitations_by_sandbox ON invitations (sandbox_id);

CREATE TABLE certificates (
	id         TEXT PRIMARY KEY,
	sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
	device_key TEXT NOT NULL, -- thumbprint
	expires_at INTEGER NOT NULL,
	revoked_at INTEGER
) STRICT;

CREATE INDEX certificates_by_sandbox ON certificates (sandbox_id, expires_at);

-- What is void before its time, until it expires by itself.
CREATE TABLE revocations (
	kind         TEXT NOT NULL CHECK (kind IN ('grant', 'subject', 'certificate')),
	id           TEXT NOT NULL,
	dashboard_id TEXT NOT NULL,    -- of a subject; empty: all
	before       INTEGER NOT NULL, -- of a subject, Unix seconds; else 0
	expires_at   INTEGER NOT NULL, -- of the last thing it voids, Unix seconds
	PRIMARY KEY (kind, id, dashboard_id)
) STRICT;

-- The one number of the list, which rises with each addition.
CREATE TABLE revocation_number (
	one    INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
	number INTEGER NOT NULL
) STRICT;

INSERT INTO revocation_number (one, number) VALUES (1, 0);

-- The newest head of each device's audit log.
CREATE TABLE audit_heads (
	sandbox_id TEXT NOT NULL REFERENCES sandboxes (id),
	device_key TEXT NOT NULL, -- thumbprint
	sequence   INTEGER NOT NULL,
	hash       TEXT NOT NULL,
	at         INTEGER NOT NULL,
	signature  BLOB NOT NULL,
	PRIMARY KEY (sandbox_id, device_key)
) STRICT;
