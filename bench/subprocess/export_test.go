package subprocess

import (
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/cuelight/cuelight/bench/harness"
)

// Alone is a crew without anybody who tells it anything.
func RunWithoutParent(who harness.System, url string) error {
	text, err := json.Marshal(order{Contestant: who.Name(), URL: url})
	if err != nil {
		return err
	}
	return work(context.Background(), []harness.System{who}, string(text), strings.NewReader(""), io.Discard)
}

// Through encodes and decodes.
func EncodeAndDecode(all []harness.Observation) (out []harness.Observation) {
	var b []byte
	for _, m := range all {
		b = encode(b, m)
	}
	for ; len(b) > 0; b = b[recordSize:] {
		out = append(out, decode(b))
	}
	return out
}
