package sdk

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/tempool/tempool/process/wire"
)

// Method makes fn callable under a name by the pool's clients. The payload is JSON. Without one, params is P's zero
// value; of an array of arguments it is the only one, unless P is a slice or an array, which takes them all. A payload
// that does not fit is answered with the code invalid_params. The result is sent as JSON.
func Method[P, R any](name string, fn func(ctx context.Context, params P) (R, error)) {
	AddMethod(&program, name, fn)
}

// AddMethod is Method for a Worker of your own.
func AddMethod[P, R any](w *Worker, name string, fn func(ctx context.Context, params P) (R, error)) {
	w.add(name, func(ctx context.Context, body []byte, _ func([]byte) error) ([]byte, error) {
		params, err := decode[P](name, body)
		if err != nil {
			return nil, err
		}
		result, err := fn(ctx, params)
		if err != nil {
			return nil, err
		}
		return json.Marshal(result)
	})
}

// Stream is Method with a stream of values instead of a result: each is sent as JSON and a newline. send fails once the
// call has been cancelled.
func Stream[P, V any](name string, fn func(ctx context.Context, params P, send func(V) error) error) {
	AddStream(&program, name, fn)
}

// AddStream is Stream for a Worker of your own.
func AddStream[P, V any](w *Worker, name string, fn func(ctx context.Context, params P, send func(V) error) error) {
	w.add(name, func(ctx context.Context, body []byte, send func([]byte) error) ([]byte, error) {
		params, err := decode[P](name, body)
		if err != nil {
			return nil, err
		}
		FromContext(ctx).sendsLines = true
		return nil, fn(ctx, params, func(value V) error {
			line, err := json.Marshal(value)
			if err != nil {
				return fmt.Errorf("encode a value of the stream: %w", err)
			}
			return send(append(line, '\n'))
		})
	})
}

// Raw makes fn callable with the bytes of the payload. It may keep body.
func Raw(name string, fn func(ctx context.Context, body []byte) ([]byte, error)) {
	program.add(name, func(ctx context.Context, body []byte,
		_ func([]byte) error) ([]byte, error) {
		return fn(ctx, body)
	})
}

// RawStream is Raw with a stream of pieces instead of a result. send fails once the call has been cancelled.
func RawStream(name string, fn func(ctx context.Context, body []byte, send func([]byte) error) error) {
	program.add(name, func(ctx context.Context, body []byte, send func([]byte) error) ([]byte, error) {
		return nil, fn(ctx, body, send)
	})
}

// decode decodes the one argument of a method.
func decode[P any](name string, body []byte) (params P, err error) {
	body = bytes.TrimSpace(body)
	if len(body) == 0 || bytes.Equal(body, []byte("null")) {
		return params, nil
	}
	// a slice takes all arguments, and so does json.RawMessage
	if kind := reflect.TypeFor[P]().Kind(); body[0] == '[' && kind != reflect.Slice && kind != reflect.Array {
		var items []json.RawMessage
		if err := json.Unmarshal(body, &items); err != nil {
			return params, Errorf(wire.CodeInvalidParams, "%s: invalid JSON in the payload: %v", name, err)
		}
		switch len(items) {
		case 0:
			return params, nil
		case 1:
			body = items[0]
		default:
			return params, Errorf(wire.CodeInvalidParams, "%s takes one argument, not %d", name, len(items))
		}
	}
	if err := json.Unmarshal(body, &params); err != nil {
		return params, Errorf(wire.CodeInvalidParams, "%s: the payload does not fit: %v", name, err)
	}
	return params, nil
}
