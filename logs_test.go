package tempool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/api"
)

func TestLinesOfSeveralHostsAreMerged(t *testing.T) {
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	all := func() []api.LogLine {
		return []api.LogLine{
			{Worker: "p/0", Host: "b", Incarnation: 2, At: at(30), Seq: 7, Text: "4"},
			{Worker: "p/0", Host: "b", Incarnation: 2, At: at(40), Seq: 8, Text: "5"},
			{Worker: "p/0", Host: "a", Incarnation: 1, At: at(10), Seq: 100, Text: "1"},
			{Worker: "p/0", Host: "a", Incarnation: 1, At: at(20), Seq: 101, Text: "2"},
			{Worker: "p/1", Host: "a", Incarnation: 9, At: at(25), Seq: 5, Text: "3"},
		}
	}
	texts := func(o LogOptions) (texts []string) {
		for _, line := range selectLines(all(), o) {
			texts = append(texts, line.Text)
		}
		return texts
	}
	require.Equal(t, []string{"1", "2", "3", "4", "5"}, texts(LogOptions{Tail: -1}))
	require.Equal(t, []string{"2", "3", "4", "5"}, texts(LogOptions{Tail: 3}),
		"the newest of each worker, wherever it was")
	require.Equal(t, []string{"3", "4", "5"}, texts(LogOptions{Tail: -1, Previous: true}))
	require.Empty(t, texts(LogOptions{}))
}

func TestFollowedLogsReportOneUnreachableHostAtATime(t *testing.T) {
	const hosts = 20
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var o Options
	for i := range hosts {
		o.Gateways = append(o.Gateways, fmt.Sprintf("unix:/nonexistent/%d", i))
	}
	c, err := Dial(ctx, o)
	require.NoError(t, err)
	defer c.Close()
	failed := map[string]bool{} // needs no mutex
	err = c.Pool("p").Logs(ctx, LogOptions{Follow: true, Unreachable: func(endpoint string, _ error) {
		if failed[endpoint] = true; len(failed) == hosts {
			cancel()
		}
	}}, nil)
	require.ErrorIs(t, err, context.Canceled)
}
