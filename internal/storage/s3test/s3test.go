// Package s3test starts a strict S3 server for tests, and a proxy that injects faults. Call
// [Start], and [NewProxy] for faults. It is for tests.
//
// The server is versitygw on a directory of the test. Its libraries are no dependencies of the
// product: the program in s3test/server has a module of its own and is started with `go run`, with
// the flags of `make build` and so with its cache.
// It ends with the test.
package s3test

import (
	"bufio"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cuelight/cuelight/internal/waittest"
)

// The credentials of every server.
const (
	AccessKey = "cuelight-test"
	SecretKey = "cuelight-test-secret"
)

// Options of a server.
type Options struct {
	// TLS makes the server use a certificate for 127.0.0.1 and *.localhost.
	TLS bool
	// VirtualHost makes the server also accept BUCKET.localhost.
	VirtualHost bool
}

// Server is a running server.
type Server struct {
	Endpoint string // URL
	CAFile   string // with TLS
	Dir      string // of the buckets
	options  Options
}

// Start starts a server that ends with the test.
func Start(t testing.TB, options Options) *Server {
	t.Helper()
	s := &Server{Dir: t.TempDir(), options: options}
	args := []string{"run", "-trimpath", ".", "-dir", s.Dir, "-access", AccessKey, "-secret", SecretKey}
	scheme := "http"
	if options.TLS {
		scheme = "https"
		cert, key := MakeCertificate(t)
		s.CAFile = cert
		args = append(args, "-cert", cert, "-key", key)
	}
	if options.VirtualHost {
		args = append(args, "-domain", "localhost")
	}
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/cuelight/cuelight").Output()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", args...)
	cmd.Dir = filepath.Join(strings.TrimSpace(string(module)), "internal", "storage", "s3test", "server")
	cmd.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	cmd.Stderr = t.Output()
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the S3 server failed: %v", err)
		}
	})
	address, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatalf("the S3 server does not start: %v", err)
	}
	s.Endpoint = scheme + "://" + strings.TrimSpace(address)
	client := http.Client{Transport: s.transport(t)}
	waittest.Until(t, "the S3 server answers", func() bool {
		response, err := client.Get(s.Endpoint + "/healthz")
		if err != nil {
			return false
		}
		response.Body.Close()
		return response.StatusCode == http.StatusOK
	})
	return s
}

// Host returns the host and port.
func (s *Server) Host() string {
	_, host, _ := strings.Cut(s.Endpoint, "://")
	return host
}

// VirtualHostEndpoint returns the URL for virtual-host addresses.
func (s *Server) VirtualHostEndpoint() string {
	return strings.Replace(s.Endpoint, "127.0.0.1", "localhost", 1)
}

// Dial connects to the server, whatever the address is, for BUCKET.localhost.
func (s *Server) Dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, network, s.Host())
}

func (s *Server) transport(t testing.TB) *http.Transport {
	t.Helper()
	transport, err := minio.DefaultTransport(s.options.TLS)
	if err != nil {
		t.Fatal(err)
	}
	// The server waits for open connections when it ends.
	t.Cleanup(transport.CloseIdleConnections)
	if s.options.TLS {
		text, err := os.ReadFile(s.CAFile)
		if err != nil {
			t.Fatal(err)
		}
		transport.TLSClientConfig.RootCAs = x509.NewCertPool()
		transport.TLSClientConfig.RootCAs.AppendCertsFromPEM(text)
	}
	return transport
}

// MakeBucket creates a bucket.
func (s *Server) MakeBucket(t testing.TB, name string) {
	t.Helper()
	if err := s.Client(t).MakeBucket(t.Context(), name, minio.MakeBucketOptions{}); err != nil {
		t.Fatal(err)
	}
}

// Client returns a client that does not depend on the code under test.
func (s *Server) Client(t testing.TB) *minio.Client {
	t.Helper()
	client, err := minio.New(s.Host(), &minio.Options{
		Creds: credentials.NewStaticV4(AccessKey, SecretKey, ""), Secure: s.options.TLS, Transport: s.transport(t),
		Region: "us-east-1",
	})
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// Env returns the variables for a client of the server, as a function such as os.Getenv.
func (s *Server) Env() func(string) string {
	return func(name string) string {
		return map[string]string{
			"AWS_ENDPOINT_URL": s.Endpoint, "AWS_ACCESS_KEY_ID": AccessKey, "AWS_SECRET_ACCESS_KEY": SecretKey,
			"AWS_CA_BUNDLE": s.CAFile,
		}[name]
	}
}

// MakeCertificate writes a certificate for loopback and some more addresses, which is its own CA,
// and its key.
func MakeCertificate(t testing.TB, addresses ...net.IP) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "cuelight test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		IPAddresses: append(addresses, net.IPv4(127, 0, 0, 1)), DNSNames: []string{"localhost", "*.localhost"},
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name, kind string, content []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600); err != nil {
			t.Fatal(fmt.Errorf("write %s: %w", name, err))
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", cert), write("key.pem", "PRIVATE KEY", private)
}

// Upload copies the files below a directory to a prefix of a bucket, as programs do that know nothing of Cuelight.
func (s *Server) Upload(t testing.TB, dir, bucket, prefix string) {
	t.Helper()
	client := s.Client(t)
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		for range 3 { // on a busy machine the server gives up on requests whose bytes arrive slowly
			_, err = client.FPutObject(t.Context(), bucket, path.Join(prefix, name), filepath.Join(dir, name), minio.PutObjectOptions{})
			if err == nil {
				break
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Download copies the objects below a prefix of a bucket into a directory.
func (s *Server) Download(t testing.TB, bucket, prefix, dir string) {
	t.Helper()
	client := s.Client(t)
	for o := range client.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix + "/", Recursive: true}) {
		err := o.Err
		if err == nil {
			file := filepath.Join(dir, filepath.FromSlash(strings.TrimPrefix(o.Key, prefix+"/")))
			err = client.FGetObject(t.Context(), bucket, o.Key, file, minio.GetObjectOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
