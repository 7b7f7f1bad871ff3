package events

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/sleep"
)

const testTimeout = 2 * time.Minute

// receiver is a webhook that answers with status until it is changed.
type receiver struct {
	*httptest.Server
	t *testing.T

	mu       sync.Mutex
	status   int
	requests int
	events   []api.Event // of accepted batches
	header   http.Header
}

func newReceiver(t *testing.T, status int) *receiver {
	r := &receiver{t: t, status: status}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	content, err := io.ReadAll(request.Body)
	if err != nil {
		r.t.Error(err)
	}
	var batch []api.Event
	if err := json.Unmarshal(content, &batch); err != nil {
		r.t.Errorf("%s: %v", content, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.requests++
	r.header = request.Header
	if r.status/100 == 2 {
		r.events = append(r.events, batch...)
	}
	if r.status/100 == 3 {
		w.Header().Set("Location", "/elsewhere")
	}
	w.WriteHeader(r.status)
}

func (r *receiver) answer(status int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.status = status
}

func (r *receiver) accepted() []api.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]api.Event(nil), r.events...)
}

func (r *receiver) asked() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.requests
}

// posting runs a webhook until stop is called or the test ends.
func posting(t *testing.T, l *Log, config WebhookConfig) (w *Webhook, stop func()) {
	w, err := NewWebhook(l, config, "web-1", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	w.firstRetry = 5 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.Run(ctx)
	}()
	stop = func() {
		cancel()
		<-done
	}
	t.Cleanup(stop)
	return w, stop
}

func TestAWebhookThatIsDownMissesNothingThatTheRingHolds(t *testing.T) {
	l := newLog("here", 1024)
	r := newReceiver(t, http.StatusServiceUnavailable)
	secret := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(secret, []byte("s3cret\n"), 0o600))
	w, _ := posting(t, l, WebhookConfig{URL: r.URL, TokenFile: secret})
	add(l, 300)
	require.Eventually(t, func() bool { return r.asked() >= 3 }, testTimeout, time.Millisecond)
	add(l, 300)
	r.answer(http.StatusNoContent)
	require.Eventually(t, func() bool { return w.Delivery().Delivered == 600 }, testTimeout, time.Millisecond)
	require.Len(t, r.accepted(), 600)
	for i, event := range r.accepted() {
		require.Equal(t, l.position(uint64(i+1)), event.ID)
	}
	require.Equal(t, "application/cloudevents-batch+json", r.header.Get("Content-Type"))
	require.Equal(t, "Bearer s3cret", r.header.Get("Authorization"))
	d := w.Delivery()
	require.Zero(t, d.Missed)
	require.GreaterOrEqual(t, d.Failed, int64(3))
}

// away is a receiver that cannot be reached until a time.
type away struct {
	until    time.Time
	accepted []api.Event
}

func (a *away) RoundTrip(request *http.Request) (*http.Response, error) {
	if time.Now().Before(a.until) {
		return nil, errors.New("connection refused")
	}
	var batch []api.Event
	if err := json.NewDecoder(request.Body).Decode(&batch); err != nil {
		return nil, err
	}
	a.accepted = append(a.accepted, batch...)
	return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
}

// A receiver is away for a minute by the clock, in which the agent emits more than the ring holds.
func TestAWebhookThatIsDownForAMinuteSaysWhatItDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, a = 1024, 20 // events a second
		l := newLog("here", size)
		w, err := NewWebhook(l, WebhookConfig{URL: "http://127.0.0.1:9"}, "web-1", slog.New(slog.DiscardHandler))
		require.NoError(t, err)
		r := &away{until: time.Now().Add(time.Minute)}
		w.client.Transport = r
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			w.Run(ctx)
		}()
		const emitted = 60 * a
		for range emitted {
			add(l, 1)
			sleep.For(ctx.Done(), time.Second/a) // by the clock of the bubble
		}
		sleep.For(ctx.Done(), 2*(lastRetry+lastRetry/2))
		cancel()
		<-done
		d := w.Delivery()
		require.NotZero(t, d.Failed)
		require.EqualValues(t, emitted, d.Delivered+d.Missed)
		require.GreaterOrEqual(t, d.Delivered, int64(size), "it misses nothing that the ring holds")
		require.NotZero(t, d.Missed)
		said, last := int64(0), uint64(0)
		for _, event := range r.accepted {
			if event.Type == api.EventMissed {
				var data api.MissedEvent
				require.NoError(t, json.Unmarshal(event.Data, &data))
				said += int64(data.Count)
				require.Equal(t, "/hosts/web-1", event.Source)
				require.Contains(t, data.Reason, "the receiver did not accept them")
				continue
			}
			number := event.ID[strings.LastIndexByte(event.ID, '-')+1:]
			n, err := strconv.ParseUint(number, 10, 64)
			require.NoError(t, err)
			require.Greater(t, n, last, "in order, each once")
			last = n
		}
		require.Equal(t, d.Missed, said)
		require.EqualValues(t, emitted, last)
	})
}

func TestARejectedBatchDelaysNoOther(t *testing.T) {
	l := newLog("here", 64)
	r := newReceiver(t, http.StatusRequestEntityTooLarge)
	w, _ := posting(t, l, WebhookConfig{URL: r.URL})
	add(l, 3)
	require.Eventually(t, func() bool { return w.Delivery().Missed == 3 }, testTimeout, time.Millisecond)
	r.answer(http.StatusOK)
	add(l, 2)
	require.Eventually(t, func() bool { return len(r.accepted()) == 2 }, testTimeout, time.Millisecond)
}

func TestARedirectIsNotFollowed(t *testing.T) {
	l := newLog("here", 64)
	r := newReceiver(t, http.StatusTemporaryRedirect)
	w, _ := posting(t, l, WebhookConfig{URL: r.URL})
	add(l, 1)
	require.Eventually(t, func() bool { return w.Delivery().Failed >= 2 }, testTimeout, time.Millisecond)
	require.Empty(t, r.accepted())
}

func TestTheLastEventsArePostedAtTheEnd(t *testing.T) {
	l := newLog("here", 2048)
	r := newReceiver(t, http.StatusServiceUnavailable)
	w, stop := posting(t, l, WebhookConfig{URL: r.URL, Types: "worker.*"})
	add(l, 1)
	require.Eventually(t, func() bool { return r.asked() >= 1 }, testTimeout, time.Millisecond)
	stop()
	r.answer(http.StatusOK)
	add(l, 700)
	l.Emit(api.EventProcessEnded, api.WorkerSource("p/0"), start, nil)
	w.Flush(t.Context())
	require.Len(t, r.accepted(), 701)
	r.answer(http.StatusServiceUnavailable)
	add(l, 1)
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	w.Flush(ctx) // once
	require.NoError(t, ctx.Err())
}

func TestAWebhookIsConfiguredSafely(t *testing.T) {
	logger, l := slog.New(slog.DiscardHandler), newLog("here", 4)
	none, err := NewWebhook(l, WebhookConfig{}, "h", logger)
	require.NoError(t, err)
	require.Nil(t, none)
	require.Zero(t, none.Delivery())
	for config, says := range map[WebhookConfig]string{
		{URL: "example.com/events"}:                                "--events-webhook is not a URL",
		{URL: "https://example.com", Types: "wroker.*"}:            `"wroker.*"`,
		{URL: "http://me:hunter2@example.com/events"}:              "unencrypted to example.com",
		{URL: "http://hunter2@example.com/events"}:                 "unencrypted to example.com",
		{URL: "http://example.com/events?token=hunter2"}:           "unencrypted to example.com",
		{URL: "https://example.com", TokenFile: "/does/not/exist"}: "--events-webhook-token-file",
	} {
		_, err := NewWebhook(l, config, "h", logger)
		require.ErrorContains(t, err, says)
		require.Equal(t, api.CodeInvalid, api.CodeOf(err))
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestAWebhookLogsItsURLWithoutSecrets(t *testing.T) {
	for _, around := range [][2]string{{"hunter2@", ""}, {"me:hunter2@", ""}, {"", "/hook?code=hunter2"},
		{"", "/hook?token=hunter2&key=hunter2"}} {
		var logged bytes.Buffer
		l := newLog("here", 4)
		r := newReceiver(t, http.StatusBadRequest)
		address := r.Listener.Addr().String()
		w, err := NewWebhook(l, WebhookConfig{URL: "http://" + around[0] + address + around[1]}, "h",
			slog.New(slog.NewTextHandler(&logged, nil)))
		require.NoError(t, err)
		add(l, 9) // more than the ring has
		w.Flush(t.Context())
		r.answer(http.StatusInternalServerError)
		add(l, 1)
		w.Flush(t.Context())
		for _, line := range []string{"events were dropped before they could be posted",
			"the receiver rejected events permanently", "cannot post the last events"} {
			require.Contains(t, logged.String(), line)
		}
		r.Close()
		add(l, 1)
		w.Flush(t.Context())
		require.Equal(t, 2, strings.Count(logged.String(), "cannot post the last events"))
		require.NotContains(t, logged.String(), "hunter2")
		require.Contains(t, logged.String(), "(hidden)")
		require.Contains(t, logged.String(), address)
	}
}
