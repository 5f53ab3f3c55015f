package protocol

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Frame is one unit of a tunnel stream:
//
//	type: 1 B | length: 4 B, big-endian | payload: length B
type Frame struct {
	Type    FrameType
	Payload []byte
}

// Errors of the frame codec. ErrFrameTruncated is io.ErrUnexpectedEOF within a
// frame; a stream that ends between frames is io.EOF.
var (
	ErrFrameTooLarge  = errors.New("protocol: frame too large")
	ErrFrameUnknown   = errors.New("protocol: unknown frame type")
	ErrFrameTruncated = fmt.Errorf("protocol: truncated frame: %w", io.ErrUnexpectedEOF)
	ErrMessage        = errors.New("protocol: malformed message")
)

// AppendFrame appends one frame to dst. It fails with [ErrFrameTooLarge] when
// payload exceeds [MaxFramePayload].
func AppendFrame(dst []byte, t FrameType, payload []byte) ([]byte, error) {
	return endFrame(append(beginFrame(dst, t), payload...), len(dst))
}

func beginFrame(dst []byte, t FrameType) []byte { return append(dst, byte(t), 0, 0, 0, 0) }

// endFrame completes the frame that begins at start and ends with dst.
func endFrame(dst []byte, start int) ([]byte, error) {
	n := len(dst) - start - frameHeaderBytes
	if n > MaxFramePayload {
		return dst[:start], fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, FrameType(dst[start]), n)
	}
	binary.BigEndian.PutUint32(dst[start+1:], uint32(n))
	return dst, nil
}

// A FrameReader reads frames. It buffers, so nothing else may read from the
// same source, except through [FrameReader.Rest] once the frames are over.
type FrameReader struct {
	src *bufio.Reader
	buf []byte
}

// NewFrameReader returns a FrameReader over r.
func NewFrameReader(r io.Reader) *FrameReader {
	return &FrameReader{src: bufio.NewReaderSize(r, MaxStreamWrite)}
}

// Next returns the next frame, whose payload is valid until the next call.
// Unknown frames that may be skipped are skipped; others fail with
// [ErrFrameUnknown]. The end between two frames is [io.EOF].
func (fr *FrameReader) Next() (Frame, error) {
	for {
		header, err := fr.src.Peek(frameHeaderBytes)
		if err != nil {
			if errors.Is(err, io.EOF) && len(header) > 0 {
				err = ErrFrameTruncated
			}
			return Frame{}, err
		}
		t, n := FrameType(header[0]), binary.BigEndian.Uint32(header[1:])
		_, known := frameTypes[t]
		switch {
		case !known && !t.Skippable():
			return Frame{}, fmt.Errorf("%w: %s", ErrFrameUnknown, t)
		case n > MaxFramePayload:
			return Frame{}, fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, t, n)
		}
		fr.src.Discard(frameHeaderBytes)
		payload, err := fr.payload(int(n))
		if err != nil {
			return Frame{}, err
		}
		if known {
			return Frame{t, payload}, nil
		}
	}
}

// Ready reports whether Next can return without reading from the source.
func (fr *FrameReader) Ready() bool {
	if fr.src.Buffered() < frameHeaderBytes {
		return false
	}
	header, _ := fr.src.Peek(frameHeaderBytes) // can't fail
	return uint64(fr.src.Buffered()) >= frameHeaderBytes+uint64(binary.BigEndian.Uint32(header[1:]))
}

// payload reads n bytes. It allocates for what arrives, not for what a header
// announces.
func (fr *FrameReader) payload(n int) ([]byte, error) {
	fr.buf = fr.buf[:0]
	for len(fr.buf) < n {
		chunk, err := fr.src.Peek(min(n-len(fr.buf), MaxStreamWrite))
		fr.buf = append(fr.buf, chunk...)
		fr.src.Discard(len(chunk))
		if errors.Is(err, io.EOF) && len(fr.buf) < n {
			return nil, ErrFrameTruncated
		}
		if err != nil && len(fr.buf) < n {
			return nil, err
		}
	}
	return fr.buf, nil
}

// ReadFrame reads one frame from r without reading ahead, for streams that
// carry something else afterwards. It skips unknown skippable frames.
func ReadFrame(r io.Reader) (Frame, error) {
	for {
		var header [frameHeaderBytes]byte
		if _, err := io.ReadFull(r, header[:]); err != nil {
			if errors.Is(err, io.ErrUnexpectedEOF) {
				err = ErrFrameTruncated
			}
			return Frame{}, err
		}
		t, n := FrameType(header[0]), binary.BigEndian.Uint32(header[1:])
		_, known := frameTypes[t]
		switch {
		case !known && !t.Skippable():
			return Frame{}, fmt.Errorf("%w: %s", ErrFrameUnknown, t)
		case n > MaxFramePayload:
			return Frame{}, fmt.Errorf("%w: %s of %d bytes", ErrFrameTooLarge, t, n)
		}
		payload, err := io.ReadAll(io.LimitReader(r, int64(n)))
		if err != nil {
			return Frame{}, err
		}
		if len(payload) < int(n) {
			return Frame{}, ErrFrameTruncated
		}
		if known {
			return Frame{t, payload}, nil
		}
	}
}

// Rest returns what follows the frames read so far: buffered bytes, then the
// source. Use it when a stream switches from frames to opaque bytes.
func (fr *FrameReader) Rest() io.Reader { return fr.src }
