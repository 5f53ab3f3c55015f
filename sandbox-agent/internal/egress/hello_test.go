package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

// clientHello returns what a client sends first, as one record.
func clientHello(t testing.TB, config *tls.Config) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	done := make(chan struct{})
	go func() { // ends when the server's end closes
		defer close(done)
		defer client.Close()
		_ = tls.Client(client, config).Handshake()
	}()
	header := make([]byte, recordHeaderBytes)
	if _, err := io.ReadFull(server, header); err != nil {
		t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint16(header[3:]))
	if _, err := io.ReadFull(server, body); err != nil {
		t.Fatal(err)
	}
	server.Close()
	<-done
	return append(header, body...)
}

func helloFor(t testing.TB, name string) []byte {
	return clientHello(t, &tls.Config{ServerName: name, InsecureSkipVerify: name == ""})
}

// refragment spreads a record over records of size bytes.
func refragment(hello []byte, size int) []byte {
	var out []byte
	for body := hello[recordHeaderBytes:]; len(body) > 0; {
		n := min(size, len(body))
		out = append(out, hello[:3]...)
		out = binary.BigEndian.AppendUint16(out, uint16(n))
		out = append(out, body[:n]...)
		body = body[n:]
	}
	return out
}

func TestServerName(t *testing.T) {
	for name, want := range map[string]string{
		"example.com": "example.com", "a.b.example": "a.b.example", "": "", "192.0.2.1": "", strings.Repeat("a.", 60) + "com": strings.Repeat("a.", 60) + "com",
	} {
		hello := helloFor(t, name)
		for _, b := range [][]byte{hello, refragment(hello, 1), refragment(hello, 3), refragment(hello, 100), append(bytes.Clone(hello), "more"...)} {
			if got, err := serverName(b); err != nil || got != want {
				t.Errorf("%q: %q, %v", name, got, err)
			}
		}
	}
}

// TestServerNameOfPrefixes: of a hello that isn't complete nothing is said.
func TestServerNameOfPrefixes(t *testing.T) {
	hello := helloFor(t, "example.com")
	for _, whole := range [][]byte{hello, refragment(hello, 7)} {
		for n := range whole {
			if name, err := serverName(whole[:n]); !errors.Is(err, errShort) {
				t.Fatalf("%d of %d bytes: %q, %v", n, len(whole), name, err)
			}
		}
	}
}

// helloWith returns a ClientHello with the given extensions.
func helloWith(extensions ...[]byte) []byte {
	body := append([]byte{3, 3}, make([]byte, 32)...)
	body = append(body, 0, 0, 2, 0x13, 1, 1, 0) // no session, one suite, one method
	all := bytes.Join(extensions, nil)
	body = binary.BigEndian.AppendUint16(body, uint16(len(all)))
	body = append(body, all...)
	message := append([]byte{messageClientHello, byte(len(body) >> 16), byte(len(body) >> 8), byte(len(body))}, body...)
	return append([]byte{recordHandshake, 3, 1, byte(len(message) >> 8), byte(len(message))}, message...)
}

func sni(entries ...string) []byte {
	var list []byte
	for _, name := range entries {
		list = append(list, nameTypeHost)
		list = binary.BigEndian.AppendUint16(list, uint16(len(name)))
		list = append(list, name...)
	}
	data := binary.BigEndian.AppendUint16(nil, uint16(len(list)))
	data = append(data, list...)
	return append([]byte{0, extensionServerName, byte(len(data) >> 8), byte(len(data))}, data...)
}

func TestHelloRefused(t *testing.T) {
	good := helloWith(sni("a.com"))
	if name, err := serverName(good); err != nil || name != "a.com" {
		t.Fatalf("%q, %v", name, err)
	}
	edit := func(at int, to ...byte) []byte {
		b := bytes.Clone(good)
		copy(b[at:], to)
		return b
	}
	for what, row := range map[string]struct {
		b    []byte
		want error
	}{
		"HTTP":                     {[]byte("GET / HTTP/1.1\r\n"), errNotTLS},
		"SSH":                      {[]byte("SSH-2.0"), errNotTLS},
		"one byte of another":      {[]byte{0}, errNotTLS},
		"alert":                    {[]byte{21, 3, 3, 0, 2, 2, 40}, errNotTLS},
		"version 2":                {edit(1, 2), errNotTLS},
		"version 3.9":              {edit(2, 9), errNotTLS},
		"another message":          {edit(5, 2), errNotTLS},
		"empty record":             {edit(3, 0, 0), errHello},
		"huge record":              {edit(3, 0x40, 1), errHello},
		"huge message":             {edit(6, 1), errHello},
		"second record of another": {append(refragment(good, 20)[:25], 23, 3, 1, 0, 1, 0), errHello},
		"session of 33 bytes":      {edit(43, 33), errHello},
		"two names":                {helloWith(sni("a.com", "b.com")), errHello},
		"two extensions":           {helloWith(sni("a.com"), sni("b.com")), errHello},
		"empty name":               {helloWith(sni("")), errHello},
		"no entry":                 {helloWith(sni()), errHello},
		"cut extension":            {helloWith([]byte{0, 0, 0}), errHello},
		"extension too long":       {helloWith([]byte{0, 1, 0, 9, 1}), errHello},
		"bytes behind the list":    {helloWith([]byte{0, 0, 0, 7, 0, 4, 0, 0, 1, 'a', 0}), errHello},
	} {
		if name, err := serverName(row.b); !errors.Is(err, row.want) {
			t.Errorf("%s: %q, %v, want %v", what, name, err, row.want)
		}
	}
	if name, err := serverName(helloWith()); err != nil || name != "" {
		t.Errorf("no extensions: %q, %v", name, err)
	}
}

// FuzzClientHello: the parser never panics, says the same however the hello is
// fragmented, and never changes its mind when more comes.
func FuzzClientHello(f *testing.F) {
	f.Add(helloFor(f, "example.com"), 7)
	f.Add(helloFor(f, ""), 1)
	f.Add(helloWith(sni("a.com", "b.com")), 100)
	f.Add([]byte("GET / HTTP/1.1\r\n"), 3)
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		if len(b) > maxHelloBytes {
			return
		}
		name, err := serverName(b)
		if err != nil && name != "" {
			t.Fatalf("%q with %v", name, err)
		}
		if errors.Is(err, errShort) {
			return
		}
		again, errAgain := serverName(append(bytes.Clone(b), 0, 1, 2, 3))
		if again != name || !errors.Is(errAgain, err) {
			t.Fatalf("%q, %v becomes %q, %v", name, err, again, errAgain)
		}
		if err == nil && size > 0 && size < maxRecordBytes && int(binary.BigEndian.Uint16(b[3:])) == len(b)-recordHeaderBytes {
			if again, err := serverName(refragment(b, size)); err != nil || again != name {
				t.Fatalf("%q in pieces of %d is %q, %v", name, size, again, err)
			}
		}
	})
}
