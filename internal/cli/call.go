package cli

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

// envGateway names the gateways where --gateway does not; the SDKs know it, too.
const envGateway = "TEMPOOL_GATEWAY"

// aim is by which gateways calls and requests about sessions go, and how: flags of the commands that make them.
type aim struct {
	gateways          []string
	tokenFile, caFile string
	session           string
	priority          int
}

func (m *aim) flags(a *app, c *cobra.Command) {
	m.gatewayFlags(c)
	f := c.Flags()
	f.StringVar(&m.session, "session", "", "the session the call is for; the worker that served it last is preferred")
	f.IntVar(&m.priority, "priority", 0, "how urgent the call is while it waits in the queue, 0 to 9, highest first")
	f.DurationVar(&a.timeout, "timeout", defaultTimeout, "how long a call may take, waiting for a worker included")
}

// gatewayFlags are those that say by which gateways, alone.
func (m *aim) gatewayFlags(c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&m.gateways, "gateway", nil, "endpoints of gateways, http://HOST:PORT or unix:PATH, which then are called without asking Temporal (default: $"+envGateway+", else the pool's roster names them)")
	f.StringVar(&m.tokenFile, "token-file", "", "file with the bearer token of the gateways")
	f.StringVar(&m.caFile, "ca-file", "", "PEM file with the authorities of the gateways' certificates (default: the system's)")
	for _, flag := range []string{"token-file", "ca-file"} {
		if err := c.MarkFlagFilename(flag); err != nil {
			panic("command " + c.Name() + ": " + err.Error())
		}
	}
	noWords := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"http://127.0.0.1:7460"}, cobra.ShellCompDirectiveNoFileComp
	}
	if err := c.RegisterFlagCompletionFunc("gateway", noWords); err != nil {
		panic("command " + c.Name() + ": " + err.Error())
	}
}

// check refuses flags that cannot be meant.
func (m *aim) check() error {
	if m.priority < 0 || m.priority > 9 {
		return usagef("--priority is %d; give a number from 0 to 9", m.priority)
	}
	for _, endpoint := range m.gateways {
		if !isEndpoint(endpoint) {
			return usagef("--gateway is %q; write http://HOST:PORT, https://HOST:PORT or unix:PATH", endpoint)
		}
	}
	return nil
}

func isEndpoint(text string) bool {
	if path, socket := strings.CutPrefix(text, "unix:"); socket {
		return path != ""
	}
	u, err := url.Parse(text)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != ""
}

// reach adds to o by which gateways calls go.
func (m *aim) reach(o *tempool.Options) error {
	o.Gateways = m.gateways
	if named := os.Getenv(envGateway); len(o.Gateways) == 0 && named != "" {
		for endpoint := range strings.SplitSeq(named, ",") {
			if endpoint = strings.TrimSpace(endpoint); !isEndpoint(endpoint) {
				return api.Errorf(api.CodeInvalid, "%s names %q, which is no endpoint; write http://HOST:PORT, https://HOST:PORT or unix:PATH", envGateway, endpoint)
			}
			o.Gateways = append(o.Gateways, endpoint)
		}
	}
	if m.tokenFile != "" {
		text, err := os.ReadFile(m.tokenFile)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "the gateways' token cannot be read: %w", err)
		}
		o.GatewayToken = strings.TrimSpace(string(text))
	}
	if m.caFile != "" {
		text, err := os.ReadFile(m.caFile)
		if err != nil {
			return api.Errorf(api.CodeInvalid, "the authorities of the gateways cannot be read: %w", err)
		}
		o.GatewayTLS = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !o.GatewayTLS.RootCAs.AppendCertsFromPEM(text) {
			return api.Errorf(api.CodeInvalid, "%s holds no certificate in PEM form", m.caFile)
		}
	}
	return nil
}

// options are those of each call.
func (m *aim) options(timeout time.Duration) tempool.CallOptions {
	return tempool.CallOptions{Session: m.session, Priority: m.priority, Timeout: timeout, Header: http.Header{"Content-Type": {"application/json"}}}
}

// callingCommand has a command run with a pool, the command's first argument, that is called by the way m says.
func (a *app) callingCommand(c *cobra.Command, m *aim, run func(ctx context.Context, p pool, args []string) error) *cobra.Command {
	m.flags(a, c)
	return a.gatewayCommand(c, m, run)
}

// gatewayCommand is caller for a command that has its flags already.
func (a *app) gatewayCommand(c *cobra.Command, m *aim, run func(ctx context.Context, p pool, args []string) error) *cobra.Command {
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if err := m.check(); err != nil {
			return err
		}
		return check(cmd, args)
	}
	c.ValidArgsFunction = a.completePools
	return a.localCommand(c, func(ctx context.Context, args []string) error {
		if err := m.reach(&a.options); err != nil {
			return err
		}
		request, cancel := a.request(ctx)
		cp, err := a.dial(request, a.options)
		cancel()
		if api.CodeOf(err) == api.CodeUnavailable {
			_, sentence := describe(err)
			return api.Errorf(api.CodeUnavailable, "%s; a gateway whose address is known may still serve: --gateway http://127.0.0.1:7460", sentence)
		}
		if err != nil {
			return err
		}
		defer cp.Close()
		err = run(ctx, cp.Pool(args[0]), args)
		switch {
		case ctx.Err() != nil:
			return api.Errorf(codeInterrupted, "interrupted; calls that were in flight are cancelled")
		case len(a.options.Gateways) > 0: // Temporal is not asked for advice
			return err
		}
		return a.withAdvice(ctx, cp, err)
	})
}

// callArguments are POOL METHOD and perhaps a body.
func callArguments(cmd *cobra.Command, args []string) error {
	if len(args) < 2 || len(args) > 3 {
		return usagef("%s takes POOL METHOD and at most one BODY; it got %s", cmd.CommandPath(), plural(len(args), "argument"))
	}
	if args[1] == "" {
		return usagef("METHOD is empty; name what the workers are to do")
	}
	return checkArguments([]string{argPool}, args[:1])
}

// callResult is the result of ctl call.
type callResult struct {
	Worker      string  `json:"worker"`
	Incarnation int64   `json:"incarnation"`
	Endpoint    string  `json:"endpoint"`
	TookMS      float64 `json:"took_ms"`
	// Result is the answer if it is JSON; Text is one that is other text, Base64 one that is neither.
	Result json.RawMessage `json:"result,omitempty"`
	Text   *string         `json:"text,omitempty"`
	Base64 *string         `json:"base64,omitempty"`
}

func (r *callResult) setBody(answer []byte) {
	switch {
	case json.Valid(answer):
		r.Result = answer
	case utf8.Valid(answer):
		text := string(answer)
		r.Text = &text
	default:
		text := base64.StdEncoding.EncodeToString(answer)
		r.Base64 = &text
	}
}

func (a *app) callCommand() *cobra.Command {
	var to aim
	return a.callingCommand(&cobra.Command{
		Use:   "call POOL METHOD [BODY|-]",
		Short: "Have a worker of a pool carry out a method",
		Long: `Call a method on any fit worker of a pool and print what it answers, as it is and as it comes.

BODY is what the method gets, mostly JSON; - sends standard input; without it nothing is sent. With -o json the answer comes whole, in
an object that also says who gave it: as result if it is JSON, as text or base64 otherwise.`,
		Example: `  ctl call hello greet '{"name": "you"}'
  cat request.json | ctl call hello greet -
  ctl call hello status --gateway http://127.0.0.1:7460
  ctl call hello status --session anna --timeout 5m -o json | jq .worker`,
		Args: callArguments,
	}, &to, func(ctx context.Context, p pool, args []string) error {
		var body any
		switch {
		case len(args) == 3 && args[2] == "-":
			body = a.in
		case len(args) == 3:
			body = []byte(args[2])
		}
		var result callResult
		options := to.options(a.timeout)
		options.Answered = func(answer tempool.Answer) {
			result.Worker, result.Incarnation, result.Endpoint = answer.Worker, answer.Incarnation, answer.Endpoint
		}
		began := a.now()
		var whole bytes.Buffer
		out := a.out
		if a.format == formatJSON {
			out = &whole
		}
		ended := true // by a line break
		for piece, err := range p.Calls(options).Stream(ctx, args[1], body) {
			if err != nil {
				return err
			}
			if _, err := out.Write(piece); err != nil {
				return err
			}
			ended = bytes.HasSuffix(piece, []byte("\n"))
		}
		if a.format == formatJSON {
			result.TookMS = float64(a.now().Sub(began).Microseconds()) / 1000
			result.setBody(whole.Bytes())
			return writeJSON(a.out, result)
		}
		if a.outTerminal && !ended { // the prompt is not to stand behind the answer
			_, err := io.WriteString(a.out, "\n")
			return err
		}
		return nil
	})
}
