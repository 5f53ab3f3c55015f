-- +goose Up

-- What stands for whoever works in a sandbox without being a user: so that what
-- it changes has an editor. Nobody can be it.
INSERT INTO users (id, name, email, created_at, removed_at) VALUES ('agent', 'Agent', '', 0, 1) ON CONFLICT (id) DO NOTHING;

-- An account at a provider that a user has connected. Its tokens are sealed; the
-- key is in a file of its own.
CREATE TABLE accounts (
	id         TEXT COLLATE "C" PRIMARY KEY,
	user_id    TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	provider   TEXT COLLATE "C" NOT NULL,
	name       TEXT NOT NULL, -- e-mail address or login at the provider
	scopes     TEXT NOT NULL, -- separated by spaces, as the provider granted them
	key_id     TEXT NOT NULL, -- of the vault's key
	sealed     BYTEA NOT NULL, -- tokens
	version    BIGINT NOT NULL, -- of the tokens
	failed_at  BIGINT,       -- the provider takes its tokens no more; NULL: it does
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	UNIQUE (user_id, provider, name)
);

-- A user on the way to a provider and back.
CREATE TABLE connects (
	state_hash   BYTEA PRIMARY KEY,
	browser_hash BYTEA NOT NULL, -- of what the browser keeps meanwhile
	user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	provider     TEXT COLLATE "C" NOT NULL,
	origin       TEXT NOT NULL, -- where the browser comes back
	return_to    TEXT NOT NULL,
	expires_at   BIGINT NOT NULL
);

CREATE INDEX connects_by_user ON connects (user_id);

-- Every version of a policy is kept, for the records of what it decided.
CREATE TABLE policies (
	id      TEXT COLLATE "C" NOT NULL,
	version BIGINT NOT NULL,
	body    BYTEA NOT NULL, -- JSON
	made_by TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	made_at BIGINT NOT NULL,
	PRIMARY KEY (id, version)
);

-- An account that the programs of a terminal may use. A terminal's id is only
-- unique within its session.
CREATE TABLE attachments (
	session_id     TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
	pty_id         TEXT COLLATE "C" NOT NULL,
	provider       TEXT COLLATE "C" NOT NULL,
	account_id     TEXT COLLATE "C" NOT NULL REFERENCES accounts (id),
	policy_id      TEXT COLLATE "C" NOT NULL,
	policy_version BIGINT NOT NULL,
	attached_by    TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	attached_at    BIGINT NOT NULL,
	PRIMARY KEY (session_id, pty_id, provider),
	FOREIGN KEY (policy_id, policy_version) REFERENCES policies (id, version)
);

CREATE INDEX attachments_by_account ON attachments (account_id);

-- What was asked of the gateway, and what its policy made of it; no contents.
CREATE TABLE gateway_audit (
	id             TEXT COLLATE "C" PRIMARY KEY,
	at             BIGINT NOT NULL,
	dashboard_id   TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	session_id     TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
	pty_id         TEXT COLLATE "C",    -- NULL: none was named
	user_id        TEXT COLLATE "C",    -- NULL: a program in the sandbox
	account_id     TEXT COLLATE "C",    -- NULL: none is needed
	provider       TEXT COLLATE "C" NOT NULL,
	action         TEXT NOT NULL,
	decision       TEXT NOT NULL CHECK (decision IN ('allowed', 'denied', 'filtered')),
	reason         TEXT NOT NULL,
	outcome        TEXT NOT NULL, -- empty: done; else why not
	policy_id      TEXT COLLATE "C",
	policy_version BIGINT
);

CREATE INDEX gateway_audit_by_dashboard ON gateway_audit (dashboard_id, at, id);

-- The turns that coding agents have finished.
CREATE TABLE turns (
	session_id   TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
	pty_id       TEXT COLLATE "C" NOT NULL,
	agent        TEXT COLLATE "C" NOT NULL,
	at           BIGINT NOT NULL, -- by the sandbox's clock
	reason       TEXT NOT NULL,
	last_message TEXT NOT NULL,
	PRIMARY KEY (session_id, pty_id, at, agent)
);

-- What agents have to do in a dashboard, and what they remember there.
CREATE TABLE tasks (
	id           TEXT COLLATE "C" PRIMARY KEY,
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	title        TEXT NOT NULL,
	status       TEXT NOT NULL,
	notes        TEXT NOT NULL,
	position     BIGINT NOT NULL, -- from 1, within a dashboard
	created_at   BIGINT NOT NULL,
	updated_at   BIGINT NOT NULL
);

CREATE INDEX tasks_by_dashboard ON tasks (dashboard_id, position);

CREATE TABLE memory (
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	key          TEXT COLLATE "C" NOT NULL,
	value        TEXT NOT NULL,
	updated_at   BIGINT NOT NULL,
	PRIMARY KEY (dashboard_id, key)
);

-- Items of more kinds: the store checks which.
ALTER TABLE items DROP CONSTRAINT items_kind_check;
