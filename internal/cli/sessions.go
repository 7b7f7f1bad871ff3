package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
)

func (a *app) sessionsCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "sessions",
		Short: "List, read, change, delete and move the sessions that a pool keeps",
		Example: `  ctl sessions list python
  ctl sessions get python user:42
  ctl sessions set python user:42 'plan="gold"'
  ctl sessions evacuate python/2`,
	}, a.sessionsListCommand(), a.sessionsGetCommand(), a.sessionsSetCommand(), a.sessionsRemoveCommand(), a.sessionsCopyCommand(), a.sessionsMigrateCommand(), a.sessionsEvacuateCommand(), a.sessionsRebalanceCommand())
}

// sessionCommand has a leaf run with the pool that its first argument names, reached as ctl call reaches it, within --timeout.
func (a *app) sessionCommand(c *cobra.Command, run func(ctx context.Context, p pool, args []string) error) *cobra.Command {
	var to aim
	to.gatewayFlags(c)
	c.ValidArgsFunction = a.completePools
	return a.gatewayCommand(c, &to, func(ctx context.Context, p pool, args []string) error {
		ctx, cancel := a.request(ctx)
		defer cancel()
		return run(ctx, p, args)
	})
}

func (a *app) sessionsListCommand() *cobra.Command {
	var after string
	var limit int
	c := &cobra.Command{
		Use:   "list POOL",
		Short: "List the sessions in a pool's store",
		Long: `List the sessions in a pool's store, in the order of their ids. Pools of a host that keep sessions alike share a store. If
there are more than --limit, the last line, or the field next, says what --after is to be for the next of them.`,
		Example: `  ctl sessions list python
  ctl sessions list python --limit 1000 -o json | jq -r '.sessions[].id'`,
		Args: exactly(argPool),
	}
	c.Flags().StringVar(&after, "after", "", "begin behind this id")
	c.Flags().IntVar(&limit, "limit", 100, "how many at most, 1 to 1000")
	check := c.Args
	c.Args = func(cmd *cobra.Command, args []string) error {
		if limit < 1 || limit > 1000 {
			return usagef("--limit is %d; give a number from 1 to 1000", limit)
		}
		return check(cmd, args)
	}
	return a.sessionCommand(c, func(ctx context.Context, p pool, _ []string) error {
		list, err := p.Sessions(ctx, after, limit)
		if err != nil {
			return err
		}
		return a.printResult(list, func(w io.Writer) error {
			var rows [][]string
			for _, s := range list.Sessions {
				rows = append(rows, []string{s.ID, strconv.FormatInt(s.Version, 10), formatBytes(int64(s.Bytes)), formatDuration(a.now().Sub(s.LastAccessed)), s.TTL.String()})
			}
			if err := table(w, []string{"SESSION", "VERSION", "SIZE", "IDLE", "TTL"}, rows); err != nil || list.Next == "" {
				return err
			}
			_, err := fmt.Fprintf(w, "there are more: --after %s\n", list.Next)
			return err
		})
	})
}

func (a *app) sessionsGetCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:   "get POOL SESSION",
		Short: "Show what a session holds",
		Long:  "Show what a session holds, which extends its life. With -o json it is the document that ctl sessions set -f takes.",
		Example: `  ctl sessions get python user:42
  ctl sessions get python user:42 -o json | jq .data`,
		Args: exactly(argPool, argSession),
	}, func(ctx context.Context, p pool, args []string) error {
		state, err := p.Session(args[1]).Get(ctx)
		if err != nil {
			return err
		}
		return a.printSession(state)
	})
}

func (a *app) printSession(s *tempool.SessionState) error {
	return a.printResult(s, func(w io.Writer) error {
		if _, err := fmt.Fprintf(w, "%s, version %d, lives for %s after its last use\n", s.ID, s.Version, s.TTL); err != nil {
			return err
		}
		var rows [][]string
		for _, part := range []struct {
			name   string
			values map[string]json.RawMessage
		}{{"data", s.Data}, {"programs", s.Programs}, {"metadata", s.Metadata}} {
			for _, key := range slices.Sorted(maps.Keys(part.values)) {
				rows = append(rows, []string{part.name, key, oneLine(string(part.values[key]), maxReasonRunes)})
			}
		}
		if len(rows) == 0 {
			return nil
		}
		return table(w, []string{"PART", "KEY", "VALUE"}, rows)
	})
}

func (a *app) sessionsSetCommand() *cobra.Command {
	var file string
	var version int64
	c := &cobra.Command{
		Use:   "set POOL SESSION {KEY=JSON... | -f FILE|-}",
		Short: "Change keys of a session's data, or replace all it holds",
		Long: `Change keys of a session's data, or replace all that it holds. A session that is not there is made, unless --if-version asks for one.

KEY=JSON pairs are merged into data: what is not named stays, and null removes a key. -f takes a document as ctl sessions get -o json
prints it (- is standard input); one with a version replaces that version only.`,
		Example: `  ctl sessions set python user:42 'plan="gold"' age=36 old=null
  ctl sessions set python user:42 age=37 --if-version 3
  ctl sessions set python user:42 -f session.json`,
	}
	c.Flags().StringVarP(&file, "file", "f", "", "the whole session, a JSON file, or - for standard input")
	c.Flags().Int64Var(&version, "if-version", 0, "change the session only if it has this version")
	if err := c.MarkFlagFilename("file", "json"); err != nil {
		panic("command " + c.Name() + ": " + err.Error())
	}
	c.Args = func(cmd *cobra.Command, args []string) error {
		pairs := len(args) - 2
		switch {
		case cmd.Flags().Changed("if-version") && version < 1:
			return usagef("--if-version is %d; versions are numbered from 1", version)
		case pairs < 0, pairs == 0 && file == "", pairs > 0 && file != "":
			return usagef("%s takes POOL SESSION and either pairs KEY=JSON or -f FILE", cmd.CommandPath())
		}
		if _, err := parsePairs(args[2:]); err != nil {
			return err
		}
		return checkArguments([]string{argPool, argSession}, args[:2])
	}
	return a.sessionCommand(c, func(ctx context.Context, p pool, args []string) error {
		session := p.Session(args[1])
		var state *tempool.SessionState
		var err error
		if file != "" {
			var document tempool.SessionState
			if document, err = a.readSession(file, version); err != nil {
				return err
			}
			state, err = session.Put(ctx, document)
		} else {
			var data map[string]json.RawMessage
			if data, err = parsePairs(args[2:]); err != nil {
				return err
			}
			state, err = mergeSession(ctx, session, data, version)
		}
		if err != nil {
			return err
		}
		return a.printSession(state)
	})
}

// parsePairs are pairs KEY=JSON as one object.
func parsePairs(pairs []string) (map[string]json.RawMessage, error) {
	data := map[string]json.RawMessage{}
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		switch {
		case !found || key == "":
			return nil, usagef("%q is no pair KEY=JSON", pair)
		case !json.Valid([]byte(value)):
			return nil, usagef("the value of %s is not JSON; text needs its quotes: '%s=\"text\"'", key, key)
		}
		data[key] = json.RawMessage(value)
	}
	return data, nil
}

// mergeSession changes a session's data, and makes the session if that is allowed and it is not there.
func mergeSession(ctx context.Context, session *tempool.Session, data map[string]json.RawMessage, version int64) (*tempool.SessionState, error) {
	patch := map[string]any{"data": data}
	state, err := session.Patch(ctx, patch, version)
	if version != 0 || !errors.Is(err, api.ErrSessionNotFound) {
		return state, err
	}
	fresh := maps.Clone(data)
	maps.DeleteFunc(fresh, func(_ string, value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" })
	state, err = session.Create(ctx, tempool.SessionState{Data: fresh})
	if errors.Is(err, api.ErrSessionExists) { // somebody else made it meanwhile
		return session.Patch(ctx, patch, 0)
	}
	return state, err
}

// maxSessionFile bounds what is read of a document, in bytes: twice what a session may hold, for spaces.
const maxSessionFile = 2 << 20

// readSession reads a whole session; version, unless it is 0, is the one that is to be replaced.
func (a *app) readSession(path string, version int64) (s tempool.SessionState, err error) {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return s, api.Errorf(api.CodeInvalid, "the session's document cannot be read: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSessionFile+1))
	switch {
	case err != nil:
		return s, api.Errorf(api.CodeInvalid, "the session's document cannot be read: %w", err)
	case len(text) > maxSessionFile:
		return s, api.Errorf(api.CodePayloadTooLarge, "the session's document is larger than %d bytes", maxSessionFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil || decoder.More() {
		return s, api.Errorf(api.CodeInvalid, `the document is not one session such as {"data": {"key": "value"}, "ttl": "1h"}: %w`, err)
	}
	if version != 0 {
		if s.Version != 0 && s.Version != version {
			return s, api.Errorf(api.CodeInvalid, "the document has version %d, --if-version %d", s.Version, version)
		}
		s.Version = version
	}
	return s, nil
}

func (a *app) sessionsRemoveCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:     "rm POOL SESSION",
		Short:   "Delete a session and all it holds",
		Example: "  ctl sessions rm python user:42",
		Args:    exactly(argPool, argSession),
	}, func(ctx context.Context, p pool, args []string) error {
		if err := p.Session(args[1]).Delete(ctx); err != nil {
			return err
		}
		return a.printResult(map[string]string{"deleted": args[1]}, func(w io.Writer) error {
			_, err := fmt.Fprintf(w, "session %s is deleted\n", args[1])
			return err
		})
	})
}
