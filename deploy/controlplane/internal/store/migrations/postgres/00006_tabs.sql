-- +goose Up

-- Tabs of people's own browsers that the agents of a session may use, as the
-- pages of those people report them.
CREATE TABLE tab_shares (
	session_id   TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
	user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	browser_id   TEXT COLLATE "C" NOT NULL,
	tab_id       BIGINT NOT NULL,
	extension_id TEXT NOT NULL,
	title        TEXT NOT NULL,
	url          TEXT NOT NULL,
	expires_at   BIGINT NOT NULL, -- as the person has it
	shared_at    BIGINT NOT NULL,
	grant_id     TEXT NOT NULL,    -- under which it was reported; it ends with that
	granted_at   BIGINT NOT NULL,
	held_until   BIGINT NOT NULL, -- the grant's end
	PRIMARY KEY (session_id, user_id, browser_id, tab_id)
);

CREATE INDEX tab_shares_by_user ON tab_shares (user_id, expires_at);
