// Package fakemodel answers coding agents in the place of a language model: it
// asks for one call of one tool, and then says what came of it, or it does what
// people tell it in so many words.
//
// It speaks Anthropic's Messages, OpenAI's Responses and Chat Completions, and
// Gemini's generateContent, streamed or not, as far as the agents need. It
// keeps no conversation: what it answers follows from the request alone.
package fakemodel

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxRequest bounds what is read of a request: agents send their whole
// conversation.
const maxRequest = 32 << 20

// Script is what the model does.
type Script struct {
	Tool      string         // the name of a tool as its MCP server calls it; agents put prefixes before it
	Arguments map[string]any // of its call
	Answer    string         // said at the end, before the tool's result
	// Obeys has it do what a person has asked for last instead, and then say what
	// came of it:
	//
	//	please-say WORDS               please-call TOOL {"argument": …}
	//	please-recall                  says what it was asked to say so far
	Obeys bool
}

// A Server is the model. It is an http.Handler and safe for concurrent use.
type Server struct {
	// Static after construction.
	script Script

	mu sync.Mutex
	// Guarded by mu.
	offered  map[string]bool
	results  []string
	requests []string
	searches int
	replies  int
}

// New returns a model that follows script.
func New(script Script) *Server {
	return &Server{script: script, offered: make(map[string]bool)}
}

// Offered returns the names of all tools that agents have offered, sorted.
func (s *Server) Offered() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	names := make([]string, 0, len(s.offered))
	for name := range s.offered {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Results returns what came of the calls that the model asked for, as the
// agents told it.
func (s *Server) Results() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.results)
}

// Requests returns the method and path of all requests so far.
func (s *Server) Requests() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// An offer is a tool that a request lets the model use.
type offer struct {
	name      string
	namespace string // of OpenAI's Responses: a group of tools
}

// A turn is what a request comes to, whatever its API.
type turn struct {
	model  string
	stream bool
	offers []offer
	result *string // of the last call, if the conversation ends with it
	search bool    // that call was a search
	story  []line  // what people have said, and what came of calls
}

// A line is one part of a conversation.
type line struct {
	text   string
	result bool // of a call; else a person, or the agent in a person's name, has said it
}

// A reply is what the model says: a call, or a text.
type reply struct {
	number    int // of replies so far: agents take what has the same id for the same
	call      offer
	id        string
	arguments map[string]any
	text      string
}

// pieces are the text as it is streamed: by lines.
func (r reply) pieces() []string { return strings.SplitAfter(r.text, "\n") }

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxRequest))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	s.mu.Lock()
	s.requests = append(s.requests, r.Method+" "+r.URL.Path)
	s.mu.Unlock()
	path := r.URL.Path
	switch {
	case r.Method != http.MethodPost:
		answer(w, map[string]any{"object": "list", "data": []any{}, "models": []any{}})
	case strings.HasSuffix(path, "/count_tokens"):
		answer(w, map[string]any{"input_tokens": 100})
	case strings.HasSuffix(path, ":countTokens"):
		answer(w, map[string]any{"totalTokens": 100})
	case strings.HasSuffix(path, "/messages"):
		serve(s, w, body, (*anthropicRequest).turn, writeAnthropic)
	case strings.HasSuffix(path, "/responses"):
		serve(s, w, body, (*responsesRequest).turn, writeResponses)
	case strings.HasSuffix(path, "/chat/completions"):
		serve(s, w, body, (*chatRequest).turn, writeChat)
	case strings.HasSuffix(path, "GenerateContent"), strings.HasSuffix(path, ":generateContent"):
		serve(s, w, body, func(q *geminiRequest) turn {
			t := q.turn()
			t.stream = strings.Contains(path, ":stream")
			return t
		}, writeGemini)
	default:
		http.NotFound(w, r)
	}
}

// serve reads a request of one API, decides and answers.
func serve[Q any](s *Server, w http.ResponseWriter, body []byte, understand func(*Q) turn, write func(http.ResponseWriter, turn, reply)) {
	var q Q
	if err := json.Unmarshal(body, &q); err != nil {
		http.Error(w, "not a request of this API: "+err.Error(), http.StatusBadRequest)
		return
	}
	t := understand(&q)
	s.mu.Lock()
	s.replies++
	r := s.decide(t)
	if r.number = s.replies; r.id == "" {
		r.id = fmt.Sprint("call_", r.number)
	}
	s.mu.Unlock()
	write(w, t, r)
}

// decide is the model's mind. It is called with mu held.
func (s *Server) decide(t turn) reply {
	for _, o := range t.offers {
		s.offered[o.name] = true
	}
	if s.script.Obeys {
		return obey(t)
	}
	if t.result != nil && !t.search {
		s.results = append(s.results, *t.result)
		return reply{text: s.script.Answer + " " + *t.result}
	}
	if i := slices.IndexFunc(t.offers, func(o offer) bool { return names(o.name, s.script.Tool) }); i >= 0 {
		return reply{call: t.offers[i], arguments: s.script.Arguments}
	}
	search := slices.IndexFunc(t.offers, func(o offer) bool { return o.name == searchTool })
	if search < 0 || s.searches == maxSearches {
		return reply{text: "nothing to do"}
	}
	s.searches++
	return reply{call: t.offers[search], id: searchID, arguments: map[string]any{"query": s.script.Tool}}
}

// obey does what a person has asked for last, if that isn't done.
func obey(t turn) reply {
	var order, result string
	var said []string
	for _, l := range t.story {
		_, words, asks := strings.Cut(l.text, "please-")
		switch {
		case l.result:
			result = "it came to\n" + l.text
		case asks:
			order, result = words, ""
			if text, ok := strings.CutPrefix(words, "say "); ok {
				said = append(said, text)
			}
		}
	}
	what, words, _ := strings.Cut(order, " ")
	switch {
	case result != "":
		return reply{text: result}
	case what == "say":
		return reply{text: words}
	case strings.HasPrefix(what, "recall"):
		return reply{text: "you had me say\n" + strings.Join(said, "\n")}
	case what != "call":
		return reply{text: "nothing to do"}
	}
	tool, arguments, _ := strings.Cut(words, " ")
	i := slices.IndexFunc(t.offers, func(o offer) bool { return o.name == tool })
	if i < 0 {
		return reply{text: "there is no " + tool}
	}
	r := reply{call: t.offers[i]}
	if err := json.NewDecoder(strings.NewReader(arguments)).Decode(&r.arguments); err != nil {
		return reply{text: "these are no arguments: " + err.Error()}
	}
	return r
}

// maxSearches is how often the model looks for its tool: an agent may ask it
// before MCP servers are connected.
const maxSearches = 20

// searchTool is what agents offer that describe only those tools which are
// asked for.
const searchTool = "ToolSearch"

// searchID is the identifier of a search: by it a result says that it is one of
// that.
const searchID = "search_1"

// names reports whether an agent's name of a tool stands for the one that its
// server calls tool: mcp__server__tool, mcp_server_tool, server_tool, …
func names(theirs, tool string) bool {
	return theirs == tool || strings.HasSuffix(theirs, "_"+tool)
}

// answer writes v as JSON.
func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // an agent that has gone away needs no answer
}

// A stream writes server-sent events.
type stream struct{ w http.ResponseWriter }

func newStream(w http.ResponseWriter) stream {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	return stream{w}
}

// send writes one event; name may be empty.
func (s stream) send(name string, v any) {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // all that is sent is built here
	}
	if name != "" {
		fmt.Fprintf(s.w, "event: %s\n", name)
	}
	fmt.Fprintf(s.w, "data: %s\n\n", data)
	if f, ok := s.w.(http.Flusher); ok {
		f.Flush()
	}
}

// text flattens what APIs write as a string or as a list of parts.
func text(raw json.RawMessage) string {
	var plain string
	if json.Unmarshal(raw, &plain) == nil {
		return plain
	}
	var parts []struct {
		Text   string `json:"text"`
		Output string `json:"output"`
	}
	if json.Unmarshal(raw, &parts) == nil {
		var all strings.Builder
		for _, p := range parts {
			all.WriteString(p.Text)
		}
		return all.String()
	}
	return string(raw)
}

// encode returns v as JSON in a string, as OpenAI's APIs carry arguments.
func encode(v map[string]any) string {
	if v == nil {
		v = map[string]any{}
	}
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // the script's
	}
	return string(data)
}
