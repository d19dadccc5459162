package storage

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/cuelight/cuelight/internal/ctxsleep"
)

// BlockSize is the size in bytes of the blocks whose hashes a manifest has; the last block of a file
// may be shorter.
const BlockSize = 8 * mib

// BlockSums returns the SHA-256 of the blocks of the file; nil if the manifest does not have them.
func (f File) BlockSums() []string {
	switch {
	case f.Size > 0 && f.Size <= BlockSize:
		return []string{f.SHA256}
	case int64(len(f.Blocks)) == (f.Size+BlockSize-1)/BlockSize:
		return f.Blocks
	}
	return nil
}

// ReadBlock reads block n of a file of an artifact, counted from 0, and verifies it. A wrong block is
// read once more; if it is wrong again, the error is ErrCorrupt. The file must have BlockSums.
func (b *Bucket) ReadBlock(ctx context.Context, name string, f File, n int64) ([]byte, error) {
	sums := f.BlockSums()
	if n < 0 || n >= int64(len(sums)) {
		return nil, fmt.Errorf("read block %d of %s in %s: %w", n, f.Name, name, io.EOF)
	}
	from := n * BlockSize
	content := make([]byte, min(BlockSize, f.Size-from))
	for range 2 {
		if err := b.fillRange(ctx, b.key(name, f.Name), content, from, f.Size); err != nil {
			return nil, b.wrap(ctx, err, fmt.Sprintf("read block %d of %s in", n, f.Name), name)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) == sums[n] {
			return content, nil
		}
	}
	return nil, fmt.Errorf("read block %d of %s in %s: %w: it arrived twice with another SHA-256 than the manifest says",
		n, f.Name, name, ErrCorrupt)
}

// fillRange reads bytes of an object of the given size from an offset on. It continues where a
// connection was cut, as long as that makes progress.
func (b *Bucket) fillRange(ctx context.Context, key string, content []byte, from, size int64) error {
	filled, to := 0, from+int64(len(content))
	for failed := 0; ; {
		body, err := b.openRange(ctx, key, from+int64(filled), to, size)
		n := 0
		if err == nil {
			n, err = io.ReadFull(body, content[filled:])
			body.Close()
		}
		if filled += n; err == nil {
			return nil
		}
		if isMissing(err) {
			return err
		}
		e, isService := errors.AsType[*ServiceError](b.explain(ctx, err))
		if failed++; n > 0 {
			failed = 1
		}
		if ctx.Err() != nil || !isService || e.Kind != Cut && e.Kind != Slow || failed >= b.options.Tries {
			return err
		}
		if err := ctxsleep.For(ctx, time.Duration(failed)*100*time.Millisecond); err != nil {
			return err
		}
	}
}

// fileHash computes the hashes of a file and of its blocks.
type fileHash struct {
	whole, block hash.Hash
	inBlock      int
	blocks       []string
}

func newFileHash() *fileHash { return &fileHash{whole: sha256.New(), block: sha256.New()} }

func (h *fileHash) Write(p []byte) {
	h.whole.Write(p)
	for len(p) > 0 {
		n := min(len(p), BlockSize-h.inBlock)
		h.block.Write(p[:n])
		p = p[n:]
		if h.inBlock += n; h.inBlock == BlockSize {
			h.endBlock()
		}
	}
}

func (h *fileHash) endBlock() {
	h.blocks = append(h.blocks, hex.EncodeToString(h.block.Sum(nil)))
	h.block.Reset()
	h.inBlock = 0
}

// finish returns the hash of the file, and those of its blocks.
func (h *fileHash) finish() (whole string, blocks []string) {
	if h.inBlock > 0 {
		h.endBlock()
	}
	return hex.EncodeToString(h.whole.Sum(nil)), h.blocks
}
