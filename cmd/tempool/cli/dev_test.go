package cli

import (
	"context"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool/cmd/tempool/dev"
)

func TestFlagsOfDevBecomeOptions(t *testing.T) {
	for _, c := range []struct {
		args []string
		want dev.Options
	}{
		{nil, dev.Options{}},
		{[]string{"--once"}, dev.Options{Once: true}},
		{[]string{"--address", "h:1", "--namespace", "n"}, dev.Options{Address: "h:1", Namespace: "n"}},
		{[]string{"--port", "7000", "--ui-port=7001"}, dev.Options{Port: 7000, UIPort: 7001}},
		{[]string{"-f", "p.toml", "--listen", "127.0.0.1:9"}, dev.Options{PoolFile: "p.toml", Listen: "127.0.0.1:9"}},
	} {
		var got dev.Options
		a := &app{out: io.Discard, err: io.Discard, runDev: func(_ context.Context, o dev.Options) error {
			got = o
			return nil
		}}
		require.Zero(t, a.run(t.Context(), append([]string{"dev"}, c.args...)))
		got.Out = nil
		require.Equal(t, c.want, got)
	}
}
