package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// The fields of a line in /proc/net/tcp that are read.
const (
	fieldLocal   = 1
	fieldRemote  = 2
	fieldState   = 3
	fieldUID     = 7
	fieldInode   = 9
	fieldsNeeded = 10
)

// procSockets reads the sockets that match out of /proc, for kernels without
// sock_diag.
func procSockets(match func(socket) bool) ([]socket, error) {
	var all []socket
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		file, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) && name == "/proc/net/tcp6" {
			continue // no IPv6
		}
		if err != nil {
			return nil, err
		}
		sockets, err := parseProc(file, match)
		file.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		all = append(all, sockets...)
	}
	return all, nil
}

func parseProc(r io.Reader, match func(socket) bool) ([]socket, error) {
	var all []socket
	lines := bufio.NewScanner(r)
	lines.Scan() // the heading
	for lines.Scan() {
		s, err := parseProcLine(lines.Text())
		if err != nil {
			return nil, err
		}
		if match(s) {
			all = append(all, s)
		}
	}
	return all, lines.Err()
}

func parseProcLine(line string) (socket, error) {
	fields := strings.Fields(line)
	if len(fields) < fieldsNeeded {
		return socket{}, errors.New("a line is too short")
	}
	local, err1 := parseProcAddr(fields[fieldLocal])
	remote, err2 := parseProcAddr(fields[fieldRemote])
	state, err3 := strconv.ParseUint(fields[fieldState], 16, 8)
	uid, err4 := strconv.ParseUint(fields[fieldUID], 10, 32)
	inode, err5 := strconv.ParseUint(fields[fieldInode], 10, 32)
	if err := errors.Join(err1, err2, err3, err4, err5); err != nil {
		return socket{}, err
	}
	return socket{local, remote, uint8(state), uint32(uid), uint32(inode)}, nil
}

// parseProcAddr reads an address, printed as native 32-bit words, and a port.
func parseProcAddr(text string) (netip.AddrPort, error) {
	words, portText, _ := strings.Cut(text, ":")
	raw, err := hex.DecodeString(words)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for i := 0; i+4 <= len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	if !ok {
		return netip.AddrPort{}, errors.New("not an address")
	}
	port, err := strconv.ParseUint(portText, 16, 16)
	if err != nil {
		return netip.AddrPort{}, err
	}
	return netip.AddrPortFrom(addr.Unmap(), uint16(port)), nil
}
