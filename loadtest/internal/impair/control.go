package impair

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	network "github.com/fairlead/fairlead/tunnel/tunneltest/impair"
)

// maxProfile bounds a profile in bytes.
const maxProfile = 4 << 10

// control returns what takes orders for l.
func control(l link) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /profile", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, l.Profile())
	})
	mux.HandleFunc("PUT /profile", func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxProfile))
		if err == nil {
			err = put(l, string(body))
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		fmt.Fprintln(w, l.Profile())
	})
	mux.HandleFunc("GET /counts", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, l.counts())
	})
	mux.HandleFunc("POST /blackhole", func(w http.ResponseWriter, r *http.Request) {
		side, ok := sides[r.FormValue("side")]
		on, err := isOn(r)
		if !ok {
			err = errSide
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.blackhole(side, on)
		answer(w, l.counts())
	})
	l.routes(mux)
	return mux
}

var sides = map[string]network.Side{"": network.Duplex, "both": network.Duplex, "up": network.Up, "down": network.Down}

func put(l link, text string) error {
	p, err := network.Parse(text)
	if err != nil {
		return err
	}
	return l.SetProfile(p)
}

// isOn reads the parameter on, which is true where it isn't there.
func isOn(r *http.Request) (bool, error) {
	switch r.FormValue("on") {
	case "", "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, errOn
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}

func (l udpLink) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /rebind", func(w http.ResponseWriter, _ *http.Request) {
		n, err := l.Rebind()
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		answer(w, map[string]int{"peers": n})
	})
}

func (l tcpLink) routes(mux *http.ServeMux) {
	mux.HandleFunc("POST /cut", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string]int{"connections": l.Cut()})
	})
	mux.HandleFunc("POST /refuse", func(w http.ResponseWriter, r *http.Request) {
		on, err := isOn(r)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		l.Refuse(on)
		answer(w, l.counts())
	})
}
