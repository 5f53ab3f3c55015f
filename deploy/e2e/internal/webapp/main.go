// Command webapp is what somebody develops in a sandbox: it serves a page, a
// WebSocket that echoes, and what tells how HTTP gets to it, on a free loopback
// port that it prints.
package main

import (
	"fmt"
	"net"
	"net/http"
	"os"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		fmt.Printf("port:%d:\n", listener.Addr().(*net.TCPAddr).Port)
		err = http.Serve(listener, handler())
	}
	fmt.Fprintln(os.Stderr, "webapp:", err)
	os.Exit(1)
}
