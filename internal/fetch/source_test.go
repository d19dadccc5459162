package fetch

import (
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseSource_AcceptsPathsAndSupportedURLs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, path, url, name string }{
		{in: "/v/a.mp4", path: "/v/a.mp4", name: "a.mp4"},
		{in: "/v/-a b'\"%20\n:.mp4", path: "/v/-a b'\"%20\n:.mp4", name: "-a b'\"%20\uFFFD:.mp4"},
		{in: "/v/http://x", path: "/v/http://x", name: "x"},
		{in: "/v/link/../b", path: "/v/link/../b", name: "b"},
		{in: "/v/\xff.mp4", path: "/v/\xff.mp4", name: "\uFFFD.mp4"},
		{in: "file:///v/a%20%ff%3F.mp4", path: "/v/a \xff?.mp4", name: "a \uFFFD?.mp4"},
		{in: "FILE://localhost/v/a.mp4", path: "/v/a.mp4", name: "a.mp4"},
		{in: "http://h/a/b.mp4?k=v", url: "http://h/a/b.mp4?k=v", name: "b.mp4"},
		{in: "HTTPS://h:8443", url: "https://h:8443", name: "h"},
	} {
		s, err := parseSource(c.in)
		if err != nil {
			t.Errorf("%q: %v", c.in, err)
			continue
		}
		url := ""
		if s.url != nil {
			url = s.url.String()
		}
		if s.path != c.path || url != c.url || s.name != c.name {
			t.Errorf("%q: path %q, url %q, name %q", c.in, s.path, url, s.name)
		}
	}
}

func TestFetch_ExplainsUnsupportedSources(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                                 "no source",
		"a.mp4":                            "not absolute",
		"-i":                               "not absolute",
		"concat:a.mp4|b.mp4":               "not absolute",
		"data:video/mp4;base64,AAAA":       "not absolute",
		"ftp://h/secret":                   "ftp addresses are not supported",
		"rtmp://h/secret":                  "rtmp addresses",
		"gopher+x://h/secret":              "gopher+x addresses",
		"file://server/secret":             "another host",
		"file:///secret?x":                 "%3F",
		"file:///secret#x":                 "%23",
		"http:///secret":                   "no host",
		"http://h:secret":                  "not a valid URL",
		"http://u:secret@h/%zz":            "not a valid URL",
		"http://u:secret word@h/\x00":      "not a valid URL",
		"/v/a\x00b":                        "zero byte",
		"https://u:secret@/a":              "no host",
		strings.Repeat("a", 5000):          "not absolute",
		"file:relative-secret-of-somebody": "not absolute",
	} {
		_, err := Fetch(t.Context(), in, t.TempDir()+"/f", Options{})
		e, ok := err.(*Error)
		if !ok || !e.Permanent || !strings.Contains(err.Error(), want) {
			t.Errorf("%.50q: got %v, want a permanent error with %q", in, err, want)
			continue
		}
		if strings.Contains(in, "://") && strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error contains a secret: %v", in, err)
		}
		if len(err.Error()) > 2000 {
			t.Errorf("the error has %d bytes", len(err.Error()))
		}
	}
}

func FuzzParseSource(f *testing.F) {
	for _, s := range []string{"/a", "http://u:p@h/x?y#z", "file:///%ff", "a", "x://", "http://[::1]:80/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		src, err := parseSource(s)
		if !utf8.ValidString(src.label) || !utf8.ValidString(src.name) {
			t.Errorf("%q: label %q or name %q is not valid UTF-8", s, src.label, src.name)
		}
		if src.label == "" {
			t.Errorf("%q: no label", s)
		}
		if err == nil && (src.path == "") == (src.url == nil) {
			t.Errorf("%q: neither a path nor a URL, or both", s)
		}
		if err == nil && src.path != "" && src.path[0] != '/' {
			t.Errorf("%q: path %q is not absolute", s, src.path)
		}
	})
}

func FuzzParseContentRange(f *testing.F) {
	for _, s := range []string{"bytes 0-1/2", "bytes 5-9/*", "bytes */10", "bytes 9-5/10", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		first, total, ok := parseContentRange(s)
		if ok && (first < 0 || (total >= 0 && first >= total)) {
			t.Errorf("%q: first %d of %d", s, first, total)
		}
	})
}
