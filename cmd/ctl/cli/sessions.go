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
	"time"

	"github.com/spf13/cobra"

	"github.com/tempool/tempool"
	"github.com/tempool/tempool/api"
	"github.com/tempool/tempool/internal/command"
	"github.com/tempool/tempool/spec"
)

func (a *app) sessionsCommand() *cobra.Command {
	return a.group(&cobra.Command{
		Use:   "sessions",
		Short: "List, read, create, change, delete, bind, move, export and import the sessions of a pool",
		Example: `  ctl sessions list python
  ctl sessions get python user:42
  ctl sessions set python user:42 'plan="gold"'
  ctl sessions evacuate python/2`,
	}, a.sessionsListCommand(), a.sessionsGetCommand(), a.sessionsNewCommand(), a.sessionsSetCommand(), a.sessionsRemoveCommand(), a.sessionsBindingsCommand(), a.sessionsBindCommand(),
		a.sessionsUnbindCommand(), a.sessionsExportCommand(), a.sessionsImportCommand(), a.sessionsCopyCommand(), a.sessionsMigrateCommand(), a.sessionsEvacuateCommand(), a.sessionsRebalanceCommand())
}

// sessionCommand makes c run with the pool that its first argument names, for at most --timeout.
func (a *app) sessionCommand(c *cobra.Command, run func(ctx context.Context, p pool, args []string) error) *cobra.Command {
	return a.gatewayCommand(c, new(gatewayFlags), func(ctx context.Context, p pool, args []string) error {
		ctx, cancel := a.request(ctx)
		defer cancel()
		return run(ctx, p, args)
	})
}

// pageFlags chooses one page of a list.
type pageFlags struct {
	after string
	limit int
}

// flags adds the flags of a list of things, each named after what identifies it, such as "session".
func (p *pageFlags) flags(c *cobra.Command, key, things string, most int) {
	c.Flags().StringVar(&p.after, "after", "", "start after this "+key)
	rangeVar(c, &p.limit, "limit", 100, 1, most, fmt.Sprintf("maximum number of %s, 1 to %d", things, most))
}

func (a *app) sessionsListCommand() *cobra.Command {
	var page pageFlags
	c := &cobra.Command{
		Use:   "list POOL",
		Short: "List the sessions in a pool's store",
		Long: `List the sessions in a pool's store, ordered by id. Pools of one host with the same session settings share a store. If there are
more than --limit sessions, the last line, or the field next, has the value of --after for the next page.`,
		Example: `  ctl sessions list python
  ctl sessions list python --limit 1000 -o json | jq -r '.sessions[].id'`,
	}
	page.flags(c, "id", "sessions", 1000)
	return a.sessionCommand(c, func(ctx context.Context, p pool, _ []string) error {
		found, err := p.Sessions(ctx, page.after, page.limit)
		if err != nil {
			return err
		}
		return a.printResult(found, func(text *strings.Builder) {
			tableOf(text, []string{"SESSION", "VERSION", "SIZE", "IDLE", "TTL"}, found.Sessions, func(s tempool.SessionSummary) []string {
				return []string{s.ID, strconv.FormatInt(s.Version, 10), formatBytes(int64(s.Bytes)), formatDuration(a.now().Sub(s.LastAccessed)), s.TTL.String()}
			})
			if found.Next != "" {
				fmt.Fprintf(text, "more sessions: --after %s\n", found.Next)
			}
		})
	})
}

func (a *app) sessionsGetCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:   "get POOL SESSION",
		Short: "Show the data of a session",
		Long:  "Show the data, programs and metadata of a session. This renews its TTL. With -o json it is the document that ctl sessions set -f reads.",
		Example: `  ctl sessions get python user:42
  ctl sessions get python user:42 -o json | jq .data`,
	}, func(ctx context.Context, p pool, args []string) error {
		state, err := p.Session(args[1]).Get(ctx)
		if err != nil {
			return err
		}
		return a.printSession(state)
	})
}

func (a *app) printSession(s *tempool.SessionState) error {
	return a.printResult(s, func(text *strings.Builder) {
		fmt.Fprintf(text, "%s, version %d, expires %s after its last use\n", s.ID, s.Version, s.TTL)
		var rows [][]string
		for _, part := range []struct {
			name   string
			values map[string]json.RawMessage
		}{{"data", s.Data}, {"programs", s.Programs}, {"metadata", s.Metadata}} {
			for _, key := range slices.Sorted(maps.Keys(part.values)) {
				rows = append(rows, []string{part.name, key, oneLine(string(part.values[key]), maxReasonRunes)})
			}
		}
		if len(rows) > 0 {
			table(text, []string{"PART", "KEY", "VALUE"}, rows)
		}
	})
}

func (a *app) sessionsNewCommand() *cobra.Command {
	var ttl time.Duration
	var data map[string]json.RawMessage
	c := &cobra.Command{
		Use:   "new POOL [KEY=JSON...]",
		Short: "Create an anonymous session and print its id",
		Long: `Create an anonymous session and print its id. It lives for --ttl after its last use, by default for the pool's sessions.anonymous_ttl. Calls name
it as any other session.`,
		Example: `  session=$(ctl sessions new python 'plan="gold"')
  ctl call python remember '["name", "Ada"]' --session "$session"`,
	}
	c.Flags().DurationVar(&ttl, "ttl", 0, "how long the session lives after its last use (default sessions.anonymous_ttl)")
	c.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return command.Usagef("%s takes exactly POOL; it got 0 arguments", cmd.CommandPath())
		}
		if cmd.Flags().Changed("ttl") && ttl <= 0 {
			return command.Usagef("--ttl is %s; give a positive duration, such as 10m", ttl)
		}
		var err error
		if data, err = parsePairs(args[1:]); err != nil {
			return err
		}
		return checkArguments([]string{argPool}, args[:1])
	}
	return a.sessionCommand(c, func(ctx context.Context, p pool, args []string) error {
		session, state, err := p.NewSession(ctx, tempool.SessionState{Data: data, TTL: spec.Duration(ttl)})
		if err != nil {
			return err
		}
		return a.printMessage(state, "%s", session.ID())
	})
}

func (a *app) sessionsSetCommand() *cobra.Command {
	var file string
	var version int64
	var data map[string]json.RawMessage
	c := &cobra.Command{
		Use:   "set POOL SESSION {KEY=JSON... | -f FILE|-}",
		Short: "Change keys of a session's data, or replace the session",
		Long: `Change keys of a session's data, or replace the session. A session that does not exist is created, unless --if-version is set.

KEY=JSON pairs are merged into data: other keys stay, and null removes a key. -f reads a document as ctl sessions get -o json prints it
(- is standard input); a document with a version replaces only that version.`,
		Example: `  ctl sessions set python user:42 'plan="gold"' age=36 old=null
  ctl sessions set python user:42 age=37 --if-version 3
  ctl sessions set python user:42 -f session.json`,
	}
	c.Flags().StringVarP(&file, "file", "f", "", "JSON file with the session, or - for standard input")
	c.Flags().Int64Var(&version, "if-version", 0, "change the session only if it has this version")
	mustDefine(c, c.MarkFlagFilename("file", "json"))
	c.Args = func(cmd *cobra.Command, args []string) error {
		pairs := len(args) - 2
		switch {
		case cmd.Flags().Changed("if-version") && version < 1:
			return command.Usagef("--if-version is %d; versions start at 1", version)
		case pairs < 0, pairs == 0 && file == "", pairs > 0 && file != "":
			return command.Usagef("%s takes POOL SESSION and either KEY=JSON pairs or -f FILE", cmd.CommandPath())
		}
		var err error
		if data, err = parsePairs(args[2:]); err != nil {
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
			state, err = mergeSession(ctx, session, data, version)
		}
		if err != nil {
			return err
		}
		return a.printSession(state)
	})
}

// parsePairs parses KEY=JSON pairs.
func parsePairs(pairs []string) (map[string]json.RawMessage, error) {
	data := map[string]json.RawMessage{}
	for _, pair := range pairs {
		key, value, found := strings.Cut(pair, "=")
		switch {
		case !found || key == "":
			return nil, command.Usagef("%q is not a KEY=JSON pair", pair)
		case !json.Valid([]byte(value)):
			return nil, command.Usagef("the value of %s is not JSON; quote text: '%s=%q'", key, key, value)
		}
		data[key] = json.RawMessage(value)
	}
	return data, nil
}

// mergeSession merges data into a session. Without a version it creates a session that does not exist.
func mergeSession(ctx context.Context, session *tempool.Session, data map[string]json.RawMessage, version int64) (*tempool.SessionState, error) {
	patch := map[string]any{"data": data}
	state, err := session.Patch(ctx, patch, version)
	if version != 0 || !errors.Is(err, api.ErrSessionNotFound) {
		return state, err
	}
	fresh := maps.Clone(data)
	maps.DeleteFunc(fresh, func(_ string, value json.RawMessage) bool { return string(bytes.TrimSpace(value)) == "null" })
	state, err = session.Create(ctx, tempool.SessionState{Data: fresh})
	if errors.Is(err, api.ErrSessionExists) { // another client created it meanwhile
		return session.Patch(ctx, patch, 0)
	}
	return state, err
}

// maxSessionFile bounds a session document, in bytes: twice the limit of a session, to allow for white space.
const maxSessionFile = 2 << 20

// readSession reads a session document. version is that to replace, unless it is 0.
func (a *app) readSession(path string, version int64) (s tempool.SessionState, err error) {
	in := a.in
	if path != "-" {
		file, err := os.Open(path)
		if err != nil {
			return s, api.Errorf(api.CodeInvalid, "cannot read the session document: %w", err)
		}
		defer file.Close()
		in = file
	}
	text, err := io.ReadAll(io.LimitReader(in, maxSessionFile+1))
	switch {
	case err != nil:
		return s, api.Errorf(api.CodeInvalid, "cannot read the session document: %w", err)
	case len(text) > maxSessionFile:
		return s, api.Errorf(api.CodePayloadTooLarge, "the session document is larger than %d bytes", maxSessionFile)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&s); err != nil || decoder.More() {
		return s, api.Errorf(api.CodeInvalid, `the session document is not one JSON object such as {"data": {"key": "value"}, "ttl": "1h"}: %w`, err)
	}
	if version != 0 {
		if s.Version != 0 && s.Version != version {
			return s, api.Errorf(api.CodeInvalid, "the session document has version %d, but --if-version is %d", s.Version, version)
		}
		s.Version = version
	}
	return s, nil
}

func (a *app) sessionsRemoveCommand() *cobra.Command {
	return a.sessionCommand(&cobra.Command{
		Use:     "rm POOL SESSION",
		Short:   "Delete a session",
		Example: "  ctl sessions rm python user:42",
	}, func(ctx context.Context, p pool, args []string) error {
		if err := p.Session(args[1]).Delete(ctx); err != nil {
			return err
		}
		return a.printMessage(map[string]string{"deleted": args[1]}, "deleted session %s", args[1])
	})
}
