package link

import (
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
)

// TestUnreadBodies: a handler that answers without having read the body leaves the
// connection as it should be for the next request.
func TestUnreadBodies(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return
			}
			serving.Go(func() {
				conn := newOneConn(c)
				server := &http.Server{Handler: conn.serving(http.NotFoundHandler()), ConnState: conn.state}
				server.Serve(conn)
				conn.wait()
			})
		}
	})
	streams := &http.Transport{MaxIdleConnsPerHost: 8}
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 500 {
				// A reader that is nothing else can't be sent again.
				resp, err := streams.RoundTrip(unread(t, listener.Addr().String(), io.MultiReader(strings.NewReader("body"))))
				if err != nil {
					t.Error(err)
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	asking.Wait()
	streams.CloseIdleConnections()
	listener.Close()
	serving.Wait()
}

func unread(t *testing.T, host string, body io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, "http://"+host+"/", body)
	if err != nil {
		t.Fatal(err)
	}
	r.ContentLength = 4
	return r
}
