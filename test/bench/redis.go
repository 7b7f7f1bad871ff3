package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strconv"
	"time"

	bare "github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/sessions/redis"
)

const redisRatioTarget = 1.2 // relative to one round trip

// measureRedis compares session operations in Redis with plain commands on the same server. The kinds of operation
// alternate one by one, so that all see the same load.
func measureRedis(ctx context.Context, b *bench) (err error) {
	address, err := b.startRedis(ctx)
	if err != nil {
		return err
	}
	store, err := redis.Open(redis.Options{URL: "redis://" + address, Config: sessions.Config{Max: 2 * sessionsTimed}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	client := bare.NewClient(&bare.Options{Addr: address})
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
		{"plain GET of the same size", func(n int) error { return client.Get(ctx, sessionID(n)).Err() }},
		{"session get", func(n int) error { _, err := store.Get(ctx, sessionID(n)); return err }},
		{"plain GET and SET", func(n int) error {
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
				i := (turn + round) % len(kinds) // each kind is first in turn
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
	get, update := ratios("session get ÷ plain GET", rows[1], rows[0]), ratios("session update ÷ plain GET", rows[3],
		rows[0])
	r.Rows = append(r.Rows, get, update, ratios("session update ÷ plain GET and SET", rows[3], rows[2]))
	r.atMost("session get in Redis, relative to a plain GET", get.Median, redisRatioTarget, "×")
	r.atMost("session update in Redis, relative to a plain GET", update.Median, redisRatioTarget, "×")
	r.note("one redis-server on this machine, without persistence; each session is in the store's cache")
	return nil
}

// startRedis starts a redis-server and returns its address.
func (b *bench) startRedis(ctx context.Context) (string, error) {
	address, err := freeAddress()
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(address) // freeAddress has a port
	server := exec.Command("redis-server", "--port", port, "--bind", "127.0.0.1", "--dir", b.dir, "--save", "",
		"--appendonly", "no")
	// It has no data to save.
	if err := b.launch("redis-server", server, false, func() error { return server.Process.Kill() }); err != nil {
		return "", err
	}
	client := bare.NewClient(&bare.Options{Addr: address})
	defer client.Close()
	return address, poll(ctx, waitTimeout, 20*time.Millisecond,
		func(ctx context.Context) error { return client.Ping(ctx).Err() })
}
