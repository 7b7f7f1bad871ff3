package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// waitTimeout bounds every wait of these tests; nothing here takes that long unless it is broken.
const waitTimeout = 2 * time.Minute

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
	t.Cleanup(cancel)
	return ctx
}

// rpcServer is the other end of a JSON-RPC Conn, driven by the test: it reads what the client sent, and writes what it
// likes.
type rpcServer struct {
	t   testing.TB
	in  framing
	out *os.File
}

func newRPC(t testing.TB, kind string, o Options) (*Conn, *rpcServer) {
	clientReads, serverWrites, err := os.Pipe()
	require.NoError(t, err)
	serverReads, clientWrites, err := os.Pipe()
	require.NoError(t, err)
	c, err := NewJSONRPC(clientReads, clientWrites, kind, o)
	require.NoError(t, err)
	in, err := newFraming(kind, serverReads, Options{}.withDefaults())
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, c.Close())
		serverWrites.Close()
		serverReads.Close()
	})
	return c, &rpcServer{t: t, in: in, out: serverWrites}
}

type rpcAsk struct {
	ID     json.Number     `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *rpcError       `json:"error"`
}

func (s *rpcServer) read() rpcAsk {
	raw, err := s.in.next()
	require.NoError(s.t, err)
	var ask rpcAsk
	require.NoError(s.t, json.Unmarshal(raw, &ask))
	return ask
}

func (s *rpcServer) write(format string, args ...any) {
	require.NoError(s.t, errorOf(s.out.Write(s.in.wrap(nil, fmt.Appendf(nil, format, args...)))))
}

// leave makes a call whose caller leaves once the server has it, and returns that request.
func (s *rpcServer) leave(c *Conn, method string) rpcAsk {
	ctx, cancel := context.WithCancel(within(s.t))
	done := callAsync(ctx, c, Request{Method: method})
	ask := s.read()
	cancel()
	require.ErrorIs(s.t, await(s.t, done).err, context.Canceled)
	return ask
}

type outcome struct {
	resp Response
	err  error
}

func callAsync(ctx context.Context, c *Conn, r Request) <-chan outcome {
	return background(func() outcome {
		resp, err := c.Call(ctx, r)
		return outcome{resp, err}
	})
}

// requireAnswer waits for the end of a call, and requires that it has this answer.
func requireAnswer(t *testing.T, done <-chan outcome, want string) {
	t.Helper()
	got := await(t, done)
	require.NoError(t, got.err)
	require.Equal(t, want, string(got.resp.Payload))
}

// requireStarted requires that a call failed, and says whether the worker may have started it.
func requireStarted(t *testing.T, started bool, err error, why ...any) {
	t.Helper()
	var failed *CallError
	require.ErrorAs(t, err, &failed)
	require.Equal(t, started, failed.Started, why...)
}

var framings = []string{FramingLine, FramingContentLength, FramingPacket4}

func TestJSONRPCCallsInEveryFraming(t *testing.T) {
	for _, kind := range framings {
		t.Run(kind, func(t *testing.T) {
			c, server := newRPC(t, kind, Options{})
			require.NoError(t, AwaitReady(within(t), c))
			done := callAsync(within(t), c, Request{Method: "tools/call", Payload: []byte("{\n \"name\": \"x\\n\"\n}")})
			ask := server.read()
			require.Equal(t, "tools/call", ask.Method)
			require.JSONEq(t, `{"name":"x\n"}`, string(ask.Params))
			server.write(`{"jsonrpc":"2.0","id":%s,"result":{"ok":true}}`, ask.ID)
			requireAnswer(t, done, `{"ok":true}`)
			require.Zero(t, c.InFlight())

			done = callAsync(within(t), c, Request{Method: "shutdown"})
			ask = server.read()
			require.Empty(t, ask.Params)
			server.write(`{"jsonrpc":"2.0","id":%s,"result":null}`, ask.ID)
			requireAnswer(t, done, "null")

			done = callAsync(within(t), c, Request{Method: "fail"})
			server.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32000,"message":"no","data":{"why":1}}}`, server.read().ID)
			var failure *RemoteError
			require.ErrorAs(t, await(t, done).err, &failure)
			require.Equal(t, RemoteError{Code: "-32000", Message: "no", Data: json.RawMessage(`{"why":1}`)}, *failure)

			done = callAsync(within(t), c, Request{Method: "throw"})
			server.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"TypeError"}}`, server.read().ID)
			require.ErrorAs(t, await(t, done).err, &failure)
			require.Equal(t, RemoteError{Code: "-32603", Message: "TypeError", Unhandled: true}, *failure)

			require.NoError(t, c.Notify(within(t), Request{Method: "notifications/initialized"}))
			ask = server.read()
			require.Equal(t, "notifications/initialized", ask.Method)
			require.Empty(t, ask.ID)
		})
	}
}

func TestJSONRPCPingAcceptsAnyResponse(t *testing.T) {
	for _, answer := range []string{`"result":{}`, `"error":{"code":-32601,"message":"method not found"}`} {
		c, server := newRPC(t, FramingLine, Options{PingMethod: "$/alive"})
		done := background(func() error { return c.Ping(within(t)) })
		ask := server.read()
		require.Equal(t, "$/alive", ask.Method)
		server.write(`{"jsonrpc":"2.0","id":%s,%s}`, ask.ID, answer)
		require.NoError(t, await(t, done))
	}
}

func TestJSONRPCRejectsInvalidParams(t *testing.T) {
	c, _ := newRPC(t, FramingLine, Options{MaxMessage: 10})
	for _, tc := range []struct {
		method, payload string
		want            error
	}{
		{"m", `5`, ErrInvalidParams}, {"m", `{"a":`, ErrInvalidParams}, {"m", `"text"`, ErrInvalidParams},
		{"", `{}`, ErrInvalidMethod}, {strings.Repeat("m", MaxMethod+1), `{}`, ErrInvalidMethod},
		{"m", `[1,2,3,4,5,6]`, ErrTooLarge},
	} {
		_, err := c.Call(within(t), Request{Method: tc.method, Payload: []byte(tc.payload)})
		requireStarted(t, false, err)
		require.ErrorIs(t, err, tc.want)
		require.ErrorIs(t, c.Notify(within(t), Request{Method: tc.method, Payload: []byte(tc.payload)}), tc.want)
	}
	require.Zero(t, c.InFlight())
	require.NoError(t, c.Err())
}

func TestACancelledLSPCallStillGetsAResponse(t *testing.T) {
	c, server := newRPC(t, FramingContentLength, Options{})
	ask := server.leave(c, "textDocument/hover")
	cancelled := server.read()
	require.Equal(t, "$/cancelRequest", cancelled.Method)
	require.JSONEq(t, `{"id":`+ask.ID.String()+`}`, string(cancelled.Params))
	require.Equal(t, 1, c.InFlight(), "the place is taken until the server answers")
	server.write(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32800,"message":"cancelled"}}`, ask.ID)
	require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond)
	require.NoError(t, c.Err())
}

func TestOnlyTheResponseEndsACancelledMCPCall(t *testing.T) {
	c, server := newRPC(t, FramingLine, Options{CancelGrace: time.Hour})
	ask := server.leave(c, "tools/call")
	bob := callAsync(within(t), c, Request{Method: "tools/call"})
	ping := background(func() error { return c.Ping(within(t)) })
	question := server.read()
	require.Equal(t, "ping", question.Method, "Bob's call must wait")
	server.write(`{"jsonrpc":"2.0","id":%s,"result":{}}`, question.ID)
	require.NoError(t, await(t, ping))
	require.Equal(t, 1, c.InFlight(), "a ping's response says nothing about the call before it")
	require.Empty(t, bob)

	server.write(`{"jsonrpc":"2.0","id":%s,"result":{}}`, ask.ID)
	next := server.read()
	require.Equal(t, "tools/call", next.Method)
	server.write(`{"jsonrpc":"2.0","id":%s,"result":{"tools":[]}}`, next.ID)
	require.NoError(t, await(t, bob).err)
}

func TestACancelledMCPCallWithoutAResponseBreaksTheConn(t *testing.T) {
	c, server := newRPC(t, FramingLine, Options{CancelGrace: time.Second})
	ctx, cancel := context.WithCancel(within(t))
	alice := callAsync(ctx, c, Request{Method: "tools/call"})
	ask := server.read()
	bob := callAsync(within(t), c, Request{Method: "tools/call"})
	cancel()
	require.ErrorIs(t, await(t, alice).err, context.Canceled)
	requireStarted(t, false, await(t, bob).err)
	require.ErrorIs(t, c.Err(), ErrUnanswered)
	cancelled := server.read()
	require.Equal(t, "notifications/cancelled", cancelled.Method, "half of the grace is over")
	require.Contains(t, string(cancelled.Params), `"requestId":`+ask.ID.String())
	require.ErrorIs(t, errorOf(server.in.next()), io.EOF, "Bob's call was not sent")
}

func TestAnMCPServerOutlivesCancels(t *testing.T) {
	printed := make(chan string, 1)
	c, server := newRPC(t, FramingLine, Options{MCP: true, CancelGrace: 20 * time.Millisecond,
		OnOutput: func(text []byte) { printed <- string(text) }})
	ask := server.leave(c, "tools/call")
	cancelled := server.read()
	require.Equal(t, "notifications/cancelled", cancelled.Method)
	require.JSONEq(t, fmt.Sprintf(`{"requestId":%s,"reason":"the caller has stopped waiting"}`, ask.ID),
		string(cancelled.Params))
	require.Eventually(t, func() bool { return c.InFlight() == 0 }, waitTimeout, time.Millisecond)
	server.write(`{"jsonrpc":"2.0","id":%s,"result":"too late"}`, ask.ID)
	server.write(`[dotenv] 3 variables`)
	require.Equal(t, "[dotenv] 3 variables", await(t, printed))
	next := callAsync(within(t), c, Request{Method: "tools/call"})
	server.write(`{"jsonrpc":"2.0","id":%s,"result":"in time"}`, server.read().ID)
	require.Equal(t, `"in time"`, string(await(t, next).resp.Payload))
}

func TestAReceiverAnswersTheServersRequests(t *testing.T) {
	c, server := newRPC(t, FramingLine, Options{MaxMessage: 64 << 10})
	received := make(chan Incoming, 2)
	Receive(c, func(m Incoming) bool { received <- m; return m.Method == "roots/list" })
	server.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
	require.JSONEq(t, `{"level":"info"}`, string(await(t, received).Params))
	server.write(`{"jsonrpc":"2.0","id":9,"method":"roots/list"}`)
	asked := await(t, received)
	asked.Answer([]byte(`{"roots":[]}`), nil)
	require.JSONEq(t, `{"roots":[]}`, string(server.read().Result))
	asked.Answer(nil, []byte(`{"code":-1,"message":"no"}`))
	require.Equal(t, "no", server.read().Error.Message)
	server.write(`{"jsonrpc":"2.0","id":1,"method":"sampling/createMessage"}`)
	require.Equal(t, "-32601", server.read().Error.Code.String(), "nobody has taken it")

	Receive(c, func(m Incoming) bool { m.Answer(nil, []byte(`{"code":-1,"message":"no"}`)); return true })
	for sent := 0; sent < 1<<20 && c.Err() == nil; sent++ { // which it does not read
		_, _ = server.out.Write([]byte(`{"jsonrpc":"2.0","id":1,"method":"roots/list"}` + "\n"))
	}
	await(t, c.Done())
	require.ErrorContains(t, c.Err(), "faster than it reads")
}

func TestOutputBetweenMessagesIsNoMessage(t *testing.T) {
	for kind, raw := range map[string]string{
		FramingLine: "Starting server...\n{\"level\":\"info\",\"msg\":\"up\"}\n\x00\x01\n\nno line ending: %s\n",
		FramingContentLength: "Starting server...\n{\"level\":\"info\",\"msg\":\"up\"}\nTime 12:30\n\x00\x01\r\n" +
			"no line ending: Content-Length: %[2]d\r\nContent-Type: x\r\n\r\n%[1]s",
	} {
		t.Run(kind, func(t *testing.T) {
			var output []string
			c, server := newRPC(t, kind, Options{OnOutput: func(text []byte) { output = append(output, string(text)) }})
			for range 2 {
				done := callAsync(within(t), c, Request{Method: "m"})
				message := fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":5}`, server.read().ID)
				require.NoError(t, errorOf(fmt.Fprintf(server.out, raw+"%.0[1]s%.0[2]d", message, len(message))))
				requireAnswer(t, done, "5")
			}
			require.NoError(t, c.Close())
			text := strings.Join(output, "\n")
			for _, printed := range []string{"Starting server...", `{"level":"info","msg":"up"}`, "\x00\x01",
				"no line ending:"} {
				require.Equal(t, 2, strings.Count(text, printed), text)
			}
			require.NotContains(t, text, "jsonrpc")
		})
	}
}

func TestMCPInitializeIsNotCancelled(t *testing.T) {
	c, server := newRPC(t, FramingLine, Options{CancelGrace: time.Millisecond})
	server.leave(c, "initialize")
	await(t, c.Done())
	require.ErrorIs(t, c.Err(), ErrUnanswered)
	require.ErrorIs(t, errorOf(server.in.next()), io.EOF, "nothing but the end follows")
}

func TestRequestsOfTheServerAreAnswered(t *testing.T) {
	c, server := newRPC(t, FramingContentLength, Options{})
	for _, tc := range []struct{ method, params, result string }{
		{"ping", ``, `{}`},
		{"window/workDoneProgress/create", `,"params":{"token":"t"}`, `null`},
		{"client/registerCapability", `,"params":{}`, `null`},
		{"workspace/configuration", `,"params":{"items":[{"section":"a"},{"section":"b"}]}`, `[null,null]`},
		{"workspace/configuration", `,"params":{"items":[]}`, `[]`},
		{"workspace/semanticTokens/refresh", ``, `null`},
		{"workspace/applyEdit", `,"params":{}`, `{"applied":false,"failureReason":"this client holds no documents"}`},
	} {
		server.write(`{"jsonrpc":"2.0","id":"s1","method":%q%s}`, tc.method, tc.params)
		raw, err := server.in.next()
		require.NoError(t, err)
		require.JSONEq(t, `{"jsonrpc":"2.0","id":"s1","result":`+tc.result+`}`, string(raw), tc.method)
	}
	server.write(`{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}`)
	server.write(`{"jsonrpc":"2.0","id":null,"method":"notifications/message","params":{"level":"info"}}`)
	server.write(`{"jsonrpc":"2.0","id":7,"method":"roots/list"}`)
	ask := server.read()
	require.Equal(t, "7", ask.ID.String(), "notifications are accepted, and have no answer")
	require.Equal(t, json.Number("-32601"), ask.Error.Code)
	require.Contains(t, ask.Error.Message, "roots/list")
	require.NoError(t, c.Err())
}

func TestProtocolViolationsBreakAJSONRPCConn(t *testing.T) {
	for _, tc := range []struct{ kind, raw, reason string }{
		{FramingLine, "{\"jsonrpc\"\n", "print to stderr"},
		{FramingLine, "[{}]\n", "not a JSON-RPC message"},
		{FramingLine, `{"jsonrpc":"1.0","id":1,"result":1}` + "\n", "instead of 2.0"},
		{FramingLine, `{"jsonrpc":"2.0","id":99,"result":1}` + "\n", "unsolicited"},
		{FramingLine, `{"jsonrpc":"2.0","id":"1","result":1}` + "\n", "unsolicited"},
		{FramingLine, `{"jsonrpc":"2.0","id":1}` + "\n", "neither result nor error"},
		{FramingLine, `{"jsonrpc":"2.0"}` + "\n", "neither method nor id"},
		{FramingLine, `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"parse error"}}` + "\n", "parse error"},
		{FramingLine, `{"jsonrpc":"2.0","id":{},"method":"x"}` + "\n", "an id is a string or a number"},
		{FramingLine, strings.Repeat("x", 2000) + "\n", "limit"},
		{FramingLine, strings.Repeat("x", 2*maxReadBuffer), "limit"},
		{FramingContentLength, "Content-Type: x\r\nhello world\r\n\r\n", "without Content-Length"},
		{FramingContentLength, "Content-Length: -1\r\n\r\n", "not one number"},
		{FramingContentLength, "Content-Length: 1\r\nContent-Length: 1\r\n\r\n", "not one number"},
		{FramingContentLength, "Content-Type: x\r\n\r\n", "without Content-Length"},
		{FramingContentLength, "Content-Length: 1001\r\n\r\n", "the limit is 1000"},
		{FramingContentLength, "Content-X: " + strings.Repeat("x", maxHeaderBlock) + "\r\n", "headers of more than"},
		{FramingPacket4, "\xff\xff\xff\xff", "the limit is 1000"},
	} {
		c, server := newRPC(t, tc.kind, Options{MaxMessage: 1000})
		_, err := io.WriteString(server.out, tc.raw)
		if err != nil {
			require.ErrorIs(t, err, syscall.EPIPE, "the client may have seen enough before the end")
		}
		await(t, c.Done())
		var broken *ProtocolError
		require.ErrorAs(t, c.Err(), &broken, "%.60q", tc.raw)
		require.Contains(t, broken.Reason, tc.reason)
		require.ErrorAs(t, errorOf(c.Call(within(t), Request{Method: "m"})), &broken, "later calls get the reason")
	}
}

func TestAServerThatExitsFailsItsCalls(t *testing.T) {
	for raw, want := range map[string]string{"": ErrPeerClosed.Error(), `{"jsonrpc"`: "in the middle of a message"} {
		c, server := newRPC(t, FramingLine, Options{})
		require.NoError(t, errorOf(io.WriteString(server.out, raw)))
		require.NoError(t, server.out.Close())
		await(t, c.Done())
		require.ErrorIs(t, c.Err(), ErrPeerClosed)
		require.ErrorContains(t, c.Err(), want)
	}
}

func TestFramingsRoundTrip(t *testing.T) {
	messages := []string{`{}`, `{"a":"` + strings.Repeat("x", 3*maxReadBuffer) + `"}`, `[1]`}
	for _, kind := range framings {
		var stream []byte
		wrapper, err := newFraming(kind, nil, Options{}.withDefaults())
		require.NoError(t, err)
		for _, m := range messages {
			stream = wrapper.wrap(stream, []byte(m))
		}
		reader, err := newFraming(kind, bytes.NewReader(stream), Options{}.withDefaults())
		require.NoError(t, err)
		for _, m := range messages {
			got, err := reader.next()
			require.NoError(t, err)
			require.Equal(t, m, string(got))
		}
		require.ErrorIs(t, errorOf(reader.next()), io.EOF)
	}
	require.ErrorContains(t, errorOf(newFraming("telegram", nil, Options{})), "packet4")
}

func fuzzFraming(f *testing.F, kind string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		// The whole Conn takes the bytes in, with a call and a ping waiting; it has to end, with a reason, whatever comes.
		clientReads, serverWrites := io.Pipe()
		c, err := NewJSONRPC(clientReads, discard{}, kind, Options{MaxMessage: 1 << 16})
		require.NoError(t, err)
		done := callAsync(within(t), c, Request{Method: "m"})
		go func() {
			serverWrites.Write(raw)
			serverWrites.Close()
		}()
		await(t, c.Done())
		await(t, done)
		require.Error(t, c.Err())
		require.NoError(t, c.Close())
	})
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
func (discard) Close() error                { return nil }

func FuzzLine(f *testing.F) {
	fuzzFraming(f, FramingLine, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n", "\r\n{}\n",
		`{"jsonrpc":"2.0","id":"a","method":"ping"}`+"\n")
}

func FuzzContentLength(f *testing.F) {
	fuzzFraming(f, FramingContentLength, "Content-Length: 36\r\n\r\n"+`{"jsonrpc":"2.0","id":1,"result":{}}`,
		"Content-Length: 2\r\nContent-Type: x\r\n\r\n{}")
}

func FuzzPacket4(f *testing.F) {
	fuzzFraming(f, FramingPacket4, "\x00\x00\x00\x24"+`{"jsonrpc":"2.0","id":1,"result":{}}`, "\x00\x00\x00\x02{}",
		"\xff\xff\xff\xff")
}
