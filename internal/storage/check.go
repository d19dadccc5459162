package storage

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Finding is a result of Check.
type Finding struct {
	Status string // ok, warning or failed
	Detail string // one line
	Fix    string // what to do about it; empty if ok
}

// maxSkew is the difference of clocks that is not worth a warning. Services refuse requests
// from 15 minutes on.
const maxSkew = time.Minute

// checkPartSize is the smallest that S3 allows.
const checkPartSize = 5 * mib

// Check tries everything that this package does, in a directory of names of its own that it
// deletes again, and uploads 6 MiB. It finds services that ignore a condition, which would lose
// updates, and missing permissions. The last finding is about the clocks.
func (b *Bucket) Check(ctx context.Context) []Finding {
	small := *b
	small.options.PartSize, small.options.CopyPartSize = checkPartSize, checkPartSize
	c := checking{b: &small, name: "cuelight-check-" + strings.ToLower(rand.Text()[:10])}
	findings := []Finding{{Status: "ok", Detail: fmt.Sprintf(
		"%s at %s: write, conditional write, range, list, copy and delete work", b.address, b.address.Endpoint)}}
	if err := c.run(ctx); err != nil {
		findings = []Finding{failed(err)}
	}
	return append(findings, b.checkClock()...)
}

func failed(err error) Finding {
	f := Finding{Status: "failed", Detail: err.Error(), Fix: "see docs/storage.md"}
	if e, ok := errors.AsType[*ServiceError](err); ok {
		f.Detail, f.Fix = e.Text, e.Hint
	}
	return f
}

func (b *Bucket) checkClock() []Finding {
	skew := time.Duration(b.transport.skew.Load()).Abs()
	if skew <= maxSkew {
		return nil
	}
	return []Finding{{
		Status: "warning", Fix: messages[Clock].hint,
		Detail: fmt.Sprintf("the clocks of this host and of %s differ by %s; requests fail from 15 minutes on",
			b.address.Endpoint, skew.Round(time.Second)),
	}}
}

// checking is one call of Check.
type checking struct {
	b    *Bucket
	name string // of the directory of names
}

func (c checking) run(ctx context.Context) (err error) {
	// The names are deleted even if the context has ended, because nobody else would do so.
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		if cleanErr := c.clean(ctx); err == nil {
			err = cleanErr
		}
	}()
	if _, err := c.b.ListArtifacts(ctx, c.name); err != nil {
		return err
	}
	if err := c.conditions(ctx); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "cuelight-check-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	return c.artifacts(ctx, dir)
}

func (c checking) clean(ctx context.Context) error {
	if err := c.b.DeleteArtifact(ctx, c.name); err != nil {
		return err
	}
	left, err := c.b.objects(ctx, c.name)
	if err == nil && len(left) > 0 {
		err = c.unsuitable("it does not delete")
	}
	return err
}

func (c checking) unsuitable(lacks string) error {
	e := newServiceError(Unsuitable, c.b.address.Endpoint, nil)
	e.Text = fmt.Sprintf("the service at %s cannot be used: %s", c.b.address.Endpoint, lacks)
	e.Hint = "use a service with the functions that docs/storage.md lists"
	return e
}

// conditions writes a document as two writers would.
func (c checking) conditions(ctx context.Context) error {
	name := c.name + "/document.json"
	first, err := c.b.WriteDocument(ctx, name, []byte("1"), "")
	if err != nil {
		return err
	}
	if _, err := c.b.WriteDocument(ctx, name, []byte("2"), ""); !errors.Is(err, ErrConflict) {
		return orElse(err, c.unsuitable("it ignores If-None-Match, so two writers could both create a file"))
	}
	second, err := c.b.WriteDocument(ctx, name, []byte("3"), first)
	if err != nil {
		return err
	}
	if _, err := c.b.WriteDocument(ctx, name, []byte("4"), first); !errors.Is(err, ErrConflict) {
		return orElse(err, c.unsuitable("it ignores If-Match, so an older version could replace a newer one"))
	}
	content, version, err := c.b.ReadDocument(ctx, name)
	if err == nil && (string(content) != "3" || version != second) {
		err = c.unsuitable("it does not return what was written last")
	}
	return err
}

// orElse returns the first error that is not nil.
func orElse(err, otherwise error) error {
	if err != nil {
		return err
	}
	return otherwise
}

// artifacts stores an artifact with a small and a large file, and uses it.
func (c checking) artifacts(ctx context.Context, dir string) error {
	source := filepath.Join(dir, "source")
	if err := os.Mkdir(source, 0o700); err != nil {
		return err
	}
	large := make([]byte, checkPartSize+mib)
	if _, err := rand.Read(large); err != nil {
		return err
	}
	for name, content := range map[string][]byte{"small.m3u8": []byte("#EXTM3U\n"), "large.mp4": large} {
		if err := os.WriteFile(filepath.Join(source, name), content, 0o600); err != nil {
			return err
		}
	}
	first, second := c.name+"/first", c.name+"/second"
	if _, err := c.b.PutArtifact(ctx, first, source, nil); err != nil {
		return err
	}
	if err := c.ranges(ctx, first+"/large.mp4", large); err != nil {
		return err
	}
	if err := c.b.CopyArtifact(ctx, first, c.b, second, nil); err != nil {
		return err
	}
	if _, err := c.b.GetArtifact(ctx, second, filepath.Join(dir, "copy"), nil, nil); err != nil {
		return err
	}
	found, err := c.b.ListArtifacts(ctx, c.name)
	if err == nil && (len(found) != 2 || !found[0].Complete || !found[1].Complete) {
		err = c.unsuitable("it does not list what was written")
	}
	if err != nil {
		return err
	}
	if err := c.b.DeleteArtifact(ctx, first); err != nil {
		return err
	}
	if _, err := c.b.GetArtifact(ctx, first, filepath.Join(dir, "deleted"), nil, nil); !errors.Is(err, fs.ErrNotExist) {
		return orElse(err, c.unsuitable("it returns what was deleted"))
	}
	return c.b.DeleteDocument(ctx, c.name+"/document.json")
}

// ranges reads the end of an object.
func (c checking) ranges(ctx context.Context, name string, content []byte) error {
	from := int64(checkPartSize - 1)
	body, err := c.b.openRange(ctx, c.b.key(name), from, int64(len(content)), int64(len(content)))
	if errors.Is(err, ErrCorrupt) {
		return c.unsuitable("it ignores Range, so an interrupted download could not continue")
	}
	if err != nil {
		return c.b.explain(ctx, err)
	}
	defer body.Close()
	got, err := io.ReadAll(body)
	if err == nil && !bytes.Equal(got, content[from:]) {
		err = c.unsuitable("it returns another range than was asked for")
	}
	return c.b.explain(ctx, err)
}
