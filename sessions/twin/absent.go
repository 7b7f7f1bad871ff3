package twin

import (
	"context"

	"github.com/tempool/tempool/sessions"
)

// Absent stands for a follower that could not be opened: all it is asked fails with err.
func Absent(err error) sessions.Mirror { return absent{err} }

type absent struct{ err error }

func (a absent) Create(context.Context, *sessions.Session) (*sessions.Session, error) {
	return nil, a.err
}

func (a absent) Get(context.Context, string) (*sessions.Session, error) { return nil, a.err }

func (a absent) Update(context.Context, string, func(*sessions.Session) error) (*sessions.Session, error) {
	return nil, a.err
}

func (a absent) Touch(context.Context, string) error  { return a.err }
func (a absent) Delete(context.Context, string) error { return a.err }

func (a absent) List(context.Context, string, int) ([]*sessions.Session, error) { return nil, a.err }

func (a absent) Count(context.Context) (int, error)                          { return 0, a.err }
func (a absent) DeleteExpired(context.Context) (int, error)                  { return 0, a.err }
func (a absent) IDs(context.Context) ([]string, error)                       { return nil, a.err }
func (a absent) Peek(context.Context, []string) ([]*sessions.Session, error) { return nil, a.err }
func (a absent) Put(context.Context, *sessions.Session) error                { return a.err }
func (absent) SetBounds(int, sessions.OnFull)                                {}
func (absent) Close() error                                                  { return nil }
