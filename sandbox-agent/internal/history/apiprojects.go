package history

// maxPageOf bounds a page of a project's sessions (seed 002).
const maxPageOf = 200

// getProjects is GET /api/projects. All sockets of the session are told how far
// it is.
func (h api) getProjects(c *call) (any, error) {
	dirs := h.projects(c.session)
	list := make([]projectList, 0, len(dirs))
	for i, dir := range dirs {
		h.progress(c.session, "loading", i+1, len(dirs), dir)
		list = append(list, h.list(c.session, dir, pageOf, 0))
	}
	h.progress(c.session, "complete", len(dirs), len(dirs), "")
	return list, nil
}

// getArchivedProjects is GET /api/projects/archived: no folder is put aside here.
func (h api) getArchivedProjects(*call) (any, error) {
	return done(map[string]any{"projects": []projectList{}}), nil
}

// dirOf returns the folder of the project that the path names.
func (h api) dirOf(c *call) (string, error) {
	for _, dir := range h.projects(c.session) {
		if projectID(dir) == c.parts["project"] {
			return dir, nil
		}
	}
	return "", noProject(c.parts["project"])
}

// getProjectSessions is GET /api/projects/{project}/sessions.
func (h api) getProjectSessions(c *call) (any, error) {
	dir, err := h.dirOf(c)
	if err != nil {
		return nil, err
	}
	limit, err := c.number("limit", pageOf)
	if err != nil {
		return nil, err
	}
	offset, err := c.number("offset", 0)
	if err != nil {
		return nil, err
	}
	return h.list(c.session, dir, min(max(limit, 1), maxPageOf), offset), nil
}
