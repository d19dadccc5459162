package storage

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"path"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// Options of a bucket. The zero value has the defaults.
type Options struct {
	// PartSize is the size of the parts of uploads in bytes, 8 MiB by default and at least
	// 5 MiB. Files of more than 10,000 parts have larger ones.
	PartSize int64
	// CopyPartSize is the size of the parts of service-side copies in bytes, 1 GiB by
	// default and at most 5 GiB. Smaller files are copied by one request.
	CopyPartSize int64
	// Connections is the number of concurrent requests of an operation, 4 by default. An
	// upload has a part in memory for each.
	Connections int
	// Tries is how often a failed request is sent in all, 4 by default.
	Tries int
	// IdleTimeout ends a connection on which no byte moves while a request waits, 2 minutes
	// by default.
	IdleTimeout time.Duration
	// Dial connects to the service; nil is a net.Dialer with a timeout of 10 seconds.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

const (
	mib      = 1 << 20
	gib      = 1 << 30
	maxParts = 10_000 // of an upload, by S3
)

// Bucket is a bucket, or a prefix in one. It may be used concurrently.
type Bucket struct {
	address   Address
	options   Options
	core      *minio.Core
	creds     *credentials.Credentials
	transport *transport
}

// Open returns the bucket at an address. It reads the certificates and credentials, and
// does not connect. Errors are of type *ServiceError.
func Open(address Address, options Options) (*Bucket, error) {
	options.PartSize = cmp.Or(options.PartSize, 8*mib)
	options.CopyPartSize = cmp.Or(options.CopyPartSize, gib)
	options.Connections = cmp.Or(options.Connections, 4)
	options.Tries = cmp.Or(options.Tries, 4)
	options.IdleTimeout = cmp.Or(options.IdleTimeout, 2*time.Minute)
	if options.Dial == nil {
		options.Dial = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	b := &Bucket{address: address, options: options}
	var err error
	if b.creds, err = address.readCredentials(); err != nil {
		return nil, err
	}
	if b.transport, err = newTransport(address, options); err != nil {
		return nil, err
	}
	endpoint, err := url.Parse(address.Endpoint)
	if err != nil {
		return nil, fmt.Errorf("read endpoint: %w", err)
	}
	lookup := minio.BucketLookupPath
	if address.VirtualHost {
		lookup = minio.BucketLookupDNS
	}
	b.core, err = minio.NewCore(endpoint.Host, &minio.Options{
		Creds: b.creds, Secure: endpoint.Scheme == "https", Transport: b.transport, Region: address.Region,
		BucketLookup: lookup, MaxRetries: options.Tries,
	})
	if err != nil {
		return nil, b.explain(context.Background(), err)
	}
	return b, nil
}

// Address returns where the bucket is.
func (b *Bucket) Address() Address { return b.address }

// Now returns the time by the service's clock, as far as its last answer has shown it.
func (b *Bucket) Now() time.Time { return time.Now().Add(time.Duration(b.transport.skew.Load())) }

// Close closes idle connections.
func (b *Bucket) Close() { b.transport.base.CloseIdleConnections() }

// key returns the key of an object below the prefix.
func (b *Bucket) key(names ...string) string {
	return path.Join(append([]string{b.address.Prefix}, names...)...)
}

// checkName refuses names that would leave the prefix.
func checkName(name string) error {
	if !fs.ValidPath(name) || name == "." || path.Base(name) == manifestName {
		return fmt.Errorf("invalid name %q in a bucket: %w", name, fs.ErrInvalid)
	}
	return nil
}
