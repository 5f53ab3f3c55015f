-- +goose Up

-- Who was asked to join a dashboard, or to own it, and hasn't answered. It gives
-- nothing: members are in the table of members.
CREATE TABLE member_invitations (
	dashboard_id TEXT COLLATE "C" NOT NULL REFERENCES dashboards (id),
	user_id      TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	role         TEXT NOT NULL CHECK (role IN ('owner', 'editor', 'viewer')),
	capabilities TEXT NOT NULL, -- separated by spaces; empty: all of the role
	invited_by   TEXT COLLATE "C" NOT NULL REFERENCES users (id),
	invited_at   BIGINT NOT NULL,
	PRIMARY KEY (dashboard_id, user_id)
);

CREATE INDEX member_invitations_by_user ON member_invitations (user_id, invited_at);
CREATE INDEX member_invitations_by_inviter ON member_invitations (invited_by);
