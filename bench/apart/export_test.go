package apart

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/cuelight/cuelight/bench/contest"
)

// Alone is a crew without anybody who tells it anything.
func Alone(who contest.Contestant, url string) error {
	text, err := json.Marshal(order{Contestant: who.Name(), URL: url})
	if err != nil {
		return err
	}
	return work(context.Background(), []contest.Contestant{who}, string(text), strings.NewReader(""), io.Discard)
}

// Through encodes and decodes.
func Through(all []contest.Moment) (out []contest.Moment) {
	var b []byte
	for _, m := range all {
		b = encode(b, m)
	}
	for ; len(b) > 0; b = b[recordSize:] {
		out = append(out, decode(b))
	}
	return out
}
