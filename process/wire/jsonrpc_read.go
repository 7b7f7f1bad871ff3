package wire

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"strconv"
)

// rpcMessage is any message of a server; its members determine its kind.
type rpcMessage struct {
	Version string          `json:"jsonrpc"`
	ID      json.RawMessage `json:"id"`
	Method  *string         `json:"method"`
	Params  json.RawMessage `json:"params"`
	Result  json.RawMessage `json:"result"`
	Error   json.RawMessage `json:"error"`
}

type rpcError struct {
	Code    json.Number     `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (d *jsonrpc) read(c *Conn) error {
	for {
		raw, err := d.framing.next()
		if errors.Is(err, os.ErrDeadlineExceeded) && d.framing.midMessage() {
			return errMidMessage
		}
		if err != nil {
			return err
		}
		if err := d.receive(c, raw); err != nil {
			return err
		}
	}
}

func (d *jsonrpc) receive(c *Conn, raw []byte) error {
	var m rpcMessage
	if err := json.Unmarshal(raw, &m); err != nil || len(bytes.TrimSpace(raw)) == 0 || bytes.TrimSpace(raw)[0] != '{' {
		return violation("%.80q is not a JSON-RPC message; print to stderr, since stdout is for the protocol", raw)
	}
	if m.Version == "" && m.Method == nil && m.ID == nil && d.framingName == FramingLine {
		d.o.output(raw) // such as a structured log line
		return nil
	}
	if m.Version != "2.0" {
		return violation("a message of JSON-RPC version %.20q instead of 2.0", m.Version)
	}
	switch {
	case m.Method != nil && (m.ID == nil || string(m.ID) == "null"):
		return nil // a notification, which some servers send with the id null
	case m.Method != nil:
		return d.answerRequest(c, m.ID, *m.Method, m.Params)
	case m.ID == nil:
		return violation("a message with neither method nor id")
	}
	return d.receiveResponse(c, m)
}

// receiveResponse matches a response with its request.
func (d *jsonrpc) receiveResponse(c *Conn, m rpcMessage) error {
	var failure *RemoteError
	if m.Error != nil && string(m.Error) != "null" {
		var e rpcError
		if err := json.Unmarshal(m.Error, &e); err != nil {
			return violation("an invalid error: %v", err)
		}
		failure = &RemoteError{Code: e.Code.String(), Message: e.Message, Data: e.Data,
			Unhandled: e.Code.String() == codeInternalError}
	} else if m.Result == nil {
		return violation("a response with neither result nor error")
	}
	id, err := strconv.ParseUint(string(m.ID), 10, 32)
	if err != nil || id == 0 || id > math.MaxInt32 {
		if failure != nil {
			return violation("an error for no request (id %.40s): %s", m.ID, failure.Message)
		}
		return violation("unsolicited: a response with id %.40s", m.ID)
	}
	known := false
	switch {
	case id >= firstPingID:
		known = c.ping.receive(uint32(id), nil) // an error such as "method not found" is a pong, too
	case failure != nil:
		known = c.complete(uint32(id), Response{}, failure)
	default:
		known = c.complete(uint32(id), Response{Payload: m.Result}, nil)
	}
	if !known {
		return violation("unsolicited: a response with id %d, which is not in flight", id)
	}
	return nil
}
