package wire

import (
	"bytes"
	"encoding/json"
	"io"
	"slices"
	"strconv"
	"sync"
)

// jsonrpc is JSON-RPC 2.0 as a client speaks it.
type jsonrpc struct {
	framing     framing
	framingName string
	o           Options

	mu sync.Mutex
	// left holds the calls that were given up with nobody to answer them, newest last: a late answer is no violation. Guarded by mu.
	abandoned []uint32
	// proofs maps the ping behind a cancel to the cancelled call. Guarded by mu, bounded by maxAbandoned.
	cancelPings map[uint32]uint32
	pinger      *pinger
}

// maxAbandoned bounds how many given-up calls are remembered.
const maxAbandoned = 1024

// NewJSONRPC starts a Conn that reads messages from r, a worker's stdout, and writes to w, its stdin, both of which the Conn
// closes in the end; r's Close must end a Read that waits. framing is one of the Framing constants.
//
// A cancelled call is told to an LSP server or Erlang port ($/cancelRequest), which still answers it. MCP servers (line) are told by
// notifications/cancelled, after which they do not answer; so a ping follows, and its answer proves that the cancel was read.
//
// Of what the server itself asks, ping and the questions in harmless (harmless.go) are answered; anything else gets "method not found".
func NewJSONRPC(r io.Reader, w io.WriteCloser, framing string, o Options) (Conn, error) {
	o = o.withDefaults()
	in, err := newFraming(framing, r, o.MaxMessage)
	if err != nil {
		return nil, err
	}
	d := &jsonrpc{framing: in, framingName: framing, o: o, cancelPings: make(map[uint32]uint32)}
	l := newConn(d, r, w, o)
	d.pinger = &l.ping
	l.start()
	return l, nil
}

func (d *jsonrpc) appendRequest(dst []byte, id uint32, r Request, _ int64) ([]byte, []byte, error) {
	return d.append(dst, id, r)
}

func (d *jsonrpc) appendNotify(dst []byte, r Request) ([]byte, []byte, error) {
	return d.append(dst, 0, r)
}

// append appends a message; id 0 makes it a notification.
func (d *jsonrpc) append(dst []byte, id uint32, r Request) ([]byte, []byte, error) {
	if len(r.Method) == 0 || len(r.Method) > MaxMethod {
		return dst, nil, ErrInvalidMethod
	}
	if int64(len(r.Payload)) > d.o.MaxMessage {
		return dst, nil, ErrTooLarge
	}
	params, err := paramsOf(r.Payload)
	if err != nil {
		return dst, nil, err
	}
	return d.framing.wrap(dst, message(id, r.Method, params)), nil, nil
}

// message puts a request together; params is JSON in one line, or empty.
func message(id uint32, method string, params []byte) []byte {
	msg := make([]byte, 0, 64+len(method)+len(params))
	msg = append(msg, `{"jsonrpc":"2.0",`...)
	if id != 0 {
		msg = append(msg, `"id":`...)
		msg = strconv.AppendUint(msg, uint64(id), 10)
		msg = append(msg, ',')
	}
	name, _ := json.Marshal(method) // a string always can be
	msg = append(append(msg, `"method":`...), name...)
	if len(params) > 0 {
		msg = append(append(msg, `,"params":`...), params...)
	}
	return append(msg, '}')
}

// paramsOf checks that payload can be params and brings it into one line; nil when it is empty or null.
func paramsOf(payload []byte) ([]byte, error) {
	payload = bytes.TrimSpace(payload)
	if len(payload) == 0 || string(payload) == "null" {
		return nil, nil
	}
	if payload[0] != '{' && payload[0] != '[' || !json.Valid(payload) {
		return nil, ErrInvalidParams
	}
	if bytes.ContainsAny(payload, "\r\n") {
		var line bytes.Buffer
		if err := json.Compact(&line, payload); err != nil {
			return nil, ErrInvalidParams
		}
		return line.Bytes(), nil
	}
	return payload, nil
}

func (d *jsonrpc) appendCancel(dst []byte, id uint32, method string) []byte {
	number := strconv.FormatUint(uint64(id), 10)
	if d.framingName != FramingLine {
		return d.framing.wrap(dst, message(0, "$/cancelRequest", []byte(`{"id":`+number+`}`)))
	}
	if method == "initialize" {
		return dst // MCP forbids to cancel it; an answer that does not come ends the Conn
	}
	dst = d.framing.wrap(dst, message(0, "notifications/cancelled", []byte(`{"requestId":`+number+`,"reason":"the caller has stopped waiting"}`)))
	d.mu.Lock()
	full := len(d.cancelPings) >= maxAbandoned
	d.mu.Unlock()
	if full {
		return dst // a server that answers calls but no ping: its answer to this one is waited for
	}
	d.pinger.mu.Lock()
	proof := d.pinger.nextCancelPingID()
	d.pinger.mu.Unlock()
	d.mu.Lock()
	d.cancelPings[proof] = id
	d.mu.Unlock()
	return d.appendPing(dst, proof)
}

func (d *jsonrpc) appendPing(dst []byte, id uint32) []byte {
	return d.framing.wrap(dst, message(id, d.o.PingMethod, nil))
}

// cancelConfirmed handles the answer to a ping behind a cancel: the server has read the cancel and owes nothing more for that call.
func (d *jsonrpc) cancelConfirmed(c *conn, proof uint32) bool {
	d.mu.Lock()
	id, due := d.cancelPings[proof]
	if due {
		delete(d.cancelPings, proof)
		if len(d.abandoned) == maxAbandoned {
			d.abandoned = slices.Delete(d.abandoned, 0, maxAbandoned/2)
		}
		d.abandoned = append(d.abandoned, id)
	}
	d.mu.Unlock()
	if due {
		c.complete(id, nil, nil) // nothing to free if the answer came all the same
	}
	return due
}

func (d *jsonrpc) wasAbandoned(id uint32) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Contains(d.abandoned, id)
}
