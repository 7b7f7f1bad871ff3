package tempool

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
)

const (
	// maxWhole is the largest answer that Call and CallRaw hold in memory, in bytes; Stream has no such bound.
	maxWhole = 1 << 30
	// trustedLength is up to which size memory is taken for an answer before it has come.
	trustedLength = 1 << 20
	// answerSlack is how much longer than CallOptions.Timeout a caller waits, for the gateway to say that it was exceeded.
	answerSlack = 5 * time.Second
	// maxTimeout is the longest a gateway lets a call ask for.
	maxTimeout = 24 * time.Hour
	// pieceSize bounds one piece of a streamed answer, in bytes.
	pieceSize = 32 << 10
)

// sender makes one call and returns its answer, which is to be closed.
type sender func(ctx context.Context, method string, body payload) (*reply, error)

// payload is the body of a call: nothing, bytes that can be sent again, or a reader that cannot once it was read from.
type payload struct {
	kind   string // Content-Type
	bytes  []byte
	reader *reading
}

// reading notes whether somebody has read.
type reading struct {
	io.Reader
	begun atomic.Bool
}

func (r *reading) Read(p []byte) (int, error) {
	r.begun.Store(true)
	return r.Reader.Read(p)
}

func (p payload) consumed() bool { return p.reader != nil && p.reader.begun.Load() }

func (p payload) body() io.Reader {
	switch {
	case p.reader != nil:
		return io.NopCloser(p.reader)
	case len(p.bytes) == 0:
		return nil
	}
	return bytes.NewReader(p.bytes)
}

func jsonPayload(in any) (payload, error) {
	if in == nil {
		return payload{}, nil
	}
	text, err := json.Marshal(in)
	if err != nil {
		return payload{}, api.Errorf(api.CodeInvalid, "the parameters cannot be written as JSON: %w", err)
	}
	return payload{kind: "application/json", bytes: text}, nil
}

func anyPayload(in any) (payload, error) {
	switch in := in.(type) {
	case []byte:
		return payload{bytes: in}, nil
	case io.Reader:
		return payload{reader: &reading{Reader: in}}, nil
	}
	return jsonPayload(in)
}

// methodPath is the path of a call; a method may hold slashes.
func methodPath(prefix, method string) (string, error) {
	if method == "" {
		return "", api.Errorf(api.CodeInvalid, "a call needs the name of a method")
	}
	parts := strings.Split(method, "/")
	for i := range parts {
		parts[i] = url.PathEscape(parts[i])
	}
	return prefix + strings.Join(parts, "/"), nil
}

// reply is the answer to a call, whose body is still to be read.
type reply struct {
	*http.Response
	ctx  context.Context
	stop context.CancelFunc
	left func() // what is to be done when the answer is over; may be nil
}

// Close ends the call, also in mid-answer.
func (r *reply) Close() error {
	r.stop()
	err := r.Body.Close()
	if r.left != nil {
		r.left()
	}
	return err
}

// exchange makes a call through one gateway.
func (c *Client) exchange(ctx context.Context, endpoint, path string, o CallOptions, body payload) (*reply, error) {
	header, err := callHeader(ctx, o, body)
	if err != nil {
		return nil, err
	}
	var stop context.CancelFunc
	if o.Timeout > 0 {
		ctx, stop = context.WithTimeout(ctx, o.Timeout+answerSlack)
	} else {
		ctx, stop = context.WithCancel(ctx)
	}
	response, err := c.transport.do(ctx, endpoint, http.MethodPost, path, header, body.body())
	if err != nil {
		stop()
		return nil, err
	}
	if o.Answered != nil {
		// Not every answer names an incarnation; 0 is none.
		incarnation, _ := strconv.ParseInt(response.Header.Get(headerIncarnation), 10, 64)
		o.Answered(Answer{response.Header.Get(headerWorker), incarnation, endpoint, response.Header})
	}
	return &reply{Response: response, ctx: ctx, stop: stop}, nil
}

func callHeader(ctx context.Context, o CallOptions, body payload) (http.Header, error) {
	header := o.Header.Clone()
	if header == nil {
		header = http.Header{}
	}
	if body.kind != "" && header.Get("Content-Type") == "" {
		header.Set("Content-Type", body.kind)
	}
	if o.Session != "" {
		header.Set(headerSession, o.Session)
	}
	if o.Priority != 0 {
		header.Set(headerPriority, strconv.Itoa(o.Priority))
	}
	timeout := o.Timeout
	if deadline, has := ctx.Deadline(); has {
		left := time.Until(deadline)
		if left <= 0 {
			return nil, transportError(ctx, context.DeadlineExceeded, "the call's time was over before it could begin", false)
		}
		if timeout <= 0 || left < timeout {
			timeout = left
		}
	}
	if timeout > 0 {
		header.Set(headerTimeout, strconv.FormatInt(max(1, min(timeout, maxTimeout).Milliseconds()), 10))
	}
	return header, nil
}

// callJSON makes a call whose parameters and answer are JSON.
func callJSON(ctx context.Context, send sender, method string, in, out any) error {
	body, err := jsonPayload(in)
	if err != nil {
		return err
	}
	text, err := readAll(send(ctx, method, body))
	if err != nil || out == nil {
		return err
	}
	if err := json.Unmarshal(text, out); err != nil {
		failure := api.Errorf(api.CodeWorkerError, "the answer to %s is not the JSON expected: %w", method, err)
		failure.Started = true
		return failure
	}
	return nil
}

func callRaw(ctx context.Context, send sender, method string, body []byte) ([]byte, error) {
	return readAll(send(ctx, method, payload{bytes: body}))
}

// readAll reads all of an answer.
func readAll(r *reply, err error) ([]byte, error) {
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if n := r.ContentLength; n >= 0 && n <= trustedLength {
		text := make([]byte, n)
		if _, err := io.ReadFull(r.Body, text); err != nil {
			return nil, r.broken(err)
		}
		return text, nil
	}
	text, err := io.ReadAll(io.LimitReader(r.Body, maxWhole+1))
	switch {
	case err != nil:
		return nil, r.broken(err)
	case len(text) > maxWhole:
		failure := api.Errorf(api.CodePayloadTooLarge, "the answer is larger than %d bytes; take it by Stream", maxWhole)
		failure.Started = true
		return nil, failure
	}
	return text, nil
}

// broken is the failure of an answer that did not come to its end.
func (r *reply) broken(err error) error {
	return transportError(r.ctx, err, "the answer broke off; its worker or its gateway ended", true)
}

// stream hands an answer on piece by piece.
func stream(ctx context.Context, send sender, method string, in any) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		body, err := anyPayload(in)
		if err != nil {
			yield(nil, err)
			return
		}
		r, err := send(ctx, method, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.Close()
		buffer := make([]byte, pieceSize)
		for {
			n, err := r.Body.Read(buffer)
			if n > 0 && !yield(bytes.Clone(buffer[:n]), nil) {
				return
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, r.broken(err))
				return
			}
		}
	}
}
