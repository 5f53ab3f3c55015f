package e2e

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fairlead/fairlead/protocol"
)

// A frameSocket is a terminal's socket whose frames are made by hand.
type frameSocket struct {
	net.Conn
	reader *bufio.Reader
}

// rawSocket opens a terminal's socket of alice's.
func rawSocket(t *testing.T, s *Stack) *frameSocket {
	t.Helper()
	ctx := within(t)
	alice := s.Ready.User("alice")
	grant, err := alice.Grant(ctx, s.Ready.SessionID)
	must(t, err)
	ticket, err := alice.Ticket(ctx, grant, s.Ready.SessionID, s.Ready.PTYID)
	must(t, err)
	at, err := url.Parse(ticket.URL)
	must(t, err)
	conn, err := net.Dial("tcp", at.Host)
	must(t, err)
	t.Cleanup(func() { conn.Close() })
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nOrigin: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Protocol: %s\r\n\r\n",
		at.RequestURI(), at.Host, alice.Base, protocol.SubprotocolTicket+ticket.Ticket)
	reader := bufio.NewReader(conn)
	answer, err := http.ReadResponse(reader, nil)
	must(t, err)
	if answer.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("upgrade: %s", answer.Status)
	}
	return &frameSocket{conn, reader}
}

// closed reads frames until the one that ends the socket, and returns its code;
// 0: it ended without.
func (s *frameSocket) closed() (int, error) {
	for {
		var head [2]byte
		if _, err := io.ReadFull(s.reader, head[:]); err != nil {
			return 0, err
		}
		size := uint64(head[1])
		switch head[1] {
		case 126:
			var length [2]byte
			if _, err := io.ReadFull(s.reader, length[:]); err != nil {
				return 0, err
			}
			size = uint64(binary.BigEndian.Uint16(length[:]))
		case 127:
			var length [8]byte
			if _, err := io.ReadFull(s.reader, length[:]); err != nil {
				return 0, err
			}
			size = binary.BigEndian.Uint64(length[:])
		}
		payload := make([]byte, size)
		if _, err := io.ReadFull(s.reader, payload); err != nil {
			return 0, err
		}
		if head[0]&0x0f == 8 && len(payload) >= 2 {
			return int(binary.BigEndian.Uint16(payload)), nil
		}
	}
}

// A badFrame is what no client may send, and how its socket ends.
type badFrame struct {
	name string
	sent string
	code int
}

// end sends each and expects its socket to end by its code, within a moment.
func end(t *testing.T, s *Stack, frames ...badFrame) {
	t.Helper()
	for _, f := range frames {
		socket := rawSocket(t, s)
		began := time.Now()
		go io.WriteString(socket, f.sent) // a part of it, where the relay ends it before
		code, err := socket.closed()
		if code != f.code {
			t.Errorf("%s: closed with %d, %v, want %d", f.name, code, err, f.code)
		} else if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s: closed after %v", f.name, took)
		}
		socket.Close()
	}
}

// mask is the one of all frames here; it changes nothing.
const mask = "\x00\x00\x00\x00"

// resident returns how much memory a process has, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	must(t, err)
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.Atoi(strings.Fields(rest)[0])
			must(t, err)
			return kib << 10
		}
	}
	t.Fatal("no VmRSS")
	return 0
}

// TestCase34LengthsAndEmptyFragments: a message is refused by what it announces,
// and by its number of fragments, before it takes memory.
func TestCase34LengthsAndEmptyFragments(t *testing.T) {
	s := shared(t)
	before := resident(t, s.Ready.Relays[0].PID)
	end(t, s,
		badFrame{"64 KiB and a byte", "\x82\xff\x00\x00\x00\x00\x00\x01\x00\x01" + mask, 1009},
		badFrame{"64 KiB and a byte in two frames", "\x02\xff\x00\x00\x00\x00\x00\x01\x00\x00" + mask + strings.Repeat("x", 1<<16) + "\x80\x81" + mask, 1009},
		badFrame{"2⁶³−1 B", "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + mask, 1009},
		badFrame{"2⁶³ B", "\x82\xff\x80\x00\x00\x00\x00\x00\x00\x00" + mask, 1002},
		badFrame{"2⁶⁴−1 B", "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff" + mask, 1002},
		badFrame{"a million empty fragments", "\x01\x80" + mask + strings.Repeat("\x00\x80"+mask, 1_000_000), 1009},
	)
	if grown := resident(t, s.Ready.Relays[0].PID) - before; grown > 32<<20 {
		t.Errorf("the relay has grown by %d MiB", grown>>20)
	}
}

// TestCase35ControlFramesMasksAndReservedBits: what RFC 6455 forbids of a frame
// ends its socket as a protocol error.
func TestCase35ControlFramesMasksAndReservedBits(t *testing.T) {
	s := shared(t)
	end(t, s,
		badFrame{"a fragmented ping", "\x09\x80" + mask, 1002},
		badFrame{"a fragmented close", "\x08\x80" + mask, 1002},
		badFrame{"a ping of 126 B", "\x89\xfe\x00\x7e" + mask, 1002},
		badFrame{"a pong of 2⁶³−1 B", "\x8a\xff\x7f\xff\xff\xff\xff\xff\xff\xff" + mask, 1002},
		badFrame{"not masked", "\x82\x02hi", 1002},
		badFrame{"a ping that isn't masked", "\x89\x00", 1002},
		badFrame{"RSV1", "\xc2\x81" + mask + "x", 1002},
		badFrame{"RSV2", "\xa1\x82" + mask + "{}", 1002},
		badFrame{"RSV3", "\x99\x80" + mask, 1002},
		badFrame{"an unknown opcode", "\x83\x80" + mask, 1002},
		badFrame{"an unknown control opcode", "\x8f\x80" + mask, 1002},
		badFrame{"a continuation of nothing", "\x80\x81" + mask + "x", 1002},
		badFrame{"a message within a message", "\x01\x81" + mask + "x\x82\x81" + mask + "x", 1002},
	)
}

// TestFound27FramesAreRefusedAtOnce: by the header alone, of which not even all
// has come.
func TestFound27FramesAreRefusedAtOnce(t *testing.T) {
	s := shared(t)
	end(t, s,
		badFrame{"2⁶³−1 B without a mask yet", "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 1009},
		badFrame{"two bytes that aren't masked", "\x82\x7f", 1002},
		badFrame{"after a good one", "\x81\x8f" + mask + `{"type":"ping"}` + "\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff", 1009},
	)
	// What is in order goes on: fragments with a ping between them.
	socket := rawSocket(t, s)
	message := `{"type":"no_such_type"}`
	begin, rest := message[:5], message[5:]
	io.WriteString(socket, "\x01"+string([]byte{0x80 | byte(len(begin))})+mask+begin+"\x89\x81"+mask+"!"+
		"\x80"+string([]byte{0x80 | byte(len(rest))})+mask+rest)
	for all, piece := []byte(nil), make([]byte, 4<<10); !bytes.Contains(all, []byte("unknown message type")); {
		n, err := socket.reader.Read(piece)
		if all = append(all, piece[:n]...); err != nil {
			t.Fatalf("a message in fragments isn't answered: %v", err)
		}
	}
}

// TestFound27DuplicateMembers: a browser's message that names a member twice, in
// whatever letters, is refused and does nothing.
func TestFound27DuplicateMembers(t *testing.T) {
	s := shared(t)
	ctx := within(t)
	a := attach(t, s, "alice", newPTY(t, s, ""))
	for i, frame := range []string{
		`{"type":"ping","type":"ping"}`,
		`{"type":"resize","cols":61,"rows":24,"cols":62}`,
		`{"type":"resize","cols":61,"rows":24,"Cols":62}`,
		`{"type":"resize","cols":61,"rows":24,"c\u006fls":62}`,
		`{"type":"ping","more":{"a":1,"a":2}}`,
	} {
		must(t, a.Text(ctx, frame))
		must(t, a.Await(ctx, "an error for "+frame, func(_ []byte, messages []Message, _ error) bool {
			n := 0
			for _, m := range messages {
				if m.Type() == protocol.ServerError {
					n++
				}
			}
			return n == i+1
		}))
	}
	for _, m := range a.Messages() {
		if m.Type() == protocol.ServerResized {
			t.Errorf("it was heeded: %v", m)
		}
	}
}
