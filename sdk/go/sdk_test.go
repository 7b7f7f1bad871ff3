package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/process/wire"
)

// serve serves the default worker's methods to the host's end of a connection, until the test ends, which leaves none.
func serve(t *testing.T, o wire.Options) *wire.Conn {
	t.Helper()
	ours, theirs := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- newConnection(&program, theirs, theirs, Embedding{}).serve() }()
	host := wire.NewFrames(ours, ours, o)
	t.Cleanup(func() {
		program = Worker{}
		require.NoError(t, host.Close())
		select {
		case err := <-served:
			require.NoError(t, err)
		case <-time.After(time.Minute):
			require.Fail(t, "the worker serves on after the host has gone")
		}
	})
	require.NoError(t, wire.AwaitReady(t.Context(), host))
	return host
}

// answered is the text of a call that succeeds.
func answered(t *testing.T, host *wire.Conn, request wire.Request) string {
	t.Helper()
	answer, err := host.Call(t.Context(), request)
	require.NoError(t, err, "%s", request.Payload)
	return string(answer.Payload)
}

// failed is how a call fails.
func failed(t *testing.T, host *wire.Conn, request wire.Request) (failure *wire.RemoteError) {
	t.Helper()
	_, err := host.Call(t.Context(), request)
	require.ErrorAs(t, err, &failure, "%s", request.Payload)
	return failure
}

func TestAMethodTakesOneTypedArgument(t *testing.T) {
	type point struct{ X, Y int }
	Method("point", func(_ context.Context, p point) (string, error) { return fmt.Sprint(p.X, ",", p.Y), nil })
	Method("optional", func(_ context.Context, p *point) (bool, error) { return p == nil, nil })
	Method("sum", func(_ context.Context, numbers []int) (sum int, _ error) {
		for _, n := range numbers {
			sum += n
		}
		return sum, nil
	})
	Method("raw", func(_ context.Context, text json.RawMessage) (string, error) { return string(text), nil })
	host := serve(t, wire.Options{})
	for _, c := range []struct{ method, payload, want, fails string }{
		{"point", `{"X":1,"Y":2}`, `"1,2"`, ""},
		{"point", `[{"X":1,"Y":2}]`, `"1,2"`, ""},
		{"point", ``, `"0,0"`, ""},
		{"point", ` null `, `"0,0"`, ""},
		{"point", `[]`, `"0,0"`, ""},
		{"point", `[1,2]`, ``, "point takes one argument, not 2"},
		{"point", `{"X":"one"}`, ``, "the payload does not fit"},
		{"point", `{`, ``, "the payload does not fit"},
		{"optional", ``, `true`, ""},
		{"optional", `{}`, `false`, ""},
		{"sum", `[1,2,3]`, `6`, ""},
		{"raw", `[1, 2]`, `"[1, 2]"`, ""},
	} {
		request := wire.Request{Method: c.method, Payload: []byte(c.payload)}
		if c.fails == "" {
			require.Equal(t, c.want, answered(t, host, request), c.payload)
			continue
		}
		failure := failed(t, host, request)
		require.Equal(t, wire.CodeInvalidParams, failure.Code, c.payload)
		require.Contains(t, failure.Message, c.fails)
	}
}

func TestAPanicIsAnErrorAfterWhichTheProcessIsReplaced(t *testing.T) {
	Method("index", func(_ context.Context, n int) (int, error) { return []int{1}[n], nil })
	host := serve(t, wire.Options{})
	failure := failed(t, host, wire.Request{Method: "index", Payload: []byte("7")})
	require.True(t, failure.Fatal)
	require.Equal(t, "panic", failure.Type)
	require.Contains(t, failure.Message, "index out of range")
	require.Contains(t, failure.Traceback, "sdk_test.go")
}

// unencodable panics when it is encoded.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { panic("no text") }

func TestAnErrorThatPanicsEndsNothing(t *testing.T) {
	Method("nil", func(context.Context, any) (any, error) {
		var failure *Error
		return nil, failure
	})
	Method("data", func(context.Context, any) (any, error) {
		return nil, &Error{Message: "broken", Data: unencodable{}}
	})
	host := serve(t, wire.Options{})
	require.True(t, failed(t, host, wire.Request{Method: "nil"}).Fatal, "it is a panic")
	require.Equal(t, "broken", failed(t, host, wire.Request{Method: "data"}).Message)
}

func TestAStreamThatHasReturnedSendsNothing(t *testing.T) {
	sends := make(chan func(int) error, 1)
	Stream("early", func(_ context.Context, _ any, send func(int) error) error {
		sends <- send
		return send(1)
	})
	host := serve(t, wire.Options{})
	require.Equal(t, "1\n", answered(t, host, wire.Request{Method: "early"}))
	require.ErrorIs(t, (<-sends)(2), errOver)
	answered(t, host, wire.Request{Method: "early"})
}

func TestALongErrorIsCutAndDelivered(t *testing.T) {
	Method("fail", func(context.Context, any) (any, error) {
		return nil, &Error{Message: strings.Repeat("ü", 100_000), Code: "long", Data: strings.Repeat("x", 100_000)}
	})
	host := serve(t, wire.Options{})
	failure := failed(t, host, wire.Request{Method: "fail"})
	require.Equal(t, "long", failure.Code)
	require.Len(t, []rune(failure.Message), maxMessageText)
}

func TestAContextEndsWhenTheCallerCancelsAndKnowsTheDeadline(t *testing.T) {
	left := make(chan time.Duration, 1)
	ended := make(chan error, 1)
	Method("wait", func(ctx context.Context, _ any) (any, error) {
		deadline, has := ctx.Deadline()
		require.True(t, has)
		left <- time.Until(deadline)
		<-ctx.Done()
		ended <- context.Cause(ctx)
		return nil, ctx.Err()
	})
	Stream("endless", func(ctx context.Context, _ any, send func(int) error) error {
		for {
			if err := send(1); err != nil {
				ended <- err
				return err
			}
		}
	})
	host := serve(t, wire.Options{MaxInflight: 2})
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	go func() {
		require.InDelta(t, time.Hour, <-left, float64(time.Minute))
		cancel()
	}()
	_, err := host.Call(ctx, wire.Request{Method: "wait"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, <-ended, errCancelled)

	pieces := 0
	_, err = wire.Prepare(t.Context(), wire.Request{Method: "endless"}, nil).Do(host,
		func([]byte, string) error {
			if pieces++; pieces == 3 {
				return errors.New("enough")
			}
			return nil
		})
	require.ErrorContains(t, err, "enough")
	require.ErrorIs(t, <-ended, errCancelled)
	require.NoError(t, host.Err(), "the connection serves on")
}

func TestTooLargeIsAnErrorAndNoViolation(t *testing.T) {
	Raw("echo", func(_ context.Context, body []byte) ([]byte, error) { return append(body, '!'), nil })
	host := serve(t, wire.Options{MaxMessage: 1000})
	echo := func(n int) wire.Request { return wire.Request{Method: "echo", Payload: make([]byte, n)} }
	require.Equal(t, wire.CodeTooLarge, failed(t, host, echo(1000)).Code)
	require.Len(t, answered(t, host, echo(999)), 1000)
}

func TestTheHooksOfASuspensionTakeNoArguments(t *testing.T) {
	var seen []string
	OnSuspend(func(context.Context) error { seen = append(seen, "suspend"); return nil })
	OnResume(func(context.Context) error { seen = append(seen, "resume"); return errors.New("the model is gone") })
	host := serve(t, wire.Options{})
	hello, known := wire.HelloOf(host)
	require.True(t, known)
	require.ElementsMatch(t, []string{"worker.suspend", "worker.resume"}, hello.Methods)
	answered(t, host, wire.Request{Method: "worker.suspend", Payload: []byte("[]")})
	failure := failed(t, host, wire.Request{Method: "worker.resume", Payload: []byte("[]")})
	require.ErrorContains(t, failure, "the model is gone")
	require.Equal(t, []string{"suspend", "resume"}, seen)
}

func TestMistakesOfTheProgramPanicAtOnce(t *testing.T) {
	t.Cleanup(func() { program = Worker{} })
	Raw("echo", nil)
	require.Panics(t, func() { Raw("echo", nil) }, "twice")
	require.Panics(t, func() { Raw("", nil) })
	require.Panics(t, func() { Raw(strings.Repeat("x", wire.MaxMethod+1), nil) })
	require.Panics(t, func() { FromContext(t.Context()) })
}

func TestOutsideOfACallNamesAreEmpty(t *testing.T) {
	t.Setenv("TEMPOOL_INCARNATION", "host:go/0:17:cookie")
	t.Setenv("TEMPOOL_WORKER", "go/0")
	require.EqualValues(t, 17, Incarnation())
	require.Equal(t, "go/0", Name())
	t.Setenv("TEMPOOL_INCARNATION", "nonsense")
	require.Zero(t, Incarnation())
}

func TestOnlyErrorsThatTheProgramDoesNotRaiseOnPurposeAreUnhandled(t *testing.T) {
	failures := map[string]error{
		"coded": Errorf("nope", "no"), "wrapped": fmt.Errorf("wrapped: %w", Errorf("nope", "no")),
		"fatal": Fatalf("the GPU is gone"), "host": ErrConflict, "plain": errors.New("no"),
	}
	for name, failure := range failures {
		Method(name, func(context.Context, any) (any, error) { return nil, failure })
	}
	Method("panic", func(context.Context, any) (any, error) { panic("no") })
	Method("unencodable", func(context.Context, any) (any, error) { return func() {}, nil })
	host := serve(t, wire.Options{})
	for name, want := range map[string]bool{
		"coded": false, "wrapped": false, "fatal": false, "host": false, "missing": false, "plain": true, "panic": true,
		"unencodable": true,
	} {
		require.Equal(t, want, failed(t, host, wire.Request{Method: name}).Unhandled, name)
	}
}

// A host call ends with its connection, and so does one that a goroutine makes after that.
func TestAHostCallEndsWithItsConnection(t *testing.T) {
	ended, asked := make(chan error, 2), make(chan struct{})
	Method("ask", func(ctx context.Context, _ any) (any, error) {
		err := FromContext(ctx).Host(ctx, "session.get", nil, nil)
		ended <- err
		err = FromContext(ctx).Host(context.Background(), "session.get", nil, nil)
		ended <- err
		return nil, err
	})
	over := make(chan struct{})
	late := func(context.Context, string, map[string]string, []byte) ([]byte, error) { // no answer before the end
		close(asked)
		<-over
		return nil, nil
	}
	host := serve(t, wire.Options{HostCall: late})
	go func() { <-asked; _ = host.Close() }()
	_, _ = host.Call(t.Context(), wire.Request{Method: "ask"})
	require.ErrorIs(t, <-ended, errClosed)
	require.ErrorIs(t, <-ended, errClosed)
	close(over)
}
