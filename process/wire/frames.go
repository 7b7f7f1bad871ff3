package wire

import (
	"context"
	"encoding/json"
	"io"
	"runtime"
	"slices"
	"unicode/utf8"
)

// Hello is the first frame of a worker.
type Hello struct {
	Protocol int      `json:"protocol"` // ProtocolVersion
	SDK      string   `json:"sdk"`      // such as "python/0.1.0"
	Methods  []string `json:"methods"`  // that it serves
}

// hostHello is the first frame of the host.
type hostHello struct {
	Protocol    int   `json:"protocol"`
	MaxMessage  int64 `json:"max_message"` // bytes
	MaxInflight int   `json:"max_inflight"`
}

// frames is the codec of docs/protocol.md.
type frames struct {
	max   int64         // bytes of a payload
	ready chan struct{} // closed when hello is set
	hello Hello         // until then used by the reader only
}

// NewFrames starts a Conn that reads from in and writes to out, which may be the same stream. The Conn owns and closes
// both. If out implements syscall.Conn in non-blocking mode, the Conn writes to a duplicate without handing over to
// another goroutine (unpolled.go), and closes out at once unless it is in.
func NewFrames(in io.ReadCloser, out io.WriteCloser, o Options) *Conn {
	o = o.withDefaults()
	c := newConn(&frames{max: o.MaxMessage, ready: make(chan struct{})}, in, out, State{}, o)
	hello, _ := json.Marshal(hostHello{ProtocolVersion, o.MaxMessage, o.MaxInflight}) // numbers never fail
	first, _ := AppendFrame(nil, Frame{Type: FrameHello, Payload: hello})             // only a method or headers fail
	// If the worker is gone already, the reader fails with a better error than this write.
	c.out.send(first, nil)
	return c
}

// AwaitReady waits for the worker's hello; a JSON-RPC worker has none and is ready at once. It fails with ctx's error
// or that of c.
func AwaitReady(ctx context.Context, c *Conn) error {
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

// HelloOf returns the worker's hello; false before it arrived, and for JSON-RPC.
func HelloOf(c *Conn) (Hello, bool) {
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

// framesOf returns nil for JSON-RPC.
func framesOf(c *Conn) *frames {
	d, _ := c.codec.(*frames)
	return d
}

// maxJoinedPayload is the size in bytes up to which a payload is copied behind its head for a single write.
const maxJoinedPayload = 32 << 10

func (d *frames) encode(dst []byte, id uint32, r Request, timeout int64) (head, body []byte, err error) {
	f := Frame{Type: FrameRequest, ID: id, Method: r.Method, Headers: r.Headers, Payload: r.Payload}
	if id == 0 {
		f.Type = FrameNotify
	}
	if f.Method == "" {
		return dst, nil, ErrInvalidMethod
	}
	if int64(len(f.Payload)) > d.max {
		return dst, nil, ErrTooLarge
	}
	if _, given := r.Headers[timeoutHeader]; given {
		timeout = -1
	}
	head, err = appendHead(dst, f, r.Trace, timeout)
	if err != nil || len(f.Payload) > maxJoinedPayload {
		return head, f.Payload, err
	}
	return append(head, f.Payload...), nil, nil
}

func (d *frames) cancel(id uint32, _ string) (now, late []byte) {
	return appendEmptyFrame(nil, FrameCancel, id), nil
}

func (d *frames) appendPing(dst []byte, id uint32) []byte {
	return appendEmptyFrame(dst, FramePing, id)
}

// appendEmptyFrame appends a frame of type and id only.
func appendEmptyFrame(dst []byte, t FrameType, id uint32) []byte {
	dst, _ = appendHead(dst, Frame{Type: t, ID: id}, Trace{}, -1) // only a method or headers can be invalid
	return dst
}

func (d *frames) read(c *Conn) error {
	r := newFrameReader(c.in, d.max)
	for {
		h, rest, owned, err := r.next()
		if err != nil {
			return err
		}
		if !owned && h.payload() > 0 && h.kind != FrameHello && h.kind != FrameError {
			// The payload outlives the read buffer. Copying the method and headers too is cheap: they are rare and small.
			rest = append([]byte(nil), rest...)
		}
		if err := d.receive(c, h, rest); err != nil {
			return err
		}
		if c.yieldToCaller && r.Buffered() == 0 {
			// The caller that was just woken most likely sends the worker's next request: let it run before the next read.
			c.yieldToCaller = false
			runtime.Gosched()
		}
	}
}

// maxContentType bounds the content type of a stream.
const maxContentType = 256

func (d *frames) receive(c *Conn, h head, rest []byte) error {
	var headers map[string]string
	if h.headers > 0 {
		var err error
		if headers, err = parseHeaders(rest[h.method : h.method+h.headers]); err != nil {
			return err
		}
	}
	payload := rest[h.method+h.headers:]
	if len(payload) == 0 {
		payload = nil // its owner could append to an empty slice of the read buffer
	}
	if d.hello.Protocol == 0 {
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
		known = c.complete(h.id, Response{Headers: headers, Payload: payload}, nil)
	case FrameChunk:
		kind := headers["content-type"]
		if len(kind) > maxContentType {
			kind = ""
		}
		known = c.deliverChunk(h.id, event{data: payload, isChunk: true, kind: kind})
	case FrameError:
		failure, err := parseFailure(payload)
		if err != nil {
			return err
		}
		if h.id >= firstPingID {
			known = c.receivePong(h.id, failure)
			break
		}
		if failure.NotBegun {
			known = c.complete(h.id, Response{}, &CallError{Err: ErrNotBegun})
			break
		}
		known = c.complete(h.id, Response{}, failure)
		if known && failure.Unhandled && failure.Traceback != "" && c.o.OnException != nil {
			c.o.OnException(failure)
		}
	case FramePong:
		known = c.receivePong(h.id, nil)
	case FrameNotify:
		return c.notified(string(rest[:h.method]), payload)
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
		return violation("an invalid hello: %v", err)
	}
	if hello.Protocol != ProtocolVersion {
		return violation("the worker has protocol version %d, this host %d; use an SDK of this release", hello.Protocol,
			ProtocolVersion)
	}
	d.hello = hello
	close(d.ready)
	return nil
}

func parseFailure(payload []byte) (*RemoteError, error) {
	failure := &RemoteError{}
	if err := json.Unmarshal(payload, failure); err != nil {
		return nil, violation("an invalid error frame: %v", err)
	}
	if failure.Code == "" {
		failure.Code = CodeError
	}
	return failure, nil
}
