// Package redis is a session store for many hosts, in Redis or Valkey, one server or a cluster.
//
// Each session is one key, which every operation changes by one script, so it is atomic wherever the key lives; the server
// expires it. An index beside them knows how many there are and in which order they were used. It follows the sessions: reading one
// writes nothing to it, and whoever needs the index to be exact looks at those sessions that may have expired.
package redis

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/sessions"
	"github.com/tempool/tempool/spec"
)

// DefaultPrefix is how all keys begin.
const DefaultPrefix = "tempool:"

// Options of a store.
type Options struct {
	sessions.Config
	// URL is sessions.url of a pool: redis://[user:password@]host:port/database, or rediss:// for TLS. A cluster is named by one more
	// of its nodes, or the same again: redis://host:port?addr=host:port.
	URL string
	// Prefix of the keys. Default: DefaultPrefix.
	Prefix string
}

// Store is a sessions.Store in Redis. Each operation ends within operationTimeout, but for Update, which does so whenever it tries. A
// write that ends with CodeStoreUnavailable or with its context may have happened.
type Store struct {
	client redis.UniversalClient
	prefix string
	config sessions.Config // but for Max and OnFull
	recent *recent

	mu     sync.Mutex
	max    int // guarded by mu, as is onFull
	onFull sessions.OnFull
}

var _ sessions.Store = (*Store)(nil)

// Open makes a store; it does not wait for the server. It fails with CodeInvalid for a URL that is none.
func Open(options Options) (*Store, error) {
	client, err := connect(options.URL)
	if err != nil {
		return nil, api.Errorf(api.CodeInvalid, "sessions.url is not that of a Redis server, such as redis://localhost:6379/0: %w", err)
	}
	if options.Prefix == "" {
		options.Prefix = DefaultPrefix
	}
	config := options.Config.WithDefaults()
	return &Store{client: client, prefix: options.Prefix, config: config, recent: newRecent(), max: config.Max, onFull: config.OnFull}, nil
}

func (s *Store) key(id string) []string { return []string{s.prefix + "session:" + id} }

// bounded runs exchanges with the server, within operationTimeout, and codes what they failed with.
func (s *Store) bounded(ctx context.Context, doing string, exchange func(context.Context) error) error {
	within, cancel := context.WithTimeout(ctx, operationTimeout)
	defer cancel()
	err := exchange(within)
	var coded *api.Error
	switch {
	case err == nil || errors.As(err, &coded):
		return err
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", doing, ctx.Err())
	case errors.Is(err, redis.ErrClosed):
		err = sessions.ErrClosed
	}
	return sessions.Unavailable(doing, err)
}

// record is a session as the server has it.
type record struct {
	*sessions.Session
	word string // of the write that left it so
}

// parse reads v, g, t, l, c and, where they were asked for, programs, data and metadata; a nil Session for no fields.
func parse(id string, fields []string) (r record, err error) {
	if len(fields) == 0 {
		return r, nil
	}
	if len(fields) < 5 {
		return r, fmt.Errorf("session %s has %d fields", id, len(fields))
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
	found := &sessions.Session{
		ID: id, Version: numbers[0], LastAccessed: time.UnixMilli(numbers[2]).UTC(), CreatedAt: time.UnixMilli(numbers[4]).UTC(),
		TTL: spec.Duration(time.Duration(numbers[3]) * time.Millisecond),
	}
	if len(fields) > 5 {
		err = found.SetBody([]byte(fields[5]))
	}
	return record{found, fields[1]}, err
}

// get reads a session and extends its life. It fails with CodeSessionNotFound.
func (s *Store) get(ctx context.Context, doing, id string) (r record, err error) {
	if err := sessions.CheckID(id); err != nil {
		return r, err
	}
	err = s.bounded(ctx, doing, func(ctx context.Context) error {
		known := s.recent.find(id)
		fields, err := getScript.Run(ctx, s.client, s.key(id), s.config.Now().UnixMilli(), known.word).StringSlice()
		if err != nil {
			return err
		}
		if r, err = parse(id, fields); err == nil && r.Session == nil {
			err = sessions.NotFound(id)
		}
		switch {
		case err != nil:
		case len(fields) > 5:
			s.recent.keep(record{r.Clone(), r.word}, len(fields[5]))
		default: // as it is remembered
			body := known.Clone()
			r.Programs, r.Data, r.Metadata = body.Programs, body.Data, body.Metadata
		}
		return err
	})
	if err != nil {
		return record{}, err
	}
	return r, nil
}

// Get returns a session and extends its life.
func (s *Store) Get(ctx context.Context, id string) (*sessions.Session, error) {
	r, err := s.get(ctx, "get session "+id, id)
	return r.Session, err
}

// Touch extends a session's life.
func (s *Store) Touch(ctx context.Context, id string) error {
	if err := sessions.CheckID(id); err != nil {
		return err
	}
	return s.bounded(ctx, "touch session "+id, func(ctx context.Context) error { return s.expect(ctx, id, touchScript) })
}

// Delete removes a session.
func (s *Store) Delete(ctx context.Context, id string) error {
	if err := sessions.CheckID(id); err != nil {
		return err
	}
	return s.bounded(ctx, "delete session "+id, func(ctx context.Context) error {
		now := s.config.Now()
		if err := s.suspect(ctx, id); err != nil {
			return err
		}
		if err := s.expect(ctx, id, deleteScript); err != nil {
			return err
		}
		_, err := s.forget(ctx, now, id)
		return err
	})
}

// expect runs a script that returns whether there is a session.
func (s *Store) expect(ctx context.Context, id string, script *redis.Script) error {
	found, err := script.Run(ctx, s.client, s.key(id), s.config.Now().UnixMilli()).Int()
	if err == nil && found == 0 {
		err = sessions.NotFound(id)
	}
	return err
}

// Create stores a new session.
func (s *Store) Create(ctx context.Context, draft *sessions.Session) (*sessions.Session, error) {
	now := s.config.Now()
	made, body, err := s.config.New(draft, now)
	if err != nil {
		return nil, err
	}
	err = s.bounded(ctx, "create session "+made.ID, func(ctx context.Context) error {
		if err := s.reserve(ctx, made); err != nil {
			return err
		}
		created, err := createScript.Run(ctx, s.client, s.key(made.ID), now.UnixMilli(), made.Version, word(), body,
			made.CreatedAt.UnixMilli(), made.LastAccessed.UnixMilli(), made.TTL.D().Milliseconds()).Int()
		if err != nil {
			return err
		}
		if created == 0 {
			return sessions.Exists(made.ID)
		}
		return s.enter(ctx, made) // again: who ended a session of this id may have taken the place away meanwhile
	})
	if err != nil {
		return nil, err
	}
	return made.Clone(), nil
}

// word tells one write from all others.
func word() string { return strconv.FormatUint(rand.Uint64(), 36) }

// Update changes a session. One that this store has left or found a moment ago it does not read first: the server compares.
func (s *Store) Update(ctx context.Context, id string, change func(*sessions.Session) error) (*sessions.Session, error) {
	doing := "update session " + id
	if current, known := s.recent.take(id); known {
		now := s.config.Now()
		// A failure of change may be one of what is outdated: it counts once the session was read.
		if next, body, err := s.config.Changed(current.Session, change, now); err == nil {
			if done, err := s.swap(ctx, doing, now, current, next, body); err != nil {
				return nil, err
			} else if done {
				return next, nil
			}
		}
	}
	for attempt := 1; ; attempt++ {
		current, err := s.get(ctx, doing, id)
		if err != nil {
			return nil, err
		}
		now := s.config.Now()
		next, body, err := s.config.Changed(current.Session, change, now)
		if err != nil {
			return nil, err
		}
		done, err := s.swap(ctx, doing, now, current, next, body)
		if err != nil {
			return nil, err
		}
		if done {
			return next, nil
		}
		if err := giveWay(ctx, attempt); err != nil {
			return nil, fmt.Errorf("%s: %w", doing, err)
		}
	}
}

// swap stores next in the place of current, and says whether that was there still.
func (s *Store) swap(ctx context.Context, doing string, now time.Time, current record, next *sessions.Session, body []byte) (done bool, err error) {
	mine := word()
	err = s.bounded(ctx, doing, func(ctx context.Context) error {
		accessed, err := swapScript.Run(ctx, s.client, s.key(next.ID), now.UnixMilli(), current.Version, current.word, next.Version, mine, body,
			next.LastAccessed.UnixMilli(), next.TTL.D().Milliseconds()).Int64()
		if err != nil || accessed <= 0 {
			return err
		}
		done = true
		next.LastAccessed = time.UnixMilli(accessed).UTC()
		s.recent.keep(record{next.Clone(), mine}, len(body))
		if next.TTL != current.TTL {
			return s.enter(ctx, next)
		}
		return nil
	})
	return done, err
}

// giveWay waits a little, at random, so that those who change one session at one time do not go on meeting.
func giveWay(ctx context.Context, attempt int) error {
	timer := time.NewTimer(rand.N(time.Duration(min(attempt, 10)) * time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// SetBounds replaces the bounds that Create keeps.
func (s *Store) SetBounds(max int, onFull sessions.OnFull) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.max, s.onFull = max, onFull
}

// Close closes the connections; the sessions stay.
func (s *Store) Close() error {
	if err := s.client.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
		return sessions.Unavailable("close the session store", err)
	}
	return nil
}
