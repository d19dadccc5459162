package fetch

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"
)

func FuzzParseSource_PrintableLabel(f *testing.F) {
	f.Add("/srv/films/one.mkv")
	f.Add("https://example.com/a/b.mp4?token=1#t")
	f.Add("file:///a%00b")
	f.Add("file://localhost/a b")
	f.Add("HTTP://[::1%25eth0]:80/%zz")
	f.Add("http://user:pass@/x")
	f.Add("concat:a|b")
	f.Add("/\xff\x00")
	f.Fuzz(func(t *testing.T, s string) {
		src, err := parseSource(s)
		if src.label == "" || !utf8.ValidString(src.label) || strings.ContainsFunc(src.label, unicode.IsControl) {
			t.Errorf("the label of %q is %q", s, src.label)
		}
		if err != nil {
			if !utf8.ValidString(err.Error()) {
				t.Errorf("error is %q", err)
			}
			return
		}
		if (src.path == "") == (src.url == nil) {
			t.Fatalf("%q has the path %q and the URL %v", s, src.path, src.url)
		}
		if src.name == "" || !utf8.ValidString(src.name) || strings.ContainsFunc(src.name, unicode.IsControl) {
			t.Errorf("the name of %q is %q", s, src.name)
		}
		if src.url == nil && (!filepath.IsAbs(src.path) || strings.ContainsRune(src.path, 0)) {
			t.Errorf("%q has the path %q", s, src.path)
		}
		if src.url != nil && (src.url.Scheme != "http" && src.url.Scheme != "https" || src.url.Hostname() == "") {
			t.Errorf("%q has the URL %s", s, src.url)
		}
	})
}

// secret must not appear in a label, a name or an error.
const secret = "zTk7Qw9xSecretL2"

func FuzzParseSource_HidesSecrets(f *testing.F) {
	f.Add("https", "me", "", "", "example.com", "/a.mp4", "")
	f.Add("http", "", "x%", "@", "h:80", "", "&a=b;c")
	f.Add("HTTPS", "%zz", " ", "\x7f", "[::1]", "//", "#")
	f.Add("ftp", "a", "b", "c", "h", "/", "")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, host, path, query string) {
		// These would move the secret to a part of the URL that is not secret.
		if strings.ContainsAny(user+before+after+host, "/?#") || strings.ContainsAny(path, "?#") ||
			!schemePattern.MatchString(scheme+"://") {
			return
		}
		if path != "" && path[0] != '/' {
			return
		}
		for _, s := range []string{
			scheme + "://" + user + ":" + before + secret + after + "@" + host + path + "?" + query,
			scheme + "://" + before + secret + after + "@" + host + path,
			scheme + "://" + host + path + "?" + before + secret + after + query,
			scheme + "://" + host + path + "#" + before + secret + after,
		} {
			src, err := parseSource(s)
			if strings.Contains(src.label, secret) || strings.Contains(src.name, secret) {
				t.Errorf("%q has the label %s and the name %q", s, src.label, src.name)
			}
			if err != nil && strings.Contains(err.Error(), secret) {
				t.Errorf("%q: the error is %q", s, err)
			}
		}
	})
}

func FuzzResolveRedirect(f *testing.F) {
	f.Add("https://me:pw@example.com/a/b", "../c")
	f.Add("https://me:pw@example.com/a", "//evil.example/c")
	f.Add("https://me:pw@example.com/a", "http://example.com/")
	f.Add("http://example.com/a", "https://u:p@example.com/")
	f.Add("http://example.com/a", "file:///etc/passwd")
	f.Add("http://example.com/a", "http:///nowhere")
	f.Add("http://example.com/a", "\x00")
	f.Fuzz(func(t *testing.T, from, location string) {
		u, err := url.Parse(from)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
			return
		}
		to, err := resolveRedirect(u, location)
		if err != nil {
			var e *Error
			if !errors.As(err, &e) || !e.Permanent {
				t.Errorf("%q: %v is not permanent", location, err)
			}
			return
		}
		if to.Scheme != "https" && (to.Scheme != "http" || u.Scheme == "https") || to.Hostname() == "" {
			t.Errorf("%q redirects %s to %s", location, u, to)
		}
		if to.User != nil && u.User != nil && to.User.String() == u.User.String() && to.Host != u.Host &&
			!strings.Contains(location, "@") {
			t.Errorf("%q sends the user of %s to %s", location, u, to)
		}
	})
}

func FuzzRetryAfter(f *testing.F) {
	f.Add("120", int64(0))
	f.Add("-1", int64(0))
	f.Add("99999999999999999999", int64(0))
	f.Add("Fri, 31 Dec 9999 23:59:59 GMT", int64(-1<<40))
	f.Add("Thu, 01 Jan 1970 00:00:00 GMT", int64(1<<40))
	f.Fuzz(func(t *testing.T, value string, now int64) {
		h := http.Header{"Retry-After": {value}}
		if d := retryAfter(h, time.Unix(now%(1<<42), 0)); d < 0 || d > maxRetryAfter {
			t.Errorf("%q at %d is %s", value, now, d)
		}
	})
}

func FuzzCheckContent(f *testing.F) {
	f.Add("video/mp4", "", `"abc"`, "Mon, 02 Jan 2006 15:04:05 GMT", "Mon, 02 Jan 2006 16:04:05 GMT")
	f.Add("text/html; charset=utf-8", "identity", "W/\"a\"", "", "")
	f.Add("multipart/byteranges", "gzip", "", "x", "y")
	f.Add(`inline; filename="a`, "br", "\x00", "Mon, 02 Jan 2006 15:04:05 GMT", "Mon, 02 Jan 2006 15:04:06 GMT")
	f.Fuzz(func(t *testing.T, kind, encoding, tag, modified, date string) {
		h := http.Header{
			"Content-Type": {kind}, "Content-Encoding": {encoding}, "Etag": {tag}, "Last-Modified": {modified}, "Date": {date},
		}
		err := checkContent(h)
		if err != nil && (!utf8.ValidString(err.Error()) || len(err.Error()) > 500) {
			t.Errorf("error is %q", err)
		}
		if err == nil && encoding != "" && !strings.EqualFold(encoding, "identity") {
			t.Errorf("encoding %q was accepted", encoding)
		}
		if strong := strongDate(h); strong != "" && strong != modified {
			t.Errorf("%q became %q", modified, strong)
		}
	})
}

func FuzzRestore(f *testing.F) {
	f.Add([]byte(`{"source":"s","etag":"\"a\"","total":10,"bytes":10}`), int64(10))
	f.Add([]byte(`{"source":"s","last_modified":"x","total":-1,"bytes":3}`), int64(5))
	f.Add([]byte(`{"source":"s","etag":"a","total":2,"bytes":9223372036854775807}`), int64(1))
	f.Add([]byte(`{"source":"other","etag":"a","total":2,"bytes":1}`), int64(2))
	f.Add([]byte(`[`), int64(0))
	dir := f.TempDir()
	file, err := os.Create(filepath.Join(dir, "part"))
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { file.Close() })
	f.Fuzz(func(t *testing.T, state []byte, size int64) {
		if size < 0 || size > 1<<20 {
			return
		}
		if err := file.Truncate(size); err != nil {
			t.Fatal(err)
		}
		p := &partialFile{file: file, path: file.Name(), isKept: true}
		if err := os.WriteFile(p.statePath(), state, 0o600); err != nil {
			t.Fatal(err)
		}
		p.restore("s")
		if p.received < 0 || p.received > size || p.state.Total > 0 && p.received >= p.state.Total {
			t.Errorf("a file of %d bytes with state %s is restored at %d of %d", size, state, p.received, p.state.Total)
		}
		if p.received > 0 && (p.state.Source != "s" || p.state.validator() == "" || !json.Valid(state)) {
			t.Errorf("state %s was accepted", state)
		}
	})
}
