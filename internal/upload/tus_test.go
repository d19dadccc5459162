package upload_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/base64"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cuelight/cuelight/internal/upload"
	"github.com/cuelight/cuelight/internal/waittest"
)

func TestPatch_ResumesAnInterruptedUpload(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	for range 5 {
		want := randomBytes(1 + rand.IntN(3<<20))
		url := s.create(int64(len(want)), "Upload-Metadata", metadata("filename", "A film.MP4", "filetype", "video/mp4",
			"params", `{"a":1}`, "priority", "-7", "request_id", "r", "x", "y"))
		cuts := 0
		for {
			a := s.mustSend(http.StatusOK, "HEAD", url, nil)
			if a.header.Get("Cache-Control") != "no-store" || a.header.Get("Upload-Length") != strconv.Itoa(len(want)) {
				t.Fatalf("HEAD returned %v", a.header)
			}
			at := int(a.offset())
			if at == len(want) {
				break
			}
			if rest := want[at:]; cuts < 8 {
				cuts++
				_, _ = s.send("PATCH", url, brokenReader(rest, rand.IntN(len(rest))), "Content-Length", strconv.Itoa(len(rest)),
					"Content-Type", chunkType, "Upload-Offset", strconv.Itoa(at))
			} else if a, err := s.send("PATCH", url, bytes.NewReader(rest), "Content-Type", chunkType,
				"Upload-Offset", strconv.Itoa(at)); err != nil {
				t.Fatal(err)
			} else if a.status != http.StatusNoContent && a.status != http.StatusLocked && a.status != http.StatusConflict {
				t.Fatalf("got %d %s", a.status, a.body)
			}
		}
		waittest.Until(t, "the upload is submitted", func() bool { return len(s.submissions.all()) > 0 })
		u := s.submissions.only(t)
		s.checkFile(u, want)
		if u.Name != "A film.MP4" || u.Type != "video/mp4" || string(u.Params) != `{"a":1}` || u.Priority != -7 ||
			u.RequestID != "r" || u.Metadata["x"] != "y" {
			t.Errorf("submitted as %+v", u)
		}
		if filepath.Base(u.Path) != "source.mp4" {
			t.Errorf("the file is %s", u.Path)
		}
		s.submissions.uploads = nil
	}
}

func TestResponses_ContainTheTask(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3)
	a := s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	want := s.submissions.only(t)
	task := "task-of-" + want.ID
	if a.offset() != 3 || a.header.Get("Cuelight-Task") != task || a.header.Get("Upload-Expires") != "" {
		t.Errorf("PATCH returned %v", a.header)
	}
	if a := s.mustSend(http.StatusOK, "HEAD", url, nil); a.offset() != 3 || a.header.Get("Cuelight-Task") != task {
		t.Errorf("HEAD returned %v", a.header)
	}
	// A client that missed the response sends an empty PATCH.
	if a := s.mustPatch(http.StatusNoContent, url, 3, nil); a.header.Get("Cuelight-Task") != task {
		t.Errorf("the second PATCH returned %v", a.header)
	}
	s.submissions.only(t)
	var v struct {
		TaskID string `json:"task_id"`
	}
	if a := s.mustSend(http.StatusOK, "GET", url, nil); json.Unmarshal([]byte(a.body), &v) != nil || v.TaskID != task {
		t.Errorf("GET returned %s", a.body)
	}
	s.mustSend(http.StatusConflict, "DELETE", url, nil)
	s.checkFile(want, []byte("abc"))
}

func TestOptions_DescribesTheProtocol(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1234})
	a := s.mustSend(http.StatusNoContent, "OPTIONS", "/uploads/", nil, "Tus-Resumable", "")
	for name, want := range map[string]string{
		"Tus-Version": "1.0.0", "Tus-Max-Size": "1234", "Tus-Checksum-Algorithm": "sha1,sha256",
		"Tus-Extension": "creation,creation-with-upload,expiration,checksum,termination",
	} {
		if got := a.header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	a = s.mustSend(http.StatusPreconditionFailed, "POST", "/uploads/", nil, "Tus-Resumable", "2.0", "Upload-Length", "1")
	if a.header.Get("Tus-Version") != "1.0.0" {
		t.Errorf("the headers are %v", a.header)
	}
	a = s.mustSend(http.StatusNotFound, "HEAD", "/uploads/AAAAAAAAAAAAAAAAAAAAAAAAAA", nil)
	if a.header.Get("Tus-Resumable") != "1.0.0" || a.header.Get("Upload-Offset") != "" {
		t.Errorf("HEAD of a missing upload returned %v", a.header)
	}
	a = s.mustSend(http.StatusNotFound, "GET", "/uploads/../etc", nil)
	if a.header.Get("Content-Type") != "application/problem+json" || !strings.Contains(a.body, `"status":404`) {
		t.Errorf("GET of a missing upload returned %v %s", a.header, a.body)
	}
	s.mustSend(http.StatusMethodNotAllowed, "HEAD", "/uploads/", nil)
	s.mustSend(http.StatusMethodNotAllowed, "DELETE", "/uploads/", nil)
	s.mustSend(http.StatusNotFound, "GET", "/elsewhere", nil)
}

func TestMethodOverride_WorksOnlyForPOST(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(4)
	s.mustSend(http.StatusNoContent, "POST", url, strings.NewReader("ab"), "X-HTTP-Method-Override", "PATCH",
		"Content-Type", chunkType, "Upload-Offset", "0")
	s.mustSend(http.StatusOK, "GET", url, nil, "X-HTTP-Method-Override", "DELETE")
	s.mustSend(http.StatusNoContent, "POST", url, nil, "X-HTTP-Method-Override", "DELETE")
	s.mustSend(http.StatusNotFound, "GET", url, nil)
}

func TestPost_AppendsItsBody(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	a := s.mustSend(http.StatusCreated, "POST", "/uploads/", strings.NewReader("abc"), "Upload-Length", "5",
		"Content-Type", chunkType)
	if a.offset() != 3 || a.header.Get("Upload-Expires") == "" {
		t.Errorf("headers are %v", a.header)
	}
	s.mustPatch(http.StatusNoContent, a.header.Get("Location"), 3, strings.NewReader("de"))
	s.checkFile(s.submissions.only(t), []byte("abcde"))
	s.mustSend(http.StatusRequestEntityTooLarge, "POST", "/uploads/", strings.NewReader("abcdef"), "Upload-Length", "5",
		"Content-Type", chunkType)
	s.mustSend(460, "POST", "/uploads/", strings.NewReader("abcde"), "Upload-Length", "5", "Content-Type", chunkType,
		"Upload-Checksum", "sha1 "+base64.StdEncoding.EncodeToString(make([]byte, 20)))
	_, _ = s.send("POST", "/uploads/", brokenReader([]byte("abcde"), 3), "Content-Length", "5", "Upload-Length", "5",
		"Content-Type", chunkType)
	waittest.Until(t, "the upload is deleted", func() bool { return len(s.entries()) == 1 })
}

func TestPost_RejectsInvalidHeaders(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{MaxBytes: 1000})
	for _, c := range []struct {
		name    string
		status  int
		headers []string
	}{
		{"negative length", 400, []string{"Upload-Length", "-1"}},
		{"signed length", 400, []string{"Upload-Length", "+1"}},
		{"hexadecimal length", 400, []string{"Upload-Length", "0x1"}},
		{"length beyond 63 bits", 400, []string{"Upload-Length", "9223372036854775808"}},
		{"no length", 400, []string{"Upload-Defer-Length", "1"}},
		{"empty file", 400, []string{"Upload-Length", "0"}},
		{"too large", 413, []string{"Upload-Length", "1001"}},
		{"parallel parts", 400, []string{"Upload-Length", "1", "Upload-Concat", "partial"}},
		{"key twice", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("a", "1", "a", "2")}},
		{"no Base64", 400, []string{"Upload-Length", "1", "Upload-Metadata", "a %%%"}},
		{"NUL", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("filename", "a\x00.mp4")}},
		{"not UTF-8", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("x", "\xff")}},
		{"huge", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("filename", strings.Repeat("x", 50<<10))}},
		{"params that are a list", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("params", "[1]")}},
		{
			"params that are long", 400,
			[]string{"Upload-Length", "1", "Upload-Metadata", metadata("params", `{"a":"`+strings.Repeat("x", 11<<10)+`"}`)},
		},
		{"priority out of range", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("priority", "32768")}},
		{
			"long request_id", 400,
			[]string{"Upload-Length", "1", "Upload-Metadata", metadata("request_id", strings.Repeat("x", 201))},
		},
		{"sha256 that is none", 400, []string{"Upload-Length", "1", "Upload-Metadata", metadata("sha256", "12")}},
		{"unknown checksum", 400, []string{"Upload-Length", "1", "Content-Type", chunkType, "Upload-Checksum", "md5 abcd"}},
	} {
		a, err := s.send("POST", "/uploads/", nil, c.headers...)
		if err != nil || a.status != c.status {
			t.Errorf("%s: got %d %s %v, want %d", c.name, a.status, a.body, err, c.status)
		}
	}
	if left := s.entries(); len(left) > 0 {
		t.Errorf("rejected uploads left %v", left)
	}
}

func TestPatch_RejectsWrongOffsets(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(10)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abcd"))
	for _, offset := range []int64{0, 3, 5, 10, 11, 1 << 62} {
		s.mustPatch(http.StatusConflict, url, offset, strings.NewReader("xx"))
	}
	for _, offset := range []string{"", "-4", "+4", "4.0", " ", "99999999999999999999"} {
		s.mustSend(http.StatusBadRequest, "PATCH", url, strings.NewReader("xx"), "Content-Type", chunkType,
			"Upload-Offset", offset)
	}
	s.mustSend(http.StatusUnsupportedMediaType, "PATCH", url, strings.NewReader("xx"), "Upload-Offset", "4")
	s.mustSend(http.StatusPreconditionFailed, "PATCH", url, strings.NewReader("xx"), "Upload-Offset", "4",
		"Content-Type", chunkType, "Tus-Resumable", "")
	// More bytes than announced, with and without Content-Length.
	s.mustPatch(http.StatusRequestEntityTooLarge, url, 4, strings.NewReader("efghijk"))
	s.mustPatch(http.StatusRequestEntityTooLarge, url, 4, io.MultiReader(strings.NewReader("efghijk")))
	if got := s.mustSend(http.StatusOK, "HEAD", url, nil).offset(); got != 4 {
		t.Fatalf("%d bytes exist, want 4", got)
	}
	s.mustPatch(http.StatusNoContent, url, 4, io.MultiReader(strings.NewReader("efghij")))
	s.checkFile(s.submissions.only(t), []byte("abcdefghij"))
}

func TestPatch_AppendsNothingIfTheChecksumDiffers(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	sum := func(b string) string {
		h := sha1.Sum([]byte(b))
		return "sha1 " + base64.StdEncoding.EncodeToString(h[:])
	}
	url := s.create(6)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("ab"), "Upload-Checksum", sum("ab"))
	s.mustPatch(460, url, 2, strings.NewReader("xx"), "Upload-Checksum", sum("cd"))
	s.mustPatch(460, url, 2, strings.NewReader("xxxx"), "Upload-Checksum", sum("cdef"))
	_, _ = s.send("PATCH", url, brokenReader([]byte("cdef"), 2), "Content-Length", "4", "Content-Type", chunkType,
		"Upload-Offset", "2", "Upload-Checksum", sum("cdef"))
	waittest.Until(t, "the broken request has ended", func() bool {
		a, err := s.send("PATCH", url, strings.NewReader("cd"), "Content-Type", chunkType, "Upload-Offset", "2",
			"Upload-Checksum", sum("cd"))
		return err == nil && a.status == http.StatusNoContent
	})
	s.mustPatch(http.StatusNoContent, url, 4, strings.NewReader("ef"))
	s.checkFile(s.submissions.only(t), []byte("abcdef"))
}

func TestCleanUp_DiscardsUnverifiedBytes(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(6)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("ab"))
	dir := filepath.Join(s.dir, "uploads", filepath.Base(url))
	if err := os.WriteFile(filepath.Join(dir, "unverified"), []byte("2"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "part"), []byte("abxxxx"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := s.uploads.CleanUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.mustSend(http.StatusOK, "HEAD", url, nil).offset(); got != 2 {
		t.Fatalf("%d bytes exist, want 2", got)
	}
	s.mustPatch(http.StatusNoContent, url, 2, strings.NewReader("cdef"))
	s.checkFile(s.submissions.only(t), []byte("abcdef"))
}

func TestUpload_IsDeletedIfItsSHA256Differs(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(3, "Upload-Metadata", metadata("sha256", sha256Hex([]byte("abc"))))
	s.mustPatch(460, url, 0, strings.NewReader("abd"))
	if left := s.entries(); len(left) > 0 || len(s.submissions.all()) > 0 {
		t.Errorf("%v is left, %v was submitted", left, s.submissions.all())
	}
	url = s.create(3, "Upload-Metadata", metadata("sha256", sha256Hex([]byte("abc"))))
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abc"))
	if u := s.submissions.only(t); u.SHA256 != sha256Hex([]byte("abc")) {
		t.Errorf("submitted as %+v", u)
	}
}

func TestUpload_IsVisibleOnlyToItsPrincipal(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(4, "As", "ann")
	for _, other := range []string{"", "bob"} {
		s.mustSend(http.StatusNotFound, "HEAD", url, nil, "As", other)
		s.mustSend(http.StatusNotFound, "GET", url, nil, "As", other)
		s.mustSend(http.StatusNotFound, "DELETE", url, nil, "As", other)
		s.mustPatch(http.StatusNotFound, url, 0, strings.NewReader("ab"), "As", other)
		a := s.mustSend(http.StatusOK, "GET", "/uploads/", nil, "As", other)
		if strings.TrimSpace(a.body) != `{"uploads":[]}` {
			t.Errorf("%q sees %s", other, a.body)
		}
	}
	a := s.mustSend(http.StatusOK, "GET", "/uploads/", nil, "As", "ann")
	if !strings.Contains(a.body, filepath.Base(url)) {
		t.Errorf("ann sees %s", a.body)
	}
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("abcd"), "As", "ann")
	if u := s.submissions.only(t); u.Principal != "ann" {
		t.Errorf("submitted as %+v", u)
	}
	s.mustSend(http.StatusNotFound, "GET", url, nil, "As", "bob")
}

func TestDelete_RemovesTheUpload(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{})
	url := s.create(4)
	s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("ab"))
	s.mustSend(http.StatusNoContent, "DELETE", url, nil)
	s.mustSend(http.StatusNotFound, "DELETE", url, nil)
	s.mustPatch(http.StatusNotFound, url, 2, strings.NewReader("cd"))
	if left := s.entries(); len(left) > 0 {
		t.Errorf("remaining: %v", left)
	}
}

func TestUpload_ExpiresWithoutData(t *testing.T) {
	t.Parallel()
	s := serve(t, upload.Options{Expiration: time.Hour})
	url, kept := s.create(4), s.create(4)
	a := s.mustPatch(http.StatusNoContent, url, 0, strings.NewReader("ab"))
	at, err := http.ParseTime(a.header.Get("Upload-Expires"))
	if d := time.Until(at); err != nil || d > time.Hour || d < 59*time.Minute {
		t.Errorf("Upload-Expires is %q", a.header.Get("Upload-Expires"))
	}
	s.makeOlder(url, 2*time.Hour)
	s.mustSend(http.StatusGone, "HEAD", url, nil)
	s.mustPatch(http.StatusGone, url, 2, strings.NewReader("cd"))
	done, err := s.uploads.CleanUp(t.Context())
	if err != nil || done != (upload.CleanUpResult{Expired: 1, Bytes: 2}) {
		t.Errorf("CleanUp returned %+v, %v", done, err)
	}
	s.mustSend(http.StatusNotFound, "HEAD", url, nil)
	s.mustSend(http.StatusOK, "HEAD", kept, nil)
}

// makeOlder moves the times of an upload to the past.
func (s *testServer) makeOlder(url string, by time.Duration) {
	s.t.Helper()
	dir := filepath.Join(s.dir, "uploads", filepath.Base(url))
	raw, err := os.ReadFile(filepath.Join(dir, "state.json"))
	if err != nil {
		s.t.Fatal(err)
	}
	var state map[string]any
	if err := json.Unmarshal(raw, &state); err != nil {
		s.t.Fatal(err)
	}
	then := time.Now().Add(-by)
	state["created"] = then
	raw, _ = json.Marshal(state)
	if err := os.WriteFile(filepath.Join(dir, "state.json"), raw, 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, "part"), then, then); err != nil {
		s.t.Fatal(err)
	}
}
