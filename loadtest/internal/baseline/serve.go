package baseline

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/fairlead/fairlead/loadtest/internal/pattern"
)

// secretBytes is the length of the secret in the process's URL.
const secretBytes = 16

// Serve is the process: it listens on loopback, says where on out, and serves
// until ctx or in ends.
func Serve(ctx context.Context, in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() { // ends with the process, whose parent holds the other end
		io.Copy(io.Discard, in)
		cancel()
	}()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	sealed, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer sealed.Close()
	sinks, err := listenSinks(ctx)
	if err != nil {
		return err
	}
	defer sinks.close()
	disk, err := openDisk()
	if err != nil {
		return err
	}
	defer disk.close()
	secret := make([]byte, secretBytes)
	rand.Read(secret)
	prefix := "/" + hex.EncodeToString(secret)
	at := sinks.at
	at.URL, at.TLS = "http://"+listener.Addr().String()+prefix, "https://"+sealed.Addr().String()+prefix
	if err := json.NewEncoder(out).Encode(at); err != nil {
		return err
	}
	server := &http.Server{
		Handler:   http.StripPrefix(prefix, routes(ctx, sinks, disk)),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{sinks.cert}},
	}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	ended := make(chan error, 2)
	go func() { ended <- server.Serve(listener) }()          // received below
	go func() { ended <- server.ServeTLS(sealed, "", "") }() // received below
	err = <-ended
	server.Close()
	<-ended
	if !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func routes(ctx context.Context, sinks *sinks, disk *disk) http.Handler {
	loop := &writeLoop{}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /terminal", func(w http.ResponseWriter, r *http.Request) { serveTerminal(ctx, w, r) })
	mux.HandleFunc("GET /chat", func(w http.ResponseWriter, r *http.Request) { serveChat(ctx, w, r) })
	mux.HandleFunc("POST /command", disk.command)
	mux.HandleFunc("PUT /files/{name}", disk.put)
	mux.HandleFunc("GET /files/{name}", disk.get)
	mux.HandleFunc("GET /viewer", loop.join)
	mux.HandleFunc("POST /viewers", func(w http.ResponseWriter, _ *http.Request) { answer(w, loop.count(), nil) })
	mux.HandleFunc("POST /send", func(w http.ResponseWriter, r *http.Request) {
		var spec pattern.Spec
		err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&spec)
		if err == nil {
			err = spec.Validate()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		sent, err := loop.send(r.Context(), spec)
		answer(w, sent, err)
	})
	mux.HandleFunc("POST /tunnel", func(w http.ResponseWriter, r *http.Request) {
		var want tunnelStreams
		if err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&want); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		err := sinks.openStreams(r.Context(), want)
		answer(w, want.Streams, err)
	})
	return mux
}

func answer(w http.ResponseWriter, value any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if err := json.NewEncoder(w).Encode(value); err != nil {
		fmt.Fprintln(w, err)
	}
}
