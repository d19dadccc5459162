package upload

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"maps"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/cuelight/cuelight/internal/problem"
)

func FuzzParseMetadata(f *testing.F) {
	f.Add("filename d29ybGQ=,is_confidential")
	f.Add("a ,b =, c")
	f.Add("params eyJhIjoxfQ==,priority LTE=")
	f.Add("filename Li4vLi4vYQAvYi5tcDQ=")
	f.Fuzz(func(t *testing.T, header string) {
		metadata, err := parseMetadata(header)
		if err != nil {
			if p, ok := errors.AsType[*problem.Problem](err); !ok || p.Kind != problem.InvalidRequest {
				t.Fatalf("got the error %v", err)
			}
			return
		}
		var pairs []string
		for key, value := range metadata {
			pairs = append(pairs, key+" "+base64.StdEncoding.EncodeToString([]byte(value)))
		}
		again, err := parseMetadata(strings.Join(pairs, ","))
		if len(header) <= maxMetadata/2 && (err != nil || !maps.Equal(metadata, again)) {
			t.Fatalf("%q was parsed again as %q, %v", metadata, again, err)
		}
		checkUpload(t, metadata)
	})
}

func checkUpload(t *testing.T, metadata map[string]string) {
	u, err := newUpload(metadata)
	if err != nil {
		return
	}
	if u.Params != nil && !json.Valid(u.Params) {
		t.Fatalf("params %q", u.Params)
	}
	checkName(t, u.Name)
}

func checkName(t *testing.T, name string) {
	if len(name) > maxName || !utf8.ValidString(name) || strings.ContainsAny(name, "/\\\x00") ||
		name == ".." || name == "." ||
		strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Fatalf("name %q", name)
	}
	source := sourceFile + safeExtension(name)
	if filepath.Base(source) != source || len(source) > len(sourceFile)+9 {
		t.Fatalf("the file of %q is %q", name, source)
	}
}

func FuzzCleanName(f *testing.F) {
	for _, name := range []string{
		"a.mp4", "../x", `..\x`, "\xff.mp4", strings.Repeat("é", 300) + ".mkv", ".", "a/..", "\u202e",
		strings.Repeat("é", 127) + " x",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		clean := cleanName(name)
		checkName(t, clean)
		if again := cleanName(clean); again != clean {
			t.Fatalf("%q is cleaned to %q and that to %q", name, clean, again)
		}
	})
}

func FuzzParseHeaders(f *testing.F) {
	f.Add("0", "sha1 Lve95gjOVATpfV8EL5X4nxwjKHE=")
	f.Add("+1", "md5 x")
	f.Add("9223372036854775807", "sha256 ")
	f.Fuzz(func(t *testing.T, size, sum string) {
		n, ok := parseSize(size)
		if ok && (n < 0 || strings.TrimLeft(size, "0") != strings.TrimLeft(strconv.FormatInt(n, 10), "0")) {
			t.Fatalf("size %q is %d", size, n)
		}
		c, err := parseChecksum(sum)
		if (c == nil) != (err != nil || sum == "") || c != nil && len(c.want) != c.hash.Size() {
			t.Fatalf("checksum %q is %+v, %v", sum, c, err)
		}
	})
}

// No path leads out of the directory or causes an internal error.
func FuzzServeHTTP_Path(f *testing.F) {
	f.Add("PATCH", "/uploads/../x", "1", "2")
	f.Add("POST", "/uploads/", "1", "a b")
	f.Add("PUT", "/uploads/%2e%2e", "", "")
	f.Fuzz(func(t *testing.T, method, path, number, header string) {
		u, err := New(Options{Dir: t.TempDir(), MinFree: -1, OnComplete: acceptAll, OnError: func(id string, err error) {
			t.Errorf("internal error for %q: %v", id, err)
		}})
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		r := httptest.NewRequest("GET", "/", strings.NewReader("body"))
		r.Method, r.URL.Path = method, path
		for _, name := range []string{"Upload-Length", "Upload-Offset"} {
			r.Header.Set(name, number)
		}
		for _, name := range []string{"Upload-Metadata", "Upload-Checksum", "X-HTTP-Method-Override"} {
			r.Header.Set(name, header)
		}
		r.Header.Set("Tus-Resumable", "1.0.0")
		r.Header.Set("Content-Type", chunkType)
		w := httptest.NewRecorder()
		u.ServeHTTP(w, r)
		if w.Code >= 500 {
			t.Fatalf("%s %q: %d %s", method, path, w.Code, w.Body)
		}
	})
}

func acceptAll(context.Context, Upload) (Receipt, error) { return Receipt{Task: "task"}, nil }
