package redis

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
)

// List returns sessions ordered by id.
func (s *Store) List(ctx context.Context, after string, limit int) (page []*sessions.Session, err error) {
	err = s.exchange(ctx, "list sessions", func(ctx context.Context) error {
		ids, err := s.client.ZRange(ctx, s.byUse(), 0, -1).Result()
		if err != nil {
			return err
		}
		page, err = sessions.ListPage(ids, after, limit, func(ids []string) ([]*sessions.Session, error) {
			return s.readMany(ctx, readScript, ids)
		})
		return err
	})
	return page, err
}

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

// readPages is readMany for any number of ids, page by page.
func (s *Store) readPages(ctx context.Context, script *redis.Script, ids []string,
	page int) (found []*sessions.Session, err error) {
	for some := range slices.Chunk(ids, page) {
		read, err := s.readMany(ctx, script, some)
		if err != nil {
			return nil, err
		}
		found = append(found, read...)
	}
	return found, nil
}
