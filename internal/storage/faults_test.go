package storage_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/cuelight/cuelight/internal/storage"
	"github.com/cuelight/cuelight/internal/storage/s3test"
)

// faultyFiles has all kinds of files, and few of them, because every request is interrupted.
var faultyFiles = tree{"master.m3u8": 200, "video/seg-1.m4s": 7_000, "source.mp4": 5*mib + 1000}

// operation is done through a proxy that injects faults.
type operation struct {
	name string
	// prepare runs before every attempt at a place of the fault; n is unique.
	prepare func(t *testing.T, direct *storage.Bucket, dir string, n int)
	// do is the operation, which is repeated after an error.
	do func(ctx context.Context, t *testing.T, b *storage.Bucket, dir string, n int) error
	// reads are the names that a reader looks for at every moment.
	reads func(n int) []string
	// done checks the result.
	done func(t *testing.T, direct *storage.Bucket, n int)
}

func TestFaults_AtEveryRequestLeaveNothingHalfDone(t *testing.T) {
	t.Parallel()
	s := startServer(t, s3test.Options{})
	want := hashes(t, faultyFiles.write(t))
	put := func(t *testing.T, direct *storage.Bucket, dir string, n int) {
		if _, err := direct.PutArtifact(t.Context(), fmt.Sprintf("from/%d", n), dir, nil); err != nil {
			t.Fatal(err)
		}
	}
	putOnce := func(t *testing.T, direct *storage.Bucket, dir string, n int) {
		if n == 1 {
			put(t, direct, dir, n)
		}
	}
	operations := []operation{{
		name: "put",
		do: func(ctx context.Context, _ *testing.T, b *storage.Bucket, dir string, n int) error {
			_, err := b.PutArtifact(ctx, fmt.Sprintf("to/%d", n), dir, nil)
			return err
		},
		reads: func(n int) []string { return []string{fmt.Sprintf("to/%d", n)} },
	}, {
		name: "put similar", prepare: putOnce,
		do: func(ctx context.Context, _ *testing.T, b *storage.Bucket, dir string, n int) error {
			similar := storage.ArtifactRef{Bucket: b, Name: "from/1"}
			_, err := b.PutArtifact(ctx, fmt.Sprintf("to/%d", n), dir, nil, similar)
			return err
		},
		reads: func(n int) []string { return []string{fmt.Sprintf("to/%d", n)} },
	}, {
		name: "copy", prepare: putOnce,
		do: func(ctx context.Context, _ *testing.T, b *storage.Bucket, _ string, n int) error {
			return b.CopyArtifact(ctx, "from/1", b, fmt.Sprintf("to/%d", n), nil)
		},
		reads: func(n int) []string { return []string{fmt.Sprintf("to/%d", n)} },
	}, {
		name: "get", prepare: putOnce,
		do: func(ctx context.Context, t *testing.T, b *storage.Bucket, dir string, n int) error {
			target := fmt.Sprintf("%s-got-%d", dir, n)
			_, err := b.GetArtifact(ctx, "from/1", target, nil, nil)
			if exists(target) != (err == nil) {
				t.Errorf("the directory exists: %t, after error %v", exists(target), err)
			}
			if err == nil {
				if diff := cmp.Diff(want, hashes(t, target)); diff != "" {
					t.Error(diff)
				}
				err = os.RemoveAll(target)
			}
			return err
		},
	}, {
		name: "delete", prepare: put,
		do: func(ctx context.Context, _ *testing.T, b *storage.Bucket, _ string, n int) error {
			return b.DeleteArtifact(ctx, fmt.Sprintf("from/%d", n))
		},
		reads: func(n int) []string { return []string{fmt.Sprintf("from/%d", n)} },
		done: func(t *testing.T, direct *storage.Bucket, n int) {
			if found, err := direct.ListArtifacts(t.Context(), "from"); err != nil || len(found) > 0 {
				t.Errorf("after the deletion: %v, %v", found, err)
			}
		},
	}, {
		name: "write",
		prepare: func(t *testing.T, direct *storage.Bucket, _ string, n int) {
			if _, err := direct.WriteDocument(t.Context(), fmt.Sprintf("document-%d", n), []byte("old"), ""); err != nil {
				t.Fatal(err)
			}
		},
		do: func(ctx context.Context, t *testing.T, b *storage.Bucket, _ string, n int) error {
			name := fmt.Sprintf("document-%d", n)
			content, version, err := b.ReadDocument(ctx, name)
			if err != nil || string(content) == "new" {
				return err
			}
			if string(content) != "old" {
				t.Errorf("content %q", content)
			}
			_, err = b.WriteDocument(ctx, name, []byte("new"), version)
			return err
		},
		done: func(t *testing.T, direct *storage.Bucket, n int) {
			content, _, err := direct.ReadDocument(t.Context(), fmt.Sprintf("document-%d", n))
			if err != nil || string(content) != "new" {
				t.Errorf("content %q, %v", content, err)
			}
		},
	}}
	for _, o := range operations {
		for _, fault := range s3test.Faults {
			if testing.Short() && fault != s3test.CutAfter {
				continue
			}
			t.Run(o.name+"/"+string(fault), func(t *testing.T) {
				t.Parallel()
				o.test(t, s, fault, want)
			})
		}
	}
}

// test interrupts request after request, until there is none left.
func (o operation) test(t *testing.T, s *s3test.Server, fault s3test.Fault, want map[string]string) {
	proxy := s3test.NewProxy(t, s)
	prefix := "s3://" + bucketName + "/" + strings.ReplaceAll(o.name, " ", "-") + "-" + fmt.Sprintf("%x", string(fault))
	// One connection, so that the requests have an order; one try, so that errors are seen.
	options := storage.Options{PartSize: 5 * mib, CopyPartSize: 5 * mib, Connections: 1, Tries: 1}
	repeated := open(t, prefix, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), options)
	if fault == s3test.NoAnswer {
		options.IdleTimeout = 300 * time.Millisecond // a busy machine may exceed it, too
	}
	faulty := open(t, prefix, with(s.Env(), "AWS_ENDPOINT_URL", proxy.Endpoint), options)
	direct := open(t, prefix, s.Env(), smallParts)
	dir := faultyFiles.write(t)
	errorsSeen := 0
	for n := 1; ; n++ {
		if o.prepare != nil {
			o.prepare(t, direct, dir, n)
		}
		var checks sync.Mutex // of the reader, since aborted requests overlap with the next ones
		proxy.Observe(nil, func(number int, _ *http.Request) {
			if number < n-1 { // a run with a fault soon after it has shown what is there after that request
				return
			}
			checks.Lock()
			defer checks.Unlock()
			for _, name := range o.names(n) {
				checkWhole(t, direct, name, want)
			}
		})
		isInjected := false
		proxy.Inject(func(number int, _ *http.Request) s3test.Fault {
			if number != n {
				return ""
			}
			isInjected = true
			return fault
		})
		proxy.Reset()
		err := o.do(t.Context(), t, faulty, dir, n)
		proxy.Inject(nil) // a busy machine may have ended it before the fault
		if _, isService := errors.AsType[*storage.ServiceError](err); err != nil && !isService {
			t.Fatalf("request %d: %v is no error of the service", n, err)
		}
		if err != nil {
			errorsSeen++
			if err := o.do(t.Context(), t, repeated, dir, n); err != nil {
				t.Fatalf("request %d: repeated: %v", n, err)
			}
		}
		if o.done != nil {
			o.done(t, direct, n)
		}
		proxy.Wait()
		if !isInjected && err == nil {
			t.Logf("%d requests, %d errors", n-1, errorsSeen)
			break
		}
	}
	if errorsSeen == 0 {
		t.Error("no fault led to an error")
	}
}

func (o operation) names(n int) []string {
	if o.reads == nil {
		return nil
	}
	return o.reads(n)
}

// checkWhole checks that an artifact either does not exist, or has all files.
func checkWhole(t *testing.T, b *storage.Bucket, name string, want map[string]string) {
	dir := newDir(t)
	_, err := b.GetArtifact(context.Background(), name, dir, nil, nil)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		t.Errorf("a reader of %s: %v", name, err)
		return
	}
	if diff := cmp.Diff(want, hashes(t, dir)); diff != "" {
		t.Errorf("a reader of %s: %s", name, diff)
	}
}
