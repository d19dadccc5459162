// Command server is a strict S3 server for tests: versitygw on a directory. Package s3test
// builds and starts it.
//
// It has a module of its own, because the product must not depend on the libraries of the
// server, and a process of its own, because versitygw keeps settings in global variables
// and changes the working directory. It prints its port, and ends with its standard input.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/versity/versitygw/backend/meta"
	"github.com/versity/versitygw/backend/posix"
	"github.com/versity/versitygw/embedgw"
)

func main() {
	dir := flag.String("dir", "", "directory of the buckets")
	certFile := flag.String("cert", "", "certificate; with it, the server speaks TLS")
	keyFile := flag.String("key", "", "key of the certificate")
	domain := flag.String("domain", "", "domain of virtual-host addresses")
	access := flag.String("access", "", "access key id")
	secret := flag.String("secret", "", "secret access key")
	flag.Parse()
	ctx, cancel := context.WithCancel(context.Background())
	go func() { // ends with the process
		_, _ = io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	port, err := freePort()
	if err == nil {
		fmt.Println(port)
		err = serve(ctx, *dir, &embedgw.Config{
			RootUserAccess: *access, RootUserSecret: *secret, Region: "us-east-1", Ports: []string{port},
			CertFile: *certFile, KeyFile: *keyFile, VirtualDomain: *domain, HealthPath: "/healthz",
			MaxConnections: 1024, MaxRequests: 1024, MultipartMaxParts: 10_000, KeepAlive: true, Quiet: true,
		})
	}
	if err != nil && ctx.Err() == nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// freePort returns an address of this host with a port that is free now.
func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

func serve(ctx context.Context, dir string, config *embedgw.Config) error {
	backend, err := posix.New(dir, meta.XattrMeta{}, posix.PosixOpts{CopyObjectThreshold: 5 << 30})
	if err != nil {
		return err
	}
	os.Stdout = os.Stderr // versitygw prints a banner, which is no port
	return embedgw.RunVersityGW(ctx, backend, config)
}
