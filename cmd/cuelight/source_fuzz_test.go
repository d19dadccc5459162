package main

import (
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

func FuzzSourceOf(f *testing.F) {
	f.Add("holiday.mp4", "/home/me")
	f.Add("./a/../b", "/")
	f.Add("/a\xffb?c#d%20", "/x")
	f.Add("http://h/\xff?a=\xfe", "/x")
	f.Add("a://b", "/x")
	f.Add("1a://b", "/x\xff")
	f.Add("", "/")
	f.Fuzz(func(t *testing.T, arg, dir string) {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) != dir {
			return // it comes from Getwd
		}
		source, err := sourceOf(arg, dir)
		if err != nil {
			checkUsage(t, err)
			return
		}
		if !utf8.ValidString(source) {
			t.Fatalf("%q is %q", arg, source)
		}
		if urlPattern.MatchString(arg) {
			if !urlPattern.MatchString(source) || utf8.ValidString(arg) && source != arg {
				t.Errorf("%q is %q", arg, source)
			}
			return
		}
		want := arg
		if !filepath.IsAbs(arg) {
			want = strings.TrimSuffix(dir, "/") + "/" + strings.TrimPrefix(arg, "./")
		}
		if filepath.IsAbs(source) {
			if source != want {
				t.Errorf("%q in %q is %q", arg, dir, source)
			}
			return
		}
		u, err := url.Parse(source)
		if err != nil || u.Scheme != "file" || u.Host != "" || u.RawQuery != "" || u.Fragment != "" || u.Path != want {
			t.Errorf("%q in %q is %q, which is %+v, %v", arg, dir, source, u, err)
		}
	})
}
