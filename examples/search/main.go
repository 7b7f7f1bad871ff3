// Command search is a worker in Go: it indexes a directory of texts at its start, and then finds the lines with a word.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unicode"

	sdk "github.com/tempool/tempool/sdk/go"
)

// line is one line of a text.
type line struct {
	File   string `json:"file"`
	Number int    `json:"number"`
	Text   string `json:"text"`
}

// index holds the lines by the words in them. It does not change after the start, so calls may read it at once.
var index = map[string][]line{}

type query struct {
	Word string `json:"word"`
	Most int    `json:"most"` // lines; 0 is all
}

func main() {
	sdk.OnStart(func(context.Context) error { return build(os.Args[1]) })
	sdk.Method("find", find)
	sdk.Stream("lines", lines)
	sdk.Method("history", history)
	sdk.Run()
}

// find returns the lines with a word, and remembers the word in the session of the call.
func find(ctx context.Context, q query) ([]line, error) {
	if q.Word == "" {
		return nil, sdk.Errorf("no_word", "say which word to find")
	}
	call := sdk.FromContext(ctx)
	if err := call.Count("searches", 1); err != nil {
		return nil, err
	}
	_, err := sdk.Change(ctx, call.Session().Entries, "words", func(before []string) ([]string, error) {
		return append(before, q.Word), nil
	})
	if err != nil {
		return nil, err
	}
	found := index[strings.ToLower(q.Word)]
	if q.Most > 0 && q.Most < len(found) {
		found = found[:q.Most]
	}
	return append([]line{}, found...), nil
}

// lines streams the lines with a word; it ends when the caller leaves.
func lines(_ context.Context, q query, send func(line) error) error {
	for _, l := range index[strings.ToLower(q.Word)] {
		if err := send(l); err != nil {
			return err
		}
	}
	return nil
}

// history returns the words that the session has searched.
func history(ctx context.Context, _ struct{}) (words []string, err error) {
	_, err = sdk.FromContext(ctx).Session().Get(ctx, "words", &words)
	return words, err
}

func build(folder string) error {
	files, err := filepath.Glob(filepath.Join(folder, "*.txt"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no *.txt in %s: %w", folder, err)
	}
	for _, name := range files {
		if err := add(name); err != nil {
			return err
		}
	}
	return nil
}

func add(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	defer file.Close()
	scanner := bufio.NewScanner(file)
	for number := 1; scanner.Scan(); number++ {
		seen := map[string]bool{}
		for _, word := range strings.FieldsFunc(strings.ToLower(scanner.Text()),
			func(r rune) bool { return !unicode.IsLetter(r) }) {
			if !seen[word] {
				seen[word] = true
				index[word] = append(index[word], line{filepath.Base(name), number, scanner.Text()})
			}
		}
	}
	return scanner.Err()
}
