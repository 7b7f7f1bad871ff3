package redis

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
)

var _ sessions.Replica = (*Store)(nil)

// IDs lists the live sessions, ordered by the last use that the index has.
func (s *Store) IDs(ctx context.Context) (ids []string, err error) {
	err = s.exchange(ctx, "list sessions", func(ctx context.Context) (err error) {
		if _, err := s.sweep(ctx); err != nil {
			return err
		}
		ids, err = s.client.ZRange(ctx, s.byUse(), 0, -1).Result()
		return err
	})
	return ids, err
}

// Peek returns sessions without extending their TTL.
func (s *Store) Peek(ctx context.Context, ids []string) (found []*sessions.Session, err error) {
	for _, id := range ids {
		if err := sessions.CheckID(id); err != nil {
			return nil, err
		}
	}
	err = s.exchange(ctx, "read sessions", func(ctx context.Context) (err error) {
		found, err = s.readMany(ctx, readScript, ids)
		return err
	})
	return found, err
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

// Put stores an exact copy of a session.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	exact, body, err := sessions.PrepareCopy(session)
	if err != nil {
		return err
	}
	return s.exchange(ctx, "copy session "+exact.ID, func(ctx context.Context) error {
		if err := s.addToIndex(ctx, exact); err != nil {
			return err
		}
		if err := s.runWrite(ctx, putScript, exact, body, s.config.Now()).Err(); err != nil {
			return err
		}
		return s.addToIndex(ctx, exact) // again: a concurrent delete of this id may have removed it
	})
}

// Restore stores a session of a backup unless the store has a newer one.
func (s *Store) Restore(ctx context.Context, session *sessions.Session) (restored sessions.Restored, err error) {
	now := s.config.Now()
	exact, body, err := sessions.PrepareRestore(session, now)
	switch {
	case err != nil:
		return "", err
	case exact == nil:
		return sessions.RestoredExpired, nil
	}
	err = s.exchange(ctx, "restore session "+exact.ID, func(ctx context.Context) error {
		limit, _ := s.bounds()
		if err := s.reserve(ctx, exact, limit, sessions.Refuse); err != nil {
			return err
		}
		did, err := s.runWrite(ctx, restoreScript, exact, body, now).Int64Slice()
		if err != nil {
			return err
		}
		if did[0] == 0 {
			restored = sessions.RestoredKept
			return nil
		}
		restored = sessions.RestoredNew
		if did[0] == 2 {
			restored = sessions.RestoredOlder
		}
		exact.LastAccessed = time.UnixMilli(did[1]).UTC()
		return s.addToIndex(ctx, exact) // again: a concurrent delete of this id may have removed it
	})
	return restored, err
}
