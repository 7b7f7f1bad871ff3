package wire

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"slices"
	"unicode/utf8"
)

// Hello is what a worker of the SDKs says about itself first.
type Hello struct {
	Protocol int      `json:"protocol"` // ProtocolVersion
	SDK      string   `json:"sdk"`      // such as "python/0.1.0"
	Methods  []string `json:"methods"`  // what it answers to
}

// hostHello is what this side says first.
type hostHello struct {
	Protocol    int   `json:"protocol"`
	MaxMessage  int64 `json:"max_message"` // bytes
	MaxInflight int   `json:"max_inflight"`
}

// frames is the dialect of docs/protocol.md.
type frames struct {
	in     io.Reader
	reader *frameReader
	socket *socketReader // where the worker may answer instead of in; nil if there is nothing but in
	reply  replyChoice
	ready  chan struct{} // closed when hello is set
	hello  Hello
}

// NewFrames starts a Conn that reads from in what the worker sends, and writes to out; they may be one and the same. The Conn owns
// both and closes them in the end. If out is another stream than in, and a non-blocking stream socket (a net.UnixConn, or a pollable
// os.File), then the worker may answer by it instead: the way of its first bytes is read, and the end of the other means nothing
// (ways.go). A Unix socket is then written through a duplicate on Linux (socket_linux.go), and out is closed as soon as it is not read.
// Such a stream, and any other that implements syscall.Conn in non-blocking mode, is written without a goroutine hand-off.
func NewFrames(in io.ReadCloser, out io.WriteCloser, o Options) (Conn, error) {
	o = o.withDefaults()
	d := &frames{in: in, reader: newFrameReader(o.MaxMessage), ready: make(chan struct{})}
	if any(in) != any(out) {
		out, d.socket = splitSocket(out)
	}
	l := newConn(d, in, out, o)
	if d.socket != nil {
		l.closers = append(l.closers, d.socket)
	}
	hello, err := json.Marshal(hostHello{Protocol: ProtocolVersion, MaxMessage: o.MaxMessage, MaxInflight: o.MaxInflight})
	if err != nil {
		return nil, err
	}
	first, err := AppendFrame(nil, Frame{Type: FrameHello, Payload: hello})
	if err != nil {
		return nil, err
	}
	l.start()
	// A worker that is gone already shows itself to the reader, with a better reason than this write's.
	l.out.send(first, nil)
	return l, nil
}

// AwaitReady waits for the worker's hello; a JSON-RPC worker says none and is ready at once. The error is ctx's, or why c broke.
func AwaitReady(ctx context.Context, c Conn) error {
	d := framesOf(c)
	if d == nil {
		return nil
	}
	select {
	case <-d.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.Done():
		return c.Err()
	}
}

// HelloOf returns what the worker said about itself; false before it did, and for JSON-RPC.
func HelloOf(c Conn) (Hello, bool) {
	d := framesOf(c)
	if d == nil {
		return Hello{}, false
	}
	select {
	case <-d.ready:
		hello := d.hello
		hello.Methods = slices.Clone(hello.Methods)
		return hello, true
	default:
		return Hello{}, false
	}
}

func framesOf(c Conn) *frames {
	if l, ok := c.(*conn); ok {
		d, _ := l.codec.(*frames)
		return d
	}
	return nil
}

func (d *frames) appendRequest(dst []byte, id uint32, r Request, timeout int64) ([]byte, []byte, error) {
	if r.Method == "" {
		return dst, nil, ErrInvalidMethod
	}
	if int64(len(r.Payload)) > d.reader.maxPayload {
		return dst, nil, ErrTooLarge
	}
	if _, given := r.Headers[timeoutHeader]; given {
		timeout = -1
	}
	head, err := appendHead(dst, FrameRequest, id, r.Method, r.Headers, timeout, len(r.Payload))
	return withPayload(head, r.Payload, err)
}

func (d *frames) appendNotify(dst []byte, r Request) ([]byte, []byte, error) {
	if r.Method == "" {
		return dst, nil, ErrInvalidMethod
	}
	if int64(len(r.Payload)) > d.reader.maxPayload {
		return dst, nil, ErrTooLarge
	}
	head, err := appendHead(dst, FrameNotify, 0, r.Method, r.Headers, -1, len(r.Payload))
	return withPayload(head, r.Payload, err)
}

// maxJoinedPayload is up to which size, in bytes, a payload is copied behind its frame's head to be written in one go.
const maxJoinedPayload = 32 << 10

func withPayload(head, payload []byte, err error) ([]byte, []byte, error) {
	if err != nil || len(payload) > maxJoinedPayload {
		return head, payload, err
	}
	return append(head, payload...), nil, nil
}

func (d *frames) appendCancel(dst []byte, id uint32, _ string) []byte {
	return appendEmptyFrame(dst, FrameCancel, id)
}

func (d *frames) appendPing(dst []byte, id uint32) []byte {
	return appendEmptyFrame(dst, FramePing, id)
}

// appendEmptyFrame appends a frame of nothing but type and id.
func appendEmptyFrame(dst []byte, t FrameType, id uint32) []byte {
	dst, _ = appendHead(dst, t, id, "", nil, -1, 0) // only a method or headers could be refused
	return dst
}

func (d *frames) read(c *conn) error {
	if d.socket != nil {
		return d.readBoth(c)
	}
	defer d.reader.release() // a Conn that has ended may be remembered for long
	return d.readFrames(c, d.in, d.reader)
}

// readFrames takes in what r has got already, and then the stream until its end.
func (d *frames) readFrames(c *conn, in io.Reader, r *frameReader) error {
	handle := func() error {
		for {
			h, rest, owned, ok, err := r.next()
			if err != nil {
				return err
			}
			if !ok {
				if c.yieldToCaller {
					// The caller who was woken most likely has the worker's next request: it goes first, then there is something to read.
					c.yieldToCaller = false
					runtime.Gosched()
				}
				return nil
			}
			if !owned && h.payload() > 0 && h.kind != FrameHello && h.kind != FrameError {
				// The payload outlives the read buffer; a method or headers in front of it are rare and small.
				rest = append([]byte(nil), rest...)
			}
			if err := d.receive(c, h, rest); err != nil {
				return err
			}
		}
	}
	if err := handle(); err != nil {
		return err
	}
	return readLoop(in, r, handle)
}

func (d *frames) receive(c *conn, h head, rest []byte) error {
	var headers map[string]string
	if h.headers > 0 {
		var err error
		if headers, err = parseHeaders(rest[h.method : h.method+h.headers]); err != nil {
			return err
		}
	}
	payload := rest[h.method+h.headers:]
	if len(payload) == 0 {
		payload = nil // never an empty slice into the read buffer, which its owner could append to
	}
	select {
	case <-d.ready:
	default:
		return d.receiveHello(h, payload)
	}
	known := true
	if headers != nil && (h.kind == FrameResponse || h.kind == FrameError) {
		if err := c.counters.addHeaders(headers); err != nil {
			return err
		}
	}
	switch h.kind {
	case FrameResponse:
		known = c.complete(h.id, &Response{Headers: headers, Payload: payload}, nil)
	case FrameChunk:
		known = c.deliverChunk(h.id, payload)
	case FrameError:
		failure, err := parseFailure(payload)
		if err != nil {
			return err
		}
		failure.Headers = headers
		known = c.complete(h.id, nil, failure)
	case FramePong:
		known = c.ping.receivePong(h.id)
	case FrameHostCall:
		if !utf8.Valid(rest[:h.method]) {
			return violation("a host call whose method is not UTF-8")
		}
		c.serveHostCall(h.id, string(rest[:h.method]), headers, payload)
	default:
		return violation("a frame of type %d, which only the host may send or only once", h.kind)
	}
	if !known {
		return violation("unsolicited: a frame of type %d for id %d, which is not in flight", h.kind, h.id)
	}
	return nil
}

func (d *frames) receiveHello(h head, payload []byte) error {
	if h.kind != FrameHello {
		return violation("a frame of type %d before the hello", h.kind)
	}
	var hello Hello
	if err := json.Unmarshal(payload, &hello); err != nil {
		return violation("a hello that is not JSON of its shape: %v", err)
	}
	if hello.Protocol != ProtocolVersion {
		return violation("the worker speaks protocol %d and this host %d: use an SDK of this release", hello.Protocol, ProtocolVersion)
	}
	d.hello = hello
	close(d.ready)
	return nil
}

func parseFailure(payload []byte) (*RemoteError, error) {
	failure := &RemoteError{}
	if err := json.Unmarshal(payload, failure); err != nil {
		return nil, violation("an error that is not JSON of its shape: %v", err)
	}
	if failure.Code == "" {
		failure.Code = CodeError
	}
	return failure, nil
}
