package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cuelight/cuelight/internal/console"
	"github.com/cuelight/cuelight/store"
)

// writeJSON writes v on one line.
func (c *cli) writeJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

// print writes v with --json, and else a line of text.
func (c *cli) print(v any, format string, args ...any) error {
	if c.json {
		return c.writeJSON(v)
	}
	_, err := fmt.Fprintf(c.out, format+"\n", args...)
	return err
}

// printList prints items as a table or, with --json, one per line. The name is what the
// items are called.
func printList[T any](c *cli, all []T, name, columns string, row func(T) []string) error {
	if len(all) == 0 {
		fmt.Fprintf(c.err, "cuelight: no %s\n", name)
		return nil
	}
	t := console.Table{Out: c.out, Header: strings.Fields(columns)}
	t.Paint(slices.Index(t.Header, "STATUS"), statusColours)
	for _, item := range all {
		if !c.json {
			t.Add(row(item)...)
		} else if err := c.writeJSON(item); err != nil {
			return err
		}
	}
	return t.Write()
}

// age returns the time since t.
func age(t time.Time) string { return console.Duration(time.Since(t)) }

// seconds is the duration of a JSON number.
func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// ordered is a JSON object whose members keep their order; a map would not keep that of
// the stages.
type ordered[T any] []member[T]

type member[T any] struct {
	name  string
	value T
}

// MarshalJSON implements json.Marshaler.
func (o ordered[T]) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, m := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		for _, v := range []any{m.name, m.value} {
			raw, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			b.Write(raw)
			b.WriteByte(':')
		}
		b.Truncate(b.Len() - 1) // the colon after the value
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

var statusColours = map[string]string{
	string(store.StatusCompleted): console.Green, string(store.StatusDead): console.Red,
	string(store.StatusFailed): console.Yellow, string(store.StatusCancelled): console.Dim,
}
