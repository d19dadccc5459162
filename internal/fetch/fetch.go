package fetch

import (
	"context"
	"net"
	"net/netip"
	"time"
)

// Options configure one [Fetch]. The zero value is usable.
type Options struct {
	// Allow lists networks that downloads may use although their addresses are not
	// public, for example the network of the storage. Default none.
	Allow []netip.Prefix

	// MaxBytes is the maximum size of a download. Default 100 GiB. Only the free disk
	// space limits local files.
	MaxBytes int64

	// Timeout is the maximum duration of a download in one call. Default 12 h.
	Timeout time.Duration

	// IdleTimeout ends a download that received less than MinBytes for so long, which
	// includes the time to connect. Default 1 min.
	IdleTimeout time.Duration

	// MinBytes is the minimum to receive in each IdleTimeout. It ends downloads from
	// servers that send a byte now and then. Time spent writing to disk does not count,
	// and the end of a file may be shorter. Default 64 KiB; negative: one byte.
	MinBytes int64

	// Reserve is how many bytes stay free on the destination's disk. Default 0.
	Reserve int64

	// Link allows a hard link to a local source if a reflink is impossible. Set it only
	// if no program overwrites submitted sources. Replacing by rename is harmless.
	Link bool

	// Partial is the path of the file that keeps an unfinished download for the next
	// call. It must be on the destination's file system. Its state is in a second file
	// with ".json" appended. If another call uses the file, this call does not, and
	// downloads from the beginning. Default "": nothing is kept.
	Partial string

	// Progress is called while bytes arrive. Bytes from an earlier call count first,
	// because they are read again. Total is negative if it is unknown.
	Progress func(done, total int64)

	// For tests.
	resolver      *net.Resolver
	hostAddresses func() ([]net.Addr, error)
}

func (o Options) withDefaults() Options {
	if o.MaxBytes <= 0 {
		o.MaxBytes = 100 << 30
	}
	if o.Timeout <= 0 {
		o.Timeout = 12 * time.Hour
	}
	if o.IdleTimeout <= 0 {
		o.IdleTimeout = time.Minute
	}
	if o.MinBytes == 0 {
		o.MinBytes = 64 << 10
	}
	if o.Progress == nil {
		o.Progress = func(int64, int64) {}
	}
	return o
}

// The values of [File.Method].
const (
	// Reflink is a copy that shares its blocks with the source.
	Reflink = "reflink"
	// Link is a hard link to the source.
	Link = "link"
	// Copy is a full copy of a local source.
	Copy = "copy"
	// Download is a copy of a source on an HTTP server.
	Download = "download"
)

// File is the result of [Fetch].
type File struct {
	Name   string // of the source, for display: valid UTF-8, no path
	Bytes  int64
	SHA256 string // of the destination's bytes, hexadecimal
	Method string // Reflink, Link, Copy or Download
}

// Fetch copies source to the file dst. The directory of dst must exist, and no other
// process may write to it. Fetch replaces an existing file.
func Fetch(ctx context.Context, source, dst string, o Options) (File, error) {
	o = o.withDefaults()
	src, err := parseSource(source)
	if err != nil {
		return File{}, &Error{Source: src.label, Permanent: true, Err: err}
	}
	var f File
	if src.url != nil {
		f, err = download(ctx, src.url, dst, o)
	} else {
		f, err = copyLocal(ctx, src.path, dst, o)
	}
	if err != nil {
		if ctx.Err() != nil {
			return File{}, ctx.Err() // it caused err
		}
		return File{}, withSource(src.label, err)
	}
	f.Name = src.name
	return f, nil
}
