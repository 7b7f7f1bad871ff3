package redis

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
)

// Count returns the number of live sessions.
func (s *Store) Count(ctx context.Context) (count int, err error) {
	err = s.exchange(ctx, "count sessions", func(ctx context.Context) error {
		if _, err := s.sweep(ctx); err != nil {
			return err
		}
		n, err := s.client.ZCard(ctx, s.byUse()).Result()
		count = int(n)
		return err
	})
	return count, err
}

// DeleteExpired removes expired sessions from the index; the server itself expires their keys.
func (s *Store) DeleteExpired(ctx context.Context) (removed int, err error) {
	err = s.exchange(ctx, "sweep sessions", func(ctx context.Context) (err error) {
		removed, err = s.sweep(ctx)
		return err
	})
	return removed, err
}

// readMany runs readScript or peekScript for each id in one exchange. It returns nil for sessions that do not exist.
func (s *Store) readMany(ctx context.Context, script *redis.Script, ids []string) ([]*sessions.Session, error) {
	now := s.config.Now().UnixMilli()
	replies := make([]*redis.Cmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = script.Eval(ctx, p, s.key(id), now) // the whole text: a pipeline cannot fall back from EVALSHA
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	found := make([]*sessions.Session, len(ids))
	for i, reply := range replies {
		fields, err := reply.StringSlice()
		if err != nil {
			return nil, err
		}
		r, err := parse(ids[i], fields)
		if err != nil {
			return nil, err
		}
		found[i] = r.Session
	}
	return found, nil
}
