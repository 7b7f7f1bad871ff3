package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/loopback"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/sleep"
)

const (
	// lingerTime is how long a batch waits for further events.
	lingerTime = 250 * time.Millisecond
	// postTimeout bounds one request.
	postTimeout = 15 * time.Second
	// firstRetry and lastRetry bound the pause before a batch is sent again.
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// WebhookConfig says where events are posted. An empty URL posts none.
type WebhookConfig struct {
	URL string
	// Types are globs of the types to post, separated by commas; "" posts all.
	Types string
	// TokenFile is a file with a bearer token to send; "" sends none.
	TokenFile string
}

// Delivery counts what a Webhook has done.
type Delivery struct {
	Delivered int64 // events that were accepted
	Failed    int64 // requests that were not
	// events that the ring had dropped before they were posted, and those that the receiver rejected permanently
	Missed int64
}

// Webhook posts the events of a Log in batches, in order, each until it is accepted. While the receiver is away, events
// wait in the ring and nowhere else; the ring's size is the bound.
type Webhook struct {
	url    string
	shown  string // url without its secrets
	token  string // the file with it
	source string // of events about what was missed
	reader *Reader
	client *http.Client
	logger *slog.Logger
	down   bool // the last request failed
	batch  []json.RawMessage
	events int // in batch, except for one about missed events

	delivered, failed, missed atomic.Int64
	firstRetry                time.Duration // tests shorten it
}

// Check fails with CodeInvalid if events cannot be posted as config says.
func (config WebhookConfig) Check() error {
	if config.URL == "" {
		return nil
	}
	target, err := url.Parse(config.URL)
	if err != nil || target.Scheme != "http" && target.Scheme != "https" || target.Host == "" {
		return api.Errorf(api.CodeInvalid, "--events-webhook is not a URL such as https://example.com/events")
	}
	if _, err := ParseTypes(config.Types); err != nil {
		return err
	}
	if config.TokenFile != "" {
		if _, err := os.ReadFile(config.TokenFile); err != nil {
			return api.Errorf(api.CodeInvalid, "cannot read --events-webhook-token-file: %w", err)
		}
	}
	if secret := config.TokenFile != "" || redact.URLs(config.URL) != config.URL; secret && target.Scheme != "https" &&
		!loopback.Host(target.Hostname()) {
		return api.Errorf(api.CodeInvalid, "--events-webhook would send its token unencrypted to %s; use https", target.Host)
	}
	return nil
}

// NewWebhook returns a Webhook for the events of log from the oldest on; nil if no URL is set. It fails as Check does.
func NewWebhook(log *Log, config WebhookConfig, hostID string, logger *slog.Logger) (*Webhook, error) {
	if err := config.Check(); err != nil || config.URL == "" {
		return nil, err
	}
	types, _ := ParseTypes(config.Types)
	return &Webhook{
		url: config.URL, token: config.TokenFile, shown: redact.URLs(config.URL), source: api.HostSource(hostID),
		reader: log.FromOldest(Filter{Types: types}), logger: logger, firstRetry: firstRetry,
		client: &http.Client{Timeout: postTimeout,
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
	}, nil
}

// Delivery returns the counts. A nil Webhook has done nothing.
func (w *Webhook) Delivery() Delivery {
	if w == nil {
		return Delivery{}
	}
	return Delivery{Delivered: w.delivered.Load(), Failed: w.failed.Load(), Missed: w.missed.Load()}
}

// Run posts events until ctx ends.
func (w *Webhook) Run(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	for w.reader.Wait(ctx) && sleep.For(ctx.Done(), lingerTime) {
		for more := true; more; {
			if more = w.next(); !w.deliver(ctx) {
				return
			}
		}
	}
}

// Flush posts what Run has left, once. Run must have ended.
func (w *Webhook) Flush(ctx context.Context) {
	defer w.client.CloseIdleConnections()
	for more := true; more; {
		if len(w.batch) == 0 {
			more = w.next()
		}
		if _, err := w.post(ctx); err != nil {
			w.logger.Warn("cannot post the last events", "url", w.shown, "events", w.events, "error", err)
			return
		}
	}
}

// next makes the next batch, and reports whether there are events for another one.
func (w *Webhook) next() (more bool) {
	entries, missed, more := w.reader.Read()
	w.batch, w.events = nil, len(entries)
	if missed > 0 {
		w.missed.Add(int64(missed))
		w.logger.Warn("events were dropped before they could be posted", "url", w.shown, "events", missed)
		w.batch = append(w.batch, MissedEvent(w.source, w.reader.Position(), api.MissedEvent{
			Count: missed, Reason: "the receiver did not accept them before the agent had to drop them",
		}))
	}
	for _, e := range entries {
		w.batch = append(w.batch, e.JSON)
	}
	return more
}

// deliver posts the batch until it is accepted. It reports false when ctx ends first.
func (w *Webhook) deliver(ctx context.Context) bool {
	for wait := w.firstRetry; ; wait = min(2*wait, lastRetry) {
		after, err := w.post(ctx)
		switch {
		case err == nil:
			if w.down {
				w.down = false
				w.logger.Info("the receiver accepts events again", "url", w.shown)
			}
			return true
		case ctx.Err() != nil:
			return false
		case !w.down:
			w.down = true
			w.logger.Warn("cannot post events; holding them until the agent must drop the oldest", "url", w.shown, "error", err)
		}
		if !sleep.For(ctx.Done(), max(after, wait/2+rand.N(wait))) {
			return false
		}
	}
}

// rejections are the answers to a batch that no repetition changes.
var rejections = []int{http.StatusBadRequest, http.StatusRequestEntityTooLarge, http.StatusUnprocessableEntity}

// post sends the batch once. A batch that was accepted or permanently rejected is done. After a failure it returns the
// pause that the receiver asks for.
func (w *Webhook) post(ctx context.Context) (after time.Duration, err error) {
	if len(w.batch) == 0 {
		return 0, nil
	}
	content, err := json.Marshal(w.batch)
	if err != nil {
		return 0, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, w.url, bytes.NewReader(content))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Content-Type", "application/cloudevents-batch+json")
	if w.token != "" { // read each time: it may be replaced
		secret, err := os.ReadFile(w.token)
		if err != nil {
			w.failed.Add(1)
			return 0, err
		}
		request.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(secret)))
	}
	response, err := w.client.Do(request)
	if err != nil {
		w.failed.Add(1)
		if inURL, ok := errors.AsType[*url.Error](err); ok { // its text has the URL
			err = inURL.Err
		}
		return 0, err
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(response.Body, 64<<10)) // so that the connection can be used again
	response.Body.Close()
	switch {
	case response.StatusCode/100 == 2:
		w.delivered.Add(int64(w.events))
	case slices.Contains(rejections, response.StatusCode):
		w.failed.Add(1)
		w.missed.Add(int64(w.events))
		w.logger.Warn("the receiver rejected events permanently; dropping them", "url", w.shown, "status", response.Status,
			"events", w.events)
	default:
		w.failed.Add(1)
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return time.Duration(min(max(seconds, 0), 300)) * time.Second, fmt.Errorf("the receiver answered %s", response.Status)
	}
	w.batch, w.events = nil, 0
	return 0, nil
}
