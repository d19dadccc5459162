package conformance

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// The names of a claim's files.
const (
	inputName  = "input"
	outputName = "output"
)

// params are the parameters of a task.
type params struct {
	Seconds float64 `json:"seconds"`
	Bytes   int     `json:"bytes"`
	// CheckSeconds is how long the coordinator checks the output.
	CheckSeconds float64 `json:"check_seconds,omitempty"`
}

// files has the files of the claims, in memory. It implements remote.Files and remote.InputAddresses.
type files struct {
	mu        sync.Mutex // guards the rest
	outputs   map[store.ID][]byte
	elsewhere *inputServer // nil: the coordinator sends the inputs
}

// paramsOf returns the parameters of a claim's task.
func paramsOf(c engine.Claim) (p params, err error) {
	err = json.Unmarshal(c.Params, &p)
	return p, err
}

// input returns the bytes of a task's input, which follow from its id.
func input(c engine.Claim) ([]byte, error) {
	p, err := paramsOf(c)
	if err != nil {
		return nil, err
	}
	content := make([]byte, p.Bytes)
	_, err = rand.NewChaCha8(sha256.Sum256(c.Task[:])).Read(content)
	return content, err
}

// redirectTo makes the coordinator redirect requests of inputs to a server; nil ends it.
func (f *files) redirectTo(s *inputServer) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.elsewhere = s
}

// InputAddress returns an address of the input while there is a server for it.
func (f *files) InputAddress(_ context.Context, c engine.Claim, name string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.elsewhere == nil || name != inputName {
		return "", nil
	}
	content, err := input(c)
	if err != nil {
		return "", err
	}
	return f.elsewhere.add(content), nil
}

// OpenInput opens the one input.
func (f *files) OpenInput(_ context.Context, c engine.Claim, name string) (io.ReadSeekCloser, error) {
	if name != inputName {
		return nil, fs.ErrNotExist
	}
	content, err := input(c)
	return struct {
		*bytes.Reader
		io.Closer
	}{bytes.NewReader(content), io.NopCloser(nil)}, err
}

// OutputSize returns how much of the output has arrived.
func (f *files) OutputSize(_ context.Context, c engine.Claim, name string) (int64, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name != outputName {
		return 0, &remote.RefusedError{Reason: fmt.Sprintf("the stage delivers no file %.100q", name)}
	}
	return int64(len(f.outputs[c.Token])), nil
}

// maxOutput bounds the memory of an output, in bytes.
const maxOutput = 64 << 20

// WriteOutput appends to the output, also the part of a piece that was cut.
func (f *files) WriteOutput(_ context.Context, c engine.Claim, name string, at, total int64, sum string, from io.Reader) error {
	if total > maxOutput {
		return &remote.RefusedError{Reason: "the file is too large"}
	}
	piece, err := io.ReadAll(from)
	f.mu.Lock()
	defer f.mu.Unlock()
	if int64(len(f.outputs[c.Token])) != at {
		return fmt.Errorf("another request writes %s", name)
	}
	content := append(f.outputs[c.Token], piece...)
	f.outputs[c.Token] = content
	if digest := sha256.Sum256(content); err == nil && int64(len(content)) == total && sum != "" &&
		!strings.EqualFold(hex.EncodeToString(digest[:]), sum) {
		delete(f.outputs, c.Token)
		return &remote.RefusedError{Reason: "the SHA-256 of the file differs; send it again"}
	}
	return err
}

// Accept compares the output with the input.
func (f *files) Accept(ctx context.Context, c engine.Claim, result json.RawMessage) (json.RawMessage, error) {
	p, err := paramsOf(c)
	if err == nil {
		err = ctxsleep.For(ctx, time.Duration(p.CheckSeconds*float64(time.Second)))
	}
	var want []byte
	if err == nil {
		want, err = input(c)
	}
	if err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var r struct{ Bytes *int }
	if err := json.Unmarshal(result, &r); err != nil || r.Bytes == nil || *r.Bytes != len(want) {
		return nil, &remote.RefusedError{Reason: fmt.Sprintf("the result is %.100q, not {\"bytes\": %d}", result, len(want))}
	}
	if got := f.outputs[c.Token]; !bytes.Equal(got, want) {
		return nil, &remote.RefusedError{Reason: fmt.Sprintf("the output has %d bytes and differs from the input, of %d", len(got), len(want))}
	}
	return result, nil
}
