package redis

import (
	"context"
	"slices"

	"github.com/tempool/tempool/sessions"
)

var _ sessions.Mirror = (*Store)(nil)

// IDs lists the sessions that live, in the order of the uses that the index knows.
func (s *Store) IDs(ctx context.Context) (ids []string, err error) {
	err = s.bounded(ctx, "list sessions", func(ctx context.Context) error {
		if _, err := s.sweep(ctx); err != nil {
			return err
		}
		known, err := s.client.ZRange(ctx, s.byUse(), 0, -1).Result()
		if err != nil {
			return err
		}
		for page := range slices.Chunk(known, indexPage) {
			found, err := s.look(ctx, peekScript, page)
			if err != nil {
				return err
			}
			for _, one := range found {
				if one != nil {
					ids = append(ids, one.ID)
				}
			}
		}
		return nil
	})
	return ids, err
}

// Peek returns sessions as they are.
func (s *Store) Peek(ctx context.Context, ids []string) (found []*sessions.Session, err error) {
	for _, id := range ids {
		if err := sessions.CheckID(id); err != nil {
			return nil, err
		}
	}
	err = s.bounded(ctx, "read sessions", func(ctx context.Context) error {
		for page := range slices.Chunk(ids, bodyPage) {
			some, err := s.look(ctx, readScript, page)
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return found, nil
}

// Put stores a session exactly as it is.
func (s *Store) Put(ctx context.Context, session *sessions.Session) error {
	exact, body, err := sessions.Exact(session)
	if err != nil {
		return err
	}
	return s.bounded(ctx, "copy session "+exact.ID, func(ctx context.Context) error {
		now := s.config.Now()
		if now.Before(exact.ExpiresAt()) {
			if err := s.enter(ctx, exact); err != nil {
				return err
			}
		} else if err := s.suspect(ctx, exact.ID); err != nil {
			return err
		}
		stored, err := putScript.Run(ctx, s.client, s.key(exact.ID), now.UnixMilli(), exact.Version, word(), body,
			exact.CreatedAt.UnixMilli(), exact.LastAccessed.UnixMilli(), exact.TTL.D().Milliseconds()).Int()
		if err != nil {
			return err
		}
		if stored == 0 {
			_, err = s.forget(ctx, now, exact.ID)
			return err
		}
		return s.enter(ctx, exact) // again: who ended a session of this id may have taken the place away meanwhile
	})
}
