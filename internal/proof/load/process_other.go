//go:build !linux

package main

import (
	"errors"
	"syscall"
	"time"
)

var errOnlyLinux = errors.New("only Linux tells what processes use")

func processor(int, bool) (time.Duration, error) { return 0, errOnlyLinux }
func parent(int) (int, error)                    { return 0, errOnlyLinux }
func family(int) (time.Duration, error)          { return 0, errOnlyLinux }
func memory(int) (resident, own int64, err error) {
	return 0, 0, errOnlyLinux
}

func apart() *syscall.SysProcAttr { return nil }
