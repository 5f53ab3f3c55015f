package sandboxapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httputil"
	"strconv"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/relay/internal/reverseproxy"
)

// answerTimeout bounds the wait for an answer once the sandbox has the whole
// request: it may have to delete a large folder.
const answerTimeout = 2 * time.Minute

// bodyRate is the average rate at which a client must send a file's body, in
// bytes per second.
const bodyRate = 4 << 10

// proxy forwards to the agent over streams that carry the grant, without the
// browser's credentials. An answer may take within, or with 0 as long as the
// grant is valid.
func (a *API) proxy(within time.Duration) *reverseproxy.Proxy {
	return reverseproxy.NewProxy(reverseproxy.Options{
		Requests: a.Requests, What: reverseproxy.API, AnswerTimeout: within, BodyRate: bodyRate, Log: a.Log,
		Rewrite: func(r *httputil.ProxyRequest) { reverseproxy.NarrowRequest(r.Out.Header) },
		Response: func(r *http.Response) {
			reverseproxy.NarrowAnswer(r)
			if r.StatusCode == http.StatusRequestedRangeNotSatisfiable {
				explainRange(r)
			}
		},
		Refuse: func(w http.ResponseWriter, _ *http.Request, err error) { a.refuse(w, err) },
	})
}

// explainRange turns a 416, which file servers send as plain text, into the
// form of other errors.
func explainRange(r *http.Response) {
	body, err := json.Marshal(map[string]protocol.ErrorBody{
		"error": protocol.Errorf(protocol.KindInvalid, "the range is not within the file").Body(),
	})
	if err != nil || r.Request.Method == http.MethodHead {
		return
	}
	r.Body.Close()
	r.Body, r.ContentLength, r.Trailer = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	r.Header.Set("Content-Length", strconv.Itoa(len(body)))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Disposition")
}

// pass forwards requests whose grant carries need.
func (a *API) pass(need protocol.Capability, proxy *reverseproxy.Proxy) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		grant, token, err := a.authorize(r, need)
		if err != nil {
			proxy.Refuse(w, r, err)
			return
		}
		session, err := a.Tunnels.Session(grant.Sandbox)
		if err != nil {
			proxy.Refuse(w, r, err)
			return
		}
		proxy.Serve(w, r, session, grant, token)
	}
}
