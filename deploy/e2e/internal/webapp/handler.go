package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

func handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/", page)
	mux.HandleFunc("/headers", headers)
	mux.HandleFunc("/echo", echo)
	mux.HandleFunc("/ws", plugin)
	mux.HandleFunc("/duplex", duplex)
	mux.HandleFunc("/trailer", trailer)
	mux.HandleFunc("/forever", forever)
	return mux
}

func page(w http.ResponseWriter, _ *http.Request) {
	http.SetCookie(w, &http.Cookie{Name: "app", Value: "its-own"})
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, `<!doctype html><title>app</title><p id=p>from the sandbox</p><script>
document.title = "runs";
const socket = new WebSocket(location.origin.replace("http", "ws") + "/echo");
socket.onopen = () => socket.send("ping");
socket.onmessage = (m) => { document.getElementById("p").textContent += ", echoed " + m.data; };
</script>`)
}

func headers(w http.ResponseWriter, r *http.Request) {
	r.Header.Set("Host", r.Host)
	json.NewEncoder(w).Encode(r.Header)
}

func echo(w http.ResponseWriter, r *http.Request) {
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the page is of the preview's origin
	if err != nil {
		return
	}
	defer conn.CloseNow()
	for {
		kind, data, err := conn.Read(r.Context())
		if err != nil || conn.Write(r.Context(), kind, data) != nil {
			return
		}
	}
}

// duplex answers each piece of the body as it comes.
func duplex(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	control.EnableFullDuplex()
	buf := make([]byte, 1024)
	for {
		n, err := r.Body.Read(buf)
		if n > 0 {
			fmt.Fprintf(w, "got %d\n", n)
			control.Flush()
		}
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			fmt.Printf("duplex-cut\n")
			return
		}
	}
}

func trailer(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Trailer", "X-Sum")
	fmt.Fprintln(w, "body")
	w.Header().Set("X-Sum", "42")
}

// forever answers until nobody listens, and says so.
func forever(w http.ResponseWriter, r *http.Request) {
	control := http.NewResponseController(w)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	defer fmt.Println("nobody-listens")
	ctx, cancel := context.WithTimeout(r.Context(), time.Minute)
	defer cancel()
	for {
		select {
		case <-tick.C:
			fmt.Fprintln(w, "tick")
			control.Flush()
		case <-ctx.Done():
			return
		}
	}
}
