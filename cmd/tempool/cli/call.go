package cli

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
)

// callResult is the result of tempool call.
type callResult struct {
	Worker      string  `json:"worker"`
	Incarnation int64   `json:"incarnation"`
	Endpoint    string  `json:"endpoint"`
	TookMS      float64 `json:"took_ms"`
	// One of these is set: Result for a JSON answer, Text for other text, Base64 for other bytes.
	Result json.RawMessage `json:"result,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 *string         `json:"base64,omitempty"`
}

func (r *callResult) setBody(answer []byte) {
	switch {
	case json.Valid(answer):
		r.Result = answer
	case utf8.Valid(answer):
		r.Text = new(string(answer))
	default:
		r.Base64 = new(base64.StdEncoding.EncodeToString(answer))
	}
}

func (a *app) callCommand() *cobra.Command {
	options := tempool.CallOptions{Header: http.Header{"Content-Type": {"application/json"}}}
	c := &cobra.Command{
		Use:   "call POOL[/N] METHOD [BODY|-]",
		Short: "Call a method on a pool or one of its workers",
		Long: `Call a method on a free worker of a pool, or on its worker N, and print the answer as it arrives.

BODY is the request body, usually JSON; - reads it from standard input; without BODY the request is empty. With -o json
tempool prints the complete answer in an object that also names the worker: as result if the answer is JSON, else as
text or base64.`,
		Example: `  tempool call hello greet '{"name": "you"}'
  tempool call hello/0 status
  cat request.json | tempool call hello greet -
  tempool call hello status --gateway http://127.0.0.1:7460
  tempool call hello status --session anna --timeout 5m -o json | jq .worker`,
	}
	f := c.Flags()
	f.StringVar(&options.Session, "session", "", "session of the call; prefers the worker that served the session last")
	f.StringVar(&options.Key, "key", "", "whose call it is, for a pool with isolation.by = \"key\"")
	rangeVar(c, &options.Priority, "priority", 0, 0, 9, "priority in the queue, 0 to 9, highest first")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long a call may take, including the wait for a worker")
	return a.gatewayCommand(c, func(ctx context.Context, p *tempool.Pool, args []string) error {
		var body any
		switch {
		case len(args) == 3 && args[2] == "-":
			body = a.in
		case len(args) == 3:
			body = []byte(args[2])
		}
		var result callResult
		options.Timeout = a.timeout
		options.Answered = func(answer tempool.Answer) {
			result.Worker, result.Incarnation, result.Endpoint = answer.Worker, answer.Incarnation, answer.Endpoint
		}
		_, slot, _ := poolOrWorker(args[0]) // checkArguments has parsed it
		started := a.now()
		var buffer bytes.Buffer
		out := a.out
		if a.format == formatJSON {
			out = &buffer
		}
		endsLine := true
		stream := p.With(options).Stream
		if slot != nil {
			stream = p.With(options).Worker(*slot).Stream
		}
		for chunk, err := range stream(ctx, args[1], body) {
			if err != nil {
				return err
			}
			if _, err := out.Write(chunk); err != nil {
				return err
			}
			endsLine = bytes.HasSuffix(chunk, []byte("\n"))
		}
		if a.format == formatJSON {
			result.TookMS = float64(a.now().Sub(started).Microseconds()) / 1000
			result.setBody(buffer.Bytes())
			return writeJSON(a.out, result)
		}
		if a.outTerminal && !endsLine { // the prompt starts on a new line
			_, err := io.WriteString(a.out, "\n")
			return err
		}
		return nil
	})
}
