package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strconv"
	"strings"
	"time"

	"github.com/minio/minio-go/v7"
)

const (
	// firstBlock is how much Open reads, so that a small object takes one request.
	firstBlock = 256 << 10
	// nextBlock is how much of a larger object one request reads.
	nextBlock = 8 * mib
)

// Object is an object that is read by ranges. If it is replaced meanwhile, reading fails: it never
// returns bytes of two versions. One goroutine at a time may use it.
type Object struct {
	Size     int64     // in bytes
	Modified time.Time // by the service's clock
	ETag     string    // of its version, without quotes

	b      *Bucket
	ctx    context.Context // that of Open
	name   string
	first  []byte        // its first bytes
	offset int64         // of the next Read
	body   io.ReadCloser // continues at offset; may be nil
}

// Open opens a document or a file of an artifact by its name. It returns fs.ErrNotExist if there is
// none. Close must follow; reading ends with ctx.
func (b *Bucket) Open(ctx context.Context, name string) (*Object, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	o := &Object{b: b, ctx: ctx, name: name}
	return o, b.wrap(ctx, o.open(), "open", name)
}

func (o *Object) open() error {
	var options minio.GetObjectOptions
	if err := options.SetRange(0, firstBlock-1); err != nil {
		return err
	}
	body, info, header, err := o.b.core.GetObject(o.ctx, o.b.address.Bucket, o.b.key(o.name), options)
	if hasCode(err, "InvalidRange") { // it is empty
		info, err = o.b.core.StatObject(o.ctx, o.b.address.Bucket, o.b.key(o.name), minio.StatObjectOptions{})
		o.Modified, o.ETag = info.LastModified, info.ETag
		return err
	}
	if err != nil {
		return err
	}
	defer body.Close()
	_, total, _ := strings.Cut(header.Get("Content-Range"), "/")
	if o.Size, err = strconv.ParseInt(total, 10, 64); err != nil {
		return fmt.Errorf("%w: its range is %q", ErrCorrupt, header.Get("Content-Range"))
	}
	o.Modified, o.ETag = info.LastModified, info.ETag
	o.first = make([]byte, min(o.Size, firstBlock))
	_, err = io.ReadFull(body, o.first)
	return err
}

// Seek implements io.Seeker.
func (o *Object) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += o.offset
	case io.SeekEnd:
		offset += o.Size
	}
	if offset < 0 {
		return 0, fmt.Errorf("seek in %s: %w", o.name, fs.ErrInvalid)
	}
	if offset != o.offset {
		o.closeBody()
	}
	o.offset = offset
	return offset, nil
}

// Read implements io.Reader. It continues after a cut connection.
func (o *Object) Read(p []byte) (n int, err error) {
	if o.offset >= o.Size {
		return 0, io.EOF
	}
	if len(p) == 0 {
		return 0, nil
	}
	if o.offset < int64(len(o.first)) {
		n = copy(p, o.first[o.offset:])
		o.offset += int64(n)
		return n, nil
	}
	for try := 1; ; try++ {
		if n, err = o.readBody(p); n > 0 {
			o.offset += int64(n)
			return n, nil
		}
		o.closeBody()
		if err == io.EOF { // the end of a block
			err = io.ErrUnexpectedEOF
			if try == 1 {
				continue
			}
		}
		e, isService := errors.AsType[*ServiceError](o.b.explain(o.ctx, err))
		if !isService || e.Kind != Cut && e.Kind != Slow || try >= o.b.options.Tries || o.ctx.Err() != nil {
			return 0, o.b.wrap(o.ctx, err, "read", o.name)
		}
	}
}

// readBody reads from the service.
func (o *Object) readBody(p []byte) (int, error) {
	if o.body == nil {
		var options minio.GetObjectOptions
		err := errors.Join(options.SetMatchETag(o.ETag), options.SetRange(o.offset, min(o.offset+nextBlock, o.Size)-1))
		if err != nil {
			return 0, err
		}
		o.body, _, _, err = o.b.core.GetObject(o.ctx, o.b.address.Bucket, o.b.key(o.name), options)
		if err != nil {
			o.body = nil
			return 0, err
		}
	}
	return o.body.Read(p)
}

func (o *Object) closeBody() {
	if o.body != nil {
		o.body.Close()
		o.body = nil
	}
}

// Close implements io.Closer. It returns nil.
func (o *Object) Close() error {
	o.closeBody()
	return nil
}
