package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/cuelight/cuelight/internal/console"
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

// jsonOr returns err, or writes v if there is none.
func (c *cli) jsonOr(err error, v any) error {
	if err != nil {
		return err
	}
	return c.writeJSON(v)
}

// printList prints items as a table or, with --json, one per line. An empty table is a
// message that there are none of what the items are called.
func printList[T any](c *cli, all []T, name string, header []string, row func(T) []string) error {
	if c.json {
		for _, item := range all {
			if err := c.writeJSON(item); err != nil {
				return err
			}
		}
		return nil
	}
	if len(all) == 0 {
		fmt.Fprintf(c.err, "cuelight: no %s\n", name)
		return nil
	}
	t := console.Table{Out: c.out, Header: header}
	for _, item := range all {
		t.Add(row(item)...)
	}
	return t.Write()
}

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
