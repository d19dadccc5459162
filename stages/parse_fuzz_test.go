package stages

import (
	"strings"
	"testing"
)

func FuzzParseIdentity(f *testing.F) {
	f.Add("2e/4026531836/12345")
	f.Add("//")
	f.Add("a/b/c")
	f.Add("a/b/c/d/e")
	f.Fuzz(func(t *testing.T, s string) {
		p, ok := parseIdentity(s)
		if !ok {
			if p != (processIdentity{}) || strings.Count(s, "/") == 2 {
				t.Errorf("%q is not valid, but parsed as %+v", s, p)
			}
			return
		}
		if p.String() != s {
			t.Errorf("%q became %q", s, p)
		}
	})
}
