package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
)

const (
	// indexPage is how many sessions one exchange about the index looks at, and bodyPage the same where it brings their bodies along.
	indexPage = 500
	bodyPage  = 20
	// reviewAfter is how long the index is at most wrong about a session that a crash or another host's clock left behind.
	reviewAfter = 10 * time.Minute
)

// byUse and byReview are the index: ids with the time of a use, and the time when somebody must look whether the session is there
// still. The braces keep both on one node.
func (s *Store) byUse() string    { return s.prefix + "{sessions}:use" }
func (s *Store) byReview() string { return s.prefix + "{sessions}:review" }

func (s *Store) index() []string { return []string{s.byUse(), s.byReview()} }

// review is when the index must look at a session: when it may have expired, and sooner if that is far away.
func (s *Store) review(of *sessions.Session) int64 {
	return min(of.ExpiresAt().UnixMilli(), s.config.Now().Add(reviewAfter).UnixMilli())
}

// reserve finds a place for a session that is to be made.
func (s *Store) reserve(ctx context.Context, made *sessions.Session) error {
	s.mu.Lock()
	most, onFull := s.max, s.onFull
	s.mu.Unlock()
	for {
		got, err := reserveScript.Run(ctx, s.client, s.index(), made.LastAccessed.UnixMilli(), made.ID, s.review(made), most).Int()
		if err != nil || got == 1 {
			return err
		}
		swept, err := s.sweep(ctx)
		if err != nil {
			return err
		}
		if swept > 0 {
			continue
		}
		if onFull != sessions.Evict {
			return sessions.Full(most)
		}
		if err := s.evict(ctx); err != nil {
			return err
		}
	}
}

// enter writes sessions into the index as they are.
func (s *Store) enter(ctx context.Context, entered ...*sessions.Session) error {
	return s.write(ctx, redis.ZAddArgs{}, entered)
}

// correct does so for those that are in it.
func (s *Store) correct(ctx context.Context, corrected ...*sessions.Session) error {
	return s.write(ctx, redis.ZAddArgs{XX: true}, corrected)
}

func (s *Store) write(ctx context.Context, how redis.ZAddArgs, written []*sessions.Session) error {
	used, due := how, how
	for _, w := range written {
		used.Members = append(used.Members, redis.Z{Score: float64(w.LastAccessed.UnixMilli()), Member: w.ID})
		due.Members = append(due.Members, redis.Z{Score: float64(s.review(w)), Member: w.ID})
	}
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAddArgs(ctx, s.byUse(), used)
		p.ZAddArgs(ctx, s.byReview(), due)
		return nil
	})
	return err
}

// suspect makes the index look at a session at the next occasion, so that whoever ends it may fail half-way.
func (s *Store) suspect(ctx context.Context, id string) error {
	return s.client.ZAddXX(ctx, s.byReview(), redis.Z{Score: 0, Member: id}).Err()
}

// forget takes sessions out of the index, but for those that somebody entered after they were found to be due.
func (s *Store) forget(ctx context.Context, now time.Time, ids ...string) (int, error) {
	arguments := []any{now.UnixMilli()}
	for _, id := range ids {
		arguments = append(arguments, id)
	}
	return forgetScript.Run(ctx, s.client, s.index(), arguments...).Int()
}

// look runs readScript or peekScript for each id; nil for sessions that are gone.
func (s *Store) look(ctx context.Context, script *redis.Script, ids []string) ([]*sessions.Session, error) {
	now := s.config.Now().UnixMilli()
	replies := make([]*redis.Cmd, len(ids))
	_, err := s.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i, id := range ids {
			replies[i] = script.Eval(ctx, p, s.key(id), now) // by its text: in a pipeline nobody could send it after a refusal
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

// sweep looks at the sessions whose review is due, forgets those that are gone, corrects the others, and says how many it forgot.
func (s *Store) sweep(ctx context.Context) (forgotten int, err error) {
	for {
		now := s.config.Now()
		due, err := s.client.ZRangeByScore(ctx, s.byReview(), &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: indexPage,
		}).Result()
		if err != nil || len(due) == 0 {
			return forgotten, err
		}
		gone, err := s.reviewNow(ctx, now, due)
		forgotten += gone
		if err != nil {
			return forgotten, err
		}
	}
}

// reviewNow corrects what the index says of these sessions and says how many it forgot.
func (s *Store) reviewNow(ctx context.Context, now time.Time, ids []string) (gone int, err error) {
	found, err := s.look(ctx, peekScript, ids)
	if err != nil {
		return 0, err
	}
	var dead []string
	var live []*sessions.Session
	for i, session := range found {
		if session == nil {
			dead = append(dead, ids[i])
		} else {
			live = append(live, session)
		}
	}
	if len(dead) > 0 {
		if gone, err = s.forget(ctx, now, dead...); err != nil {
			return gone, err
		}
	}
	if len(live) > 0 {
		err = s.correct(ctx, live...)
	}
	return gone, err
}

// evict drops the session that was not used for longest.
func (s *Store) evict(ctx context.Context) error {
	for {
		now := s.config.Now()
		oldest, err := s.client.ZRangeWithScores(ctx, s.byUse(), 0, 15).Result()
		if err != nil || len(oldest) == 0 {
			return err
		}
		ids := make([]string, len(oldest))
		for i, z := range oldest {
			ids[i], _ = z.Member.(string)
		}
		found, err := s.look(ctx, peekScript, ids[:1])
		if err != nil {
			return err
		}
		first := found[0]
		if first == nil || float64(first.LastAccessed.UnixMilli()) <= oldest[0].Score {
			if err := s.suspect(ctx, ids[0]); err != nil {
				return err
			}
			if err := s.client.Del(ctx, s.key(ids[0])...).Err(); err != nil {
				return err
			}
			_, err = s.forget(ctx, now, ids[0])
			return err
		}
		if err := s.refresh(ctx, ids); err != nil { // they were used since
			return err
		}
	}
}

// refresh tells the index when these sessions were used.
func (s *Store) refresh(ctx context.Context, ids []string) error {
	found, err := s.look(ctx, peekScript, ids)
	if err != nil {
		return err
	}
	live := slices.DeleteFunc(found, func(session *sessions.Session) bool { return session == nil })
	if len(live) == 0 {
		return nil
	}
	return s.correct(ctx, live...)
}

// List returns sessions in the order of their ids.
func (s *Store) List(ctx context.Context, after string, limit int) (listed []*sessions.Session, err error) {
	listed = []*sessions.Session{}
	err = s.bounded(ctx, "list sessions", func(ctx context.Context) error {
		ids, err := s.client.ZRange(ctx, s.byUse(), 0, -1).Result()
		if err != nil {
			return err
		}
		ids = slices.DeleteFunc(ids, func(id string) bool { return id <= after })
		slices.Sort(ids)
		for page := range slices.Chunk(ids, bodyPage) {
			if len(listed) >= limit {
				break
			}
			found, err := s.look(ctx, readScript, page)
			if err != nil {
				return err
			}
			for _, session := range found {
				if session != nil && len(listed) < limit {
					listed = append(listed, session)
				}
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return listed, nil
}

// Count counts the sessions that live.
func (s *Store) Count(ctx context.Context) (count int, err error) {
	err = s.bounded(ctx, "count sessions", func(ctx context.Context) error {
		if _, err := s.sweep(ctx); err != nil {
			return err
		}
		n, err := s.client.ZCard(ctx, s.byUse()).Result()
		count = int(n)
		return err
	})
	return count, err
}

// DeleteExpired sweeps the index; the server removes the sessions themselves.
func (s *Store) DeleteExpired(ctx context.Context) (forgotten int, err error) {
	err = s.bounded(ctx, "sweep sessions", func(ctx context.Context) (err error) {
		forgotten, err = s.sweep(ctx)
		return err
	})
	return forgotten, err
}
