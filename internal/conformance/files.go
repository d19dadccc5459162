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

	"github.com/cuelight/cuelight/stages/remote"
	"github.com/cuelight/cuelight/store"
	"github.com/cuelight/cuelight/store/engine"
)

// params are the parameters of a task.
type params struct {
	Seconds float64 `json:"seconds"`
	Bytes   int     `json:"bytes"`
	// CancelLate cancels the task when the worker has reported that it is completed.
	CancelLate bool `json:"cancel_late,omitempty"`
}

// files has the files of the claims, in memory. It implements remote.Files.
type files struct {
	cancel func(ctx context.Context, task store.ID) error

	mu      sync.Mutex // guards outputs
	outputs map[store.ID][]byte
}

// read returns the parameters of a claim's task, and its input, which follows from its id.
func read(c engine.Claim) (p params, input []byte, err error) {
	if err := json.Unmarshal(c.Params, &p); err != nil {
		return p, nil, err
	}
	input = make([]byte, p.Bytes)
	_, err = rand.NewChaCha8(sha256.Sum256(c.Task[:])).Read(input)
	return p, input, err
}

// OpenInput opens the one input.
func (f *files) OpenInput(_ context.Context, c engine.Claim, name string) (io.ReadSeekCloser, error) {
	if name != "input" {
		return nil, fs.ErrNotExist
	}
	_, input, err := read(c)
	return struct {
		*bytes.Reader
		io.Closer
	}{bytes.NewReader(input), io.NopCloser(nil)}, err
}

// OutputSize returns how much of the output has arrived.
func (f *files) OutputSize(_ context.Context, c engine.Claim, name string) (int64, error) {
	if name != "output" {
		return 0, &remote.RefusedError{Reason: fmt.Sprintf("the stage delivers no file %.100q", name)}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return int64(len(f.outputs[c.Token])), nil
}

// WriteOutput appends to the output, also the part of a piece that was cut.
func (f *files) WriteOutput(_ context.Context, c engine.Claim, name string, at, total int64, sum string, from io.Reader) error {
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
	p, want, err := read(c)
	if err == nil && p.CancelLate {
		err = f.cancel(ctx, c.Task)
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
