package provider

import (
	"context"
	"encoding/base64"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"strings"
)

// githubVersion is the version of GitHub's interface that is spoken here.
const githubVersion = "2022-11-28"

var githubActions = []action{
	filtered(reads("github.list_repos", listRepos), func(r *repos, keep func(kind, value string) bool) int {
		return withhold(&r.Repos, func(one repo) bool { return keep(KindRepo, strings.ToLower(one.FullName)) })
	}),
	reads("github.get_repo", getRepo),
	reads("github.list_issues", listIssues),
	writes("github.create_issue", createIssue),
	reads("github.list_prs", listPulls),
	writes("github.create_pr", createPull),
	reads("github.get_file", getFile),
	filtered(reads("github.search_code", searchCode), func(c *codeHits, keep func(kind, value string) bool) int {
		n := withhold(&c.Hits, func(one codeHit) bool { return keep(KindRepo, strings.ToLower(one.Repo)) })
		if n > 0 {
			c.Total = nil // it counts what is withheld, too
		}
		return n
	}),
}

// withhold takes from list what stays shows false for, and returns how much
// that was.
func withhold[T any](list *[]T, stays func(T) bool) int {
	kept := make([]T, 0, len(*list))
	for _, one := range *list {
		if stays(one) {
			kept = append(kept, one)
		}
	}
	n := len(*list) - len(kept)
	*list = kept
	return n
}

const maxIssueText = 64 << 10

var (
	ownerForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,99}$`)
	repoForm  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// A repoID names a repository.
type repoID struct {
	Owner string `json:"owner"`
	Repo  string `json:"repo"`
}

func (r *repoID) check() error {
	if !ownerForm.MatchString(r.Owner) {
		return invalid("owner is not the name of a user or an organisation")
	}
	if !repoForm.MatchString(r.Repo) || r.Repo == "." || r.Repo == ".." {
		return invalid("repo is not the name of a repository, without its owner")
	}
	return nil
}

func (r *repoID) resources() []Resource {
	return []Resource{{KindRepo, strings.ToLower(r.Owner + "/" + r.Repo)}}
}

func (r *repoID) path(rest string) string { return "/repos/" + r.Owner + "/" + r.Repo + rest }

// A pageArgs asks for one page of a list.
type pageArgs struct {
	Page    int `json:"page,omitempty"`
	PerPage int `json:"per_page,omitempty"`
}

func (p *pageArgs) check() error {
	return firstError(checkCount("page", p.Page, 10_000), checkCount("per_page", p.PerPage, 100))
}

func (p *pageArgs) query() url.Values {
	return url.Values{"page": {strconv.Itoa(or(p.Page, 1))}, "per_page": {strconv.Itoa(or(p.PerPage, 30))}}
}

var nextLink = regexp.MustCompile(`<[^>]*[?&]page=(\d+)[^>]*>\s*;[^,]*rel="next"`)

// nextPage returns the number of the page after this one, 0 if it is the last.
func nextPage(h http.Header) int {
	m := nextLink.FindStringSubmatch(h.Get("Link"))
	if m == nil {
		return 0
	}
	n, err := strconv.Atoi(m[1])
	if err != nil {
		return 0
	}
	return n
}

// A login is who did something, as GitHub writes it.
type login struct {
	Login string `json:"login"`
}

// A repo is one as GitHub writes it, as far as we pass it on.
type repo struct {
	FullName      string `json:"full_name"`
	Description   string `json:"description,omitempty"`
	Private       bool   `json:"private"`
	Fork          bool   `json:"fork,omitempty"`
	Archived      bool   `json:"archived,omitempty"`
	DefaultBranch string `json:"default_branch,omitempty"`
	Language      string `json:"language,omitempty"`
	Stars         int    `json:"stargazers_count"`
	OpenIssues    int    `json:"open_issues_count"` // pull requests are among them
	URL           string `json:"html_url"`
	PushedAt      string `json:"pushed_at,omitempty"`
}

type repos struct {
	Repos    []repo `json:"repos"`
	NextPage int    `json:"next_page,omitempty"`
}

type listReposArgs struct {
	pageArgs
	Visibility string `json:"visibility,omitempty"`
	Sort       string `json:"sort,omitempty"`
}

func (l *listReposArgs) check() error {
	return firstError(l.pageArgs.check(), checkOneOf("visibility", l.Visibility, "all", "public", "private"),
		checkOneOf("sort", l.Sort, "created", "updated", "pushed", "full_name"))
}

func listRepos(ctx context.Context, a *api, args *listReposArgs) (*repos, error) {
	q := args.query()
	setUnlessEmpty(q, "visibility", args.Visibility)
	setUnlessEmpty(q, "sort", args.Sort)
	found := &repos{Repos: []repo{}}
	header, err := a.json(ctx, request{method: http.MethodGet, path: "/user/repos", query: q}, nil, &found.Repos)
	if err != nil {
		return nil, err
	}
	found.NextPage = nextPage(header)
	return found, nil
}

func getRepo(ctx context.Context, a *api, args *repoID) (*repo, error) {
	found := &repo{}
	_, err := a.json(ctx, request{method: http.MethodGet, path: args.path("")}, nil, found)
	return found, err
}

// A label is one as GitHub writes it: an object, or its name alone.
type label struct {
	Name string `json:"name"`
}

// An issue is one as GitHub writes it, or a pull request, which is one as well.
type issue struct {
	Number    int       `json:"number"`
	Title     string    `json:"title"`
	State     string    `json:"state"`
	Body      string    `json:"body,omitempty"`
	User      *login    `json:"user,omitempty"`
	Labels    []label   `json:"labels,omitempty"`
	Assignees []login   `json:"assignees,omitempty"`
	Comments  int       `json:"comments,omitempty"`
	URL       string    `json:"html_url"`
	CreatedAt string    `json:"created_at,omitempty"`
	UpdatedAt string    `json:"updated_at,omitempty"`
	Pull      *struct{} `json:"pull_request,omitempty"`
	// Of pull requests.
	Draft    bool    `json:"draft,omitempty"`
	Head     *branch `json:"head,omitempty"`
	Base     *branch `json:"base,omitempty"`
	MergedAt string  `json:"merged_at,omitempty"`
}

type branch struct {
	Label string `json:"label,omitempty"` // owner:name
	Ref   string `json:"ref"`
	SHA   string `json:"sha,omitempty"`
}

type issues struct {
	Issues   []issue `json:"issues"`
	NextPage int     `json:"next_page,omitempty"`
}

type listIssuesArgs struct {
	repoID
	pageArgs
	State  string   `json:"state,omitempty"`
	Labels []string `json:"labels,omitempty"`
}

func (l *listIssuesArgs) check() error {
	return firstError(l.repoID.check(), l.pageArgs.check(), checkOneOf("state", l.State, "open", "closed", "all"), checkNames("labels", l.Labels))
}

// checkNames takes a list of names.
func checkNames(name string, names []string) error {
	if len(names) > 100 {
		return invalid("%s: more than 100", name)
	}
	for _, n := range names {
		if err := checkLine(name, n, 256); err != nil {
			return err
		}
	}
	return nil
}

// listIssues leaves out pull requests, which GitHub lists among issues: a page
// may hold fewer than were asked for.
func listIssues(ctx context.Context, a *api, args *listIssuesArgs) (*issues, error) {
	q := args.query()
	setUnlessEmpty(q, "state", args.State)
	setUnlessEmpty(q, "labels", strings.Join(args.Labels, ","))
	found := &issues{Issues: []issue{}}
	header, err := a.json(ctx, request{method: http.MethodGet, path: args.path("/issues"), query: q}, nil, &found.Issues)
	if err != nil {
		return nil, err
	}
	withhold(&found.Issues, func(i issue) bool { return i.Pull == nil })
	found.NextPage = nextPage(header)
	return found, nil
}

type createIssueArgs struct {
	repoID
	Title     string   `json:"title"`
	Body      string   `json:"body,omitempty"`
	Labels    []string `json:"labels,omitempty"`
	Assignees []string `json:"assignees,omitempty"`
}

func (c *createIssueArgs) check() error {
	return firstError(c.repoID.check(), checkLine("title", c.Title, 256), checkText("body", c.Body, maxIssueText),
		checkNames("labels", c.Labels), checkNames("assignees", c.Assignees))
}

func createIssue(ctx context.Context, a *api, args *createIssueArgs) (*issue, error) {
	body := struct {
		Title     string   `json:"title"`
		Body      string   `json:"body,omitempty"`
		Labels    []string `json:"labels,omitempty"`
		Assignees []string `json:"assignees,omitempty"`
	}{args.Title, args.Body, args.Labels, args.Assignees}
	made := &issue{}
	_, err := a.json(ctx, request{method: http.MethodPost, path: args.path("/issues")}, body, made)
	return made, err
}

type pulls struct {
	Pulls    []issue `json:"pull_requests"`
	NextPage int     `json:"next_page,omitempty"`
}

type listPullsArgs struct {
	repoID
	pageArgs
	State string `json:"state,omitempty"`
	Head  string `json:"head,omitempty"`
	Base  string `json:"base,omitempty"`
}

func (l *listPullsArgs) check() error {
	return firstError(l.repoID.check(), l.pageArgs.check(), checkOneOf("state", l.State, "open", "closed", "all"),
		checkText("head", l.Head, 256), checkText("base", l.Base, 256))
}

func listPulls(ctx context.Context, a *api, args *listPullsArgs) (*pulls, error) {
	q := args.query()
	setUnlessEmpty(q, "state", args.State)
	setUnlessEmpty(q, "head", args.Head)
	setUnlessEmpty(q, "base", args.Base)
	found := &pulls{Pulls: []issue{}}
	header, err := a.json(ctx, request{method: http.MethodGet, path: args.path("/pulls"), query: q}, nil, &found.Pulls)
	if err != nil {
		return nil, err
	}
	found.NextPage = nextPage(header)
	return found, nil
}

type createPullArgs struct {
	repoID
	Title string `json:"title"`
	Head  string `json:"head"`
	Base  string `json:"base"`
	Body  string `json:"body,omitempty"`
	Draft bool   `json:"draft,omitempty"`
}

func (c *createPullArgs) check() error {
	return firstError(c.repoID.check(), checkLine("title", c.Title, 256), checkLine("head", c.Head, 256),
		checkLine("base", c.Base, 256), checkText("body", c.Body, maxIssueText))
}

// resources: what is proposed may come from a fork of another owner; then that
// repository is read, whose name isn't said.
func (c *createPullArgs) resources() []Resource {
	touched := c.repoID.resources()
	if owner, _, ok := strings.Cut(c.Head, ":"); ok && !strings.EqualFold(owner, c.Owner) {
		touched = append(touched, Resource{KindRepo, strings.ToLower(owner + "/" + c.Repo)})
	}
	return touched
}

func createPull(ctx context.Context, a *api, args *createPullArgs) (*issue, error) {
	body := struct {
		Title string `json:"title"`
		Head  string `json:"head"`
		Base  string `json:"base"`
		Body  string `json:"body,omitempty"`
		Draft bool   `json:"draft,omitempty"`
	}{args.Title, args.Head, args.Base, args.Body, args.Draft}
	made := &issue{}
	_, err := a.json(ctx, request{method: http.MethodPost, path: args.path("/pulls")}, body, made)
	return made, err
}

type getFileArgs struct {
	repoID
	Path string `json:"path,omitempty"` // empty: the top directory
	Ref  string `json:"ref,omitempty"`
}

func (g *getFileArgs) check() error {
	for segment := range strings.SplitSeq(strings.Trim(g.Path, "/"), "/") {
		if segment == "." || segment == ".." {
			return invalid("path must not have . or .. in it")
		}
	}
	return firstError(g.repoID.check(), checkText("path", g.Path, 4096), checkText("ref", g.Ref, 256))
}

// A contents is a file or an entry of a directory as GitHub writes it.
type contents struct {
	Type     string `json:"type"` // file, dir, symlink or submodule
	Name     string `json:"name"`
	Path     string `json:"path"`
	SHA      string `json:"sha"`
	Size     int64  `json:"size"`
	Target   string `json:"target,omitempty"` // of a symbolic link
	Encoding string `json:"encoding,omitempty"`
	Content  string `json:"content,omitempty"`

	Entries []contents `json:"entries,omitempty"` // ours: of a directory
}

// getFile returns a file with its content, or a directory with its entries.
func getFile(ctx context.Context, a *api, args *getFileArgs) (*contents, error) {
	path := strings.Trim(args.Path, "/")
	segments := strings.Split(path, "/")
	for i, s := range segments {
		segments[i] = url.PathEscape(s)
	}
	r := request{method: http.MethodGet, path: args.path("/contents/" + strings.Join(segments, "/")), query: url.Values{}}
	setUnlessEmpty(r.query, "ref", args.Ref)
	ans, err := a.do(ctx, r)
	if err != nil {
		return nil, err
	}
	found := &contents{}
	if strings.HasPrefix(strings.TrimSpace(string(ans.body)), "[") {
		found.Type, found.Path, found.Entries = "dir", path, []contents{}
		return found, decode(ans.body, &found.Entries)
	}
	if err := decode(ans.body, found); err != nil || found.Type != "file" {
		return found, err
	}
	data, err := base64.StdEncoding.DecodeString(strings.ReplaceAll(found.Content, "\n", ""))
	if err != nil {
		return nil, failed("the file's content is not base64")
	}
	if found.Encoding == "none" { // too large to come in JSON
		r.accept = "application/vnd.github.raw+json"
		if ans, err = a.do(ctx, r); err != nil {
			return nil, err
		}
		data = ans.body
	}
	if len(data) > maxContent {
		return nil, failed("the file is larger than %d bytes", maxContent)
	}
	found.Content, found.Encoding = encodeContent(data)
	return found, nil
}

type searchCodeArgs struct {
	pageArgs
	Query string `json:"query"`
}

func (s *searchCodeArgs) check() error {
	return firstError(s.pageArgs.check(), checkLine("query", s.Query, 1024))
}

type codeHits struct {
	Total      *int      `json:"total,omitempty"`
	Incomplete bool      `json:"incomplete,omitempty"` // the search took too long
	Hits       []codeHit `json:"hits"`
	NextPage   int       `json:"next_page,omitempty"`
}

type codeHit struct {
	Repo      string   `json:"repo"`
	Path      string   `json:"path"`
	URL       string   `json:"url"`
	Fragments []string `json:"fragments,omitempty"`
}

func searchCode(ctx context.Context, a *api, args *searchCodeArgs) (*codeHits, error) {
	var found struct {
		Total      int  `json:"total_count"`
		Incomplete bool `json:"incomplete_results"`
		Items      []struct {
			Path string `json:"path"`
			URL  string `json:"html_url"`
			Repo struct {
				FullName string `json:"full_name"`
			} `json:"repository"`
			Matches []struct {
				Fragment string `json:"fragment"`
			} `json:"text_matches"`
		} `json:"items"`
	}
	q := args.query()
	q.Set("q", args.Query)
	r := request{method: http.MethodGet, path: "/search/code", query: q, accept: "application/vnd.github.text-match+json"}
	header, err := a.json(ctx, r, nil, &found)
	if err != nil {
		return nil, err
	}
	hits := &codeHits{Total: &found.Total, Incomplete: found.Incomplete, Hits: []codeHit{}, NextPage: nextPage(header)}
	for _, item := range found.Items {
		hit := codeHit{Repo: item.Repo.FullName, Path: item.Path, URL: item.URL}
		for _, m := range item.Matches {
			hit.Fragments = append(hit.Fragments, m.Fragment)
		}
		hits.Hits = append(hits.Hits, hit)
	}
	return hits, nil
}
