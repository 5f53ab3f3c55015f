package impair

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/fairlead/fairlead/deploy/program"
	network "github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// shutdownTimeout bounds the orders that are being obeyed at the end.
const shutdownTimeout = time.Second

// A link is what both kinds have in common.
type link interface {
	Addr() string
	Profile() network.Profile
	SetProfile(network.Profile) error
	Close() error

	blackhole(side network.Side, on bool)
	counts() any
	routes(*http.ServeMux)
}

type udpLink struct{ *network.UDP }

func (l udpLink) blackhole(side network.Side, on bool) { l.Blackhole(side, on) }
func (l udpLink) counts() any                          { return l.Counts() }

type tcpLink struct{ *network.TCP }

func (l tcpLink) blackhole(side network.Side, on bool) { l.Stall(side, on) }
func (l tcpLink) counts() any                          { return l.Counts() }

// run serves until ctx ends, and says at the end what has passed.
func run(ctx context.Context, env *program.Env, l link, o options) error {
	fmt.Fprintf(env.Stdout, "impair: %s leads to %s, profile %s, seed %d\n", l.Addr(), o.target, l.Profile(), o.seed)
	if o.control != "" {
		listener, err := net.Listen("tcp", o.control)
		if err != nil {
			return fmt.Errorf("control: %w", err)
		}
		defer obey(ctx, l, listener)()
		fmt.Fprintf(env.Stdout, "impair: orders at http://%s\n", listener.Addr())
	}
	<-ctx.Done()
	counts, err := json.Marshal(l.counts())
	if err != nil {
		return err
	}
	fmt.Fprintf(env.Stdout, "impair: %s\n", counts)
	return nil
}

// obey takes orders until stop.
func obey(ctx context.Context, l link, listener net.Listener) (stop func()) {
	server := &http.Server{Handler: guard(control(l)), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) }) // returns when stopped
	return func() {
		ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownTimeout)
		defer cancel()
		_ = server.Shutdown(ending) // what takes longer is closed
		server.Close()
		serving.Wait()
	}
}

// guard lets no web page give orders: a browser tells the origin of what it
// posts, and a name that leads here is none of ours.
func guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.Host)
		if err != nil {
			host = r.Host
		}
		if r.Header.Get("Origin") != "" || host != "localhost" && net.ParseIP(host) == nil {
			http.Error(w, "not for web pages", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var (
	errOn   = errors.New("on must be true or false")
	errSide = errors.New("side must be up, down or both")
)
