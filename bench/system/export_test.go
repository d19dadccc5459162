package system

import (
	"context"
	"io"
	"strings"
)

// RunWithoutParent runs a child whose standard input has ended.
func RunWithoutParent(s System, url string) error {
	c := config{System: s.Name(), URL: url}
	return runChild(context.Background(), []System{s}, c, strings.NewReader(""), io.Discard)
}

// EncodeAndDecode encodes and decodes observations.
func EncodeAndDecode(all []Observation) (out []Observation) {
	var b []byte
	for _, o := range all {
		b = encode(b, o)
	}
	for ; len(b) > 0; b = b[recordSize:] {
		out = append(out, decode(b))
	}
	return out
}
