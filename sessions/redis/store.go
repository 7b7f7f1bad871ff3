// Package redis is a session store for many hosts, in Redis or Valkey, one server or a cluster.
//
// Each session is one key. Every operation on it is one script, so it is atomic on whichever node the key is, and the
// server expires the key. An index counts the sessions and orders them by last use. The index is updated lazily: a read
// does not write to it, and operations that need it to be exact first review the sessions that may have expired.
package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/redact"
	"github.com/tempool/tempool/internal/sleep"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// DefaultPrefix starts all keys.
const DefaultPrefix = "tempool:"

// Options of a store.
type Options struct {
	sessions.Config
	// URL is sessions.url of a pool: redis://[user:password@]host:port/database, or rediss:// for TLS. Name a second node
	// of a cluster, or the same node again, to use the cluster: redis://host:port?addr=host:port.
	URL string
	// Prefix of the keys. Default: DefaultPrefix.
	Prefix string
}

// Store is a sessions.Store in Redis. Each operation ends within operationTimeout; for Update, each of its attempts
// does. A write that fails with CodeStoreUnavailable or with its context's error may have been stored.
type Store struct {
	client redis.UniversalClient
	prefix string
	config sessions.Config
	cache  *cache
}

var _ sessions.Store = (*Store)(nil)

// Open makes a store. It does not connect. It fails with CodeInvalid for a malformed URL.
func Open(options Options) (*Store, error) {
	if err := spec.CheckRedisURL(options.URL); err != nil { // errors of a parser repeat what they cannot parse
		return nil, api.Errorf(api.CodeInvalid, "sessions.url: %w", err)
	}
	address, err := withPassword(options.URL)
	if err != nil {
		return nil, err
	}
	client, err := connect(address)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "sessions.url is not a Redis URL, for example redis://localhost:6379/0: %w",
			redact.Error(err))
	}
	return &Store{client: client, prefix: cmp.Or(options.Prefix, DefaultPrefix), config: options.Config.WithDefaults(),
		cache: newCache()}, nil
}

func (s *Store) key(id string) []string { return []string{s.prefix + "session:" + id} }

// exchange runs commands within operationTimeout and gives their errors a code.
func (s *Store) exchange(ctx context.Context, operation string, commands func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err := commands(limited)
	switch {
	case err == nil || api.CodeOf(err) != "":
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", operation, ctx.Err())
	case errors.Is(err, redis.ErrClosed):
		err = sessions.ErrClosed
	}
	return sessions.Unavailable(operation, err)
}

// record is a session as the server has it, except that its LastAccessed may be later.
type record struct {
	*sessions.Session
	writeID  string // of the last write
	accessed int64  // the last use that the server has, in milliseconds
}

// A use is written only when the server lacks at least maxTTLLoss, or the sixtieth part of the TTL if that is less: a
// session may expire that much early. A session in steady use is then read without a script.
const (
	maxTTLLoss     = time.Second
	maxTTLLossPart = 60
)

// useIsDue reports whether a use at now must be written. If now is before the last use, the clock of that was ahead, or
// this one was set back: only a script then keeps the server from expiring the session.
func (r record) useIsDue(now time.Time) bool {
	since := now.UnixMilli() - r.accessed
	return since < 0 || since >= min(maxTTLLoss, r.TTL.D()/maxTTLLossPart).Milliseconds()
}

// parse decodes v, g, t, l, c and, if present, the body. Without fields it returns a nil Session.
func parse(id string, fields []string) (r record, err error) {
	if len(fields) == 0 {
		return r, nil
	}
	if len(fields) < 5 {
		return r, fmt.Errorf("session %s has %d fields, expected 5 or more", id, len(fields))
	}
	var numbers [5]int64
	for i, field := range fields[:5] {
		if i == 1 {
			continue
		}
		if numbers[i], err = strconv.ParseInt(field, 10, 64); err != nil {
			return r, fmt.Errorf("session %s: %w", id, err)
		}
	}
	found := sessions.Header{Version: numbers[0], LastAccessed: numbers[2], TTL: numbers[3],
		CreatedAt: numbers[4]}.Session(id)
	if len(fields) > 5 {
		err = found.SetBody([]byte(fields[5]))
	}
	return record{found, fields[1], numbers[2]}, err
}

// get reads a session and extends its TTL. It fails with CodeSessionNotFound.
func (s *Store) get(ctx context.Context, operation, id string) (r record, err error) {
	if err := sessions.CheckID(id); err != nil {
		return r, err
	}
	err = s.exchange(ctx, operation, func(ctx context.Context) error {
		known, now := s.cache.get(id), s.config.Now()
		if known.Session != nil && !known.useIsDue(now) {
			var unchanged bool
			if r, unchanged, err = s.getUnchanged(ctx, known, now); err != nil || unchanged {
				return err
			}
		}
		fields, err := getScript.Run(ctx, s.client, s.key(id), now.UnixMilli(), known.writeID).StringSlice()
		if err != nil {
			return err
		}
		if r, err = parse(id, fields); err == nil && r.Session == nil {
			err = sessions.NotFound(id)
		}
		switch {
		case err != nil:
		case len(fields) > 5:
			s.cache.put(record{r.Clone(), r.writeID, r.accessed}, len(fields[5]))
		default:
			r = known.usedAt(now, r.accessed)
			s.cache.note(r)
		}
		return err
	})
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// getUnchanged returns a cached session if it is live and the server has no other write of it. It does not write the
// use.
func (s *Store) getUnchanged(ctx context.Context, known record, now time.Time) (r record, unchanged bool, err error) {
	fields, err := s.client.HMGet(ctx, s.key(known.ID)[0], "g", "t").Result()
	if err != nil || len(fields) != 2 || fields[0] != known.writeID {
		return r, false, err
	}
	text, _ := fields[1].(string)
	accessed, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return r, false, fmt.Errorf("session %s: %w", known.ID, err)
	}
	if now.UnixMilli() >= accessed+known.TTL.D().Milliseconds() {
		return r, false, nil
	}
	return known.usedAt(now, accessed), true, nil
}

// usedAt returns a copy of an unchanged record that was used at now. accessed is the last use that the server has.
func (r record) usedAt(now time.Time, accessed int64) record {
	used := r.Clone()
	used.LastAccessed = time.UnixMilli(max(now.UnixMilli(), accessed)).UTC()
	return record{used, r.writeID, accessed}
}

// Get returns a session and extends its TTL.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	r, err := s.get(ctx, "get session "+id, id)
	return r.Session, err
}

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

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := sessions.CheckID(id); err != nil {
		return err
	}
	return s.exchange(ctx, "delete session "+id, func(ctx context.Context) error {
		now := s.config.Now()
		if err := s.markForReview(ctx, id); err != nil {
			return err
		}
		existed, err := deleteScript.Run(ctx, s.client, s.key(id), now.UnixMilli()).Int()
		if err == nil && existed == 0 {
			err = sessions.NotFound(id)
		}
		if err != nil {
			return err
		}
		_, err = s.removeFromIndex(ctx, now, id)
		return err
	})
}

// Put stores a session.
func (s *Store) Put(ctx context.Context, given *sessions.Session, to sessions.Purpose) (stored *sessions.Session,
	did sessions.Restored, err error) {
	now := s.config.Now()
	exact, body, err := s.config.PreparePut(given, to, now)
	switch {
	case err != nil:
		return nil, "", err
	case exact == nil:
		return nil, sessions.RestoredExpired, nil
	}
	err = s.exchange(ctx, to.Operation(exact.ID), func(ctx context.Context) error {
		if err := s.reserve(ctx, exact, to); err != nil {
			return err
		}
		h := exact.Header()
		answer, err := putScript.Run(ctx, s.client, s.key(exact.ID), now.UnixMilli(), h.Version, newWriteID(), body,
			h.CreatedAt, h.LastAccessed, h.TTL, string(to)).Slice()
		if err != nil {
			return err
		}
		switch did = sessions.Restored(answer[0].(string)); {
		case did == sessions.RestoredKept && to == sessions.ToCreate:
			return sessions.Exists(exact.ID)
		case did == sessions.RestoredKept:
			return nil
		}
		stored = exact.Clone()
		stored.LastAccessed = time.UnixMilli(answer[1].(int64)).UTC()
		return s.addToIndex(ctx, stored) // again: a concurrent delete of this id may have removed it
	})
	if err != nil {
		return nil, "", err
	}
	return stored, did, nil
}

// newWriteID identifies one write.
func newWriteID() string { return strconv.FormatUint(rand.Uint64(), 36) }

// Update changes a session. It does not read a cached session first: the server detects an outdated one.
func (s *Store) Update(ctx context.Context, id string,
	change func(*sessions.Session) error) (*sessions.Session, error) {
	operation := "update session " + id
	current, cached := s.cache.take(id)
	for attempt := 1; ; attempt++ {
		if !cached {
			var err error
			if current, err = s.get(ctx, operation, id); err != nil {
				return nil, err
			}
		}
		now := s.config.Now()
		next, body, err := s.config.PrepareUpdate(current.Session, change, now)
		swapped := false
		switch {
		case err == nil:
			swapped, err = s.swap(ctx, now, current, next, body)
		case cached: // it may come from outdated data: ignore it until the session was read
			err = nil
		}
		if err != nil {
			return nil, err
		}
		if swapped {
			return next, nil
		}
		if !cached && !sleep.For(ctx.Done(), rand.N(time.Duration(min(attempt, 10))*time.Millisecond)) {
			return nil, fmt.Errorf("%s: %w", operation, ctx.Err())
		}
		cached = false
	}
}

// swap stores next and returns true if the server still has current.
func (s *Store) swap(ctx context.Context, now time.Time, current record, next *sessions.Session,
	body []byte) (swapped bool, err error) {
	writeID := newWriteID()
	err = s.exchange(ctx, "update session "+next.ID, func(ctx context.Context) error {
		h := next.Header()
		arguments := append(make([]any, 0, 7), now.UnixMilli(), current.writeID, writeID, h.Version, body)
		if next.TTL != current.TTL || current.useIsDue(now) {
			arguments = append(arguments, h.LastAccessed, h.TTL)
		}
		accessed, err := swapScript.Run(ctx, s.client, s.key(next.ID), arguments...).Int64()
		if err != nil || accessed <= 0 {
			return err
		}
		swapped = true
		next.LastAccessed = time.UnixMilli(max(h.LastAccessed, accessed)).UTC()
		s.cache.put(record{next.Clone(), writeID, accessed}, len(body))
		if next.TTL != current.TTL {
			return s.addToIndex(ctx, next)
		}
		return nil
	})
	return swapped, err
}

// Close closes the connections. The sessions stay on the server.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return sessions.Unavailable("close the session store", err)
	}
	return nil
}
