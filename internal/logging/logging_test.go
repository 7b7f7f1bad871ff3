package logging

import (
	"bytes"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestALogHasNoSecrets(t *testing.T) {
	var text bytes.Buffer
	log := New(&text, slog.LevelInfo)
	log.With("url", "https://s3cret@h").WithGroup("g").Info("posted to https://h/?token=s3cret",
		"error", errors.New(`get "redis://:s3cret@h": EOF`), "count", 3,
		slog.Group("inner", "query", "/x?key=s3cret"))
	require.NotContains(t, text.String(), "s3cret")
	for _, part := range []string{"https://(hidden)@h", "?token=(hidden)", `redis://:(hidden)@h`, `"count":3`,
		"/x?key=(hidden)"} {
		require.Contains(t, text.String(), part)
	}
}

func TestADurationHasAUnit(t *testing.T) {
	var text bytes.Buffer
	New(&text, slog.LevelInfo).Info("started", "took", 4208845436*time.Nanosecond)
	require.Contains(t, text.String(), `"took":"4.208845s"`)
}
