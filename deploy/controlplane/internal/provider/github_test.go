package provider

import (
	"encoding/base64"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
)

const repoRoot = "/repos/octocat/Hello-World"

func TestGitHubRepos(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /user/repos", 200, recorded(t, "github_repos.json"), "Link",
		`<https://api.github.com/user/repos?page=1&per_page=2>; rel="prev", <https://api.github.com/user/repos?per_page=2&page=3>; rel="next", <https://api.github.com/user/repos?page=9>; rel="last"`)
	answer := u.do("github.list_repos", `{"page":2,"per_page":2,"visibility":"private","sort":"pushed"}`)
	sameJSON(t, "repos", answer, `{"repos":[
		{"full_name":"octocat/Hello-World","description":"This your first repo!","private":false,"default_branch":"master","stargazers_count":80,"open_issues_count":2,
		 "html_url":"https://github.com/octocat/Hello-World","pushed_at":"2011-01-26T19:06:43Z"},
		{"full_name":"Acme/Secret","private":true,"fork":true,"archived":true,"default_branch":"main","language":"Go","stargazers_count":0,"open_issues_count":0,
		 "html_url":"https://github.com/Acme/Secret"}],"next_page":3}`)
	sent := u.take()
	h := sent[0].header
	if sent[0].line != "GET /user/repos?page=2&per_page=2&sort=pushed&visibility=private" || h.Get("Accept") != "application/vnd.github+json" ||
		h.Get("X-GitHub-Api-Version") != "2022-11-28" || h.Get("User-Agent") == "" {
		t.Errorf("%+v", sent)
	}
	rest, n, err := Filter(GitHub, "github.list_repos", answer, func(kind, value string) bool { return kind == KindRepo && value == "octocat/hello-world" })
	if err != nil || n != 1 || strings.Contains(string(rest), "Secret") {
		t.Errorf("%s, %d, %v", rest, n, err)
	}
	u.on("GET /repos/octocat/Hello-World", 200, `{"full_name":"octocat/Hello-World","private":false,"html_url":"u","stargazers_count":1,"open_issues_count":0}`)
	u.want("github.get_repo", `{"owner":"octocat","repo":"Hello-World"}`, `{"full_name":"octocat/Hello-World","private":false,"html_url":"u","stargazers_count":1,"open_issues_count":0}`)
}

// TestGitHubNames: a name of a repository is nothing but that, whatever is in it.
func TestGitHubNames(t *testing.T) {
	u := newUpstream(t)
	for _, args := range []string{
		`{"owner":"octocat","repo":".."}`, `{"owner":"..","repo":"x"}`, `{"owner":"octocat","repo":"a/b"}`, `{"owner":"octo?cat","repo":"a"}`,
		`{"owner":"octocat","repo":"%2e%2e"}`, `{"owner":"","repo":"a"}`, `{"owner":"octocat"}`, `{"owner":"octocat","repo":"a","page":1}`,
	} {
		if e := u.refused("github.get_repo", args); e.Code != CodeInvalid {
			t.Errorf("%s: %+v", args, e)
		}
	}
	if e := u.refused("github.get_file", `{"owner":"octocat","repo":"a","path":"a/../../b"}`); e.Code != CodeInvalid {
		t.Errorf("%+v", e)
	}
	u.asked()
	for args, want := range map[string][]Resource{
		`{"owner":"Octocat","repo":"Hello-World","title":"t","head":"topic","base":"main"}`: {{KindRepo, "octocat/hello-world"}},
		`{"owner":"octocat","repo":"x","title":"t","head":"Eve:topic","base":"main"}`:       {{KindRepo, "octocat/x"}, {KindRepo, "eve/x"}},
		`{"owner":"octocat","repo":"x","title":"t","head":"octocat:topic","base":"main"}`:   {{KindRepo, "octocat/x"}},
	} {
		if got, err := Resources(GitHub, "github.create_pr", []byte(args)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v", args, got, err)
		}
	}
}

func TestGitHubIssues(t *testing.T) {
	u := newUpstream(t)
	u.on("GET "+repoRoot+"/issues", 200, recorded(t, "github_issues.json"))
	const one = `{"number":1347,"title":"Found a bug","state":"open","body":"I'm having a problem with this.","user":{"login":"octocat"},"labels":[{"name":"bug"}],
		"assignees":[{"login":"hubot"}],"comments":3,"html_url":"https://github.com/octocat/Hello-World/issues/1347","created_at":"2011-04-22T13:33:48Z","updated_at":"2011-04-23T13:33:48Z"}`
	u.want("github.list_issues", `{"owner":"octocat","repo":"Hello-World","state":"all","labels":["bug","help wanted"]}`, `{"issues":[`+one+`]}`)
	u.asked("GET " + repoRoot + "/issues?labels=bug,help wanted&page=1&per_page=30&state=all")

	u.on("POST "+repoRoot+"/issues", 201, one)
	u.want("github.create_issue", `{"owner":"octocat","repo":"Hello-World","title":"Found a bug","body":"b","labels":["bug"],"assignees":["hubot"]}`, one)
	if sent := u.take(); sent[0].body != `{"title":"Found a bug","body":"b","labels":["bug"],"assignees":["hubot"]}` {
		t.Errorf("%+v", sent)
	}
}

func TestGitHubPulls(t *testing.T) {
	u := newUpstream(t)
	u.on("GET "+repoRoot+"/pulls", 200, recorded(t, "github_pulls.json"))
	const one = `{"number":1347,"title":"Amazing new feature","state":"open","body":"Please pull these awesome changes in!","user":{"login":"octocat"},"labels":[{"name":"bug"}],
		"html_url":"https://github.com/octocat/Hello-World/pull/1347","created_at":"2011-01-26T19:01:12Z","updated_at":"2011-01-26T19:01:12Z","draft":true,
		"head":{"label":"octocat:new-topic","ref":"new-topic","sha":"6dcb09b5b57875f334f61aebed695e2e4193db5e"},
		"base":{"label":"octocat:master","ref":"master","sha":"6dcb09b5b57875f334f61aebed695e2e4193db5f"}}`
	u.want("github.list_prs", `{"owner":"octocat","repo":"Hello-World","head":"octocat:new-topic","base":"master","state":"open"}`, `{"pull_requests":[`+one+`]}`)
	u.asked("GET " + repoRoot + "/pulls?base=master&head=octocat:new-topic&page=1&per_page=30&state=open")
	u.on("POST "+repoRoot+"/pulls", 201, one)
	u.want("github.create_pr", `{"owner":"octocat","repo":"Hello-World","title":"Amazing new feature","head":"new-topic","base":"master","draft":true}`, one)
	if sent := u.take(); sent[0].body != `{"title":"Amazing new feature","head":"new-topic","base":"master","draft":true}` {
		t.Errorf("%+v", sent)
	}
	u.on("POST "+repoRoot+"/pulls", 422, `{"message":"Validation Failed","errors":[{"resource":"PullRequest","code":"custom","message":"A pull request already exists for octocat:new-topic."}],"documentation_url":"https://docs.github.com/rest/pulls/pulls#create-a-pull-request","status":"422"}`)
	e := u.refused("github.create_pr", `{"owner":"octocat","repo":"Hello-World","title":"t","head":"new-topic","base":"master"}`)
	if e.Code != CodeAPI || e.Status != 422 || e.Message != "github answered 422: Validation Failed (A pull request already exists for octocat:new-topic.)" {
		t.Errorf("%+v", e)
	}
}

func TestGitHubFile(t *testing.T) {
	u := newUpstream(t)
	text := "package main // ä\n" + strings.Repeat("x", 100)
	lines := base64.StdEncoding.EncodeToString([]byte(text))
	lines = lines[:60] + `\n` + lines[60:] + `\n` // GitHub breaks them
	path := "GET " + repoRoot + "/contents/cmd/a%20b/main.go"
	about := `{"type":"file","encoding":"base64","size":118,"name":"main.go","path":"cmd/a b/main.go","content":"` + lines + `","sha":"3d21ec53","url":"u","git_url":"g","html_url":"h","download_url":"d","_links":{"self":"u"}}`
	u.on(path, 200, about)
	u.want("github.get_file", `{"owner":"octocat","repo":"Hello-World","path":"/cmd/a b/main.go","ref":"v1"}`,
		`{"type":"file","name":"main.go","path":"cmd/a b/main.go","sha":"3d21ec53","size":118,"encoding":"utf-8","content":"`+strings.ReplaceAll(text, "\n", `\n`)+`"}`)
	u.asked(path + "?ref=v1")

	u.on(path, 200, `{"type":"file","encoding":"base64","size":2,"name":"x","path":"x","content":"//4=\n","sha":"s"}`)
	u.want("github.get_file", `{"owner":"octocat","repo":"Hello-World","path":"cmd/a b/main.go"}`,
		`{"type":"file","name":"x","path":"x","sha":"s","size":2,"encoding":"base64","content":"//4="}`)
	u.take()

	u.on("GET "+repoRoot+"/contents/", 200, `[{"type":"dir","size":0,"name":"cmd","path":"cmd","sha":"1"},{"type":"symlink","size":3,"name":"l","path":"l","sha":"2"}]`)
	u.want("github.get_file", `{"owner":"octocat","repo":"Hello-World"}`,
		`{"type":"dir","name":"","path":"","sha":"","size":0,"entries":[{"type":"dir","size":0,"name":"cmd","path":"cmd","sha":"1"},{"type":"symlink","size":3,"name":"l","path":"l","sha":"2"}]}`)
	u.take()

	// Above 1 MB there is no content in JSON.
	big := strings.Repeat("a", 1<<20+1)
	u.mu.Lock()
	u.answers["GET "+repoRoot+"/contents/big"] = func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Accept") == "application/vnd.github.raw+json" {
			_, _ = io.WriteString(w, big)
			return
		}
		_, _ = io.WriteString(w, `{"type":"file","encoding":"none","size":1048577,"name":"big","path":"big","content":"","sha":"s"}`)
	}
	u.mu.Unlock()
	if answer := u.do("github.get_file", `{"owner":"octocat","repo":"Hello-World","path":"big"}`); !strings.Contains(string(answer), big) {
		t.Errorf("%d bytes", len(answer))
	}
}

func TestGitHubSearch(t *testing.T) {
	u := newUpstream(t)
	u.on("GET /search/code", 200, recorded(t, "github_search.json"))
	answer := u.do("github.search_code", `{"query":"addClass in:file repo:jquery/jquery"}`)
	sameJSON(t, "search", answer, `{"total":7,"hits":[
		{"repo":"jquery/jquery","path":"src/attributes/classes.js","url":"https://github.com/jquery/jquery/blob/825ac37/src/attributes/classes.js","fragments":["addClass: function( value ) {"]},
		{"repo":"Acme/Secret","path":"a.js","url":"https://github.com/Acme/Secret/blob/1/a.js"}]}`)
	if sent := u.take(); sent[0].line != "GET /search/code?page=1&per_page=30&q=addClass in:file repo:jquery/jquery" || sent[0].header.Get("Accept") != "application/vnd.github.text-match+json" {
		t.Errorf("%+v", sent)
	}
	rest, n, err := Filter(GitHub, "github.search_code", answer, func(_, value string) bool { return value != "acme/secret" })
	if err != nil || n != 1 || strings.Contains(string(rest), "Secret") || strings.Contains(string(rest), "total") {
		t.Errorf("%s, %d, %v", rest, n, err)
	}
}
