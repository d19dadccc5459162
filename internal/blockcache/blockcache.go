// Package blockcache keeps blocks of files of a bucket on the local disk, for several readers.
//
// Call [New] once per process, [Cache.Open] for every use of a file, and [File.Close] at its end.
// Guarantees:
//
//   - A block is fetched once while it is in the cache, however many readers want it.
//   - The cache has at most its limit of bytes on the disk. The least recently used blocks make room.
//     Only blocks that are being read or fetched may exceed the limit, and the file shrinks when that ends.
//   - At most 16 blocks are fetched at once, so the memory for them is bounded, however many readers wait.
//   - A reader that goes through a file in order finds the next blocks fetched.
//   - Blocks are in one file without a name, so a process that was killed leaves nothing.
//   - Nothing runs after Close.
//
// The source verifies the blocks. The package does not verify them again when it reads the disk, and
// does not log.
package blockcache

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// Source is a file whose blocks are cached.
type Source struct {
	Name      string // identifies the content: it never changes
	Size      int64  // in bytes
	BlockSize int64  // in bytes; the same for all sources of a cache
	// Fetch returns block n, counted from 0, after verifying it.
	Fetch func(ctx context.Context, n int64) ([]byte, error)
}

// Cache keeps blocks in a directory. It may be used concurrently.
type Cache struct {
	dir      string
	limit    int64
	grow     func(dir string, bytes int64) error
	fetching chan struct{} // has a value for each fetch whose block is in memory

	mu        sync.Mutex // guards the rest; reads and writes of the file hold a reference to their block instead
	file      *os.File   // has no name; nil until the first block
	blocks    map[blockID]*block
	recent    *list.List // of *block that are on the disk; the least recently used is last
	free      []int64    // places in the file without a block
	places    int64      // in the file
	blockSize int64      // the size of a place; 0 until the first block

	writing int       // blocks that have a place and are not in recent yet
	written sync.Cond // with mu: there are fewer of them
}

// maxFetches is how many blocks are fetched at once: enough for the bandwidth of a host, and at most 128 MiB
// for blocks of 8 MiB.
const maxFetches = 16

type blockID struct {
	name string
	n    int64
}

// block is a block that is in the file or being fetched. Cache.mu guards its fields; place and err do
// not change after done was closed.
type block struct {
	id      blockID
	done    chan struct{} // closed when it was fetched, or err is set
	err     error
	place   int64 // in the file, counted in blocks
	size    int64
	uses    int           // reads that need it
	element *list.Element // in Cache.recent; nil while it is not on the disk
}

// New returns a cache of at most limit bytes in a directory, which must exist when the first block
// arrives. Before it takes more of the disk it calls grow, which may refuse that with an error; the
// cache then takes the place of other blocks, if it has any.
func New(dir string, limit int64, grow func(dir string, bytes int64) error) *Cache {
	c := &Cache{
		dir: dir, limit: limit, grow: grow, fetching: make(chan struct{}, maxFetches),
		blocks: make(map[blockID]*block), recent: list.New(),
	}
	c.written.L = &c.mu
	return c
}

// Open returns a reader of a source. Its context ends all fetches for it.
func (c *Cache) Open(ctx context.Context, s Source) *File {
	f := &File{cache: c, source: s, last: -1}
	f.ctx, f.cancel = context.WithCancel(ctx)
	return f
}

// Bytes is how many bytes the cache has on the disk, also for places without a block.
func (c *Cache) Bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.places * c.blockSize
}

// Clear gives the disk back all blocks that are not being read or fetched, if that is all of them;
// otherwise it changes nothing.
func (c *Cache) Clear() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == nil || c.recent.Len() < len(c.blocks) {
		return nil
	}
	for _, b := range c.blocks {
		if b.uses > 0 {
			return nil
		}
	}
	err := c.file.Close()
	c.file, c.free, c.places = nil, nil, 0
	c.blocks, c.recent = make(map[blockID]*block), list.New()
	return err
}

// use returns the block of a file after it was fetched. The caller calls unuse.
func (c *Cache) use(ctx context.Context, f *File, n int64) (*block, error) {
	for {
		b := c.begin(f, n, 1)
		select {
		case <-b.done:
		case <-ctx.Done():
			c.unuse(b)
			return nil, context.Cause(ctx)
		}
		if b.err == nil {
			return b, nil
		}
		c.unuse(b)
		// The reader that began to fetch it may have been closed.
		if !errors.Is(b.err, context.Canceled) || f.ctx.Err() != nil {
			return nil, b.err
		}
	}
}

// begin returns a block, which f begins to fetch if nobody has.
func (c *Cache) begin(f *File, n int64, uses int) *block {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := blockID{f.source.Name, n}
	b := c.blocks[id]
	if b == nil {
		b = &block{id: id, done: make(chan struct{})}
		c.blocks[id] = b
		f.running.Go(func() { c.fetch(f, b) })
	} else if b.element != nil {
		c.recent.MoveToFront(b.element)
	}
	b.uses += uses
	return b
}

func (c *Cache) unuse(b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	b.uses--
	c.shrink(b)
}

// fetch gets a block and writes it to the file.
func (c *Cache) fetch(f *File, b *block) {
	err := c.fetchBounded(f, b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if b.err = err; err != nil {
		delete(c.blocks, b.id)
	}
	close(b.done)
}

// fetchBounded waits until fewer than maxFetches blocks are in memory.
func (c *Cache) fetchBounded(f *File, b *block) error {
	select {
	case c.fetching <- struct{}{}:
		defer func() { <-c.fetching }()
	case <-f.ctx.Done():
		return context.Canceled
	}
	content, err := f.source.Fetch(f.ctx, b.id.n)
	if f.ctx.Err() != nil {
		return context.Canceled
	}
	if err != nil {
		return err
	}
	return c.store(f, b, content)
}

func (c *Cache) store(f *File, b *block, content []byte) error {
	file, err := c.reserve(b, int64(len(content)), f.source.BlockSize)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(content, b.place*f.source.BlockSize)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.writing--
	c.written.Broadcast()
	if err != nil {
		c.free = append(c.free, b.place)
		c.truncate()
		return fmt.Errorf("write block cache: %w", err)
	}
	b.element = c.recent.PushFront(b)
	c.shrink(b) // nobody may read it yet: it was fetched ahead
	return nil
}

// maxAhead is how many blocks are fetched ahead of a reader that goes through a file in order, and
// fewInOrder how many blocks a reader reads in order that only looks at a place.
const maxAhead, fewInOrder = 4, 2

// File reads a source through the cache. It may be used concurrently.
type File struct {
	cache   *Cache
	source  Source
	ctx     context.Context // of all fetches
	cancel  context.CancelFunc
	running sync.WaitGroup // of fetches

	mu      sync.Mutex // guards the rest
	last    int64      // the block that was read last
	inOrder int64      // how many blocks were read in order before it
}

// Size returns the size of the source.
func (f *File) Size() int64 { return f.source.Size }

// Close ends all fetches for the file and waits for them. Reads must have returned.
func (f *File) Close() {
	f.cancel()
	f.running.Wait()
}

// ReadAt reads from an offset on, as io.ReaderAt does, until ctx ends.
func (f *File) ReadAt(ctx context.Context, p []byte, offset int64) (done int, err error) {
	for done < len(p) {
		at := offset + int64(done)
		if at >= f.source.Size {
			return done, io.EOF
		}
		n, err := f.readBlock(ctx, p[done:], at)
		if done += n; err != nil {
			return done, err
		}
	}
	return done, nil
}

// readBlock reads from one block.
func (f *File) readBlock(ctx context.Context, p []byte, at int64) (int, error) {
	n := at / f.source.BlockSize
	f.prefetch(n)
	b, err := f.cache.use(ctx, f, n)
	if err != nil {
		return 0, err
	}
	defer f.cache.unuse(b)
	within := at - n*f.source.BlockSize
	p = p[:min(int64(len(p)), b.size-within)]
	read, err := f.cache.file.ReadAt(p, b.place*f.source.BlockSize+within)
	if err != nil {
		return read, fmt.Errorf("read block cache: %w", err)
	}
	return read, nil
}

// prefetch begins to fetch the blocks after n, the more of them the longer the reader goes in order.
func (f *File) prefetch(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case n == f.last:
		return
	case n == f.last+1 && n > 0:
		f.inOrder++
	default:
		f.inOrder = 0
	}
	f.last = n
	blocks := (f.source.Size + f.source.BlockSize - 1) / f.source.BlockSize
	for next := n + 1; next <= n+min(2*(f.inOrder-fewInOrder), maxAhead) && next < blocks; next++ {
		if f.ctx.Err() == nil {
			f.cache.begin(f, next, 0)
		}
	}
}
