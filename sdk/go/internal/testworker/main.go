// Command testworker is the worker with which the tests of the protocol try this SDK. With SUITE=perform its only
// method does what a vector of sdk/vectors/hostcalls.json says, with SUITE=hooks it has the hooks of a migration.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	sdk "github.com/tempool/tempool/sdk/go"
)

func main() {
	switch os.Getenv("SUITE") {
	case "perform":
		sdk.Method("perform", perform)
		sdk.Run()
	case "hooks":
		sdk.OnSessionRelease(func(ctx context.Context, id string) error {
			return sdk.FromContext(ctx).Session().Set(ctx, "cached", id)
		})
		sdk.OnSessionLoad(func(ctx context.Context, _ string) error {
			var cached string
			_, err := sdk.FromContext(ctx).Session().Get(ctx, "cached", &cached)
			return err
		})
		sdk.Run()
	}
	sdk.Raw("echo", func(_ context.Context, body []byte) ([]byte, error) { return body, nil })
	sdk.Method("square", func(_ context.Context, p struct{ X int }) (int, error) { return p.X * p.X, nil })
	sdk.Stream("count", func(_ context.Context, n int, send func(int) error) error {
		for i := range n {
			if err := send(i); err != nil {
				return err
			}
		}
		return nil
	})
	sdk.Method("fail", func(context.Context, any) (any, error) {
		return nil, &sdk.Error{Message: "broken", Code: "hardware", Data: map[string]int{"unit": 1}, Fatal: true}
	})
	sdk.Method("wait", func(ctx context.Context, _ any) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	sdk.Method("session", func(ctx context.Context, _ any) (value string, err error) {
		call := sdk.FromContext(ctx)
		if err := call.Count("asked", 1); err != nil {
			return "", err
		}
		_, err = call.Session().Get(ctx, "key", &value)
		return value, err
	})
	sdk.Method("die", func(context.Context, any) (any, error) { os.Exit(3); return nil, nil })
	sdk.Run()
}

// perform does one thing with the call's session: the first argument names it, such as "data.set".
func perform(ctx context.Context, args []json.RawMessage) (any, error) {
	call := sdk.FromContext(ctx)
	text := func(i int) (s string) { _ = json.Unmarshal(args[i], &s); return s }
	part, verb, _ := strings.Cut(text(0), ".")
	entries := call.Session().Entries
	switch part {
	case "programs":
		return programs(ctx, call.Programs(), verb, text(1), args)
	case "metadata":
		entries = call.Session().Metadata()
	case "data":
	default:
		return session(ctx, call.Session(), part, args)
	}
	switch verb {
	case "get":
		var value any
		_, err := entries.Get(ctx, text(1), &value)
		return value, err
	case "set":
		return nil, entries.Set(ctx, text(1), args[2])
	case "delete":
		return nil, entries.Delete(ctx, text(1))
	case "clear":
		return nil, entries.Clear(ctx)
	case "update":
		return nil, entries.Update(ctx, args[1])
	case "increment":
		return sdk.Change(ctx, entries, text(1), func(n int) (int, error) { return n + 1, nil })
	}
	return nil, fmt.Errorf("no such verb: %s", verb)
}

func session(ctx context.Context, s *sdk.Session, what string, args []json.RawMessage) (any, error) {
	switch what {
	case "touch":
		return s.Touch(ctx)
	case "patch":
		var version int64
		if len(args) > 2 {
			_ = json.Unmarshal(args[2], &version)
		}
		return s.Patch(ctx, args[1], version)
	case "end", "delete":
		return nil, s.Delete(ctx)
	}
	return s.Load(ctx)
}

func programs(ctx context.Context, p sdk.Programs, verb, id string, args []json.RawMessage) (program any, err error) {
	switch verb {
	case "put":
		return nil, p.Put(ctx, id, args[2])
	case "get":
		err = p.Get(ctx, id, &program)
		return program, err
	}
	return nil, p.Delete(ctx, id)
}
