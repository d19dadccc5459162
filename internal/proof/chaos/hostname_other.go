//go:build !linux

package main

import "syscall"

func addUTSNamespace(*syscall.SysProcAttr) {}

func canSetHostname() bool { return false }

func setHostname(string) error { return nil }
