package wire

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// The framings of JSON-RPC.
const (
	FramingLine          = "line"           // one message per line, as in MCP
	FramingContentLength = "content-length" // HTTP-like headers, as in LSP
	FramingPacket4       = "packet4"        // a length of 4 bytes, big-endian, as in Erlang ports
)

const (
	// maxReadBuffer bounds the buffer of lines, in bytes.
	maxReadBuffer = 64 << 10
	// initialAlloc bounds the memory allocated for a message by its announced length; more is allocated as bytes arrive.
	initialAlloc = 1 << 20
)

// framing splits a stream into messages and encodes messages for it.
type framing interface {
	// next returns a message, which is valid until the next call. Its errors are those of cutOff.
	next() ([]byte, error)
	// wrap appends the encoding of msg, which is JSON in one line.
	wrap(dst, msg []byte) []byte
}

func newFraming(name string, r io.Reader, o Options) (framing, error) {
	b := bufio.NewReaderSize(r, maxHeaderBlock) // small, since most workers are idle
	switch name {
	case FramingLine:
		return &lineFraming{r: b, max: o.MaxMessage, output: o.output}, nil
	case FramingContentLength:
		return &contentLengthFraming{r: b, max: o.MaxMessage, output: o.output}, nil
	case FramingPacket4:
		return &packet4Framing{r: b, max: o.MaxMessage}, nil
	}
	return nil, fmt.Errorf("framing %q: use %s, %s or %s", name, FramingLine, FramingContentLength, FramingPacket4)
}

type lineFraming struct {
	r      *bufio.Reader
	max    int64
	output func([]byte)
	buf    []byte
}

// messageStart is how most servers begin a message; text before it on the same line was printed without a line ending.
var messageStart = []byte(`{"jsonrpc"`)

// next skips empty lines and accepts CRLF line endings. What is not JSON is output of the program.
func (f *lineFraming) next() ([]byte, error) {
	for {
		line, err := f.line()
		if err != nil {
			return nil, err
		}
		line = bytes.TrimSpace(line)
		if len(line) == 0 {
			continue
		}
		if line[0] == '{' || line[0] == '[' {
			return line, nil
		}
		at := bytes.Index(line, messageStart)
		if at < 0 {
			f.output(line)
			continue
		}
		f.output(line[:at])
		return line[at:], nil
	}
}

func (f *lineFraming) line() ([]byte, error) {
	f.buf = f.buf[:0]
	if cap(f.buf) > maxReadBuffer {
		f.buf = nil
	}
	for {
		part, err := f.r.ReadSlice('\n')
		if err == nil && len(f.buf) == 0 {
			return part, f.fits(len(part) - 1)
		}
		f.buf = append(f.buf, part...)
		switch {
		case err == nil:
			return f.buf, f.fits(len(f.buf) - 1)
		case errors.Is(err, bufio.ErrBufferFull):
			if err := f.fits(len(f.buf)); err != nil {
				return nil, err
			}
			f.r = bufio.NewReaderSize(f.r, maxReadBuffer) // which does not copy what it reads through the smaller one
		default:
			return nil, cutOff(err, len(bytes.TrimSpace(f.buf)) > 0)
		}
	}
}

func (f *lineFraming) fits(n int) error {
	if int64(n) > f.max {
		return violation("a line of more than %d bytes, the limit of a message", f.max)
	}
	return nil
}

func (f *lineFraming) wrap(dst, msg []byte) []byte { return append(append(dst, msg...), '\n') }

// maxHeaderBlock bounds the headers of one content-length message, in bytes.
const maxHeaderBlock = 8 << 10

type contentLengthFraming struct {
	r      *bufio.Reader
	max    int64
	output func([]byte)
}

// The headers of the base protocol are Content-Length and Content-Type.
var (
	headerPrefix  = []byte("content-")
	contentLength = []byte("content-length:")
)

// next reads headers and a message. Any other line before a message is output of the program, as is what precedes
// Content-Length on its line.
func (f *contentLengthFraming) next() ([]byte, error) {
	length, total := int64(-1), 0
	for {
		line, err := f.r.ReadSlice('\n')
		if total+len(line) > maxHeaderBlock || errors.Is(err, bufio.ErrBufferFull) {
			return nil, violation("headers of more than %d bytes before a message", maxHeaderBlock)
		}
		if err != nil {
			return nil, cutOff(err, total+len(line) > 0)
		}
		line = bytes.TrimRight(line, "\r\n")
		lower := bytes.ToLower(line)
		at := bytes.LastIndex(lower, contentLength)
		switch {
		case len(line) == 0 && total == 0:
			continue // printed between two messages
		case len(line) == 0 && length < 0:
			return nil, violation("a message without Content-Length")
		case len(line) == 0:
			return readMessage(f.r, length, f.max)
		case at < 0 && !bytes.HasPrefix(lower, headerPrefix):
			f.output(line)
			continue
		}
		total += len(line)
		if at < 0 {
			continue // such as Content-Type
		}
		if at > 0 {
			f.output(line[:at])
		}
		value := bytes.TrimSpace(line[at+len(contentLength):])
		n, err := strconv.ParseUint(string(value), 10, 63)
		if err != nil || length >= 0 {
			return nil, violation("Content-Length %.40q is not one number", value)
		}
		length = int64(n)
	}
}

func (f *contentLengthFraming) wrap(dst, msg []byte) []byte {
	dst = append(dst, "Content-Length: "...)
	dst = strconv.AppendInt(dst, int64(len(msg)), 10)
	dst = append(dst, "\r\n\r\n"...)
	return append(dst, msg...)
}

type packet4Framing struct {
	r   *bufio.Reader
	max int64
}

func (f *packet4Framing) next() ([]byte, error) {
	var length [4]byte
	if n, err := io.ReadFull(f.r, length[:]); err != nil {
		return nil, cutOff(err, n > 0)
	}
	return readMessage(f.r, int64(binary.BigEndian.Uint32(length[:])), f.max)
}

func (f *packet4Framing) wrap(dst, msg []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, uint32(len(msg))), msg...)
}

// readMessage reads length bytes, and allocates memory as they arrive.
func readMessage(r io.Reader, length, limit int64) ([]byte, error) {
	if length > limit {
		return nil, violation("a message of %d bytes, the limit is %d", length, limit)
	}
	var message bytes.Buffer
	message.Grow(int(min(length, initialAlloc)) + bytes.MinRead) // or the end of the message would need more
	_, err := io.CopyN(&message, r, length)
	return message.Bytes(), cutOff(err, true)
}
