package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	bare "github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis"
)

const redisRatioTarget = 1.3 // of one bare round trip

// measureRedis times sessions in Redis beside a bare client of the same server: one operation of each kind after the other, over and over,
// so that all see the same machine.
func measureRedis(ctx context.Context, b *bench) (err error) {
	server, err := b.startRedis(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.stop()) }()
	store, err := redis.Open(redis.Options{URL: "redis://" + server.address, Config: sessions.Config{Max: 2 * sessionsTimed}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client := bare.NewClient(&bare.Options{Addr: server.address})
	defer func() { err = errors.Join(err, client.Close()) }()
	body, err := smallSession(0).Body()
	if err != nil {
		return err
	}
	for n := range sessionsTimed {
		if _, err := store.Create(ctx, smallSession(n)); err != nil {
			return err
		}
		if err := client.Set(ctx, sessionID(n), body, time.Hour).Err(); err != nil {
			return err
		}
	}
	kinds := []struct {
		name string
		do   func(n int) error
	}{
		{"bare GET of as many bytes", func(n int) error { return client.Get(ctx, sessionID(n)).Err() }},
		{"session get", func(n int) error { _, err := store.Get(ctx, sessionID(n)); return err }},
		{"bare GET and SET", func(n int) error {
			if err := client.Get(ctx, sessionID(n)).Err(); err != nil {
				return err
			}
			return client.Set(ctx, sessionID(n), body, time.Hour).Err()
		}},
		{"session update", func(n int) error {
			_, err := store.Update(ctx, sessionID(n), func(s *sessions.Session) error {
				s.Data["step"] = json.RawMessage(strconv.Itoa(n))
				return nil
			})
			return err
		}},
	}
	r := b.result
	rows := make([]*series, len(kinds))
	for i, kind := range kinds {
		rows[i] = r.row(fmt.Sprintf("%s, p50 of %d", kind.name, sessionsTimed), "µs")
	}
	for round := range b.rounds {
		took := make([][]float64, len(kinds))
		for n := range sessionsTimed {
			for turn := range kinds {
				i := (turn + round) % len(kinds) // nobody is always first
				began := time.Now()
				if err := kinds[i].do(n); err != nil {
					return fmt.Errorf("%s: %w", kinds[i].name, err)
				}
				took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/1e3)
			}
		}
		for i, row := range rows {
			row.add(median(took[i]))
		}
	}
	get, update := ratios("get ÷ bare GET", rows[1], rows[0]), ratios("update ÷ bare GET", rows[3], rows[0])
	r.Rows = append(r.Rows, get, update, ratios("update ÷ bare GET and SET", rows[3], rows[2]))
	r.atMost("session get in Redis, in bare round trips", get.Median, redisRatioTarget, "×")
	r.atMost("session update in Redis, in bare round trips", update.Median, redisRatioTarget, "×")
	r.note("one redis-server on this machine, without a file; the store has seen each session before")
	return nil
}

// redisServer is a redis-server of this run.
type redisServer struct {
	cmd     *exec.Cmd
	address string
}

func (b *bench) startRedis(ctx context.Context) (*redisServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("find a port for Redis: %w", err)
	}
	address := listener.Addr().String()
	_, port, err := net.SplitHostPort(address)
	if err = errors.Join(err, listener.Close()); err != nil {
		return nil, fmt.Errorf("find a port for Redis: %w", err)
	}
	folder := filepath.Join(b.dir, "redis")
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("make a folder for Redis: %w", err)
	}
	s := &redisServer{cmd: exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", folder, "--save", "", "--appendonly", "no", "--logfile", "redis.log"), address: address}
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start redis-server, which scripts/setup-debian.sh installs: %w", err)
	}
	client := bare.NewClient(&bare.Options{Addr: address})
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, actorPatience)
	defer cancel()
	for {
		if err = client.Ping(ctx).Err(); err == nil {
			return s, nil
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("redis-server does not answer: %w", err), s.stop())
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// stop ends the server, which keeps nothing.
func (s *redisServer) stop() error {
	if err := s.cmd.Process.Kill(); err != nil {
		return fmt.Errorf("end redis-server: %w", err)
	}
	_ = s.cmd.Wait() // it was killed: that is its error
	return nil
}
