package main

import (
	"bytes"
	"encoding/json"
)

// writeJSON writes one line.
func (c *cli) writeJSON(v any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // names are read by people too
	if err := enc.Encode(v); err != nil {
		return err
	}
	_, err := c.out.Write(b.Bytes())
	return err
}

// ordered is an object in JSON whose members keep their order, which a map's
// would not: stages come in the order of the pipeline.
type ordered[T any] []member[T]

type member[T any] struct {
	name  string
	value T
}

// MarshalJSON makes the object.
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
