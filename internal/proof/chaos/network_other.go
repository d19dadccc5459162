//go:build !linux

package main

import (
	"context"
	"errors"
)

// networkNamespace does not exist on other systems.
type networkNamespace struct{ hostIP, subnet string }

func newNetworkNamespace(context.Context) (*networkNamespace, error) {
	return nil, errors.New("this system has no network namespaces")
}

func (*networkNamespace) address(addr string) string { return addr }

func (*networkNamespace) enter(do func() error) error { return do() }

func (*networkNamespace) setLink(context.Context, bool) error { return nil }

func (*networkNamespace) close() {}
