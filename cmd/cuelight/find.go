package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/cuelight/cuelight/internal/dbconn"
	"github.com/cuelight/cuelight/internal/usererr"
	"github.com/cuelight/cuelight/store"
)

// shortID returns the end of an id, which commands accept. The beginning is a time, which
// many ids share.
func shortID(id store.ID) string {
	s := id.String()
	return s[len(s)-8:]
}

// eachTask calls do for the task that each word names.
func (c *cli) eachTask(ctx context.Context, st *store.Store, words []string, do func(store.ID) error) error {
	return c.each(ctx, words, func(word string) error {
		id, err := st.Find(ctx, strings.ToLower(word))
		if err == nil {
			err = do(id)
		}
		return explainDeleted(ctx, st, word, err)
	})
}

// explainDeleted returns the error about a task that does not exist, or that it was deleted.
func explainDeleted(ctx context.Context, st *store.Store, word string, err error) error {
	if !errors.Is(err, store.ErrNotFound) {
		return err
	}
	id, findErr := st.FindDeleted(ctx, strings.ToLower(word))
	if findErr != nil {
		return err
	}
	d, findErr := st.GetDeleted(ctx, id)
	if findErr != nil {
		return err
	}
	e := &usererr.Error{Kind: usererr.NotFound, Text: "the task was deleted " + age(d.DeletedAt) + " ago"}
	if d.PurgingAt == nil && d.PurgeAt == nil {
		e.Hint = "restore it: cuelight undelete " + shortID(id)
	}
	return e
}

// each calls do for every word, and continues after an error about a word.
func (c *cli) each(ctx context.Context, words []string, do func(word string) error) error {
	failed, last := 0, error(nil)
	for _, word := range words {
		err := do(word)
		if err == nil {
			continue
		}
		p := dbconn.Explain(err)
		if p.Kind == usererr.Unreachable || ctx.Err() != nil || isBrokenPipe(err) || len(words) == 1 {
			return err
		}
		failed, last = failed+1, p
		c.finish(&usererr.Error{Kind: p.Kind, Text: usererr.Printable(word) + ": " + p.Text})
	}
	switch {
	case failed == 0:
		return nil
	case failed < len(words):
		return exitStatus(exitPartial)
	}
	return exitStatus(exitCodeOf[dbconn.Explain(last).Kind])
}

// idSuffix matches the end of an id that [store.Store.Find] accepts. Shorter words, such as
// that of a shell variable that is not set, match no id.
var idSuffix = regexp.MustCompile(`^[0-9a-f-]{4,36}$`)

// idEndsIn reports whether a word is an id or the end of it.
func idEndsIn(id store.ID, word string) bool {
	word = strings.ToLower(word)
	return idSuffix.MatchString(word) && strings.HasSuffix(id.String(), word)
}

// namedKind is a kind of items that a word on the command line can name.
type namedKind[T any] struct {
	kind, identifier string // what it is called, and by what a word can name it besides the end of an id
	listCommand      string
	matches          func(item T, word string) bool
	describe         func(T) string // with the id, for a choice of several
}

// find returns the only item that a word names.
func (k namedKind[T]) find(all []T, word string) (found T, err error) {
	all = slices.DeleteFunc(all, func(item T) bool { return !k.matches(item, word) })
	switch len(all) {
	case 0:
		return found, noMatchError(k.kind, k.identifier, word, k.listCommand)
	case 1:
		return all[0], nil
	}
	var choice []string
	for _, item := range all {
		choice = append(choice, k.describe(item))
	}
	text := fmt.Sprintf("%d %ss match %q: %s", len(all), k.kind, word, strings.Join(choice, ", "))
	return found, &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: "give the id of one of them"}
}

// noMatchError is the error of a word that names no item of a kind.
func noMatchError(kind, identifier, word, listCommand string) error {
	text := fmt.Sprintf("no %s has the %s %q, or an id that ends in it", kind, identifier, word)
	return &usererr.Error{Kind: usererr.NotFound, Text: text, Hint: listCommand + " lists the ids"}
}
