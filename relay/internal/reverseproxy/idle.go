package reverseproxy

import (
	"context"
	"io"
	"net"
	"net/http/httptrace"
	"slices"
	"sync"
	"time"

	"github.com/fairlead/fairlead/protocol"
	"github.com/fairlead/fairlead/tunnel"
)

// An idle stream is closed after idleStream, or earlier if there are
// maxIdlePerPerson of one person, or maxIdleStreams in all.
const (
	idleStream       = 10 * time.Second
	maxIdlePerPerson = 8
	maxIdleStreams   = 1024
)

// An idler tracks each person's idle streams. The transport's own bound is per
// grant, of which a person may have any number, so that alone bounds nobody.
// Its zero value is ready.
type idler struct {
	mu sync.Mutex
	of map[protocol.UserID][]*kept // oldest first; guarded by mu
}

// A kept is a stream that the transport may keep for later requests.
type kept struct {
	net.Conn
	idler *idler
	user  protocol.UserID
}

// Close ends the stream.
func (k *kept) Close() error {
	k.idler.use(k)
	return k.Conn.Close()
}

// ReadFrom implements [io.ReaderFrom]: the transport copies bodies by it.
func (k *kept) ReadFrom(r io.Reader) (int64, error) { return tunnel.Copy(k.Conn, r) }

// use notes that a stream is in use.
func (i *idler) use(k *kept) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.drop(k)
}

// drop forgets an idle stream. The caller holds mu.
func (i *idler) drop(k *kept) {
	list := slices.DeleteFunc(i.of[k.user], func(other *kept) bool { return other == k })
	if len(list) == 0 {
		delete(i.of, k.user)
		return
	}
	i.of[k.user] = list
}

// rest notes that a stream is idle. It closes the person's oldest if there are
// too many.
func (i *idler) rest(k *kept) {
	i.mu.Lock()
	i.drop(k)
	if i.of == nil {
		i.of = map[protocol.UserID][]*kept{}
	}
	i.of[k.user] = append(i.of[k.user], k)
	var oldest *kept
	if list := i.of[k.user]; len(list) > maxIdlePerPerson {
		oldest = list[0]
	}
	i.mu.Unlock()
	if oldest != nil {
		oldest.Close() // the transport notices that
	}
}

// watched makes i track the stream that a request under ctx uses.
func (i *idler) watched(ctx context.Context) context.Context {
	var mu sync.Mutex // different goroutines may call the hooks
	var used *kept
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(info httptrace.GotConnInfo) {
			if k, ok := info.Conn.(*kept); ok {
				mu.Lock()
				defer mu.Unlock()
				used = k
				i.use(k)
			}
		},
		PutIdleConn: func(err error) {
			mu.Lock()
			defer mu.Unlock()
			if err == nil && used != nil {
				i.rest(used)
			}
		},
	})
}
