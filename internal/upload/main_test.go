package upload_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/cuelight/cuelight/internal/upload"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDirVariable); dir != "" {
		runChild(dir)
	}
	goleak.VerifyTestMain(m)
}

// submissions records the submitted uploads.
type submissions struct {
	mu      sync.Mutex
	uploads []upload.Upload
	err     error
}

func (k *submissions) onComplete(_ context.Context, u upload.Upload) (upload.Receipt, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return upload.Receipt{}, k.err
	}
	k.uploads = append(k.uploads, u)
	return upload.Receipt{Task: "task-of-" + u.ID}, nil
}

func (k *submissions) failWith(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.err = err
}

func (k *submissions) all() []upload.Upload {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.uploads)
}

// only returns the only submitted upload.
func (k *submissions) only(t *testing.T) upload.Upload {
	t.Helper()
	all := k.all()
	if len(all) != 1 {
		t.Fatalf("%d uploads were submitted, want 1: %+v", len(all), all)
	}
	return all[0]
}

type principalKey struct{}

func principal(ctx context.Context) string {
	name, _ := ctx.Value(principalKey{}).(string)
	return name
}

// testServer is a server with uploads.
type testServer struct {
	*httptest.Server
	t           *testing.T
	dir         string
	uploads     *upload.Uploads
	submissions *submissions
}

// serve starts a server. The header As is the principal.
func serve(t *testing.T, o upload.Options) *testServer {
	t.Helper()
	s := &testServer{t: t, dir: o.Dir, submissions: &submissions{}}
	if s.dir == "" {
		s.dir = t.TempDir()
	}
	o.Dir, o.Principal = s.dir, principal
	if o.OnComplete == nil {
		o.OnComplete = s.submissions.onComplete
	}
	if o.MinFree == 0 {
		o.MinFree = -1
	}
	var err error
	if s.uploads, err = upload.New(o); err != nil {
		t.Fatal(err)
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.uploads.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), principalKey{}, r.Header.Get("As"))))
	}))
	server := s.Server
	t.Cleanup(func() {
		s.uploads.Close()
		server.Close()
	})
	return s
}

// response is a complete response.
type response struct {
	status int
	header http.Header
	body   string
}

func (a response) offset() int64 {
	n, err := strconv.ParseInt(a.header.Get("Upload-Offset"), 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// send sends a request. Headers are pairs.
func (s *testServer) send(method, url string, body io.Reader, headers ...string) (response, error) {
	if url == "" || url[0] == '/' {
		url = s.URL + url
	}
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, body)
	if err != nil {
		return response{}, err
	}
	req.Header.Set("Tus-Resumable", "1.0.0")
	for i := 0; i < len(headers); i += 2 {
		req.Header.Del(headers[i])
		if headers[i+1] != "" {
			req.Header.Set(headers[i], headers[i+1])
		}
		if headers[i] == "Content-Length" {
			req.ContentLength, _ = strconv.ParseInt(headers[i+1], 10, 64)
		}
	}
	res, err := s.Client().Do(req)
	if err != nil {
		return response{}, err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	return response{res.StatusCode, res.Header, string(text)}, err
}

// mustSend sends a request and checks the status.
func (s *testServer) mustSend(want int, method, url string, body io.Reader, headers ...string) response {
	s.t.Helper()
	a, err := s.send(method, url, body, headers...)
	if err != nil {
		s.t.Fatalf("%s: %v", method, err)
	}
	if a.status != want {
		s.t.Fatalf("%s %v: got %d %s, want %d", method, headers, a.status, a.body, want)
	}
	return a
}

// metadata returns the header Upload-Metadata for pairs.
func metadata(pairs ...string) string {
	var b bytes.Buffer
	for i := 0; i < len(pairs); i += 2 {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(pairs[i] + " " + base64.StdEncoding.EncodeToString([]byte(pairs[i+1])))
	}
	return b.String()
}

// create creates an upload, and returns its URL.
func (s *testServer) create(size int64, headers ...string) string {
	s.t.Helper()
	a := s.mustSend(http.StatusCreated, "POST", "/uploads/", nil,
		append([]string{"Upload-Length", strconv.FormatInt(size, 10)}, headers...)...)
	return a.header.Get("Location")
}

const chunkType = "application/offset+octet-stream"

func (s *testServer) mustPatch(want int, url string, offset int64, body io.Reader, headers ...string) response {
	s.t.Helper()
	return s.mustSend(want, "PATCH", url, body,
		append([]string{"Content-Type", chunkType, "Upload-Offset", strconv.FormatInt(offset, 10)}, headers...)...)
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

func randomBytes(size int) []byte {
	var seed [32]byte
	seed[0] = byte(size)
	b := make([]byte, size)
	rand.NewChaCha8(seed).Read(b)
	return b
}

func sha256Hex(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// checkFile checks the content of a submitted file.
func (s *testServer) checkFile(u upload.Upload, want []byte) {
	s.t.Helper()
	got, err := os.ReadFile(u.Path)
	if err != nil {
		s.t.Fatal(err)
	}
	if sha256Hex(got) != sha256Hex(want) {
		s.t.Errorf("the file of %d bytes differs from the %d bytes that were sent", len(got), len(want))
	}
	if u.Size != int64(len(want)) {
		s.t.Errorf("the size is %d, want %d", u.Size, len(want))
	}
}

// entries lists the directory of uploads.
func (s *testServer) entries() []string {
	s.t.Helper()
	entries, err := os.ReadDir(filepath.Join(s.dir, "uploads"))
	if err != nil {
		s.t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

var errConnectionLost = errors.New("connection lost")

// brokenReader returns n bytes and then an error.
func brokenReader(b []byte, n int) io.Reader {
	return io.MultiReader(bytes.NewReader(b[:n]), errorReader{})
}

type errorReader struct{}

// Read returns errConnectionLost.
func (errorReader) Read([]byte) (int, error) { return 0, errConnectionLost }
