// Package formattest validates what Cuelight writes with the libraries of others: documents
// against JSON schemas, and playlists with two HLS parsers. It is for tests.
//
// The libraries are no dependencies of the product. They are compiled into the program
// internal/e2e/validator, which has a module of its own. The first call starts it with
// `go run`; it ends with the process of the test.
package formattest

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// Request is what the validator reads, one JSON object per line. Playlist or Schemas is set.
type Request struct {
	Playlist []byte // an HLS playlist

	Schemas  string // the path of a JSON file with schemas
	Pointer  string // a JSON pointer to one of them, as in a URL
	Document []byte // to validate; without one, the schema itself is checked
}

// Response is what the validator writes for a request.
type Response struct {
	Error    string
	Variants int // of a multivariant playlist
}

// Playlist parses a playlist with two libraries and returns the number of its variants, which is
// 0 for a media playlist.
func Playlist(text []byte) (variants int, err error) {
	r, err := validate(Request{Playlist: text})
	return r.Variants, err
}

// Schema checks the schema of draft 2020-12 at a JSON pointer in a file.
func Schema(file, pointer string) error { return Document(file, pointer, nil) }

// Document validates a JSON document against the schema at a JSON pointer in a file. Objects must
// not have other properties than the schema names, unless it says so.
func Document(file, pointer string, document []byte) error {
	path, err := filepath.Abs(file)
	if err != nil {
		return err
	}
	_, err = validate(Request{Schemas: path, Pointer: pointer, Document: document})
	return err
}

// validator is the running program, which answers one request after the other.
type validator struct {
	mu        sync.Mutex
	requests  *json.Encoder
	responses *json.Decoder
}

var start = sync.OnceValues(func() (*validator, error) {
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("go", "run", "-trimpath", "./validator")
	cmd.Dir = filepath.Join(filepath.Dir(strings.TrimSpace(string(module))), "internal", "e2e")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	cmd.Stderr = os.Stderr
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		return nil, err
	}
	return &validator{requests: json.NewEncoder(stdin), responses: json.NewDecoder(stdout)}, nil
})

func validate(r Request) (out Response, err error) {
	v, err := start()
	if err != nil {
		return out, fmt.Errorf("start internal/e2e/validator: %w", err)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if err := errors.Join(v.requests.Encode(r), v.responses.Decode(&out)); err != nil {
		return out, fmt.Errorf("ask internal/e2e/validator: %w", err)
	}
	if out.Error != "" {
		err = errors.New(out.Error)
	}
	return out, err
}
