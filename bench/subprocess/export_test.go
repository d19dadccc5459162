package subprocess

import (
	"context"
	"io"
	"strings"

	"github.com/cuelight/cuelight/bench/harness"
)

// RunWithoutParent runs a child whose standard input has ended.
func RunWithoutParent(s harness.System, url string) error {
	c := config{System: s.Name, URL: url}
	return runChild(context.Background(), []harness.System{s}, c, strings.NewReader(""), io.Discard)
}

// EncodeAndDecode encodes and decodes observations.
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
