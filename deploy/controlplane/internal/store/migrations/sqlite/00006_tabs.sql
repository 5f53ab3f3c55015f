-- +goose Up

-- Tabs of people's own browsers that the agents of a session may use, as the
-- pages of those people report them.
CREATE TABLE tab_shares (
	session_id   TEXT NOT NULL REFERENCES sessions (id),
	user_id      TEXT NOT NULL REFERENCES users (id),
	browser_id   TEXT NOT NULL,
	tab_id       INTEGER NOT NULL,
	extension_id TEXT NOT NULL,
	title        TEXT NOT NULL,
	url          TEXT NOT NULL,
	expires_at   INTEGER NOT NULL, -- as the person has it
	shared_at    INTEGER NOT NULL,
	grant_id     TEXT NOT NULL,    -- under which it was reported; it ends with that
	granted_at   INTEGER NOT NULL,
	held_until   INTEGER NOT NULL, -- the grant's end
	PRIMARY KEY (session_id, user_id, browser_id, tab_id)
) STRICT;

CREATE INDEX tab_shares_by_user ON tab_shares (user_id, expires_at);
