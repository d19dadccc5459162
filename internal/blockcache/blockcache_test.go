package blockcache_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cuelight/cuelight/internal/blockcache"
)

const blockSize = 1 << 10

// origin is a source that counts how often each block was fetched.
type origin struct {
	content []byte
	delay   time.Duration

	mu      sync.Mutex // guards the rest
	fetched map[int64]int
	fail    error
}

func newOrigin(blocks int) *origin {
	o := &origin{content: make([]byte, blocks*blockSize-100), fetched: make(map[int64]int)}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(o.content)
	return o
}

func (o *origin) source(name string) blockcache.Source {
	return blockcache.Source{
		Name: name, Size: int64(len(o.content)), BlockSize: blockSize,
		Fetch: func(ctx context.Context, n int64) ([]byte, error) {
			select {
			case <-time.After(o.delay):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			o.mu.Lock()
			defer o.mu.Unlock()
			o.fetched[n]++
			return o.content[n*blockSize : min((n+1)*blockSize, int64(len(o.content)))], o.fail
		},
	}
}

func (o *origin) failWith(err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.fail = err
}

// counts returns how many blocks were fetched, and how often altogether.
func (o *origin) counts() (blocks, fetches int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, n := range o.fetched {
		fetches += n
	}
	return len(o.fetched), fetches
}

func noLimit(string, int64) error { return nil }

func readAll(t *testing.T, f *blockcache.File) []byte {
	t.Helper()
	content := make([]byte, f.Size())
	for at, step := 0, 300; at < len(content); at += step {
		if _, err := f.ReadAt(t.Context(), content[at:min(at+step, len(content))], int64(at)); err != nil {
			t.Fatal(err)
		}
	}
	return content
}

func TestCache_FetchesEachBlockOnceForAllReaders(t *testing.T) {
	t.Parallel()
	o, c := newOrigin(20), blockcache.New(t.TempDir(), 100*blockSize, noLimit)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			f := c.Open(t.Context(), o.source("a"))
			defer f.Close()
			if !bytes.Equal(readAll(t, f), o.content) {
				t.Error("the content differs")
			}
		})
	}
	all.Wait()
	if blocks, fetches := o.counts(); blocks != 20 || fetches != 20 {
		t.Errorf("%d blocks were fetched %d times", blocks, fetches)
	}
	f := c.Open(t.Context(), o.source("a"))
	defer f.Close()
	p := make([]byte, 200)
	if n, err := f.ReadAt(t.Context(), p, f.Size()-50); n != 50 || err != io.EOF || !bytes.Equal(p[:n], o.content[len(o.content)-50:]) {
		t.Errorf("at the end %d bytes were read, %v", n, err)
	}
}

func TestCache_KeepsItsLimitAndForgetsWhatWasUsedLeastRecently(t *testing.T) {
	t.Parallel()
	o, c := newOrigin(40), blockcache.New(t.TempDir(), 8*blockSize, noLimit)
	f := c.Open(t.Context(), o.source("a"))
	defer f.Close()
	p := make([]byte, 10)
	read := func(n int64) {
		t.Helper()
		if _, err := f.ReadAt(t.Context(), p, n*blockSize); err != nil || !bytes.Equal(p, o.content[n*blockSize:][:10]) {
			t.Fatalf("block %d: %v", n, err)
		}
		if bytes := c.Bytes(); bytes > 8*blockSize {
			t.Errorf("there are %d bytes on the disk", bytes)
		}
	}
	for i := range int64(18) {
		read(2 * i) // not in order
		read(39)    // the last block is used all the time
	}
	if o.fetched[39] != 1 {
		t.Errorf("the block that was used most recently was fetched %d times", o.fetched[39])
	}
	read(0)
	if o.fetched[0] != 2 {
		t.Errorf("the block that was used least recently was fetched %d times", o.fetched[0])
	}
}

func TestCache_FetchesAheadOfAReaderThatGoesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, c := newOrigin(40), blockcache.New(t.TempDir(), 100*blockSize, noLimit)
		o.delay = time.Second
		f := c.Open(t.Context(), o.source("a"))
		defer f.Close()
		began := time.Now()
		if !bytes.Equal(readAll(t, f), o.content) {
			t.Error("the content differs")
		}
		if took := time.Since(began); took > 14*time.Second {
			t.Errorf("40 blocks took %v", took)
		}
		// A reader that jumps gets what it asks for.
		other := newOrigin(40)
		jumping := c.Open(t.Context(), other.source("b"))
		defer jumping.Close()
		for _, n := range []int64{0, 39, 10, 20} {
			if _, err := jumping.ReadAt(t.Context(), make([]byte, 10), n*blockSize); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if blocks, _ := other.counts(); blocks != 4 {
			t.Errorf("%d blocks were fetched for 4", blocks)
		}
	})
}

func TestCache_TriesAgainAfterAnErrorOrTheEndOfAnotherReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, c := newOrigin(3), blockcache.New(t.TempDir(), 100*blockSize, noLimit)
		o.delay = time.Second
		f := c.Open(t.Context(), o.source("a"))
		defer f.Close()
		down := errors.New("down")
		o.failWith(down)
		if _, err := f.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, down) {
			t.Errorf("the error is %v", err)
		}
		o.failWith(nil)
		// The first reader begins to fetch the block, and is closed before it arrives.
		first := c.Open(t.Context(), o.source("a"))
		ctx, cancel := context.WithCancel(t.Context())
		var reading sync.WaitGroup
		reading.Go(func() {
			if _, err := first.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.Canceled) {
				t.Errorf("the cancelled read returned %v", err)
			}
		})
		synctest.Wait()
		reading.Go(func() {
			if _, err := f.ReadAt(t.Context(), make([]byte, 1), 0); err != nil {
				t.Errorf("the other reader got %v", err)
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		first.Close()
		reading.Wait()
	})
}

func TestCache_UsesOtherBlocksPlacesWhenTheDiskIsFull(t *testing.T) {
	t.Parallel()
	grown := 0
	full := func(string, int64) error {
		if grown++; grown > 3 {
			return syscall.ENOSPC
		}
		return nil
	}
	o, dir := newOrigin(10), t.TempDir()
	c := blockcache.New(dir, 100*blockSize, full)
	f := c.Open(t.Context(), o.source("a"))
	if !bytes.Equal(readAll(t, f), o.content) {
		t.Error("the content differs")
	}
	if bytes := c.Bytes(); bytes > 3*blockSize {
		t.Errorf("there are %d bytes on the disk", bytes)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
	f.Close()
	if err := c.Clear(); err != nil || c.Bytes() != 0 {
		t.Errorf("after Clear there are %d bytes, %v", c.Bytes(), err)
	}
	// Without any block whose place it could take, it says what is wrong.
	f = c.Open(t.Context(), o.source("a"))
	defer f.Close()
	if _, err := f.ReadAt(t.Context(), make([]byte, 1), 0); !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("the error is %v", err)
	}
}

func TestCache_ComesBackToItsLimitAfterManyReadersAtOnce(t *testing.T) {
	t.Parallel()
	for _, limit := range []int64{0, 3, 8} { // with 0, every block exceeds the limit
		o, c := newOrigin(100), blockcache.New(t.TempDir(), limit*blockSize, noLimit)
		var all sync.WaitGroup
		for n := range int64(100) {
			all.Go(func() {
				f := c.Open(t.Context(), o.source("a"))
				defer f.Close()
				p := make([]byte, 3*blockSize)
				read, err := f.ReadAt(t.Context(), p, n*blockSize)
				if (err != nil && err != io.EOF) || !bytes.HasPrefix(o.content[n*blockSize:], p[:read]) || read == 0 {
					t.Errorf("block %d: %v", n, err)
				}
			})
		}
		all.Wait()
		size, err := c.FileSize()
		if err != nil || size > limit*blockSize || c.Bytes() < size || c.Bytes() > limit*blockSize {
			t.Errorf("the limit is %d blocks; the file has %d bytes (%v), and Bytes says %d", limit, size, err, c.Bytes())
		}
	}
}

func TestCache_KeepsNothingBeyondItsLimitThatWasFetchedAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, c := newOrigin(20), blockcache.New(t.TempDir(), 0, noLimit)
		f := c.Open(t.Context(), o.source("a"))
		defer f.Close()
		for n := range int64(6) {
			if _, err := f.ReadAt(t.Context(), make([]byte, 1), n*blockSize); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if blocks, _ := o.counts(); blocks <= 6 {
			t.Errorf("%d blocks were fetched for 6: none ahead", blocks)
		}
		if size, err := c.FileSize(); err != nil || size > 0 {
			t.Errorf("the file has %d bytes, %v", size, err)
		}
	})
}

func TestCache_FetchesAtMost16BlocksAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		o, c := newOrigin(100), blockcache.New(t.TempDir(), 100*blockSize, noLimit)
		o.delay = time.Second
		began := time.Now()
		var all sync.WaitGroup
		for n := range int64(100) {
			all.Go(func() {
				f := c.Open(t.Context(), o.source("a"))
				defer f.Close()
				if _, err := f.ReadAt(t.Context(), make([]byte, 1), n*blockSize); err != nil {
					t.Error(err)
				}
			})
		}
		// A reader that is closed does not wait for the others.
		closed := c.Open(t.Context(), o.source("b"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		synctest.Wait()
		if _, err := closed.ReadAt(ctx, make([]byte, 1), 0); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the read that nobody waits for returned %v", err)
		}
		closed.Close()
		if waited := time.Since(began); waited > time.Millisecond {
			t.Errorf("Close waited %v", waited)
		}
		all.Wait()
		if took := time.Since(began); took != 7*time.Second {
			t.Errorf("100 blocks took %v, want 7 s for 16 at once", took)
		}
	})
}
