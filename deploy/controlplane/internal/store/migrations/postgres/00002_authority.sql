-- +goose Up

-- The first schema on Postgres; its number and its columns are those of SQLite's.
-- Tokens, credentials and invitations are kept as their SHA-256 only. Times are
-- Unix milliseconds. Texts that lists are ordered by have the order of their bytes.
-- Users and dashboards are never deleted, for commands and grants refer to
-- them: removed_at is set, and what gave access is gone.

CREATE TABLE users (
	id         TEXT COLLATE "C" PRIMARY KEY,
	name       TEXT NOT NULL,
	email      TEXT NOT NULL DEFAULT '',
	created_at BIGINT NOT NULL DEFAULT 0,
	removed_at BIGINT
);

-- A user's tokens by their SHA-256.
CREATE TABLE tokens (
	token_hash BYTEA PRIMARY KEY,
	user_id    TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	label      TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	expires_at BIGINT -- NULL: never
);

CREATE INDEX tokens_by_user ON tokens (user_id);

-- Who a user is to an OpenID provider. It outlives the user: a removed user
-- who signs in again must not become a new one.
CREATE TABLE identities (
	issuer  TEXT NOT NULL,
	subject TEXT NOT NULL,
	user_id TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	PRIMARY KEY (issuer, subject)
);

CREATE TABLE sandboxes (
	id          TEXT COLLATE "C" PRIMARY KEY,
	device_key  TEXT,   -- thumbprint of the enrolled key, NULL before enrolment
	enrolled_at BIGINT,
	device_jwk  BYTEA,  -- the enrolled key, public
	revoked_at  BIGINT
);

-- A dashboard is what users share; its sessions run in its one sandbox.
CREATE TABLE dashboards (
	id         TEXT COLLATE "C" PRIMARY KEY,
	name       TEXT NOT NULL,
	sandbox_id TEXT COLLATE "C" UNIQUE REFERENCES sandboxes (id), -- NULL: none yet
	created_at BIGINT NOT NULL DEFAULT 0,
	removed_at BIGINT
);

CREATE TABLE members (
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	role         TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
	capabilities TEXT NOT NULL DEFAULT '', -- separated by spaces; empty: all of the role
	PRIMARY KEY (dashboard_id, user_id)
);

CREATE INDEX members_by_user ON members (user_id);

CREATE TABLE items (
	id           TEXT COLLATE "C" PRIMARY KEY,
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	kind         TEXT NOT NULL CHECK (kind IN ('note', 'todo', 'layout')),
	body         BYTEA NOT NULL, -- JSON
	version      BIGINT NOT NULL,
	updated_by   TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	updated_at   BIGINT NOT NULL
);

CREATE INDEX items_by_dashboard ON items (dashboard_id, id);

-- A session is pending until the sandbox has confirmed that it exists.
CREATE TABLE sessions (
	id           TEXT COLLATE "C" PRIMARY KEY,
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	state        TEXT NOT NULL CHECK (state IN ('pending', 'active', 'ended')),
	created_at   BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX sessions_by_dashboard ON sessions (dashboard_id);

CREATE TABLE relays (
	id              TEXT COLLATE "C" PRIMARY KEY,
	credential_hash BYTEA NOT NULL UNIQUE,
	url             TEXT NOT NULL DEFAULT '', -- empty until it registers
	tunnel          TEXT NOT NULL DEFAULT '',
	public_origin   TEXT NOT NULL DEFAULT '',
	seen_at         BIGINT NOT NULL DEFAULT 0
);

CREATE TABLE grants (
	id           TEXT COLLATE "C" PRIMARY KEY,
	user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	session_id   TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
	pty_id       TEXT,          -- NULL: every terminal
	capabilities TEXT NOT NULL, -- separated by spaces
	issued_at    BIGINT NOT NULL,
	expires_at   BIGINT NOT NULL,
	sandbox_id   TEXT,          -- where it is used; NULL: unknown
	revoked_at   BIGINT
);

CREATE INDEX grants_by_expiry ON grants (expires_at);
CREATE INDEX grants_by_user ON grants (user_id, issued_at, id);
CREATE INDEX grants_by_session ON grants (session_id, issued_at, id);

-- One command per user and idempotency key, ever: rows are not deleted.
CREATE TABLE commands (
	id                  TEXT COLLATE "C" PRIMARY KEY,
	user_id             TEXT COLLATE "C" REFERENCES users (id),     -- NULL: the control plane itself
	idempotency_key     TEXT,                                       -- NULL: the caller named none
	request_hash        BYTEA NOT NULL,                             -- SHA-256 of what was asked for
	kind                TEXT NOT NULL,
	sandbox_id          TEXT COLLATE "C" REFERENCES sandboxes (id), -- NULL: not for a sandbox
	session_id          TEXT COLLATE "C" REFERENCES sessions (id),  -- NULL: not for a session
	grant_id            TEXT,
	envelope            TEXT NOT NULL,                              -- JSON
	issued_at           BIGINT NOT NULL,
	expires_at          BIGINT NOT NULL,
	callback_token_hash BYTEA,
	status              TEXT NOT NULL CHECK (status IN ('signed', 'undelivered', 'ok', 'error', 'unknown')),
	result              BYTEA,                                      -- JSON
	error_name          TEXT,
	error_message       TEXT,
	callback            BYTEA,                                      -- what the executor signed, verbatim
	executor_signature  BYTEA,
	callbacks           BIGINT NOT NULL DEFAULT 0,                  -- how many came beside the first
	late                BIGINT NOT NULL DEFAULT 0,                  -- how many of those came too late
	finished_at         BIGINT,
	UNIQUE (user_id, idempotency_key)
);

CREATE INDEX commands_by_user ON commands (user_id, issued_at, id);
CREATE INDEX commands_by_session ON commands (session_id, issued_at, id);

-- How often what was done, by UTC day.
CREATE TABLE usage_counts (
	dashboard_id TEXT COLLATE "C" NOT NULL, -- empty: none
	user_id      TEXT COLLATE "C" NOT NULL,
	day          TEXT COLLATE "C" NOT NULL, -- YYYY-MM-DD
	counter      TEXT COLLATE "C" NOT NULL,
	count        BIGINT NOT NULL,
	PRIMARY KEY (dashboard_id, day, user_id, counter)
);

-- At most one of a sandbox is open; a used one is kept as a record.
CREATE TABLE invitations (
	token_hash BYTEA PRIMARY KEY,
	sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
	replaces   BIGINT NOT NULL, -- 1: takes another device key than the sandbox has
	expires_at BIGINT NOT NULL,
	used_at    BIGINT,
	used_by    TEXT -- thumbprint of the device key
);

CREATE INDEX invitations_by_sandbox ON invitations (sandbox_id);

CREATE TABLE certificates (
	id         TEXT COLLATE "C" PRIMARY KEY,
	sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
	device_key TEXT NOT NULL, -- thumbprint
	expires_at BIGINT NOT NULL,
	revoked_at BIGINT
);

CREATE INDEX certificates_by_sandbox ON certificates (sandbox_id, expires_at);

-- What is void before its time, until it expires by itself.
CREATE TABLE revocations (
	kind         TEXT COLLATE "C" NOT NULL CHECK (kind IN ('grant', 'subject', 'certificate')),
	id           TEXT COLLATE "C" NOT NULL,
	dashboard_id TEXT COLLATE "C" NOT NULL, -- of a subject; empty: all
	before       BIGINT NOT NULL,           -- of a subject, Unix seconds; else 0
	expires_at   BIGINT NOT NULL,           -- of the last thing it voids, Unix seconds
	PRIMARY KEY (kind, id, dashboard_id)
);

-- The one number of the list, which rises with each addition.
CREATE TABLE revocation_number (
	one    BIGINT PRIMARY KEY CHECK (one = 1),
	number BIGINT NOT NULL
);

INSERT INTO revocation_number (one, number) VALUES (1, 0);

-- The newest head of each device's audit log.
CREATE TABLE audit_heads (
	sandbox_id TEXT COLLATE "C" NOT NULL REFERENCES sandboxes (id),
	device_key TEXT NOT NULL, -- thumbprint
	sequence   BIGINT NOT NULL,
	hash       TEXT NOT NULL,
	at         BIGINT NOT NULL,
	signature  BYTEA NOT NULL,
	PRIMARY KEY (sandbox_id, device_key)
);
