package redact_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/redact"
)

func TestShown_HidesWhereUploadedFilesAre(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"/var/lib/cuelight/uploads/VOGKFFLRZJHMUZXUF3I2DZG3CR/source.mkv":   "upload:VOGKFFLRZJHMUZXUF3I2DZG3CR",
		"s3://videos/data/uploads/VOGKFFLRZJHMUZXUF3I2DZG3CR/source":        "upload:VOGKFFLRZJHMUZXUF3I2DZG3CR",
		"/films/uploads/film.mkv":                                           "/films/uploads/film.mkv",
		"https://u:p@h/uploads/VOGKFFLRZJHMUZXUF3I2DZG3CR/source.mkv?sig=s": "https://h/uploads/VOGKFFLRZJHMUZXUF3I2DZG3CR/source.mkv",
	} {
		if got := redact.Shown(source); got != want {
			t.Errorf("%s: %s, want %s", source, got, want)
		}
	}
}

func TestSource_RemovesSecretsForEveryScheme(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"/videos/a?b#c@d.mp4": "/videos/a?b#c@d.mp4",
		"a.mp4":               "a.mp4",
		"order #7":            "order #7",
		"invoice:17":          "invoice:17",
		"/v/http://x?y":       "/v/http://x?y",
		"":                    "",
		"https://u:p@h:8443/a%2Fb.mp4?sig=s#frag":     "https://h:8443/a%2Fb.mp4",
		"s3://bucket/clip.mp4?X-Amz-Signature=c0ffee": "s3://bucket/clip.mp4",
		"s3://key:secret@bucket/a.mp4":                "s3://bucket/a.mp4",
		"gs+x://u@b/k?a":                              "gs+x://b/k",
		"ftp://u:p@h/a;type=i":                        "ftp://h/a;type=i",
		"file:///videos/a.mp4":                        "file:///videos/a.mp4",
		"file://u:p@h/a?b":                            "file://h/a",
		"HTTP://u@h/":                                 "HTTP://h/",
		"http://[::1]:80/a?b":                         "http://[::1]:80/a",
		"https://u:p@w@h/a":                           "https://h/a",
		"https://h":                                   "https://h",
		"https://h/@someone/a.mp4":                    "https://h/@someone/a.mp4",
		"//u:p@h/a?b":                                 "//h/a",
		"https:/u:p@h/a":                              "https:…",
		"https:h/a?b":                                 "https:…",
		`https:\\u:p@h\a`:                             "https:…",
		"https://u:p@h/%zz":                           "https://…",
		"https://u:p%zz@h/":                           "https://…",
		"http://[::1":                                 "http://…",
		"data:video/mp4;base64,AAAA":                  "data:…",
		"key:secret@bucket/a":                         "key:…",
		" https://u:p@h/a":                            "…",
		"bucket/a?X-Amz-Signature=c0ffee":             "…",
		"https//u:p@h/a":                              "…",
	} {
		if got := redact.Source(source); got != want {
			t.Errorf("public form of %q is %q, want %q", source, got, want)
		}
	}
}

func TestName_ReturnsTheLastPathElement(t *testing.T) {
	t.Parallel()
	for source, want := range map[string]string{
		"https://u:pw@example.org/d/a%20b.mp4?token=t": "a b.mp4",
		"https://example.org/?token=t":                 "example.org",
		"https://u:p@h/%zz":                            "https://…",
		"/x/a%20b.mp4":                                 "a%20b.mp4",
		"..":                                           "..",
		"/":                                            "/",
	} {
		if got := redact.Name(source); got != want {
			t.Errorf("name of %q is %q, want %q", source, got, want)
		}
	}
}

func TestFilter_HidesWhatMayBePartOfASecret(t *testing.T) {
	t.Parallel()
	for part, want := range map[string]string{
		"token=abc": "…", "u:p@h": "…", "https://u:p@h/a?b": "…", "https://h/a?b": "…", "#x": "…",
		"/films": "/films", "https://h/a": "https://h/a", "": "", "clip 7.mp4": "clip 7.mp4",
	} {
		if got := redact.Filter(part); got != want {
			t.Errorf("filter %q becomes %q, want %q", part, got, want)
		}
	}
}

func TestText_RedactsEveryURL(t *testing.T) {
	t.Parallel()
	const source = "https://me:hunter22@h/a.mp4?X-Amz-Signature=c0ffee%2F123&b=1#part"
	for text, want := range map[string]string{
		"nothing to hide": "nothing to hide",
		"":                "",
		`Get "https://me:***@h/a.mp4?X-Amz-Signature=c0ffee%2F123&b=1": EOF`: `Get "https://h/a.mp4": EOF`,
		"open " + source:                  "open https://h/a.mp4",
		"bad signature c0ffee/123":        "bad signature …",
		"bad signature c0ffee%2F123":      "bad signature …",
		"login me:hunter22 refused":       "login … refused",
		"hunter22 is wrong":               "… is wrong",
		"https://u:p@other/x?y was moved": "https://other/x was moved",
	} {
		if got := redact.Text(text, source); got != want {
			t.Errorf("public form of %q is %q, want %q", text, got, want)
		}
	}
}

func TestText_LeavesNoPartOfASecretWhereItCutsALongText(t *testing.T) {
	t.Parallel()
	const source, other = "https://me:hunter22@h/a.mp4?X-Amz-Signature=c0ffee123", "https://you:geheim99@other/x"
	long := strings.Repeat("https://h/?"+strings.Repeat("q", 500)+" ", 1+(128<<10)/512) // short when it is redacted
	for _, secret := range []string{source, other, "c0ffee123", "hunter22"} {
		for _, n := range []int{0, 1, len(secret) / 2, len(secret) - 2, len(secret) - 1, len(secret)} {
			text := long[:128<<10-n-1] + " " + secret + " " + long
			got := redact.Text(text, source)
			for _, part := range []string{"me:", "hu", "you:", "geh", "c0"} {
				if strings.Contains(got, part) {
					t.Fatalf("%d bytes of %s before the cut: the text ends with %q", n, secret, got[len(got)-60:])
				}
			}
			if len(got) > 64<<10 || !strings.HasSuffix(got, " …") {
				t.Fatalf("the text has %d bytes and ends with %q", len(got), got[len(got)-60:])
			}
		}
	}
}

func TestError_KeepsTheWrappedError(t *testing.T) {
	t.Parallel()
	cause := errors.New("no route")
	err := redact.Error(fmt.Errorf("open s3://b/k?sig=123: %w", cause), "s3://b/k?sig=123")
	if err.Error() != "open s3://b/k: no route" || !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	if redact.Error(nil, "x") != nil || redact.Error(cause, "s3://b/k?sig=123") != cause {
		t.Error("an error without a secret was changed")
	}
}

func TestJSON_RedactsEveryString(t *testing.T) {
	t.Parallel()
	const source = `s3://b/k?a=1&sig=c0ffee"12`
	raw, err := json.Marshal(map[string]any{
		"from": source, "list": []any{map[string]any{source: 1}, "c0ffee\"12"}, "n": json.Number("12345678901234567890.10"),
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"from":"s3://b/k","list":[{"s3://b/k":1},"…"],"n":12345678901234567890.10}`
	if got := string(redact.JSON(raw, source)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	for _, raw := range []string{"", "null", `{"a": 1}`} {
		if got := string(redact.JSON(json.RawMessage(raw), "/a")); got != raw {
			t.Errorf("%q became %q", raw, got)
		}
	}
}

// secret is part of the sources below. Its characters need no encoding.
const secret = "c0ffee-S3cret"

func FuzzSource_NeverShowsASecret(f *testing.F) {
	f.Add("https", "me", "", "", "example.com", "/a.mp4", "x=1")
	f.Add("s3", "", "x%", "@", "bucket", "", "&a=b;c")
	f.Add("HTTPS", "%zz", " ", "\x7f", "[::1]", "//", "")
	f.Add("a+b", "a", "b", "c", "h:80", "/%41/@b", "?")
	f.Fuzz(func(t *testing.T, scheme, user, before, after, host, path, query string) {
		// A secret in the host or path cannot be recognised.
		if strings.ContainsAny(user+before+after+host, "/?#") || strings.ContainsAny(path, "?#") ||
			path != "" && path[0] != '/' {
			return
		}
		if u, err := url.Parse(scheme + "://h"); err != nil || u.Scheme == "" {
			return
		}
		if !utf8.ValidString(strings.Join([]string{scheme, user, before, after, host, path, query}, " ")) {
			return // the database stores only UTF-8
		}
		for _, source := range []string{
			scheme + "://" + user + ":" + before + secret + after + "@" + host + path + "?" + query,
			scheme + "://" + before + secret + after + "@" + host + path,
			scheme + "://" + host + path + "?" + before + secret + after + query,
			scheme + "://" + host + path + "#" + before + secret + after,
			scheme + ":/" + user + ":" + before + secret + after + "@" + host + path,
			scheme + ":" + user + before + secret + after + "@" + host + path,
			"//" + before + secret + after + "@" + host + path,
		} {
			for what, got := range map[string]string{
				"source": redact.Source(source), "name": redact.Name(source), "filter": redact.Filter(source),
				"error":  redact.Text(fmt.Sprintf("open %s: refused", source), source),
				"result": string(redact.JSON(json.RawMessage(fmt.Sprintf(`{"url": %s}`, quoted(t, source))), source)),
			} {
				if strings.Contains(got, secret) {
					t.Errorf("the %s of %q is %q", what, source, got)
				}
			}
		}
	})
}

func quoted(t *testing.T, s string) string {
	t.Helper()
	raw, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func TestPasswords_AreRemovedFromAddresses(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{
		"postgres://u:secret@h:5432/x?a=b":        "postgres://u:…@h:5432/x?a=b",
		"postgres://u:s@e/c:ret@h/x":              "postgres://u:…@h/x",
		"postgres://u@h/x?password=secret&c=d":    "postgres://u@h/x?password=…&c=d",
		`host=h Password = 'se\' cret' user=u`:    "host=h Password = … user=u",
		"host=h sslpassword=secret user=u":        "host=h sslpassword=… user=u",
		"postgres://u@h/x":                        "postgres://u@h/x",
		"s3://bucket/prefix?credentials=/etc/key": "s3://bucket/prefix?credentials=/etc/key",
		"127.0.0.1:8080":                          "127.0.0.1:8080",
	} {
		if got := redact.Passwords(setting); got != want {
			t.Errorf("%q becomes %q, want %q", setting, got, want)
		}
	}
}
