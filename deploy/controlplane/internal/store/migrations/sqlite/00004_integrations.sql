-- +goose Up

-- What stands for whoever works in a sandbox without being a user: so that what
-- it changes has an editor. Nobody can be it.
INSERT INTO users (id, name, email, created_at, removed_at) VALUES ('agent', 'Agent', '', 0, 1) ON CONFLICT (id) DO NOTHING;

-- An account at a provider that a user has connected. Its tokens are sealed; the
-- key is in a file of its own.
CREATE TABLE accounts (
	id         TEXT PRIMARY KEY,
	user_id    TEXT NOT NULL REFERENCES users (id),
	provider   TEXT NOT NULL,
	name       TEXT NOT NULL, -- e-mail address or login at the provider
	scopes     TEXT NOT NULL, -- separated by spaces, as the provider granted them
	key_id     TEXT NOT NULL, -- of the vault's key
	sealed     BLOB NOT NULL, -- tokens
	version    INTEGER NOT NULL, -- of the tokens
	failed_at  INTEGER,       -- the provider takes its tokens no more; NULL: it does
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	UNIQUE (user_id, provider, name)
) STRICT;

-- A user on the way to a provider and back.
CREATE TABLE connects (
	state_hash   BLOB PRIMARY KEY,
	browser_hash BLOB NOT NULL, -- of what the browser keeps meanwhile
	user_id      TEXT NOT NULL REFERENCES users (id),
	provider     TEXT NOT NULL,
	origin       TEXT NOT NULL, -- where the browser comes back
	return_to    TEXT NOT NULL,
	expires_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX connects_by_user ON connects (user_id);

-- Every version of a policy is kept, for the records of what it decided.
CREATE TABLE policies (
	id      TEXT NOT NULL,
	version INTEGER NOT NULL,
	body    BLOB NOT NULL, -- JSON
	made_by TEXT NOT NULL REFERENCES users (id),
	made_at INTEGER NOT NULL,
	PRIMARY KEY (id, version)
) STRICT;

-- An account that the programs of a terminal may use. A terminal's id is only
-- unique within its session.
CREATE TABLE attachments (
	session_id     TEXT NOT NULL REFERENCES sessions (id),
	pty_id         TEXT NOT NULL,
	provider       TEXT NOT NULL,
	account_id     TEXT NOT NULL REFERENCES accounts (id),
	policy_id      TEXT NOT NULL,
	policy_version INTEGER NOT NULL,
	attached_by    TEXT NOT NULL REFERENCES users (id),
	attached_at    INTEGER NOT NULL,
	PRIMARY KEY (session_id, pty_id, provider),
	FOREIGN KEY (policy_id, policy_version) REFERENCES policies (id, version)
) STRICT;

CREATE INDEX attachments_by_account ON attachments (account_id);

-- What was asked of the gateway, and what its policy made of it; no contents.
CREATE TABLE gateway_audit (
	id             TEXT PRIMARY KEY,
	at             INTEGER NOT NULL,
	dashboard_id   TEXT NOT NULL REFERENCES dashboards (id),
	session_id     TEXT NOT NULL REFERENCES sessions (id),
	pty_id         TEXT,    -- NULL: none was named
	user_id        TEXT,    -- NULL: a program in the sandbox
	account_id     TEXT,    -- NULL: none is needed
	provider       TEXT NOT NULL,
	action         TEXT NOT NULL,
	decision       TEXT NOT NULL CHECK (decision IN ('allowed', 'denied', 'filtered')),
	reason         TEXT NOT NULL,
	outcome        TEXT NOT NULL, -- empty: done; else why not
	policy_id      TEXT,
	policy_version INTEGER
) STRICT;

CREATE INDEX gateway_audit_by_dashboard ON gateway_audit (dashboard_id, at, id);

-- The turns that coding agents have finished.
CREATE TABLE turns (
	session_id   TEXT NOT NULL REFERENCES sessions (id),
	pty_id       TEXT NOT NULL,
	agent        TEXT NOT NULL,
	at           INTEGER NOT NULL, -- by the sandbox's clock
	reason       TEXT NOT NULL,
	last_message TEXT NOT NULL,
	PRIMARY KEY (session_id, pty_id, at, agent)
) STRICT;

-- What agents have to do in a dashboard, and what they remember there.
CREATE TABLE tasks (
	id           TEXT PRIMARY KEY,
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	title        TEXT NOT NULL,
	status       TEXT NOT NULL,
	notes        TEXT NOT NULL,
	position     INTEGER NOT NULL, -- from 1, within a dashboard
	created_at   INTEGER NOT NULL,
	updated_at   INTEGER NOT NULL
) STRICT;

CREATE INDEX tasks_by_dashboard ON tasks (dashboard_id, position);

CREATE TABLE memory (
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	key          TEXT NOT NULL,
	value        TEXT NOT NULL,
	updated_at   INTEGER NOT NULL,
	PRIMARY KEY (dashboard_id, key)
) STRICT;

-- Items of more kinds: the store checks which.
CREATE TABLE items_new (
	id           TEXT PRIMARY KEY,
	dashboard_id TEXT NOT NULL REFERENCES dashboards (id),
	kind         TEXT NOT NULL,
	body         BLOB NOT NULL, -- JSON
	version      INTEGER NOT NULL,
	updated_by   TEXT NOT NULL REFERENCES users (id),
	updated_at   INTEGER NOT NULL,
	position     INTEGER NOT NULL DEFAULT 0 -- from 1, within a dashboard
) STRICT;

INSERT INTO items_new (id, dashboard_id, kind, body, version, updated_by, updated_at, position)
SELECT id, dashboard_id, kind, body, version, updated_by, updated_at, position FROM items;
DROP TABLE items;
ALTER TABLE items_new RENAME TO items;
CREATE INDEX items_by_dashboard ON items (dashboard_id, id);
