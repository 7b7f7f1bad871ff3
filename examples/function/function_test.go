package main

import (
	"bytes"
	"context"
	"image"
	"image/png"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/devserver"
	"github.com/tempool/tempool/spec"
	"github.com/tempool/tempool/worker"
)

func TestTheExampleMakesThumbnails(t *testing.T) {
	dir, err := os.MkdirTemp("", "tempool") // not t.TempDir: a Unix socket's path has to be short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	server, err := devserver.Start(t.Context(),
		devserver.Options{DBFile: filepath.Join(dir, "temporal.db"), UIPort: devserver.NoUI})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop(context.Background())) })

	worker.Register("thumbnail", thumbnail) // as main does
	logger := slog.New(slog.NewTextHandler(t.Output(), nil))
	agent, err := worker.Start(t.Context(), worker.Config{
		Address: server.Address(), Namespace: server.Namespace(), HostID: "function", StateDir: filepath.Join(dir, "state"),
		Logger: logger,
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, agent.Stop()) })
	client, err := tempool.Dial(t.Context(), tempool.Options{Address: server.Address(), Namespace: server.Namespace()})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s, err := spec.Load("pool.toml")
	require.NoError(t, err)
	require.NoError(t, client.StartPool(t.Context(), api.PoolStart{Pool: s.Pool.Name, Spec: s}))
	pool := client.Pool(s.Pool.Name)
	require.Eventually(t, func() bool {
		workers, err := pool.Workers(t.Context())
		return err == nil && workers.Ready == s.Pool.Size
	}, 3*time.Minute, 50*time.Millisecond)

	var large bytes.Buffer
	require.NoError(t, png.Encode(&large, image.NewRGBA(image.Rect(0, 0, 80, 60))))
	var small picture
	require.NoError(t, pool.Call(t.Context(), "thumbnail", picture{PNG: large.Bytes(), Width: 40}, &small))
	size, err := png.DecodeConfig(bytes.NewReader(small.PNG))
	require.NoError(t, err)
	require.Equal(t, []int{40, 30}, []int{size.Width, size.Height})
	require.ErrorContains(t, pool.Call(t.Context(), "thumbnail", picture{Width: 40}, nil), "send a PNG")
}
