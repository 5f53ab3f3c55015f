-- +goose Up

-- Tokens and credentials are kept as their SHA-256 only. Times are Unix milliseconds.

CREATE TABLE users (
	id         TEXT PRIMARY KEY,
	name       TEXT NOT NULL,
	token_hash BLOB NOT NULL UNIQUE
) STRICT;

CREATE TABLE sandboxes (
	id          TEXT PRIMARY KEY,
	device_key  TEXT,    -- thumbprint of the enrolled key, NULL before enrolment
	enrolled_at INTEGER
) STRICT;

-- A dashboard is what users share; its sessions run in its one sandbox.
CREATE TABLE dashboards (
	id         TEXT PRIMARY KEY,
	sandbox_id TEXT NOT NULL UNIQUE REFERENCES sandboxes (id)
) STRICT;

CREATE TABLE members (
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	user_id      TEXT NOT NULL REFERENCES users (id),
	role         TEXT NOT NULL CHECK (role IN ('owner', 'controller', 'viewer')),
	PRIMARY KEY (dashboard_id, user_id)
) STRICT;

CREATE INDEX members_by_user ON members (user_id);

-- A session is pending until the sandbox has confirmed that it exists.
CREATE TABLE sessions (
	id           TEXT PRIMARY KEY,
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	state        TEXT NOT NULL CHECK (state IN ('pending', 'active', 'ended'))
) STRICT;

CREATE INDEX sessions_by_dashboard ON sessions (dashboard_id);

CREATE TABLE relays (
	id              TEXT PRIMARY KEY,
	credential_hash BLOB NOT NULL UNIQUE,
	url             TEXT NOT NULL DEFAULT '', -- empty until it registers
	tunnel          TEXT NOT NULL DEFAULT '',
	public_origin   TEXT NOT NULL DEFAULT '',
	seen_at         INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE TABLE grants (
	id           TEXT PRIMARY KEY,
	user_id      TEXT NOT NULL REFERENCES users (id),
	session_id   TEXT NOT NULL REFERENCES sessions (id),
	pty_id       TEXT,          -- NULL: every terminal
	capabilities TEXT NOT NULL, -- separated by spaces
	issued_at    INTEGER NOT NULL,
	expires_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX grants_by_expiry ON grants (expires_at);

-- One command per user and idempotency key, ever: rows are not deleted.
CREATE TABLE commands (
	id              TEXT PRIMARY KEY,
	user_id         TEXT NOT NULL REFERENCES users (id),
	idempotency_key TEXT,          -- NULL: the caller named none
	request_hash    BLOB NOT NULL, -- SHA-256 of what was asked for
	kind            TEXT NOT NULL,
	session_id      TEXT NOT NULL REFERENCES sessions (id),
	grant_id        TEXT,
	envelope        TEXT NOT NULL, -- JSON
	issued_at       INTEGER NOT NULL,
	status          TEXT NOT NULL CHECK (status IN ('signed', 'undelivered', 'ok', 'error', 'unknown')),
	result          TEXT,          -- JSON
	error_name      TEXT,
	error_message   TEXT,
	finished_at     INTEGER,
	UNIQUE (user_id, idempotency_key)
) STRICT;

-- +goose Down

DROP TABLE commands;
DROP TABLE grants;
DROP TABLE relays;
DROP TABLE sessions;
DROP TABLE members;
DROP TABLE dashboards;
DROP TABLE sandboxes;
DROP TABLE users;
