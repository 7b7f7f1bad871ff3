package redis

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

const (
	// reviewPage is how many sessions one exchange reviews.
	reviewPage = 500
	// reviewAfter limits how long the index lists a session that a crash or another host's clock left behind.
	reviewAfter = 10 * time.Minute
)

// byUse and byReview are the keys of the index: ids sorted by their last use, and by the time at which a sweep must
// check whether the session still exists. The braces put both keys on one node of a cluster.
func (s *Store) byUse() string    { return s.prefix + "{sessions}:use" }
func (s *Store) byReview() string { return s.prefix + "{sessions}:review" }

func (s *Store) index() []string { return []string{s.byUse(), s.byReview()} }

// reviewAt is the time of a session's next review: when it may have expired, and at most reviewAfter from now.
func (s *Store) reviewAt(session *sessions.Session) int64 {
	return min(session.ExpiresAt().UnixMilli(), s.config.Now().Add(reviewAfter).UnixMilli())
}

// reserve adds a session that is about to be stored to the index, and makes room for it there as its purpose says.
func (s *Store) reserve(ctx context.Context, session *sessions.Session, to sessions.Purpose) error {
	if to == sessions.ToCopy {
		return s.addToIndex(ctx, session)
	}
	settings := s.config.Settings()
	for {
		reserved, err := reserveScript.Run(ctx, s.client, s.index(), session.LastAccessed.UnixMilli(), session.ID,
			s.reviewAt(session), settings.Max).Int()
		if err != nil || reserved == 1 {
			return err
		}
		swept, err := s.sweep(ctx)
		if err != nil {
			return err
		}
		if swept > 0 {
			continue
		}
		if to == sessions.ToRestore || settings.OnFull != spec.OnFullEvict {
			return sessions.Full(settings.Max)
		}
		if err := s.evict(ctx); err != nil {
			return err
		}
	}
}

// addToIndex adds a session to the index or updates its times there.
func (s *Store) addToIndex(ctx context.Context, session *sessions.Session) error {
	return s.writeIndex(ctx, redis.ZAddArgs{}, session)
}

// updateIndex updates the times of those sessions that are in the index.
func (s *Store) updateIndex(ctx context.Context, updated []*sessions.Session) error {
	if len(updated) == 0 {
		return nil
	}
	return s.writeIndex(ctx, redis.ZAddArgs{XX: true}, updated...)
}

func (s *Store) writeIndex(ctx context.Context, args redis.ZAddArgs, written ...*sessions.Session) error {
	uses, reviews := args, args
	for _, w := range written {
		uses.Members = append(uses.Members, redis.Z{Score: float64(w.LastAccessed.UnixMilli()), Member: w.ID})
		reviews.Members = append(reviews.Members, redis.Z{Score: float64(s.reviewAt(w)), Member: w.ID})
	}
	_, err := s.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.ZAddArgs(ctx, s.byUse(), uses)
		p.ZAddArgs(ctx, s.byReview(), reviews)
		return nil
	})
	return err
}

// markForReview makes the next sweep check a session. A delete calls it first, so that a crash halfway leaves no stale
// index entry.
func (s *Store) markForReview(ctx context.Context, id string) error {
	return s.client.ZAddXX(ctx, s.byReview(), redis.Z{Score: 0, Member: id}).Err()
}

// removeFromIndex removes those sessions whose review is still due at now; others were added again meanwhile.
func (s *Store) removeFromIndex(ctx context.Context, now time.Time, ids ...string) (int, error) {
	arguments := []any{now.UnixMilli()}
	for _, id := range ids {
		arguments = append(arguments, id)
	}
	return removeScript.Run(ctx, s.client, s.index(), arguments...).Int()
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

// sweep reviews the sessions whose review is due: it removes those that no longer exist from the index, updates the
// others, and returns the number removed.
func (s *Store) sweep(ctx context.Context) (removed int, err error) {
	for {
		now := s.config.Now()
		due, err := s.client.ZRangeByScore(ctx, s.byReview(), &redis.ZRangeBy{
			Min: "-inf", Max: strconv.FormatInt(now.UnixMilli(), 10), Count: reviewPage,
		}).Result()
		if err != nil || len(due) == 0 {
			return removed, err
		}
		n, err := s.review(ctx, now, due)
		removed += n
		if err != nil {
			return removed, err
		}
	}
}

// review brings the index entries of these sessions up to date and returns the number removed.
func (s *Store) review(ctx context.Context, now time.Time, ids []string) (removed int, err error) {
	found, err := s.readMany(ctx, peekScript, ids)
	if err != nil {
		return 0, err
	}
	var gone []string
	var live []*sessions.Session
	for i, session := range found {
		if session == nil {
			gone = append(gone, ids[i])
		} else {
			live = append(live, session)
		}
	}
	if len(gone) > 0 {
		if removed, err = s.removeFromIndex(ctx, now, gone...); err != nil {
			return removed, err
		}
		s.reportExpired(removed, gone)
	}
	return removed, s.updateIndex(ctx, live)
}

// reportExpired reports the sessions that this store has removed from the index; another host may have removed some of
// them.
func (s *Store) reportExpired(removed int, gone []string) {
	if removed == 0 {
		return
	}
	if removed < len(gone) {
		gone = nil
	}
	s.config.Removed(sessions.Expired, removed, gone)
}

// evict deletes the least recently used session.
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
		found, err := s.readMany(ctx, peekScript, ids[:1])
		if err != nil {
			return err
		}
		first := found[0]
		if first == nil || float64(first.LastAccessed.UnixMilli()) <= oldest[0].Score {
			if err := s.markForReview(ctx, ids[0]); err != nil {
				return err
			}
			deleted, err := s.client.Del(ctx, s.key(ids[0])...).Result()
			if err != nil {
				return err
			}
			if deleted > 0 && first != nil { // not by another host, and not expired
				s.config.Removed(sessions.Evicted, 1, ids[:1])
			}
			_, err = s.removeFromIndex(ctx, now, ids[0])
			return err
		}
		// The index is behind: the session was used since. Update the oldest entries and try again.
		if found, err = s.readMany(ctx, peekScript, ids); err != nil {
			return err
		}
		live := slices.DeleteFunc(found, func(session *sessions.Session) bool { return session == nil })
		if err := s.updateIndex(ctx, live); err != nil {
			return err
		}
	}
}
