package dualwrite

import (
	"context"

	"github.com/tempool/tempool/sessions"
)

// Unavailable stands in for a secondary that could not be opened: its operations fail with err.
func Unavailable(err error) sessions.Replica { return unavailable{err} }

type unavailable struct{ err error }

func (u unavailable) Create(context.Context, *sessions.Session) (*sessions.Session, error) {
	return nil, u.err
}

func (u unavailable) Get(context.Context, string) (*sessions.Session, error) { return nil, u.err }

func (u unavailable) Update(context.Context, string, func(*sessions.Session) error) (*sessions.Session, error) {
	return nil, u.err
}

func (u unavailable) List(context.Context, string, int) ([]*sessions.Session, error) {
	return nil, u.err
}

func (u unavailable) Delete(context.Context, string) error                        { return u.err }
func (u unavailable) Count(context.Context) (int, error)                          { return 0, u.err }
func (u unavailable) DeleteExpired(context.Context) (int, error)                  { return 0, u.err }
func (u unavailable) IDs(context.Context) ([]string, error)                       { return nil, u.err }
func (u unavailable) Peek(context.Context, []string) ([]*sessions.Session, error) { return nil, u.err }
func (u unavailable) Restore(context.Context, *sessions.Session) (sessions.Restored, error) {
	return "", u.err
}
func (u unavailable) Put(context.Context, *sessions.Session) error { return u.err }
func (unavailable) SetBounds(int, sessions.OnFull)                 {}
func (unavailable) Close() error                                   { return nil }
