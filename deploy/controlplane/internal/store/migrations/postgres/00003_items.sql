-- +goose Up

-- Items are listed in the order in which they were added. Of those that are there
-- no more is known than when they were last changed.
ALTER TABLE items ADD COLUMN position BIGINT NOT NULL DEFAULT 0; -- from 1, within a dashboard
UPDATE items SET position = (
	SELECT count(*) FROM items o
	WHERE o.dashboard_id = items.dashboard_id
		AND (o.updated_at < items.updated_at OR o.updated_at = items.updated_at AND o.id <= items.id)
);
